"""One simulated cluster: pods and workloads that come and go, another scheduler, faults, and checks at every write."""

import asyncio
import random
import re
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.control.controller import Controller
from penstock.core.model.cluster import ClusterConfig, Queue, Settings
from penstock.core.model.ids import QueueName
from penstock.core.state import invariants
from penstock.engines.kubernetes import avoiding, binding, engine, placing, sessions, settling, stops
from penstock.engines.kubernetes.api import reflector
from penstock.engines.kubernetes.devices import tidying, writing
from penstock.engines.kubernetes.tasks import Tasks
from penstock.engines.kubernetes.volumes import beyond, enough, getting
from penstock.sim.apiserver.controllers import Controllers, Kubelets, short_of
from penstock.sim.apiserver.kinds import bind
from penstock.sim.apiserver.pods import OVER
from penstock.sim.apiserver.refusals import Refused
from penstock.sim.apiserver.requests import Api
from penstock.sim.apiserver.selecting import Object
from penstock.sim.pods import devices
from penstock.sim.pods.checks import GPU, Checks
from penstock.sim.pods.client import CALM, Trouble, never
from penstock.sim.pods.devices import DeviceChecks
from penstock.sim.pods.disks import Disks
from penstock.sim.pods.loop import run
from penstock.sim.pods.people import SMALL_GPUS, People
from penstock.sim.pods.server import PodServer
from penstock.sim.world.disk import SimDisk

SAFETY_S, DRAINED_S = 14.0, 600.0
"""Faults end after the first; everything has ended after the second."""
STEP_S = 0.2
"""Kubelets, controllers and the other scheduler look this often."""
WRITES = (
    *("/binding$",) * 5, "/eviction$", "/resourceclaims/", "/resourceclaims/.*/status$", "PATCH .*/pods/[^/]*$",
    "/pods/.*/status$", "PATCH .*/jobs/", "POST .*/pods$", "DELETE .*/pods/", "/elasticjobs/.*/status$",
    "/persistentvolume", "",
)  # fmt: skip
"""Writes of the engine by kind, as requests: the next one of a kind is held."""
HELD_SHARE = 0.6
"""Of servers of which a write is held."""
VIOLATIONS_MAX = 5
INVARIANTS_SHARE = 0.1
PACE: tuple[tuple[Any, str, float], ...] = (
    (sessions, "FLUSH_S", 0.1), (engine, "FLUSH_S", 0.1), (engine, "IDLE_S", 0.1), (engine, "AGAIN_S", 1.0),
    (sessions, "ALIVE_S", 2.0),
    (settling, "SETTLE_S", 0.5), (placing, "EARLY_S", 2.0), (placing, "REPLACED_S", 5.0), (placing, "PODS_S", 10.0),
    (getting, "BIND_WAIT_S", 20.0), (beyond, "REFUSED_S", 3.0), (enough, "SHORT_S", 3.0), (tidying, "LEFTOVER_S", 2.0),
    (avoiding, "AVOID_S", 3.0),
    (binding, "EVICTION_WAIT_S", 1.0), (stops, "EVICTION_WAIT_S", 1.0), (sessions, "AGAIN_S", 0.5),
)  # fmt: skip
"""Pauses of the engine that are shorter here, so that more happens in the same time."""


class PodOutcome(msgspec.Struct, frozen=True):
    """Result of one seed. `violations` empty means that every promise held."""

    seed: int
    violations: tuple[str, ...]
    probes: dict[str, int]
    records: int
    bound: int
    simulated_ms: int


