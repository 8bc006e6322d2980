"""Compares what Penstock says happened with what the programs wrote down themselves.

Every finding is one broken promise.

The documented limit: the kernel gives the exit of a process to its parent, else to the guardian. A replica that has
lost its worker and then also the guardian (or two guardians) has nobody to give it to. Such an exit may be reported
as unknown, and the job is run again; that is accepted only where the killer's own notes show those two kills.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from penstock.api.types import JobView
from penstock.core.model import events as ev
from penstock.core.model.errors import BrokenInvariant
from penstock.core.state import invariants
from penstock.core.state.state import State
from tests.crash.killer import Kill
from tests.crash.load import Job, Load

NEVER_STARTED = "its agent died before it had started"
NOBODY_WATCHED = "ended while no agent watched: its exit status is not known"
CHECK_EVERY = 40
HANDOVER_MS = 1_500
"""A worker whose guardian died may start replicas for this long before it has become the guardian itself."""


PID_REUSED_MS = 60_000
"""Process numbers come round again; a mistake of the killer shows sooner than that."""


class Audit:
    """`findings` holds (promise, detail); empty when everything held."""

    def __init__(self, load: Load, kills: Sequence[Kill], records: Sequence[ev.Record]) -> None:
        self._load, self._kills, self._records = load, kills, records
        self.findings: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self._submitted: dict[int, ev.JobSubmitted] = {}
        self._finished: dict[int, ev.JobFinished] = {}
        self._places: dict[tuple[int, int], tuple[int, list[str]]] = {}
        self._exits: dict[tuple[int, int], list[tuple[int, ev.ReplicaExited]]] = {}
        self._read()

    def _found(self, promise: str, detail: str) -> None:
        self.findings.append((promise, detail))

    def _read(self) -> None:
        for record in self._records:
            event = record.event
            match event:
                case ev.JobSubmitted():
                    if event.job_id in self._submitted:
                        self._found("no id is given out twice", f"job {event.job_id}")
                    self._submitted[event.job_id] = event
                case ev.JobFinished():
                    if event.job_id in self._finished:
                        self._found("a job ends once", f"job {event.job_id}")
                    self._finished[event.job_id] = event
                case ev.AttemptAllocated():
                    places = [str(p.node) for p in event.places]
                    self._places[event.job_id, event.attempt] = (record.time_ms, places)
                case ev.ReplicaExited():
                    exits = self._exits.setdefault((event.job_id, event.attempt), [])
                    exits.append((record.time_ms, event))

    def run(self, views: Iterable[JobView]) -> None:
        """Check everything; `views` are the server's answers about the accepted jobs."""
        self._killer()
        self._clients()
        self._ids()
        self._outcomes({view.id: view for view in views})
        self._ledgers()
        self._losses()
        self._log()

    def _killer(self) -> None:
        """Check the harness itself: a replica that it hit by mistake would look like a wrong outcome."""
        victims = {pid: kill for kill in self._kills for pid in kill.pids}
        for record in self._records:
            event = record.event
            kill = victims.get(event.pid) if isinstance(event, ev.ReplicaStarted) and event.pid else None
            if kill is not None and abs(record.time_ms - kill.time_ms) < PID_REUSED_MS:
                self._found("the harness kills no replica", f"{kill.what} {kill.node} hit {event}")

    def _clients(self) -> None:
        for line in self._load.refused:
            self._found("every request is answered rightly", line)

    def _ids(self) -> None:
        asked = {job.name: job for job in self._load.asked.values()}
        names = Counter(event.spec.name for event in self._submitted.values())
        for name, count in names.items():
            if name not in asked:
                self._found("nothing is known that nobody asked for", name)
            if count > 1:
                self._found("one key makes one job", f"{name} was made {count} times")
        ids = Counter(self._load.accepted.values())
        for job_id, count in ids.items():
            if count > 1:
                self._found("no id is given out twice", f"id {job_id} was answered to {count} requests")
        for number, job_id in self._load.accepted.items():
            event = self._submitted.get(job_id)
            if event is None or event.spec.name != self._load.asked[number].name:
                self._found("no accepted job is lost", f"job {job_id} (j{number}) is not in the log")
        self.counts["jobs never answered"] = len(self._submitted.keys() - set(ids))

    def _outcomes(self, views: dict[int, JobView]) -> None:
        by_name = {job.name: job for job in self._load.asked.values()}
        for job_id, event in self._submitted.items():
            job, end = by_name.get(event.spec.name), self._finished.get(job_id)
            if job is None:
                continue
            if end is None:
                self._found("no accepted job is lost", f"job {job_id} never ended")
                continue
            told = (end.state, end.exit.code if end.exit else None, end.exit.signal if end.exit else None)
            self._same(job, job_id, told, "the log")
        for number, job_id in self._load.accepted.items():
            view, job = views.get(job_id), self._load.asked[number]
            if view is None:
                self._found("no accepted job is lost", f"the server does not know job {job_id}")
            else:
                self._same(job, job_id, (view.state, view.exit_code, view.exit_signal), "the server")

    def _same(self, job: Job, job_id: int, told: tuple[str, int | None, int | None], who: str) -> None:
        self.counts["outcomes compared"] += 1
        if told != job.outcome():
            self._found("every outcome is exact", f"job {job_id} ({job.name}): {who} says {told}, not {job.outcome()}")

    def _ledgers(self) -> None:
        twice = self._load.folder / "twice"
        if twice.exists():
            for line in twice.read_text().splitlines():
                self._found("no job runs twice at once", line)
        by_name = {event.spec.name: job_id for job_id, event in self._submitted.items()}
        for job in self._load.asked.values():
            for rank in range(job.replicas):
                path = self._load.folder / f"{job.number}.{rank}"
                if job.name in by_name:
                    self._ledger(job, by_name[job.name], rank, path)
                elif path.exists():
                    self._found("nothing runs that is not in the log", job.name)

    def _ledger(self, job: Job, job_id: int, rank: int, path: Path) -> None:
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        starts = [int(line[1]) for line in lines if line[0] == "start"]
        ends = [int(line[1]) for line in lines if line[0] == "end"]
        self.counts["programs started"] += len(starts)
        if len(set(starts)) != len(starts) or starts != sorted(starts):
            self._found("an attempt starts once", f"{job.name}.{rank} started {starts}")
        if not starts or starts[-1] not in ends:
            self._found("a job that ended has run to its end", f"{job.name}.{rank}: {lines}")
        elif not any(a == starts[-1] and j == job_id for j, a in self._places):
            self._found("nothing runs that is not in the log", f"{job.name}.{rank} attempt {starts[-1]}")
        self.counts["programs run again after their end"] += max(0, len(ends) - 1)

    def _losses(self) -> None:
        for key, exits in self._exits.items():
            for time_ms, event in exits:
                if event.exit.problem:
                    self._loss(key, time_ms, event)

    def _loss(self, key: tuple[int, int], time_ms: int, event: ev.ReplicaExited) -> None:
        job_id, attempt = key
        from_ms, places = self._places[key]
        name = self._submitted[job_id].spec.name.removeprefix("j")
        path = self._load.folder / f"{name}.{event.rank}"
        where = f"job {job_id} (j{name}.{event.rank}) attempt {attempt} on {places[event.rank]}"
        if event.exit.problem == NEVER_STARTED:
            self.counts["starts that never happened"] += 1
            if path.exists() and f"start {attempt} " in path.read_text():
                self._found("what never started never ran", where)
        elif event.exit.problem == NOBODY_WATCHED:
            why = self._nobody_watched(places[event.rank], from_ms, time_ms)
            self.counts[f"exits unknown {why}"] += 1
            if not why:
                self._found("every outcome is exact", f"{where}: the exit is said to be unknown, though an agent lived")
        elif not event.exit.stop_sent:
            self._found("every outcome is exact", f"{where}: {event.exit.problem}")

    def _nobody_watched(self, node: str, from_ms: int, until_ms: int) -> str:
        """Return how the killer left nobody to take the exit of a replica that lived then; '' when it did not."""
        hits = [k for k in self._kills if k.node == node and from_ms - HANDOVER_MS <= k.time_ms <= until_ms]
        if any("worker+guardian" in k.what for k in hits):
            return "as both were killed at once"
        return "as the second of two kills hit the guardian" if any("guardian" in k.what for k in hits[1:]) else ""

    def _log(self) -> None:
        state = State()
        try:
            self._fold(state)
        except (BrokenInvariant, KeyError) as error:
            self._found("the log folds", f"after event {state.seq}: {error!r}")
        for job_id in state.jobs:
            self._found("everything that can run, runs", f"job {job_id} is still {state.jobs[job_id].state}")
        self.counts["terms"] = state.epoch
        self.counts["events"] = state.seq

    def _fold(self, state: State) -> None:
        checked = 0
        for record, following in pairwise([*self._records, None]):
            assert record is not None
            state.apply(record)
            last = following is None
            whole = last or following.time_ms > record.time_ms  # promises hold between commits, not within one
            if last or (whole and record.seq - checked >= CHECK_EVERY):
                self._promises(state)
                checked = record.seq

    def _promises(self, state: State) -> None:
        for violation in invariants.violations(state):
            self._found(violation.promise, f"at event {state.seq}: {violation.detail}")
