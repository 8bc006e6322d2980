"""The cluster's own log as a trace: submitted jobs, their work, and the events of nodes.

A job's undisturbed run time is derived from its attempts: all of them if it can save, else the
last. A job that had not ended counts as long as it has run so far, and is noted.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median_low

import msgspec
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import Dependency
from penstock.core.state.history import AttemptHistory, History, JobHistory
from penstock.traces.model import CapacityChange, Ending, Outage, Seen, Trace, TraceJob, Work

TIMES_KEPT = 100_000


class LogTrace(msgspec.Struct, frozen=True):
    """A log as a trace, and the delays of the cluster (ms)."""

    trace: Trace
    decide_ms: int
    """From the last record that a plan had seen until its decisions were in the log."""
    start_ms: int
    """From allocation until all replicas ran."""
    leave_ms: int
    """From the stop request until the last replica was gone."""
    jobs: dict[JobId, JobHistory]
    """By the jobs' numbers in the log."""


def trace_of(records: Iterable[ev.Record], name: str = "log") -> LogTrace:
    """Return the trace of a log from its first record on."""
    reading = _Reading()
    for record in records:
        reading.take(record)
    return reading.told(name)


class _Reading:
    def __init__(self) -> None:
        self.history = History()
        self.specs: dict[NodeName, NodeSpec] = {}
        self.config: ClusterConfig | None = None
        self.changes: list[CapacityChange] = []
        self.outages: list[Outage] = []
        self.gone: dict[NodeName, int] = {}
        """Since when nodes are away (unix ms)."""
        self.first_ms = self.last_ms = 0
        self._times: dict[int, int] = {}
        """Times of the latest records, by number: plans are based on recent records."""
        self._decides: list[int] = []
        self._ready: set[NodeName] = set()
        self._ready_ms: dict[NodeName, int] = {}
        self._known: dict[NodeName, int] = {}
        """When the loss of absent nodes was detected (unix ms)."""

    def take(self, record: ev.Record) -> None:
        event, now_ms = record.event, record.time_ms
        self.first_ms = self.first_ms or now_ms
        self.last_ms = now_ms
        self._times[record.seq] = now_ms
        self._times.pop(record.seq - TIMES_KEPT, None)
        match event:
            case ev.ConfigChanged():
                if self.config is None:
                    self.config = event.config
                else:
                    self.changes.append(CapacityChange(now_ms, config=event.config))
            case ev.NodeRegistered() | ev.NodeReady() | ev.NodeLost() | ev.NodeDrainChanged():
                self._node(event, now_ms)
            case ev.AttemptAllocated() if event.basis:
                self._decides.append(now_ms - self._times.get(event.basis, now_ms))
            case _:
                pass
        self.history.take(record)

    def _node(self, event: ev.NodeRegistered | ev.NodeReady | ev.NodeLost | ev.NodeDrainChanged, now_ms: int) -> None:
        match event:
            case ev.NodeRegistered():
                name = event.spec.name
                if name not in self.specs:
                    self.gone[name] = self.first_ms
                elif name in self._ready:
                    self.gone[name] = now_ms  # it came back as another incarnation: its processes are gone
                self.specs[name] = event.spec
                self._ready.discard(name)
            case ev.NodeReady():
                since_ms = self.gone.pop(event.node, now_ms)
                if since_ms < now_ms:
                    self.outages.append(Outage(event.node, since_ms, now_ms, self._known.pop(event.node, since_ms)))
                self._ready.add(event.node)
                self._ready_ms[event.node] = now_ms
            case ev.NodeLost():
                self._lost(event.node, now_ms)
            case ev.NodeDrainChanged():
                drained = (
                    CapacityChange(now_ms, drained=event.node)
                    if event.draining
                    else CapacityChange(now_ms, opened=event.node)
                )
                self.changes.append(drained)

    def _lost(self, node: NodeName, now_ms: int) -> None:
        """Note that a node's lease ran out: it had been gone for as long as a lease lasts."""
        lease_ms = self.config.settings.lease_ttl_ms if self.config is not None else 0
        self.gone.setdefault(node, max(self._ready_ms.get(node, 0), now_ms - lease_ms))
        self._known[node] = now_ms
        self._ready.discard(node)

    def _still_out(self, node: NodeName) -> Outage:
        since_ms = self.gone[node]
        return Outage(node, since_ms, 0, self._known.get(node, since_ms))

    def told(self, name: str) -> LogTrace:
        found = self.history.jobs
        numbers = sorted(found)
        counts: Counter[str] = Counter()
        jobs = tuple(_job(job, numbers, self.last_ms, counts) for job in found.values())
        outages = [*self.outages, *(self._still_out(node) for node in self.gone)]
        attempts = [attempt for job in found.values() for attempt in job.attempts]
        starts = [a.running_ms - a.allocated_ms for a in attempts if a.running_ms]
        left = [(a.ended_ms, asked[0]) for a in attempts if a.outcome == "preempted" and (asked := a.asked_to_leave())]
        saves = [ended_ms - asked_ms for ended_ms, asked_ms in left if ended_ms]
        trace = Trace(
            name,
            jobs,
            tuple(self.specs.values()),
            self.config or ClusterConfig(),
            tuple(sorted(outages, key=lambda o: (o.from_ms, o.node))),
            tuple(self.changes),
            tuple(f"{count} {what}" for what, count in sorted(counts.items())),
        )
        mean_ms = sum(starts) // len(starts) if starts else 0
        return LogTrace(trace, _middle(self._decides), mean_ms, _middle(saves), found)


