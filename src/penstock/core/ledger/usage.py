"""Usage as a pure fold of the log: device-time and CPU-time from allocation to release, exactly once."""

from collections.abc import Iterable

import msgspec

from penstock.core.model.events import (
    AttemptAllocated,
    AttemptResumed,
    AttemptSuspended,
    JobSubmitted,
    NodeLost,
    Record,
    ReplicaExited,
)
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank
from penstock.core.model.jobs import JobSpec


class Holding(msgspec.Struct, frozen=True):
    """One replica's hold on its place: [start_ms, end_ms); open holds end at the fold's `until_ms`."""

    job_id: JobId
    attempt: AttemptNumber
    rank: Rank
    node: NodeName
    devices: tuple[int, ...]
    start_ms: int
    end_ms: int
    open: bool = False


class Usage(msgspec.Struct):
    """Totals of one tenant; device-milliseconds and CPU-milliseconds (of one whole core)."""

    tenant: str
    device_ms: int = 0
    cpu_ms: int = 0
    attempts: int = 0
    jobs: int = 0


def holdings(records: Iterable[Record], until_ms: int) -> tuple[list[Holding], dict[JobId, JobSpec]]:
    """Return every hold in the log, in order of its end, and the specs of the jobs seen.

    A suspended attempt has neither devices nor CPUs: it holds nothing that counts here.
    """
    specs: dict[JobId, JobSpec] = {}
    live: dict[tuple[JobId, Rank], Holding] = {}
    suspended: dict[tuple[JobId, Rank], Holding] = {}
    done: list[Holding] = []
    for record in records:
        event = record.event
        if isinstance(event, JobSubmitted):
            specs[event.job_id] = event.spec
        elif isinstance(event, AttemptAllocated):
            for rank, place in enumerate(event.places):
                live[event.job_id, Rank(rank)] = Holding(
                    event.job_id, event.attempt, Rank(rank), place.node, place.devices, record.time_ms, until_ms, True
                )
        elif isinstance(event, ReplicaExited):
            _close(live, done, (event.job_id, event.rank), record.time_ms)
            suspended.pop((event.job_id, event.rank), None)
        elif isinstance(event, AttemptSuspended):
            for key in sorted(k for k in live if k[0] == event.job_id):
                suspended[key] = live[key]
                _close(live, done, key, record.time_ms)
        elif isinstance(event, AttemptResumed):
            for key in sorted(k for k in suspended if k[0] == event.job_id):
                live[key] = msgspec.structs.replace(suspended.pop(key), start_ms=record.time_ms)
        elif isinstance(event, NodeLost):
            for key in sorted(k for k, h in live.items() if h.node == event.node):
                _close(live, done, key, record.time_ms)
            for key in [k for k, h in suspended.items() if h.node == event.node]:
                del suspended[key]
    return done + [live[key] for key in sorted(live)], specs


def _close(live: dict[tuple[JobId, Rank], Holding], done: list[Holding], key: tuple[JobId, Rank], end_ms: int) -> None:
    held = live.pop(key, None)
    if held is not None:
        done.append(msgspec.structs.replace(held, end_ms=end_ms, open=False))


def usage_by_tenant(records: Iterable[Record], until_ms: int) -> list[Usage]:
    """Return totals per tenant, by name. Shares of the whole are the caller's to derive."""
    held, specs = holdings(records, until_ms)
    totals: dict[str, Usage] = {}
    for spec in specs.values():
        totals.setdefault(spec.tenant, Usage(spec.tenant)).jobs += 1
    attempts: set[tuple[JobId, AttemptNumber]] = set()
    for hold in held:
        spec = specs[hold.job_id]
        usage = totals[spec.tenant]
        length_ms = max(0, hold.end_ms - hold.start_ms)
        usage.device_ms += length_ms * len(hold.devices)
        usage.cpu_ms += length_ms * spec.ask.each.host.cpu_milli // 1000
        if (hold.job_id, hold.attempt) not in attempts:
            attempts.add((hold.job_id, hold.attempt))
            usage.attempts += 1
    return [totals[name] for name in sorted(totals)]