class PodWorld:
    """Chosen by a seed."""

    disks_share = 0.4
    """Of worlds in which pods have volumes."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.api = Api(streams=self.rng.random() < 0.5, bookmark_s=5.0)
        self.store = self.api.store
        self.controllers, self.kubelets = Controllers(self.store), Kubelets(self.store)
        disks = random.Random(f"disks of {seed}")
        self.disks = Disks(self.store, self.controllers.volumes, disks, used=disks.random() < self.disks_share)
        self.disk = SimDisk(random.Random(self.rng.random()))
        self.config = _config(self.rng)
        self.server: PodServer | None = None
        self._old: list[PodServer] = []
        self._held, self._held_until_s = Tasks(), 0.0
        """What a server that is gone had on its way arrives before."""
        self._servers = 0
        self.trouble = CALM
        self.probes: dict[str, int] = {}
        self._numbers = 0
        self.done: set[str] = set()

    def probe(self, name: str) -> None:
        self.probes[name] = self.probes.get(name, 0) + 1

    async def play(self) -> PodOutcome:
        self.now_s: Callable[[], float] = asyncio.get_running_loop().time
        self.people, self.checks = self.made()
        self.device_checks = DeviceChecks(self.store, self.now_s, self._stale_leads, self.checks.found)
        devices.declare(self.store)
        for _ in range(self.rng.randint(2, 4)):
            self.add_node()
        self.start_server()
        asyncio.get_running_loop().set_exception_handler(self._note_error)
        steps = [self.kubelets_and_controllers(), self.other_scheduler(), self.people.run(), self.faults()]
        tasks = [asyncio.create_task(step) for step in steps]
        try:
            await self._until(lambda: self.now_s() >= SAFETY_S)
            self._heal()
            await self.settled()
            await self._until(self._drained)
            self._last_look()
        finally:
            for task in tasks:
                task.cancel()
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
        return PodOutcome(
            self.seed,
            tuple(self.checks.violations[:VIOLATIONS_MAX]),
            self.probes,
            len(self.disk.records),
            self.checks.bound,
            int(self.now_s() * 1000),
        )

    def made(self) -> tuple[People, Checks]:
        """Return the people of the cluster, and what is checked at each write."""
        people = People(self.store, self.rng, self.now_s, SAFETY_S - 3.0, self.disks)
        return people, Checks(self.store, self.config, self.now_s, self._stale_leads)

    def _note_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.checks.violations.append(f"an error was left: {context['message']}: {context.get('exception')!r}")

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done() and not self.checks.violations and self.now_s() < DRAINED_S:
            await asyncio.sleep(0.5)
            self.checks.look(self.people.gangs)
            self.device_checks.look()
            for server in (self.server, *self._old):
                if server is not None and server.fault is not None:
                    self.checks.violations.append(f"the server failed: {server.fault.exceptions!r}")  # type: ignore[attr-defined]
                    server.fault = None

    def _heal(self) -> None:
        self.trouble = CALM
        for server in (self.server, *self._old):
            if server is not None:
                server.client.trouble, server.client.hold = CALM, never
                server.resume()
        if len(self.store.all_of("nodes")) < 2:
            self.add_node()
        self.big_node()
        self.disks.heal()
        for zone in "ab" if self.disks.used else "":
            self.add_node(cpu="64", gpus="32", zone=zone, claimed=24)  # volumes are where they are

    def big_node(self) -> None:
        """Add a node on which everything fits that waits: what remains has no excuse to wait for ever."""
        self.add_node(cpu="64", gpus="32", claimed=24)

    def _drained(self) -> bool:
        jobs = self.server is not None and not self.server.controller.state.jobs
        ended = all(
            any(c["type"] in ("Complete", "Failed") for c in job["status"].get("conditions", ()))
            for job in self.store.all_of("jobs").values()
        )
        ended = ended and all(
            one.get("status", {}).get("phase") in ("Succeeded", "Failed", "Cancelled")
            for one in self.store.all_of("elasticjobs").values()
        )
        return jobs and ended and self.done >= self.people.wanted.keys()

    def _last_look(self) -> None:
        if self.checks.violations:
            return
        if not self._drained():
            left = sorted(self.people.wanted.keys() - self.done)
            jobs = [
                (job.spec.name, job.state, job.hold is not None, job.last_attempt)
                for job in (self.server.controller.state.jobs.values() if self.server is not None else ())
            ]
            pods = [
                (k[1], p["spec"].get("nodeName", ""), p["status"]["phase"])
                for k, p in self.store.all_of("pods").items()
                if p["status"]["phase"] not in OVER
            ]
            ended = [k[1] for k, job in self.store.all_of("jobs").items() if not job["status"].get("conditions")]
            ended += [f"{k[1]} {one.get('status')}" for k, one in self.store.all_of("elasticjobs").items()]
            self.checks.violations.append(
                f"not everything has ended: pods {left}; {pods}; jobs {jobs}; {ended} of the cluster"
            )
        self.checks.violations += self.disk.damage
        self.checks.violations += [*self.device_checks.left(), *self.last_checks()]

    async def settled(self) -> None:
        """Look at the world while faults and people rest."""

    def last_checks(self) -> list[str]:
        """Return what is wrong with the whole run, beside what was seen on the way."""
        return []

    # Servers.

    def start_server(self) -> None:
        self._servers += 1
        rng = random.Random(self.rng.random())
        self.server = self.make_server(rng)
        self.server.client.trouble = self.trouble
        if self.rng.random() < HELD_SHARE and self.now_s() < SAFETY_S:
            self.hold_write()

    def make_server(self, rng: random.Random) -> PodServer:
        return PodServer(self.api, self.disk, self.config, self._servers, rng, self._after_commit)

    def _after_commit(self, controller: Controller) -> None:
        if self.rng.random() < INVARIANTS_SHARE:
            for found in invariants.violations(controller.state):
                self.checks.violations.append(f"{found.promise}: {found.detail}")

    def _stale_leads(self) -> bool:
        return any(server.alive for server in self._old) or self.now_s() < self._held_until_s

    # The cluster.

    def kind(self, plural: str, group: str = "") -> Any:
        return self.store.kind(group, plural)

    def name(self, prefix: str) -> str:
        self._numbers += 1
        return f"{prefix}{self._numbers}"

    def add_node(self, cpu: str = "", gpus: str = "", zone: str = "", claimed: int | None = None) -> None:
        name = self.name("n")
        allocatable = {
            "cpu": cpu or self.rng.choice(("4", "8")),
            "memory": "64Gi",
            "pods": self.rng.choice(("6", "110")) if not cpu else "110",
            GPU: gpus or self.rng.choice(("0", "2", "4")),
        }
        labels = {"kubernetes.io/hostname": name, "zone": zone or self.rng.choice("ab")}
        status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
        self.store.create(
            self.kind("nodes"), "", {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}
        )
        self.disks.node_added(name, big=bool(cpu))
        devices.publish(self.store, name, self.rng, claimed)

    async def kubelets_and_controllers(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            self.kubelets.reconcile(self.now_s())
            self.controllers.reconcile()
            self.disks.reconcile()
            for name, body in self.people.wanted.items():
                pod = self.store.all_of("pods").get(("default", name))
                leaves = pod is not None and pod["metadata"].get("deletionTimestamp")
                if pod is not None and pod["status"]["phase"] == "Succeeded" and not leaves:
                    self.done.add(name)
                elif name not in self.done and (pod is None or pod["status"]["phase"] == "Failed"):
                    if pod is not None:
                        self.store.delete(self.kind("pods"), ("default", name), 0)
                    if self.rng.random() < 0.3:
                        self.store.create(self.kind("pods"), "default", body)

    async def other_scheduler(self) -> None:
        """Bind pods of another scheduler where they fit, as it sees it a moment late."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            for key, pod in list(self.store.all_of("pods").items()):
                if pod["spec"].get("schedulerName") != "default-scheduler" or pod["spec"].get("nodeName"):
                    continue
                nodes = [name for _, name in self.store.all_of("nodes") if self._fits(pod, name)]
                if nodes:
                    target = {"metadata": {"name": key[1]}, "target": {"kind": "Node", "name": self.rng.choice(nodes)}}
                    bind(self.store, self.kind("pods"), key[0], target)

    def _fits(self, pod: Object, node: str) -> bool:
        there = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        taken = self.store.all_of("nodes")[("", node)]["spec"].get("unschedulable")
        return not taken and not short_of(self.store, there)

    # Faults.

    async def faults(self) -> None:
        """Break things until the safety phase is over."""
        self.store.create(
            self.kind("priorityclasses", "scheduling.k8s.io"), "", {"metadata": {"name": "high"}, "value": 1000}
        )
        while self.now_s() < SAFETY_S - 2.0:
            await asyncio.sleep(self.rng.expovariate(0.7))
            if self.now_s() >= SAFETY_S - 2.0:
                return
            if self.disks.used:
                self.probe("disks")
                self.disks.trouble()
            await self.rng.choices(
                (self.crash, self.replace, self.rough, self.compact, self.cordon, self.nodes_change, self.drop_budgets),
                (3, 2, 4, 2, 2, 2, 2),
            )[0]()

    async def crash(self) -> None:
        if self.server is not None:
            self.probe("server_crashed")
            self.server.kill()
            self.server = None
            await asyncio.sleep(self.rng.uniform(0.0, 3.0))
            self.start_server()

    async def replace(self) -> None:
        """The leader stands still, another takes over, then the first goes on as if nothing had been."""
        old = self.server
        if old is None:
            return
        self.probe("leader_replaced")
        old.pause()
        self._old.append(old)
        await asyncio.sleep(self.rng.uniform(0.0, 1.0))
        self.start_server()
        await asyncio.sleep(self.rng.uniform(0.0, 3.0))
        old.resume(decides_in_s=self.rng.uniform(0.0, 2.0))

    def hold_write(self) -> None:
        """A write is on its way while its sender stands still, or falls, and another leads; it arrives after that."""
        old, wanted = self.server, re.compile(self.rng.choice(WRITES))

        def hold(write: str) -> bool:
            assert old is not None
            if not wanted.search(write):
                return False
            self.probe("write_held")
            old.client.hold = never
            old.pause()
            self._held.begin(self._goes_on(old, write))
            return True

        if old is not None:
            old.client.hold = hold

    async def _goes_on(self, old: PodServer, write: str) -> None:
        await asyncio.sleep(self.rng.uniform(0.0, 1.0))
        if old is self.server:
            self._old.append(old)
            if self.rng.random() < 0.5:
                old.kill()
            self.start_server()
        if write.endswith("/binding"):
            self.people.delete_beside(write.split("/")[-2])
        await asyncio.sleep(self.rng.uniform(0.0, 5.0))
        self._held_until_s = self.now_s() + STEP_S
        old.resume(decides_in_s=self.rng.uniform(0.0, 2.0))

    async def rough(self) -> None:
        """Let requests fail, answers get lost, watches be cut, for a while."""
        self.probe("rough_network")
        share = self.rng.choice((0.02, 0.1, 0.3))
        self.trouble = Trouble(
            share, share / 2, share / 4, share / 2, self.rng.choice((0.01, 0.3)), self.rng.choice((0.02, 1.0))
        )
        if self.server is not None:
            self.server.client.trouble = self.trouble
        await asyncio.sleep(self.rng.uniform(1.0, 6.0))
        self.trouble = CALM
        if self.server is not None:
            self.server.client.trouble = CALM

    async def compact(self) -> None:
        self.probe("compacted")
        self.store.compact()

    async def cordon(self) -> None:
        name = self.rng.choice(sorted(self.store.all_of("nodes")))
        self.probe("cordoned")
        self._set_node(name, spec={"unschedulable": True})
        await asyncio.sleep(self.rng.uniform(1.0, 5.0))
        if name in self.store.all_of("nodes"):
            self._set_node(name, spec={"unschedulable": False})

    def _set_node(self, key: tuple[str, str], **parts: Any) -> None:
        self.store.update(self.kind("nodes"), key, lambda one: {**one, **parts}, part="*")

    async def nodes_change(self) -> None:
        """A node goes with its pods, or a new one comes."""
        nodes = sorted(self.store.all_of("nodes"))
        if len(nodes) > 2 and self.rng.random() < 0.5:
            self.probe("node_gone")
            key = self.rng.choice(nodes)
            self.store.delete(self.kind("nodes"), key)
            devices.withdraw(self.store, key[1])
            for pod_key, pod in list(self.store.all_of("pods").items()):
                if pod["spec"].get("nodeName") == key[1] and pod["status"]["phase"] not in OVER:
                    self.store.delete(self.kind("pods"), pod_key, 0)
        else:
            self.probe("node_added")
            self.add_node()

    async def drop_budgets(self) -> None:
        for key in list(self.store.all_of("poddisruptionbudgets")):
            self.store.delete(self.kind("poddisruptionbudgets", "policy"), key)