def _middle(lasted_ms: Sequence[int]) -> int:
    """Return the median: cycles triggered by time alone, and stops on dying nodes, are outliers."""
    return median_low(lasted_ms) if lasted_ms else 0


def _placed(one: Dependency, numbers: Sequence[JobId]) -> Dependency | None:
    """Return a dependency by the places that its jobs have among `numbers` (ascending), from 1; None without any."""
    begin, end = bisect_left(numbers, one.job_id), bisect_left(numbers, one.jobs.stop)
    return Dependency(JobId(begin + 1), one.kind, end - begin) if end > begin else None


def _job(job: JobHistory, numbers: Sequence[JobId], last_ms: int, counts: Counter[str]) -> TraceJob:
    event = job.submitted
    spec = event.spec
    if spec.after:
        known = tuple(found for one in spec.after if (found := _placed(one, numbers)) is not None)
        spec = replace(spec, after=known)
    started_ms = job.attempts[0].allocated_ms if job.attempts else 0
    seen = Seen(started_ms, job.finished_ms or 0)
    return TraceJob(str(event.job_id), job.submitted_ms, spec, event.user, _work(job, last_ms, counts), seen)


def _work(job: JobHistory, last_ms: int, counts: Counter[str]) -> Work:
    own_failures = tuple(_ran_ms(a, last_ms) for a in job.attempts[:-1] if a.outcome == "failed")
    ended = job.finished.state if job.finished is not None else None
    ends: Ending = ended if ended in ("cancelled", "failed") else "succeeded"
    last = job.attempts[-1] if job.attempts else None
    if last is None:
        if ended is None:
            counts["jobs had not started at the end of the log: their length is not known"] += 1
        spec = job.submitted.spec
        return Work(spec.estimated_duration_ms or spec.time_limit_ms, ends, own_failures, saves=job.saves)
    if ended is None:
        counts["jobs had not ended at the end of the log: they count as if they had"] += 1
    lasted_ms = _ran_ms(last, last_ms)
    if last.outcome == "time_limit":  # it would have gone on
        lasted_ms, ends = 2 * lasted_ms, "succeeded"
    earlier = [a for a in job.attempts[:-1] if a.outcome != "failed"] if job.saves else []
    return Work(lasted_ms + sum(_ran_ms(a, last_ms) for a in earlier), ends, own_failures, saves=job.saves)


def _ran_ms(attempt: AttemptHistory, last_ms: int) -> int:
    """Return how long an attempt worked: until it was asked to leave, or until it ended."""
    if attempt.running_ms is None:
        return 0
    until_ms = attempt.ended_ms or last_ms
    asked = attempt.asked_to_leave()
    if asked is not None and attempt.outcome not in ("succeeded", "failed"):
        until_ms = asked[0]
    return max(0, until_ms - attempt.running_ms - attempt.idle_until_ms(until_ms))
