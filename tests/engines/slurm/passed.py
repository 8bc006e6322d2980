"""A server in this process that passes jobs on to a real Slurm: its log in a folder, its scripts' files in another.

What it does with Slurm is what it always does; a test may let it die at any moment and go on in another life.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.bootstrap import RealClock
from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.control.service import ControlService
from penstock.control.slurm_passing import PassingJobs
from penstock.core.config.job import parse_request
from penstock.core.messages.requests import Submit, Submitted
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.ids import JobId, UserName
from penstock.core.model.jobs import Job
from penstock.core.state.state import State
from penstock.engines.processes.paths import DataFolder
from penstock.engines.slurm.commands import SlurmCommands
from penstock.engines.slurm.passing.engine import SlurmPassing
from penstock.engines.slurm.reading import SlurmReader
from penstock.engines.slurm.writing import SlurmWriter
from penstock.loopthread import LoopThread
from penstock.server.backend import deliver_on
from penstock.store.sqlite import SqliteStore
from tests.engines.slurm.cluster import SlurmCluster, until

WAIT_S = 60.0
USER = UserName("root")


class Passing:
    """One life of such a server."""

    def __init__(self, slurm: SlurmCluster, folder: Path, store: SqliteStore, loop: LoopThread, account: str) -> None:
        self.slurm, self.store, self._loop, self._account = slurm, store, loop, account
        self.data = DataFolder(folder / "shared")
        self.data.root.mkdir(exist_ok=True)
        clock = RealClock()
        controller = Controller(store, clock, name="passing", check_invariants=True)
        controller.open(ClusterConfig())
        self.faults: list[BaseException] = []
        self.lives = False
        self._sent: list[SlurmPassing] = []
        self.service = ControlService(
            controller,
            store,
            self,
            clock,
            deliver_reports=deliver_on(loop.loop),
            on_records=lambda records: None,
            on_fault=self.faults.append,
        )

    def send(self, orders: Any) -> None:
        for engine in self._sent:
            engine.send(orders)

    def start(self) -> None:
        self.service.start()
        self.lives = True

        async def made() -> SlurmPassing:
            config = await SlurmReader(SlurmCommands()).config()
            jobs = PassingJobs(self.service, lambda order: order)
            reader = SlurmReader(SlurmCommands(), tagged=True)
            return SlurmPassing(jobs, reader, SlurmWriter(), self.data, config, refresh_s=5.0)

        self.engine = self._loop.run(made()).result(WAIT_S)
        self._sent.append(self.engine)
        self._following = self._loop.run(self.engine.run())
        until("nodes", lambda: len(self.ready()) == len(self.slurm.nodes) or self._following.done(), wait_s=WAIT_S)
        if self._following.done():
            self._following.result()

    def ready(self) -> list[str]:
        return [name for name, node in self.state.nodes.items() if node.state == "ready"]

    def die(self) -> None:
        """End without another word: neither jobs nor Slurm hear of it."""
        self._sent.clear()
        self.lives = False
        self._following.cancel()
        with contextlib.suppress(BaseException):
            self._following.result(WAIT_S)
        self.service.stop()
        assert self.faults == []

    @property
    def state(self) -> State:
        return self.service.controller.state

    def ask(self, request: msg.Request) -> msg.Reply:
        done, replies = threading.Event(), []

        def take(reply: msg.Reply) -> None:
            replies.append(reply)
            done.set()

        self.service.ask(request, take)
        assert done.wait(WAIT_S)
        return replies[0]

    def submit(self, command: str, **fields: Any) -> list[int]:
        """Submit a command of the shell, and return its jobs, those of an array in order."""
        return self.ask_as(self._account, command, **fields)

    def ask_as(self, account: str, command: str, **fields: Any) -> list[int]:
        """Submit as `submit` does, for an account of the machine."""
        jobs, problems = parse_request({"command": ["sh", "-c", command], "memory": "10MiB", **fields})
        assert not problems, problems
        reply = self.ask(Submit(jobs, USER, account=account))
        assert isinstance(reply, Submitted), reply
        return list(reply.job_ids)

    def submit_together(self, *commands: str) -> list[int]:
        """Submit jobs that differ in their commands alone at one moment."""
        jobs, problems = parse_request(
            {"jobs": [{"command": ["sh", "-c", one], "memory": "10MiB"} for one in commands]}
        )
        assert not problems, problems
        reply = self.ask(Submit(jobs, USER, account=self._account))
        assert isinstance(reply, Submitted), reply
        return list(reply.job_ids)

    def cancel(self, job: int) -> None:
        self.ask(msg.Cancel(JobId(job), USER, "asked"))

    # What the log has.

    def job(self, job: int) -> Job | None:
        return self.state.jobs.get(JobId(job))

    def running(self, job: int) -> Job:
        """Return a job once all its programs run."""

        def runs() -> bool:
            attempt = found.attempt if (found := self.job(job)) is not None else None
            return attempt is not None and all(one.state == "started" for one in attempt.replicas)

        self.until(f"job {job} running", runs)
        found = self.job(job)
        assert found is not None
        return found

    def events(self, kind: type, job: int = 0) -> list[Any]:
        found = [record.event for record in self.store.tail(0) if isinstance(record.event, kind)]
        return [event for event in found if not job or event.job_id == job]

    def end(self, job: int) -> tuple[str, str]:
        """Return (state, reason) of a job once it has ended."""
        self.until(f"job {job} ended", lambda: self.job(job) is None and self.events(ev.JobFinished, job))
        (end,) = self.events(ev.JobFinished, job)
        return end.state, end.reason

    def exits(self, job: int) -> list[tuple[int, int, str]]:
        """Return (attempt, rank, text) of each end of a program."""
        return [(e.attempt, e.rank, e.exit.text()) for e in self.events(ev.ReplicaExited, job)]

    def output(self, job: int, attempt: int = 1, rank: int = 0) -> str:
        return (self.data.job(JobId(job)) / f"attempt-{attempt}.rank-{rank}.log").read_text()

    def number(self, job: int) -> str:
        """Return the number of a job in Slurm."""
        return next(one.number for key, one in list(self.engine.attempts.items()) if key.job_id == job)

    def until(self, said: str, true: Any, *, wait_s: float = WAIT_S) -> None:
        deadline = time.monotonic() + wait_s
        while not true():
            assert self.faults == [], self.faults
            told = {str(key): (one.state, one.number, one.line and one.line.state, dict(one.suspects))
                    for key, one in list(self.engine.attempts.items())}  # fmt: skip
            assert time.monotonic() < deadline, f"waited for {said}: {told}\n{self.slurm.states()}"
            time.sleep(0.03)


@contextlib.contextmanager
def passing(slurm: SlurmCluster, folder: Path, account: str = "") -> Iterator[Passing]:
    """Run a server on the log and the files of a folder; it dies at the end, if it has not before."""
    folder.mkdir(exist_ok=True)
    store, loop = SqliteStore(folder / "log"), LoopThread("passing")
    loop.start()
    made = Passing(slurm, folder, store, loop, account)
    try:
        made.start()
        yield made
    finally:
        if made.lives:
            made.die()
        loop.stop()
        store.close()
