"""What users are notified of: events of the log in the words of a message.

`NoticeFold` finds what of a log is worth a message; `notice_of` says it. Neither knows who wants to hear of it.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, TenantName, UserName
from penstock.core.model.jobs import JobSpec
from penstock.core.model.quantities import format_duration, listed
from penstock.core.model.stop_rules import STOP_RULES
from penstock.core.order.queues import TENANT_PREFIX
from penstock.core.status.alerts import Never

NODES_NAMED = 4
TEXT_MAX = 500
NAME_MAX = 80
"""Characters of a job's name in a message."""
_QUIET = frozenset({"resized", "moved"})
"""Attempts that end so continue at once: nobody is told that they start again."""
_AGAIN = {
    "lost": "a node or a device that it ran on failed",
    "failed": "its program failed",
    "drained": "its node is being emptied",
    "hung": "it made no step any more",
    "requeued": "a user put it back into its queue",
    "time_limit": "its time limit was reached",
}


class Happening(NamedTuple):
    """An event of the log that somebody may want to hear of."""

    event: str
    """One of `model.notifications.EVENTS`."""
    record: ev.Record
    job_id: JobId | None = None
    tenant: TenantName = TenantName("")


class Started(msgspec.Struct, frozen=True):
    """An attempt, and how many of its replicas have not started yet."""

    job_id: JobId
    attempt: AttemptNumber
    missing: int
    nodes: tuple[NodeName, ...]
    waited_ms: int
    quiet: bool = False


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened, in words."""

    event: str
    seq: int
    time_ms: int
    title: str
    """One line, without control characters."""
    text: str = ""
    command: str = ""
    """Shows more of it."""
    job_id: JobId | None = None
    job_name: str = ""
    array_id: JobId | None = None
    tenant: TenantName = TenantName("")
    node: NodeName = NodeName("")


class JobFacts(NamedTuple):
    """What a message says of a job, live or not."""

    id: JobId
    spec: JobSpec
    user: UserName
    array_id: JobId | None = None
    array_index: int = 0
    delegated: bool = False
    """Of a token that reaches no secrets of the user."""


class NoticeFold:
    """Follows the log record by record; remembers which attempts are starting."""

    def __init__(self, starting: Iterable[Started] = (), quiet: Iterable[JobId] = ()) -> None:
        self._starting = {one.job_id: one for one in starting}
        self._quiet = set(quiet)

    def image(self) -> tuple[tuple[Started, ...], tuple[JobId, ...]]:
        """Return the arguments that make an equal one."""
        return tuple(self._starting.values()), tuple(self._quiet)

    def take(self, record: ev.Record) -> tuple[Happening, Started | None] | None:
        """Return what happened, and for a start how it came about; None where nobody is told."""
        event = record.event
        match event:
            case ev.AttemptAllocated():
                nodes = tuple(dict.fromkeys(place.node for place in event.places))[: NODES_NAMED + 1]
                quiet = event.job_id in self._quiet
                self._quiet.discard(event.job_id)
                missing = len(event.places)
                self._starting[event.job_id] = Started(
                    event.job_id, event.attempt, missing, nodes, event.waited_ms, quiet
                )
                return None
            case ev.ReplicaStarted():
                return self._started(event, record)
            case ev.AttemptEnded():
                self._starting.pop(event.job_id, None)
                return None
            case ev.JobRequeued():
                if event.reason in _QUIET:
                    self._quiet.add(event.job_id)
                found = Happening("requeued", record, event.job_id) if event.reason in _AGAIN else None
                return (found, None) if found else None
            case ev.JobFinished():
                self._quiet.discard(event.job_id)
                self._starting.pop(event.job_id, None)
                name = {"succeeded": "success", "failed": "failure"}.get(event.state, "cancelled")
                return Happening(name, record, event.job_id), None
        found = _happening(record)
        return (found, None) if found else None

    def _started(self, event: ev.ReplicaStarted, record: ev.Record) -> tuple[Happening, Started] | None:
        known = self._starting.get(event.job_id)
        if known is None or known.attempt != event.attempt:
            return None
        if known.missing > 1:
            self._starting[event.job_id] = msgspec.structs.replace(known, missing=known.missing - 1)
            return None
        del self._starting[event.job_id]
        return None if known.quiet else (Happening("start", record, event.job_id), known)


def _happening(record: ev.Record) -> Happening | None:
    """Return what an event by itself is worth."""
    event = record.event
    match event:
        case ev.AttemptStopRequested() if event.reason in ("preempted", "suspended"):
            return Happening("preempted", record, event.job_id)
        case ev.SpendingNoted():
            return Happening("budget", record, tenant=event.tenant)
        case ev.QuotaNoted() if event.holder.startswith(TENANT_PREFIX):
            return Happening("budget", record, tenant=TenantName(event.holder.removeprefix(TENANT_PREFIX)))
        case ev.TenantHeld() | ev.TenantReleased():
            return Happening("exhausted", record, tenant=event.tenant)
        case ev.NodeLost():
            return Happening("node_lost", record)
        case ev.NodeDrainChanged() if event.draining:
            return Happening("node_closed", record)
    return None


def plain(text: str, most: int = TEXT_MAX) -> str:
    """Return a text of others as one that can stand in a message: printable, in one line, cut where it is long."""
    found = "".join(c if c.isprintable() else " " for c in text[: most + 1]).strip()
    return found if len(found) <= most else found[: most - 3] + "..."


def job_title(job: JobFacts) -> str:
    """Return `job 12 'train'`, of an array with the index."""
    name = plain(job.spec.name, NAME_MAX)
    index = f"[{job.array_index}]" if job.array_id is not None else ""
    return f"job {job.id}{index} '{name}'"


def notice_of_job(happening: Happening, job: JobFacts, start: Started | None, same_tenant: bool) -> Notice:
    """Return the message about a job.

    Args:
        start: how it started, where that is what happened.
        same_tenant: whether the job that it makes room for is of the same tenant, and may be named.
    """
    record, title = happening.record, job_title(job)
    what, text = _said_of_job(record, start, same_tenant=same_tenant)
    return Notice(
        happening.event,
        record.seq,
        record.time_ms,
        f"{title} {what}",
        text,
        f"penstock show {job.id}",
        job.id,
        plain(job.spec.name, NAME_MAX),
        job.array_id,
        job.spec.tenant,
    )


def _said_of_job(record: ev.Record, start: Started | None, *, same_tenant: bool) -> tuple[str, str]:
    """Return what a job did, behind its name, and more of it."""
    event = record.event
    match event:
        case ev.ReplicaStarted():
            assert start is not None
            names = listed(start.nodes[:NODES_NAMED]) + (" and others" if len(start.nodes) > NODES_NAMED else "")
            again = f" again, as attempt {start.attempt}" if start.attempt > 1 else ""
            waited = f", after it waited {format_duration(start.waited_ms)}" if start.waited_ms else ""
            return f"started{again}", f"It runs on {names}{waited}."
        case ev.JobFinished():
            reason = plain(event.reason)
            return event.state + (f": {plain(event.reason, NAME_MAX)}" if reason else ""), _long(reason)
        case ev.AttemptStopRequested():
            rule = STOP_RULES.get(event.rule, "")
            other = f"job {event.beneficiary}" if event.beneficiary is not None and same_tenant else "another job"
            if event.reason == "suspended":
                text = f"It is frozen where it is, and keeps its memory: its CPUs are for {other}"
                return "is suspended", text + (f" ({rule})." if rule else ".")
            text = f"It makes room for {other}" + (f": {rule}." if rule else ".")
            text += f" It has {format_duration(event.grace_ms)} to save, then it waits again and resumes from there."
            return "is preempted", text
        case ev.JobRequeued():
            later = event.not_before_ms - record.time_ms
            pause = f", for {format_duration(later)} at least" if later > 0 else ""
            retry = " This was one of its retries." if event.counts_as_retry else ""
            return f"waits again: {_AGAIN[event.reason]}", f"It is tried again{pause}.{retry}"
    raise AssertionError(f"{type(event).__name__} is of no job")


def _long(reason: str) -> str:
    return f"Reason: {reason}." if len(reason) > NAME_MAX else ""


def notice_of_never(job: JobFacts, never: Never, seq: int, now_ms: int) -> Notice:
    """Return the message about a job that cannot start even when nothing else runs."""
    text = f"It {plain(never.text)}. What would help: {plain(never.resolve)}."
    return Notice(
        "never",
        seq,
        now_ms,
        f"{job_title(job)} can never start as the cluster is",
        text,
        f"penstock explain {job.id}",
        job.id,
        plain(job.spec.name, NAME_MAX),
        job.array_id,
        job.spec.tenant,
    )


def notice_of(happening: Happening) -> Notice:
    """Return the message about a tenant or a node."""
    record = happening.record
    event, seq, time_ms = record.event, record.seq, record.time_ms
    tenant = happening.tenant
    match event:
        case ev.SpendingNoted() | ev.QuotaNoted():
            return Notice(
                "budget", seq, time_ms, plain(event.text), command=f"penstock money accounts {tenant}", tenant=tenant
            )
        case ev.TenantHeld():
            text = "None of its jobs starts until that has changed." + (" What runs saves and leaves." * event.suspend)
            command = f"penstock money accounts {tenant}"
            return Notice("exhausted", seq, time_ms, plain(event.text), text, command, tenant=tenant)
        case ev.TenantReleased():
            title, command = f"jobs of tenant {tenant} start again", f"penstock money accounts {tenant}"
            return Notice("exhausted", seq, time_ms, title, command=command, tenant=tenant)
        case ev.NodeLost():
            title = f"node {event.node} is lost: {plain(event.reason, NAME_MAX)}"
            text = "Its jobs wait again, and start elsewhere."
            return Notice("node_lost", seq, time_ms, title, text, f"penstock nodes {event.node}", node=event.node)
        case ev.NodeDrainChanged():
            title = f"node {event.node} takes no new work: closed by {plain(event.by, NAME_MAX)}"
            text = f"Reason: {plain(event.reason)}." if event.reason else ""
            return Notice("node_closed", seq, time_ms, title, text, f"penstock nodes {event.node}", node=event.node)
    raise AssertionError(f"{type(event).__name__} is of no tenant and no node")
