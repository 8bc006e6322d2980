"""Which faults a world suffers, and when: chosen by its seed before it begins."""

import random
from collections.abc import Callable
from functools import partial

from penstock.sim.world.ground import Ground

FAULTS_MAX = 9


def plan_faults(world: Ground, rng: random.Random, until_ms: int) -> None:
    """Set the background of small faults and plan the big ones."""
    if rng.random() < 0.7:
        world.network.loss = rng.choice((0.0, 0.02, 0.1))
        world.network.doubling = rng.choice((0.0, 0.05, 0.2))
        world.network.lateness = rng.choice((0.0, 0.02, 0.1))
    world.disk_slowness = rng.choice((0.0, 0.0, 0.02))
    kinds = list(_KINDS.values())
    for _ in range(rng.randint(0, FAULTS_MAX)):
        kind = rng.choice(kinds)
        world.agenda.after(rng.randint(500, until_ms - 2_000), lambda k=kind: k(world, rng))  # type: ignore[misc]


def fills_disks(seed: int) -> bool:
    """Return whether disks of nodes fill up in a seed's world: of every seventh, and none that found a bug before."""
    return seed % 7 == 3


def plan_full_disks(world: Ground, rng: random.Random, until_ms: int) -> None:
    """Plan when disks of nodes are full, and agents that die meanwhile; `rng` has no other use."""
    for _ in range(rng.randint(1, 4)):
        name, begin_ms, for_ms = _node(world, rng), rng.randint(500, until_ms - 2_000), rng.randint(500, 20_000)
        world.agenda.after(begin_ms, partial(_fill_disk, world, name, full=True))
        world.agenda.after(begin_ms + for_ms, partial(_fill_disk, world, name, full=False))
        if rng.random() < 0.7:
            crash_ms, back_ms = begin_ms + rng.randint(0, for_ms), rng.randint(50, 2_000)
            world.agenda.after(crash_ms, partial(world.nodes[name].crash_agent, back_ms))


def _fill_disk(world: Ground, name: str, *, full: bool) -> None:
    world.nodes[name].disk_full = full
    if full:
        world.probe("node_disk_full")


def _node(world: Ground, rng: random.Random) -> str:
    return rng.choice(sorted(world.nodes))


def _server_crash(world: Ground, rng: random.Random) -> None:
    if world.server is not None:
        world.probe("server_crashed")
        world.server_died(world.server)


def _power_cut(world: Ground, rng: random.Random) -> None:
    world.disk.cut_next = True


def _server_replaced(world: Ground, rng: random.Random) -> None:
    world.replace_server(rng.randint(500, 20_000))


def _agent_crash(world: Ground, rng: random.Random) -> None:
    world.nodes[_node(world, rng)].crash_agent(rng.randint(50, 9_000))


def _node_crash(world: Ground, rng: random.Random) -> None:
    world.nodes[_node(world, rng)].crash(rng.randint(100, 15_000))


def _agent_pause(world: Ground, rng: random.Random) -> None:
    world.nodes[_node(world, rng)].pause_agent(rng.randint(200, 15_000), whole_machine=False)


def _machine_pause(world: Ground, rng: random.Random) -> None:
    world.nodes[_node(world, rng)].pause_agent(rng.randint(200, 15_000), whole_machine=True)


def _partition(world: Ground, rng: random.Random) -> None:
    name = _node(world, rng)
    world.probe("node_partitioned")
    world.network.cut_off.add(name)
    world.agenda.after(rng.randint(500, 20_000), lambda: world.network.cut_off.discard(name))


def _disk_fails(world: Ground, rng: random.Random) -> None:
    world.probe("disk_failed")
    world.disk.fail_rate = 0.5
    world.agenda.after(rng.randint(200, 5_000), lambda: setattr(world.disk, "fail_rate", 0.0))


def _disk_full(world: Ground, rng: random.Random) -> None:
    world.probe("disk_full")
    world.disk.full = True
    world.agenda.after(rng.randint(200, 5_000), lambda: setattr(world.disk, "full", False))


def _bad_node(world: Ground, rng: random.Random) -> None:
    node = world.nodes[_node(world, rng)]
    node.spawn_fail_rate = node.late_exit_rate = 0.3


_KINDS: dict[str, Callable[[Ground, random.Random], None]] = {
    "server_crash": _server_crash,
    "power_cut": _power_cut,
    "server_replaced": _server_replaced,
    "agent_crash": _agent_crash,
    "node_crash": _node_crash,
    "agent_pause": _agent_pause,
    "machine_pause": _machine_pause,
    "partition": _partition,
    "disk_fails": _disk_fails,
    "disk_full": _disk_full,
    "bad_node": _bad_node,
}
