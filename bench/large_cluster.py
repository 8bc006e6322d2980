"""A data folder of a large cluster with a past: the log that its server would have, by the real decisions.

The nodes are virtual and nobody runs them, but that their leases are long: what runs there stays so. A node of the
cluster file, in a pool of its own, is real; jobs of a benchmark run on it. Written in about a minute.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.control import messages as msg
from penstock.control.config_files import cluster_config
from penstock.control.controller import Controller
from penstock.core.cycle.planner import plan
from penstock.core.lifecycle.requests import NewJob, Submit
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen
from penstock.core.model import events as ev
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.resources import Resources
from penstock.engines.processes.paths import DataFolder
from penstock.store.sqlite import SqliteStore
from penstock.testing.builders import device, job_spec

NODES, DEVICES, NODES_OF_RACK = 1_000, 8, 20
REQUESTS_AT_ONCE = 100
"""Of one commit."""
JOBS_AT_ONCE = 1_000
ROUND_MS, RUN_MS = 2 * 3_600_000, 5_400_000
TENANTS = [f"team{i}" for i in range(10)]
QUEUES = ["default", *TENANTS]
USERS = [{"name": f"user{i:02}", "tenants": {TENANTS[i % 10]: "member"}} for i in range(50)]
ADMIN = "adele"
FAILS_EVERY = 40
CLUSTER: dict[str, Any] = {
    "settings": {"job_account": "root", "heartbeat": "500ms", "lease_ttl": "24h", "lease_margin": "1h"},
    "pools": [{"name": "default"}, {"name": "aside"}],
    "tenants": [{"name": "default"}, *({"name": name} for name in TENANTS)],
    "queues": [{"name": name} for name in QUEUES],
    "users": [{"name": ADMIN, "role": "admin"}, *USERS],
    "billing": {
        "prices": [{"resource": "cpu", "per_hour": 0.05}, {"resource": "device", "per_hour": 2}],
        "invoices": {"issue": "manual"},
    },
    "nodes": [{"name": "aside", "cpus": 64, "memory": "16GiB", "pool": "aside"}],
}
"""The cluster file, whose only node is the real one."""


class PastClock:
    def __init__(self, now_ms: int) -> None:
        self.now = now_ms

    def unix_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


def write(data: Path, *, live: int, finished: int, nodes: int = NODES) -> None:
    """Write the log into a data folder where nothing is yet.

    Args:
        live: jobs of one device each that run or wait at the end; of them as many run as there are devices.
        finished: jobs that have ended, in rounds of two hours.
    """
    folder, rounds = DataFolder(data), -(-finished // (nodes * DEVICES))
    data.mkdir(parents=True)
    store, clock = SqliteStore(folder.log), PastClock(time.time_ns() // 1_000_000 - (rounds + 1) * ROUND_MS)
    config = cluster_config({name: value for name, value in CLUSTER.items() if name != "nodes"})
    store.append([ev.Record(1, clock.now, ev.ConfigChanged(config, "local"))], [], store.acquire_epoch())
    controller = Controller(store, clock, name="past")
    controller.open(None)
    past = _Past(controller, clock, nodes)
    for at in range(rounds):
        past.round(at, min(nodes * DEVICES, finished - at * nodes * DEVICES))
    past.present(live)
    clock.now = time.time_ns() // 1_000_000
    store.save_snapshot(controller.state.image())
    store.close()


def batched(things: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield so many at a time."""
    for first in range(0, len(things), size):
        yield things[first : first + size]


class _Past:
    """What people and nodes did."""

    def __init__(self, controller: Controller, clock: PastClock, nodes: int) -> None:
        self._controller, self._clock = controller, clock
        self._seq = 0
        self._names = [f"node{i:04}" for i in range(nodes)]
        devices = tuple(device(i) for i in range(DEVICES))
        hellos = [
            msg.Hello(
                NodeSpec(
                    name,
                    Resources(DEVICES * 8_000, 2**40),
                    devices,
                    rack=f"rack{i // NODES_OF_RACK:02}",
                    virtual=True,
                ),
                "i1",
            )
            for i, name in enumerate(self._names)
        ]
        self._ask(hellos)
        self._ask([self._report(name, (), inventory=True) for name in self._names])

    def round(self, number: int, jobs: int) -> None:
        """Let some jobs start, run for one and a half hours, and end, a few of them badly."""
        begun = self._clock.now
        self._submit(f"past-{number}", jobs)
        self._plan()
        self._start()
        self._clock.now = begun + RUN_MS
        keys = self._running()
        self._ask(
            [
                self._report(
                    name, [ReplicaSeen(k, "exited", exit=ExitInfo(int(k.job_id % FAILS_EVERY == 0))) for k in held]
                )
                for name, held in keys.items()
            ]
        )
        self._ask([self._report(name, (), inventory=True) for name in keys])
        self._clock.now = begun + ROUND_MS

    def present(self, jobs: int) -> None:
        """Let the devices be full, and the rest wait."""
        self._submit("train", jobs)
        self._plan()
        self._start()

    def _submit(self, name: str, jobs: int) -> None:
        for numbers in batched(range(jobs), JOBS_AT_ONCE):
            made = tuple(NewJob(self._spec(f"{name}-{number:05}", number)) for number in numbers)
            user = f"user{(numbers[0] // JOBS_AT_ONCE) % len(USERS):02}"
            self._ask([Submit(made, user, account="root", administrator=True)])

    def _spec(self, name: str, number: int) -> Any:
        tenant = TENANTS[number % len(TENANTS)]
        return job_spec(name=name, tenant=tenant, queue=tenant, preemptible=False)

    def _start(self) -> None:
        keys = self._running().items()
        self._ask([self._report(name, [ReplicaSeen(key, "running", pid=7) for key in held]) for name, held in keys])

    def _plan(self) -> None:
        """Plan until nothing more starts: one cycle does not start all."""
        while self._ask([msg.CommitPlan(plan(self._controller.snapshot(), self._clock.now))])[-1].plan.starts:
            pass

    def _running(self) -> dict[str, list[ReplicaKey]]:
        """Return the replicas of each node."""
        held: dict[str, list[ReplicaKey]] = {}
        for job in self._controller.state.jobs.values():
            for rank, replica in enumerate(job.attempt.replicas if job.attempt else ()):
                held.setdefault(replica.place.node, []).append(ReplicaKey(job.id, job.attempt.number, rank))
        return held

    def _report(self, name: str, seen: Sequence[ReplicaSeen], *, inventory: bool = False) -> NodeReport:
        self._seq += 1
        return NodeReport(name, "i1", self._seq, inventory, tuple(seen))

    def _ask(self, requests: Sequence[Any]) -> list[Any]:
        """Return the answers, some requests a commit."""
        replies: list[Any] = []
        for some in batched(requests, REQUESTS_AT_ONCE):
            replies += self._controller.handle(list(some)).replies
        wrong = [reply for reply in replies if isinstance(reply, msg.RequestFailed)]
        if wrong:
            raise SystemExit(f"the past is refused: {wrong[0]}")
        return replies
