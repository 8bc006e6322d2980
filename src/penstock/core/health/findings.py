"""Why a job failed, hangs or started again, as far as the log says it: a summary, records as evidence, next steps.

It repeats what was recorded and knows common errors by their words; it looks at nothing else.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.model import events as ev
from penstock.core.model.diagnosis import Cause, Diagnosis, Evidence
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.quantities import format_duration, listed
from penstock.core.model.words import counted
from penstock.core.state.idleness import BUSY_LEAST_MILLI

EVIDENCE_MAX = 40
SEEN_AGAIN = 2
"""Attempts that failed in the same words: then it is hardly chance."""


class _Known(NamedTuple):
    """An error that is known by its words."""

    pattern: re.Pattern[str]
    cause: Cause
    says: str
    suggestion: str


def _known(pattern: str, cause: Cause, says: str, suggestion: str) -> _Known:
    return _Known(re.compile(pattern, re.IGNORECASE), cause, says, suggestion)


_ERRORS = (
    _known(
        r"CUDA out of memory|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED|outofmemoryerror",
        "device_memory",
        "the program ran out of device memory",
        "use a smaller batch, shard the model, or ask for devices with more memory (`device_memory`)",
    ),
    _known(
        r"memory limit|\bOOM\b|MemoryError|Cannot allocate memory|std::bad_alloc",
        "memory",
        "the program ran out of host memory",
        "ask for more `memory`, or use fewer loader workers",
    ),
    _known(
        r"uncorrectable ECC|fallen off the bus|\bXid\b|hardware error|CUDA driver|device-side|NVML",
        "device",
        "a device or its driver failed",
        "submit it again; if it fails there once more, have an operator look at the node",
    ),
    _known(
        r"No space left on device|Disk quota exceeded|\[Errno (28|122)\]",
        "disk",
        "a disk is full",
        "free space, keep fewer checkpoints, or ask for more `storage`",
    ),
    _known(
        r"ModuleNotFoundError|ImportError|No module named|cannot open shared object",
        "import",
        "a library of the program is missing where it ran",
        "install it in the environment that `command` uses, and check `env` and `workdir`",
    ),
    _known(
        r"No such file or directory|FileNotFoundError|command not found|\[Errno 2\]",
        "not_found",
        "a file or command does not exist where it ran",
        "check `command` and `workdir`: paths have to exist on the node",
    ),
    _known(
        r"Permission denied|PermissionError|\[Errno 13\]",
        "permission",
        "the program may not use a file",
        "check whom the file belongs to: the job runs as its user's account",
    ),
    _known(
        r"NCCL|ncclInternalError|Gloo|ProcessGroup|rendezvous|Connection (reset|refused)|Broken pipe|timed? ?out",
        "communication",
        "ranks lost touch with each other",
        "look at the other ranks first: most often one of them failed before; else check the network between the nodes",
    ),
)
_CODES: dict[int, tuple[Cause, str, str]] = {
    126: ("permission", "the command could not be executed", "make the file executable, or name its interpreter"),
    127: ("not_found", "the command was not found", "check `command`: it has to exist on the node, and be in PATH"),
    137: ("killed", "a process was killed from outside", "look for a memory limit, of the job or of the machine"),
}
_SIGNALS: dict[int, tuple[Cause, str, str]] = {
    9: ("killed", "it was killed from outside", "look for a memory limit, of the job or of the machine"),
    11: ("crash", "the program crashed (segmentation fault)", "run it with `PYTHONFAULTHANDLER=1` to see where"),
    6: ("crash", "the program aborted", "the last lines of its output say why"),
    7: ("memory", "the program met a bus error", "shared memory may be full: use fewer loader workers"),
}


_AGAINST_IDLE = {
    "data": "give it more loader workers or faster storage",
    "unused": "see whether its program uses the devices at all, or ask for fewer",
}


def diagnosis(records: Sequence[ev.Record]) -> Diagnosis:
    """Return what the records of a job say. They are all of one job, in order, the first its submit."""
    found = _Reading(records)
    for record in records:
        found.take(record)
    cause, summary, suggestions = found.verdict()
    left_out = max(0, len(found.evidence) - EVIDENCE_MAX)
    job_id = next((r.event.job_id for r in records if isinstance(r.event, ev.JobSubmitted)), 0)
    return Diagnosis(job_id, found.state, cause, summary, found.evidence[left_out:], suggestions, left_out)


class _Reading:
    def __init__(self, records: Sequence[ev.Record]) -> None:
        self.evidence: list[Evidence] = []
        self.state = "waiting"
        self.exits: list[tuple[int, ExitInfo]] = []
        """Rank and end of the replicas of the present attempt, in order."""
        self.nodes: dict[int, NodeName] = {}
        self.hang: ev.HangFound | None = None
        self.idle: ev.IdleNoted | None = None
        self.ended: ev.AttemptEnded | None = None
        self.failure: tuple[int, ExitInfo] | None = None
        """The first bad end of the last attempt that failed."""
        self.failures: Counter[str] = Counter()
        self.failed_on: Counter[NodeName] = Counter()
        self.finished: ev.JobFinished | None = None

    def take(self, record: ev.Record) -> None:
        event = record.event
        match event:
            case ev.AttemptAllocated():
                self.exits.clear()
                self.hang = self.idle = None
                self.nodes = {rank: place.node for rank, place in enumerate(event.places)}
                self.state = "running"
            case ev.ReplicaExited():
                self.exits.append((event.rank, event.exit))
                if not event.exit.ok and not event.exit.stop_sent:
                    where = self.nodes.get(event.rank, "")
                    self._note(record, f"rank {event.rank} on {where} ended: {event.exit.text()}")
            case ev.HangFound():
                self.hang = event
                self._note(record, event.text)
            case ev.CheckpointSaved() | ev.ProgressNoted() if self.hang is not None and event.step > self.hang.step:
                self.hang = None  # it goes on
            case ev.UseNoted():
                if event.busy_milli >= BUSY_LEAST_MILLI and self.idle is not None and self.idle.cause == "unused":
                    self.idle = None  # it works again
            case ev.IdleNoted():
                self.idle = event
                self._note(record, event.text or f"idle for {format_duration(event.idle_ms)}")
            case ev.AttemptStopRequested():
                self._note(record, f"attempt {event.attempt} was asked to leave: {event.reason.replace('_', ' ')}")
            case ev.JobCancelRequested():
                self._note(record, f"{event.by} asked to cancel it")
            case ev.NodeStruck():
                self._note(record, f"counted against node {event.node}: {event.text}")
            case ev.AttemptEnded():
                self._ended(record, event)
            case ev.JobRequeued():
                again = ", one of its retries" if event.counts_as_retry else ""
                self.state = "waiting"
                self._note(record, f"it waits again{again}")
            case ev.JobFinished():
                self.finished, self.state = event, event.state
            case _:
                pass

    def _ended(self, record: ev.Record, event: ev.AttemptEnded) -> None:
        self.ended = event
        reached = f" at step {event.step}" if event.step else ""
        detail = f": {event.detail}" if event.detail else ""
        self._note(record, f"attempt {event.attempt} ended{reached}, {event.outcome.replace('_', ' ')}{detail}")
        bad = [(rank, info) for rank, info in self.exits if not info.ok]
        if event.outcome in ("failed", "lost", "hung"):
            self.failure = next((one for one in bad if not one[1].stop_sent), bad[0] if bad else None)
            self.failures[event.detail or event.outcome] += 1
            if self.failure is not None:
                self.failed_on[self.nodes.get(self.failure[0], NodeName(""))] += 1

    def _note(self, record: ev.Record, text: str) -> None:
        self.evidence.append(Evidence(record.time_ms, record.seq, text))

    def verdict(self) -> tuple[Cause, str, list[str]]:
        """Return cause, summary and suggestions."""
        if self.state == "succeeded":
            again = f" after {counted(self.failures.total(), 'failed attempt')}" if self.failures else ""
            return "", f"it succeeded{again}", []
        if self.state == "running" and self.hang is not None:
            return "hang", f"it hangs: {self.hang.text}", [*self._on_hang()]
        if self.state == "running" and self.idle is not None:
            hint = _AGAINST_IDLE.get(self.idle.cause, "look at its output")
            return "idle", f"its devices are idle: {self.idle.text}", [hint]
        if self.state == "running" and not self.failures:
            return "", "nothing is known to be wrong", []
        if self.ended is None:
            reason = f": {self.finished.reason}" if self.finished is not None and self.finished.reason else ""
            cause: Cause = "" if self.finished is None else "cancelled" if self.state == "cancelled" else "start"
            return cause, f"it has not started yet: {self.state}{reason}", ["its explanation says why it waits"]
        return self._of_attempt(self.ended)

    def _of_attempt(self, ended: ev.AttemptEnded) -> tuple[Cause, str, list[str]]:
        before = "" if self.finished is not None else f"{self._now()}; the last attempt: "
        reason = f": {self.finished.reason}" if self.finished is not None and self.finished.reason else ""
        match ended.outcome:
            case "failed":
                cause, says, hints = self._failure()
                return cause, before + says, [*hints, *self._again()]
            case "lost":
                text = f"{before}it was lost with a node: {ended.detail}"
                hint = "nothing is wrong with the job: it starts again from its last checkpoint, if it saves any"
                return "node", text, [hint, *self._again()]
            case "hung":
                hang = f": {self.hang.text}" if self.hang is not None else ""
                return "hang", f"{before}it hung{hang}", [*self._on_hang(), *self._again()]
            case "time_limit":
                return (
                    "time_limit",
                    f"{before}it reached its time limit",
                    ["give it a longer `time_limit`, or let it save checkpoints and start again from them"],
                )
            case "cancelled":
                return "cancelled", f"{before}it was cancelled{reason}", []
            case _:
                return "moved", f"{before}it was asked to leave ({ended.outcome}){reason}", []

    def _now(self) -> str:
        return "it runs again" if self.state == "running" else "it waits to start again"

    def _failure(self) -> tuple[Cause, str, list[str]]:
        """Return cause, summary and suggestions for the replica that ended badly first."""
        if self.failure is None:
            return "program", "its program failed", ["the last lines of its output may say why"]
        rank, info = self.failure
        where = f"rank {rank} on {self.nodes.get(rank, '')}" if len(self.nodes) > 1 else "its program"
        cause, says, hint = _reason(info)
        return cause, f"{says}: {where} ended with {info.text()}", [hint]

    def _again(self) -> list[str]:
        found = []
        text, times = next(iter(self.failures.most_common(1)), ("", 0))
        if times >= SEEN_AGAIN:
            found.append(f"{times} attempts ended in the same way ({text}): it is hardly chance")
        nodes = [node for node in self.failed_on if node]
        if len(nodes) == 1 and self.failed_on[nodes[0]] >= SEEN_AGAIN:
            found.append(f"all of them failed on {nodes[0]}: have an operator look at it, or run elsewhere")
        elif len(nodes) > 1:
            found.append(f"it failed on {listed(nodes)}: hardly the fault of a node")
        return found

    def _on_hang(self) -> list[str]:
        if self.hang is None or not self.hang.ranks:
            return ["look at the output of its ranks, and at their stacks in the finding"]
        return [f"look first at rank {listed(self.hang.ranks)}: the others wait for it"]


def _reason(info: ExitInfo) -> tuple[Cause, str, str]:
    """Return what the end of a replica means: by the words of its last error, then by its status."""
    words = "\n".join(filter(None, (info.last_error, info.note, info.problem)))
    for known in _ERRORS:
        if known.pattern.search(words):
            return known.cause, known.says, known.suggestion
    by_status = _CODES.get(info.code) if info.code is not None else _SIGNALS.get(info.signal or 0)
    if by_status is not None:
        return by_status
    if info.problem:
        return "start", "it could not be run", "the evidence has the words of the node"
    hint = "look at the last error" if info.last_error else "the last lines of its output may say why"
    return "program", "its program failed", hint
