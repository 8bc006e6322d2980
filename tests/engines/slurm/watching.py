"""A shadow in this process, on a log in a folder: its refreshes are asked for, not waited for."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.bootstrap import RealClock
from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.service import ControlService
from penstock.control.slurm import SlurmJobs
from penstock.control.slurm_begin import begin
from penstock.core.explain import Explainer, question_of
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.jobs import Job
from penstock.core.state.state import State
from penstock.engines.slurm.commands import SlurmCommands
from penstock.engines.slurm.reading import SlurmReader
from penstock.engines.slurm.shadow.engine import SlurmShadow
from penstock.engines.slurm.states import PHASES
from penstock.loopthread import LoopThread
from penstock.store.sqlite import SqliteStore
from tests.engines.slurm.cluster import SlurmCluster, until

WAIT_S = 20.0
NEVER_S = 3600.0


class Watching:
    """One life of a server beside Slurm."""

    def __init__(self, slurm: SlurmCluster, store: SqliteStore, loop: LoopThread, config: ClusterConfig | None) -> None:
        self.slurm, self.store, self._loop = slurm, store, loop
        clock = RealClock()
        self.begun = begin(store, clock, config, name="shadow", history_days=1)
        controller = Controller(store, clock, name="shadow", check_invariants=True, shadow=True)
        controller.open()
        self.faults: list[BaseException] = []
        self._sent: list[SlurmShadow] = []
        self.service = ControlService(
            controller,
            store,
            self,
            clock,
            on_records=lambda records: None,
            on_fault=self.faults.append,
        )

    def send(self, orders: Any) -> None:
        for engine in self._sent:
            engine.send(orders)

    def start(self) -> None:
        self.service.start()

        async def made() -> SlurmShadow:
            reader = SlurmReader(SlurmCommands())
            return SlurmShadow(
                SlurmJobs(self.service), reader, self.begun.config, refresh_s=NEVER_S, begun=self.begun.queue
            )

        self.engine = self._loop.run(made()).result(WAIT_S)
        self._sent.append(self.engine)
        self._following = self._loop.run(self.engine.run())
        until("the first refresh", lambda: self.engine.refreshes > 0 or self._following.done(), wait_s=WAIT_S)
        until("nodes", lambda: len(self.engine.connected()) == len(self.slurm.nodes), wait_s=WAIT_S)
        self.settle()

    def stop(self) -> None:
        self._following.cancel()
        self.service.stop()
        assert self.faults == []

    @property
    def state(self) -> State:
        return self.service.controller.state

    def refresh(self) -> None:
        """Ask Slurm once, and wait until all that was new is in the log."""
        self._loop.run(self.engine.refresh()).result(WAIT_S)
        self.settle()

    def follow_once(self) -> None:
        """As the engine does it periodically: it notes where Slurm does not answer."""
        self._loop.run(self.engine.follow_once()).result(WAIT_S)
        self.settle()

    def settle(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while not self._loop.run(self._idle()).result(WAIT_S):
            assert time.monotonic() < deadline, "the engine does not come to rest"
            time.sleep(0.02)

    async def _idle(self) -> bool:
        return self.engine.idle

    # What the log has.

    def events(self, kind: type) -> list[Any]:
        return [record.event for record in self.store.tail(0) if isinstance(record.event, kind)]

    def jobs(self) -> dict[str, Job]:
        """Return the live jobs by their number in Slurm."""
        return {dict(job.spec.labels)["slurm.job"].partition("@")[0]: job for job in self.state.jobs.values()}

    def ends(self) -> dict[str, tuple[str, str]]:
        """Return (state, reason) of finished jobs by their number in Slurm."""
        number = {}
        for event in self.events(ev.JobSubmitted):
            number[event.job_id] = dict(event.spec.labels)["slurm.job"].partition("@")[0]
        return {number[end.job_id]: (end.state, end.reason) for end in self.events(ev.JobFinished)}

    def why(self, number: str) -> str:
        """Return why a job waits, as `penstock explain` says it."""
        job = self.jobs()[number]
        found = Explainer().explain(question_of(self.state, job, job.submitted_ms))
        return f"{found.code}: {found.text}"

    def differing(self, states: Mapping[str, str] | None = None) -> dict[str, tuple[str, str]]:
        """Return the jobs of which the log and squeue (by default now) say something else: (here, there)."""
        states = self.slurm.states() if states is None else states
        here = {number: _word(job) for number, job in self.jobs().items()}
        there = {number: _meaning(state) for number, state in states.items()}
        both = {number: (here.get(number, "ended"), there.get(number, "ended")) for number in {*here, *there}}
        return {number: pair for number, pair in both.items() if pair[0] != pair[1]}

    def planned(self) -> None:
        """Wait for a plan of the newest state."""
        done = threading.Event()
        self.service.ask(msg.TimePassed(), lambda _: done.set())
        assert done.wait(WAIT_S)


def _word(job: Job) -> str:
    if job.attempt is None:
        return "waiting"
    return "running"


def _meaning(state: str) -> str:
    phase = PHASES[state]
    return {"again": "waiting", "leaving": "running"}.get(phase, phase)


@contextlib.contextmanager
def watching(slurm: SlurmCluster, folder: Path, config: ClusterConfig | None = None) -> Iterator[Watching]:
    """Run a shadow on the log of a folder."""
    store, loop = SqliteStore(folder / "log"), LoopThread("shadow")
    loop.start()
    try:
        made = Watching(slurm, store, loop, config)
        made.start()
        yield made
        made.stop()
    finally:
        loop.stop()
        store.close()
