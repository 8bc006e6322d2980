"""Usage intervals (sessions): the holder, place, amounts and times of each hold. A pure fold of the log.

A session is one replica's hold on its place. A suspended replica holds no CPUs: its session ends there, and another
one begins without them. A partial device counts as its part: a fraction, or a MIG profile by its compute slices.
Folding the same records again gives the same sessions; a record that was folded before is refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.gang import Pairing, halved
from penstock.core.model.ids import (
    AttemptNumber,
    Incarnation,
    JobId,
    NodeName,
    PoolName,
    QueueName,
    Rank,
    TenantName,
    UserName,
)
from penstock.core.model.jobs import GangAsk, JobSpec, ReplicaPlace
from penstock.core.model.measured import Measured
from penstock.core.model.resources import ReplicaAsk

Ended = Literal["", "released", "node_lost", "suspended", "resumed", "edited", "shared"]
"""The cause of a session's end; empty while it lasts."""


class Amounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Amounts held at one time: devices by model and CPUs in thousandths, memory in bytes."""

    models: tuple[tuple[str, int], ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0

    @property
    def device_milli(self) -> int:
        return sum(milli for _, milli in self.models)


class UsageInterval(msgspec.Struct, frozen=True, omit_defaults=True):
    """One hold: [start_ms, end_ms) in unix ms; `end_ms` is 0 while it lasts."""

    job_id: JobId
    attempt: AttemptNumber
    rank: Rank
    tenant: TenantName
    user: UserName
    queue: QueueName
    pool: PoolName
    node: NodeName
    amounts: Amounts
    start_ms: int
    end_ms: int = 0
    ended: Ended = ""
    job_name: str = ""
    priority: int = 500
    preemptible: bool = True
    labels: tuple[tuple[str, str], ...] = ()
    devices: tuple[int, ...] = ()
    """Their indexes on the node."""
    suspended: bool = False
    """It holds its memory alone."""
    energy_mj: int = 0
    """Used by its devices, as measured when the replica ended: also of its earlier sessions, as edits make them."""
    powered_ms: int = 0
    """Device time over which that was measured."""

    def length_ms(self, until_ms: int) -> int:
        """Return how long it has lasted by `until_ms`."""
        return max(0, (self.end_ms or until_ms) - self.start_ms)


class Loss(NamedTuple):
    """An attempt's work since `from_ms` was lost with a failed node; known at `at_ms` (unix ms)."""

    from_ms: int
    at_ms: int


Losses = Mapping[tuple[JobId, AttemptNumber], Loss]


class SeenJob(msgspec.Struct, omit_defaults=True):
    """A job that has not ended."""

    id: JobId
    spec: JobSpec
    user: UserName
    safe_ms: int = 0
    """Work before this time survives a node failure: the attempt's begin, or its last checkpoint."""
    ask: GangAsk | None = None
    """What its present attempt holds of the ask that it was given."""
    alone: GangAsk | None = None
    """The ask that its present attempt was given; None in images of former versions."""


class LogImage(msgspec.Struct, frozen=True):
    """The whole of a `SessionLog`."""

    seq: int
    time_ms: int
    open: tuple[UsageInterval, ...]
    losses: tuple[tuple[JobId, AttemptNumber, int, int], ...]
    jobs: tuple[SeenJob, ...]
    nodes: tuple[NodeSpec, ...]


