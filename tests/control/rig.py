"""A controller over an in-memory log with a clock that is moved by hand, and short ways to ask it."""

import random
from typing import Any

from penstock.control import messages as msg
from penstock.control.controller import Controller, Handled
from penstock.core.cycle.planner import plan
from penstock.core.lifecycle.requests import NewJob, Submit
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen
from penstock.core.model.ids import NodeName, UserName
from penstock.core.model.jobs import ExitInfo
from penstock.core.state.state import fold
from penstock.ports import EventStore
from penstock.sim.world.disk import SimDisk
from penstock.testing.builders import config, job_spec, node
from tests.store.builders import same

TTL_MS, MARGIN_MS = 6_000, 2_000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def unix_ms(self) -> int:
        return 1_000_000 + self.now

    def monotonic_ms(self) -> int:
        return self.now


def submit(devices: int = 1, replicas: int = 1, **fields: Any) -> Submit:
    key = fields.pop("key", "")
    return Submit((NewJob(job_spec(devices, replicas, **fields)),), UserName("ann"), key, key)


class Rig:
    """One controller in its term. `nodes` are ready from the start, with four devices each."""

    def __init__(
        self, *nodes: str, store: EventStore | None = None, clock: Clock | None = None, **settings: Any
    ) -> None:
        self.store: Any = store or SimDisk(random.Random(0))
        self.clock = clock or Clock()
        self.controller = Controller(self.store, self.clock, name="c", check_invariants=True)
        self.controller.open(config(lease_ttl_ms=TTL_MS, lease_margin_ms=MARGIN_MS, heartbeat_ms=500, **settings))
        self._sent = 0
        for name in nodes:
            self.ask(self.hello(name))
            self.report(name)

    @property
    def state(self) -> Any:
        return self.controller.state

    def hello(self, name: str = "a", incarnation: str = "i1") -> msg.Hello:
        return msg.Hello(node(name), incarnation)

    def handle(self, *group: msg.Request) -> Handled:
        return self.controller.handle(group)

    def ask(self, request: msg.Request) -> Any:
        """Ask one thing and return its reply."""
        return self.handle(request).replies[0]

    def message(self, name: str = "a", *seen: ReplicaSeen, **fields: Any) -> NodeReport:
        self._sent += 1
        given = {"incarnation": "i1", "seq": self._sent, "inventory": not seen} | fields
        return NodeReport(NodeName(name), replicas=seen, **given)

    def report(self, name: str = "a", *seen: ReplicaSeen, **fields: Any) -> Any:
        return self.ask(self.message(name, *seen, **fields))

    def submit(self, *args: Any, **fields: Any) -> int:
        return self.ask(submit(*args, **fields)).job_ids[0]

    def cycle(self) -> Handled:
        return self.handle(msg.CommitPlan(plan(self.controller.snapshot(), self.clock.unix_ms())))

    def running(self, **fields: Any) -> int:
        """Return a job that runs on node a."""
        job_id = self.submit(**fields)
        self.cycle()
        self.report("a", self.seen(job_id))
        return job_id

    def seen(self, job_id: int, state: str = "running", attempt: int = 1, **fields: Any) -> ReplicaSeen:
        return ReplicaSeen(ReplicaKey(job_id, attempt, 0), state, **fields)

    def exit(self, job_id: int, code: int = 0, **fields: Any) -> Any:
        return self.report("a", self.seen(job_id, "exited", exit=ExitInfo(code, **fields)))

    def wait(self, ms: int) -> Handled:
        self.clock.now += ms
        return self.handle(msg.TimePassed())

    def fits_log(self) -> bool:
        """Return whether the state is what the log says."""
        return same(self.state, fold(self.store.records))

    def events(self) -> list[str]:
        return [type(r.event).__name__ for r in self.store.records]
