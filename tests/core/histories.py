"""Random histories: operations as data, and how a world does each of them."""

import random

from hypothesis import strategies as st

from penstock.core.lifecycle import device_health, reports
from penstock.core.messages.reports import NodeReport, ProgressSeen, ReplicaKey, ReplicaSeen
from penstock.core.model.ids import NodeName, UserName
from penstock.core.model.jobs import Dependency, ExitInfo
from penstock.core.model.nodes import DeviceFault
from penstock.testing.builders import job_spec, queues
from penstock.testing.harness import World, cluster

EXITS = (ExitInfo(0), ExitInfo(1), ExitInfo(0, stop_sent=True), ExitInfo(signal=9), ExitInfo(problem="gone"))
KINDS = ("after_ok", "after_any", "after_failed")
NAMES = ("submit", "cycle", "start") * 5 + ("exit", "stale plan", "tick") * 2
NAMES += ("cancel", "drain", "lose", "rebirth", "inventory", "late", "late", "checkpoint", "faults", "device")


def _history(seed: int, length: int) -> list[tuple[str, int]]:
    rnd = random.Random(seed)
    return [(rnd.choice(NAMES), rnd.randrange(1000)) for _ in range(length)]


operations = st.builds(_history, st.integers(0, 2**32), st.integers(0, 250))
"""Seeded rather than drawn one by one: drawn lists stay too short to get a gang pre-empted, lost and back."""


def small_world() -> World:
    w = cluster(2, 3, cpus=6, queues=queues("a", "b"), starvation_after_ms=20_000, infrastructure_retries_max=2)
    w.stale = w.plan()
    return w


def play(w: World, found: list[tuple[str, int]]) -> World:
    for name, number in found:
        w.now += 1_000 * (number % 4)
        DO[name](w, number)
    return w


def _submit(w: World, n: int) -> None:
    after = (Dependency(n % w.state.next_job, KINDS[n % 3]),) if n % 4 == 0 and n % w.state.next_job else ()
    spec = job_spec(
        n % 3,
        1 + n % 2,
        queue="ab"[n % 2],
        priority=100 * (1 + n % 5),
        preemptible=n % 7 != 0,
        retries_max=n % 3,
        max_wait_ms=9_000 * (n % 5 == 0),
        time_limit_ms=5_000 * (n % 6 == 0),
        after=after,
    )
    w.request(spec, key=f"k{n % 9}" if n % 3 == 0 else "", digest=str(n % 2), array=n % 4 if n % 11 == 0 else 0)


def _cycle(w: World, n: int) -> None:
    w.stale = w.plan() if n % 3 == 0 else w.stale
    w.cycle()


def _holding(w: World, n: int) -> tuple[int, int] | None:
    places = [(j, r.rank) for j in sorted(w.state.indexes.active) for r in w.job(j).attempt.replicas if r.holds]
    return places[n % len(places)] if places else None


def _start(w: World, n: int) -> None:
    found = _holding(w, n)
    if found:
        w.report(w.where(*found), w.seen(*found), inventory=False)


def _exit(w: World, n: int) -> None:
    found = _holding(w, n)
    if found:
        w.report(w.where(*found), w.seen(*found, "exited", exit=EXITS[n % len(EXITS)]), inventory=False)


def _late(w: World, n: int) -> None:
    key = ReplicaKey(1 + n % max(1, w.state.next_job), 1 + n // 7 % 3, n // 3 % 2)
    seen = ReplicaSeen(key, ("starting", "running", "stopping", "exited")[n % 4], exit=EXITS[n % len(EXITS)])
    said = (ProgressSeen(key, ("checkpoint", "resumed", "progress")[n % 3], n),)
    message = NodeReport(f"n{n % 2}", f"i{n % 3}", n, n % 5 == 0, (seen,), said)
    w.commit(lambda tx: reports.on_report(tx, message))


def _checkpoint(w: World, n: int) -> None:
    found = _holding(w, n)
    if found:
        said = ProgressSeen(w.seen(*found).key, "checkpoint" if n % 2 else "resumed", n)
        w.report(w.where(*found), w.seen(*found), inventory=False, progress=(said,))


def _lose(w: World, n: int) -> None:
    if w.state.nodes[f"n{n % 2}"].state != "lost":
        w.lose(f"n{n % 2}")


def _faults(w: World, n: int) -> None:
    name = f"n{n % 2}"
    if w.state.nodes[name].state != "lost":
        w.report(name, inventory=False, faults=tuple(DeviceFault(i, "xid") for i in range(3) if n >> i & 9 == 9))


def _device(w: World, n: int) -> None:
    name, index, by = NodeName(f"n{n % 2}"), n % 3, UserName("op")
    if n % 5 < 2:
        evict = n % 5 == 0
        w.commit(lambda tx: device_health.close_by_hand(tx, name, index, by=by, reason="repair", evict=evict))
    else:
        w.commit(lambda tx: device_health.open_by_hand(tx, name, index, by=by, reason="repaired"))


DO = {
    "faults": _faults,
    "device": _device,
    "submit": _submit,
    "cycle": _cycle,
    "stale plan": lambda w, n: w.apply(w.stale),
    "start": _start,
    "exit": _exit,
    "late": _late,
    "checkpoint": _checkpoint,
    "cancel": lambda w, n: w.cancel(1 + n % max(1, w.state.next_job)),
    "drain": lambda w, n: w.drain(f"n{n % 2}", on=n % 3 == 0, evict=n % 4 == 0),
    "lose": _lose,
    "rebirth": lambda w, n: w.hello(w.state.nodes[f"n{n % 2}"].spec_said, f"i{n % 3}", ready=n % 5 != 0),
    "inventory": lambda w, n: w.report(f"n{n % 2}", inventory=True) if n % 4 == 0 else w.report(f"n{n % 2}"),
    "tick": lambda w, n: w.tick(1_000 * (n % 9)),
}