class SessionLog:
    """Folds records into sessions. `open` holds the open ones; `take` returns the sessions that a record has ended."""

    def __init__(self, image: LogImage | None = None) -> None:
        image = image or LogImage(0, 0, (), (), (), ())
        self.seq = image.seq
        self.time_ms = image.time_ms
        self.open: dict[tuple[JobId, Rank], UsageInterval] = {(s.job_id, s.rank): s for s in image.open}
        self.losses: dict[tuple[JobId, AttemptNumber], Loss] = {
            (job_id, attempt): Loss(from_ms, at_ms) for job_id, attempt, from_ms, at_ms in image.losses
        }
        """Of attempts that ended because a node failed."""
        self._jobs: dict[JobId, SeenJob] = {known.id: known for known in image.jobs}
        self._nodes: dict[NodeName, NodeSpec] = {spec.name: spec for spec in image.nodes}

    def image(self, job_id: JobId | None = None) -> LogImage:
        """Return a copy of everything, to go on from later; or of what concerns one job."""
        found = self._jobs.values() if job_id is None else [known for known in [self._jobs.get(job_id)] if known]
        return LogImage(
            self.seq,
            self.time_ms,
            tuple(session for key, session in self.open.items() if job_id in (None, key[0])),
            tuple((*key, *loss) for key, loss in self.losses.items() if job_id in (None, key[0])),
            tuple(map(replace, found)),
            tuple(self._nodes.values()),
        )

    def take(self, record: ev.Record) -> list[UsageInterval]:
        """Fold one record; return the sessions that it ends, in order of their ranks.

        Raises: BrokenInvariant when it does not follow the last one.
        """
        if record.seq != self.seq + 1:
            raise BrokenInvariant(f"record {record.seq} does not follow {self.seq}")
        self.seq, self.time_ms = record.seq, max(self.time_ms, record.time_ms)
        event = record.event
        match event:
            case ev.JobSubmitted():
                self._jobs[event.job_id] = SeenJob(event.job_id, event.spec, event.user)
            case ev.NodeRegistered():
                self._nodes[event.spec.name] = event.spec
            case ev.AttemptAllocated():
                self._allocated(event, record.time_ms)
            case ev.ReplicaExited():
                return [
                    _with_energy(session, event.exit.measured)
                    for session in self._end([(event.job_id, event.rank)], record.time_ms, "released")
                ]
            case ev.NodeLost():
                lost = sorted(key for key, session in self.open.items() if session.node == event.node)
                return list(self._end(lost, record.time_ms, "node_lost"))
            case ev.AttemptSuspended():
                return self._changed(event.job_id, record.time_ms, "suspended")
            case ev.AttemptResumed():
                return self._changed(event.job_id, record.time_ms, "resumed")
            case ev.DeviceShared() | ev.DeviceShareEnded():
                pairing = event.pairing if isinstance(event, ev.DeviceShared) else None
                return self._shared(event.job_id, record.time_ms, pairing)
            case ev.JobEdited():
                return self._edited(event, record.time_ms)
            case ev.CheckpointSaved():
                self._jobs[event.job_id].safe_ms = record.time_ms
            case ev.AttemptEnded(outcome="lost"):
                self.losses[event.job_id, event.attempt] = Loss(self._jobs[event.job_id].safe_ms, record.time_ms)
            case ev.JobFinished():
                self._jobs.pop(event.job_id, None)
            case _:
                pass
        return []

    def unsafe_since(self, tenant: TenantName) -> Iterator[int]:
        """Yield, for each open session of a tenant, since when its work would be lost with a node."""
        for (job_id, _), session in self.open.items():
            if session.tenant == tenant:
                yield self._jobs[job_id].safe_ms

    def _allocated(self, event: ev.AttemptAllocated, now_ms: int) -> None:
        known = self._jobs[event.job_id]
        spec = known.spec
        chosen = spec.alternatives[event.choice - 1] if event.choice else spec.ask
        known.safe_ms = now_ms
        known.alone = chosen.sized(len(event.places)) if chosen.elastic else chosen
        ask = known.ask = _held(known.alone, event.pairing)
        for number, place in enumerate(event.places):
            rank = Rank(number)
            self.open[event.job_id, rank] = UsageInterval(
                event.job_id,
                event.attempt,
                rank,
                spec.tenant,
                known.user,
                spec.queue,
                ask.pool,
                place.node,
                self._amounts(ask.each_of(rank), place),
                now_ms,
                job_name=spec.name,
                priority=spec.priority,
                preemptible=spec.preemptible,
                labels=spec.labels,
                devices=place.devices,
            )

    def _amounts(self, each: ReplicaAsk, place: ReplicaPlace) -> Amounts:
        models = dict(each.claimed)
        if each.devices is not None and place.devices:
            milli = each.devices.milli // len(place.devices)
            devices = self._nodes[place.node].devices
            for index in place.devices:
                models[devices[index].model] = models.get(devices[index].model, 0) + milli
        return Amounts(tuple(sorted(models.items())), each.host.cpu_milli, each.host.memory_bytes)

    def _end(self, keys: Iterable[tuple[JobId, Rank]], now_ms: int, ended: Ended) -> Iterator[UsageInterval]:
        for key in keys:
            session = self.open.pop(key, None)
            if session is not None:
                yield replace(session, end_ms=now_ms, ended=ended)

    def _changed(self, job_id: JobId, now_ms: int, how: Ended) -> list[UsageInterval]:
        """End the job's sessions, and begin others with its amounts from now on."""
        keys = sorted(key for key in self.open if key[0] == job_id)
        done = list(self._end(keys, now_ms, how))
        for session in done:
            ask = self._jobs[job_id].ask
            assert ask is not None, "it has an attempt"
            cpu_milli = ask.each_of(session.rank).host.cpu_milli if how == "resumed" else 0
            amounts = replace(session.amounts, cpu_milli=cpu_milli)
            begun = replace(session, amounts=amounts, start_ms=now_ms, end_ms=0, ended="", suspended=how == "suspended")
            self.open[job_id, session.rank] = begun
        return done

    def _shared(self, job_id: JobId, now_ms: int, pairing: Pairing | None) -> list[UsageInterval]:
        """End the job's sessions, and begin others with the part of its device that it holds from now on."""
        known = self._jobs[job_id]
        alone = known.alone or known.ask
        assert alone is not None, "it has an attempt"
        known.ask = _held(alone, pairing)
        done = list(self._end(sorted(key for key in self.open if key[0] == job_id), now_ms, "shared"))
        for session in done:
            place = ReplicaPlace(session.node, Incarnation(""), session.devices)
            amounts = replace(session.amounts, models=self._amounts(known.ask.each_of(session.rank), place).models)
            begun = replace(session, amounts=amounts, start_ms=now_ms, end_ms=0, ended="")
            self.open[job_id, session.rank] = begun
        return done

    def _edited(self, event: ev.JobEdited, now_ms: int) -> list[UsageInterval]:
        """End the job's sessions, and begin others at its new priority: what is priced by it changes from now on."""
        known = self._jobs[event.job_id]
        spec = known.spec = event.change.of(known.spec)
        done = list(self._end(sorted(key for key in self.open if key[0] == event.job_id), now_ms, "edited"))
        for session in done:
            self.open[event.job_id, session.rank] = replace(
                session,
                start_ms=now_ms,
                end_ms=0,
                ended="",
                job_name=spec.name,
                priority=spec.priority,
                preemptible=spec.preemptible,
                labels=spec.labels,
            )
        return done


def _held(alone: GangAsk, pairing: Pairing | None) -> GangAsk:
    return alone if pairing is None else halved(alone, pairing.memory_bytes)


def _with_energy(session: UsageInterval, measured: Measured | None) -> UsageInterval:
    if measured is None or measured.energy_mj is None:
        return session
    return replace(session, energy_mj=measured.energy_mj, powered_ms=measured.powered_ms)


def device_ms_between(held: Iterable[UsageInterval], from_ms: int, until_ms: int) -> int:
    """Return how many device-milliseconds were held in [from_ms, until_ms)."""
    milli_ms = 0
    for session in held:
        start_ms, end_ms = max(session.start_ms, from_ms), min(session.end_ms or until_ms, until_ms)
        milli_ms += session.amounts.device_milli * max(0, end_ms - start_ms)
    return milli_ms // 1000


def sessions(records: Iterable[ev.Record]) -> list[UsageInterval]:
    """Return all sessions of a log, the ended ones in the order of their ends, then the open ones."""
    log, done = SessionLog(), list[UsageInterval]()
    for record in records:
        done += log.take(record)
    return done + [log.open[key] for key in sorted(log.open)]
