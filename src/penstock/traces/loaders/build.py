"""Builds a trace from the rows of a source: order, counts of rows left out, queues and tenants."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from penstock.core.model.cluster import (
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    ROOT_QUEUE,
    ClusterConfig,
    NodeSpec,
    Queue,
    Quota,
    Tenant,
)
from penstock.core.model.ids import QueueName, TenantName, UserName
from penstock.core.model.jobs import PRIORITY_CLASSES, GangAsk, JobSpec
from penstock.traces.errors import TraceError
from penstock.traces.loaders.shapes import PlainNames
from penstock.traces.loaders.table import stem
from penstock.traces.model import Ending, Seen, Trace, TraceJob, Work
from penstock.traces.nodes import NodeGroup, cluster_of, nodes_text

JOBS_MAX = 3_000_000
QUEUES_MAX = 10_000
"""Queues, and tenants; the same as in a cluster file."""
TEXT_MAX = 256
"""Characters of a name of a job or user that are kept."""
LABEL_MAX = 63
COMMAND = ("true",)
"""Traces do not contain programs."""

NO_START = "jobs left out: they never started"
NO_END = "jobs left out: they had not ended when the source was written, so their run time is unknown"
NO_LENGTH = "jobs left out: they ran for no time, by the source"

ENDINGS: dict[str, Ending] = {
    "COMPLETED": "succeeded",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "failed",
    "DEADLINE": "failed",
    "PREEMPTED": "failed",
    "SUSPENDED": "cancelled",
    "REVOKED": "cancelled",
}
"""By the words of Slurm, which several sources use. Jobs ended by a fault, a limit or another job count as failed."""


Given = ParamSpec("Given")
Alike = TypeVar("Alike", bound=Hashable)


class Builder:
    """Collects jobs. Equal specs, users and lengths of work are one object each, shared by all jobs that have them."""

    def __init__(self, path: Path, given: Sequence[NodeGroup] = ()) -> None:
        """Take the source's path, and the cluster that the caller wants instead of the source's."""
        self._path, self.given = path, given
        self._jobs: list[TraceJob] = []
        self._names: set[str] = set()
        self._specs: dict[Hashable, JobSpec] = {}
        self._equal: dict[JobSpec, JobSpec] = {}
        self._work: dict[tuple[int, Ending], Work] = {}
        self._users: dict[str, UserName] = {}
        self._counts: Counter[str] = Counter()
        self._notes: list[str] = []
        self.queues = PlainNames(DEFAULT_QUEUE, (ROOT_QUEUE,))
        self.tenants = PlainNames(DEFAULT_TENANT)

    def spec(self, key: Hashable, make: Callable[Given, JobSpec], *args: Given.args, **kwargs: Given.kwargs) -> JobSpec:
        """Return the one spec for `key`; `make` is called with the rest for the first job that has it."""
        found = self._specs.get(key)
        if found is None:
            made = make(*args, **kwargs)
            found = self._specs[key] = self._equal.setdefault(made, made)
        return found

    def request(
        self,
        ask: GangAsk,
        queue: str = "",
        tenant: str = "",
        name: str = "",
        *,
        priority: int = PRIORITY_CLASSES["medium"],
        time_limit_ms: int = 0,
        retries_max: int = 0,
        label: tuple[str, str] = ("", ""),
    ) -> JobSpec:
        """Return a spec in the queue and tenant of these words of the source; a label without a value is left out."""
        spec = JobSpec(
            COMMAND,
            ask,
            name=printable(name),
            tenant=TenantName(self.tenants.of(tenant)),
            queue=QueueName(self.queues.of(queue)),
            priority=priority,
            time_limit_ms=time_limit_ms,
            retries_max=retries_max,
            labels=((label[0], printable(label[1][:LABEL_MAX])),) if label[1] else (),
        )
        if max(len(self.queues), len(self.tenants)) > QUEUES_MAX:
            raise self.fault(f"at most {QUEUES_MAX} queues and tenants", "more")
        return spec

    def work(self, run_ms: int, ends: Ending = "succeeded") -> Work:
        """Return the one `Work` of this length and end."""
        key = (run_ms, ends)
        found = self._work.get(key)
        if found is None:
            found = self._work[key] = Work(run_ms, ends)
        return found

    def add(
        self, name: str, submit_ms: int, spec: JobSpec, work: Work, user: str = "", seen: Seen | None = None
    ) -> None:
        """Add one job. A name that an earlier job has gets a number behind it."""
        owner = self._users.get(user)
        if owner is None:
            owner = self._users[user] = UserName(printable(user))
        if len(name) > TEXT_MAX or not name.isprintable():
            name = printable(name)
        if name in self._names:
            name = self._other_name(name)
        self._names.add(name)
        if seen is not None and 0 < seen.started_ms < submit_ms:
            seen = None
            self.count("jobs started before they were submitted, by the source: what became of them is not kept")
        if len(self._jobs) >= JOBS_MAX:
            raise self.fault(f"at most {JOBS_MAX} jobs", "more")
        self._jobs.append(TraceJob(name, submit_ms, spec, owner, work, seen))

    def ran(
        self,
        name: str,
        submit_ms: int,
        run_ms: int,
        key: Alike,
        request: Callable[["Builder", Alike], JobSpec],
        *,
        ends: Ending = "succeeded",
        user: str = "",
        seen: Seen | None = None,
    ) -> None:
        """Add one job that ran for `run_ms`; where that is no time it is left out and counted.

        Args:
            key: alike for jobs that ask alike; `request` makes the spec of the first of them.
        """
        if run_ms <= 0:
            self.count(NO_LENGTH)
            return
        self.add(name, submit_ms, self.spec(key, request, self, key), self.work(run_ms, ends), user, seen)

    def _other_name(self, name: str) -> str:
        key = "jobs have an id that an earlier one has: a number was put behind it"
        self.count(key)
        number = self._counts[key] + 1
        while f"{name}#{number}" in self._names:
            number += 1
        return f"{name}#{number}"

    def count(self, what: str) -> None:
        """Count a job (or row) in the note `what`, which reads on from its number: `3 jobs left out: ...`."""
        self._counts[what] += 1

    def note(self, text: str) -> None:
        """Add a note as it is."""
        self._notes.append(text)

    def cluster(self, own: Callable[[], tuple[NodeSpec, ...]], pools: Collection[str] = ()) -> tuple[NodeSpec, ...]:
        """Return the nodes that the caller gives, else those of the source; a note says which.

        Args:
            own: the source's nodes, with its notes about them; asked for only where they are needed.
            pools: those that the source's nodes are in.
        """
        if not self.given:
            return own()
        notes = len(self._notes)
        nodes = cluster_of(self.given, own, pools)
        del self._notes[notes:]
        self.note(f"cluster: {nodes_text(nodes)}, as given")
        return nodes

    def width(self, own: int) -> int:
        """Return the number of devices of the widest node given, or else the source's own."""
        return max((group.devices for group in self.given), default=0) or own

    @property
    def jobs(self) -> Sequence[TraceJob]:
        """The jobs so far, in the order of the source."""
        return self._jobs

    def fault(self, expected: str, found: str, hint: str = "") -> TraceError:
        """Return an error about the file as a whole."""
        return TraceError(str(self._path), found=found, expected=expected, hint=hint)

    def trace(
        self,
        nodes: tuple[NodeSpec, ...],
        guaranteed: Mapping[str, Quota] | None = None,
    ) -> Trace:
        """Return the finished trace; `guaranteed` is by words of the source's queues.

        Raises: TraceError when no job is left.
        """
        quotas = {self.queues.of(word): quota for word, quota in (guaranteed or {}).items()}
        if not self._jobs:
            counted = "; ".join(self._count_notes()) or "no rows"
            raise self.fault("at least one job that ran", counted)
        if not nodes:
            raise self.fault("a cluster with at least one node", "none")
        if self.given and any(spec.devices for spec in nodes) and not any(j.spec.ask.device_milli for j in self._jobs):
            self.note("no job of the source asks for devices: those of the nodes given stay free")
        changed = self.queues.changed + self.tenants.changed
        if changed:
            self.note(f"{changed} names of queues and tenants are written otherwise: Penstock takes plain ones")
        return Trace(
            name=stem(self._path),
            jobs=tuple(sorted(self._jobs, key=lambda job: job.submit_ms)),
            nodes=nodes,
            config=ClusterConfig(
                tenants=tuple(Tenant(TenantName(name)) for name in self.tenants.used()),
                queues=tuple(Queue(QueueName(name), guaranteed=quotas.get(name, ())) for name in self.queues.used()),
            ),
            notes=(*self._notes, *self._count_notes()),
        )

    def _count_notes(self) -> list[str]:
        return [f"{count} {what}" for what, count in sorted(self._counts.items())]


def printable(text: str) -> str:
    """Return a text of a source as one line of bounded length; unprintable characters become `?`."""
    text = text[:TEXT_MAX]
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def device_quota(devices: int) -> Quota:
    """Return a quota of whole devices."""
    return (("devices", 1000 * devices),)