def _config(rng: random.Random) -> ClusterConfig:
    return ClusterConfig(
        queues=(
            Queue(QueueName("default"), policy=rng.choice(("fifo", "priority", "shortest_predicted"))),
            Queue(QueueName("small"), policy="priority", max=(("devices", 1000 * SMALL_GPUS),)),
        ),
        settings=Settings(
            min_runtime_before_preemption_ms=0,
            backoff_first_ms=200,
            backoff_max_ms=2_000,
            estimate_starts_every_ms=0,
        ),
    )


def play(seed: int) -> PodOutcome:
    """Play one seed."""
    return play_world(PodWorld(seed))


def play_world(world: PodWorld) -> PodOutcome:
    """Play a world in virtual time."""
    saved = [(module, name, getattr(module, name)) for module, name, _ in PACE]
    for module, name, value in PACE:
        setattr(module, name, value)
    pauses, reflector.BACKOFF_S = reflector.BACKOFF_S, (0.05, 0.5)
    waits, binding.WAIT_S = binding.WAIT_S, (0.02, 0.5)
    claim_waits, writing.WAIT_S = writing.WAIT_S, (0.02, 0.5)
    try:
        return run(world.play())
    finally:
        reflector.BACKOFF_S, binding.WAIT_S, writing.WAIT_S = pauses, waits, claim_waits
        for module, name, value in saved:
            setattr(module, name, value)


__all__ = ["PodOutcome", "PodWorld", "Refused", "play", "play_world"]
