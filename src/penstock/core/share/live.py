"""Which running jobs are to share a device now, and which are to be parted: read from a state, nothing changed.

All that decides is in the log: use and steps as they were noted, pairs as they stand. So an audit can decide again.
Only jobs of one replica on one whole device take part, of the tenants and pools that allow it.
"""

from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple, TypeVar

from penstock.core.model.cluster import Pool
from penstock.core.model.gang import Pairing, halved
from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import Attempt, GangAsk, Job, ReplicaPlace
from penstock.core.model.pairing import SharingSettings
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.fit import closed_refusal, needs_of, place_free
from penstock.core.preempt.consolidate import can_move, move_cost
from penstock.core.share.pairs import (
    Occupant,
    PairedStep,
    PairProposal,
    Parted,
    Parting,
    Together,
    to_join,
    to_part,
)
from penstock.core.state.state import State

T = TypeVar("T")
FRESH_WINDOWS = 2
"""A note of use counts for this many windows; an older one says nothing of now."""
COVERED_ENOUGH_MILLI = 900
"""A window counts as measured when this part of it was: readings have gaps."""
FULL = 1000
JOBS_SEEN_MAX, GROUPS_SEEN_MAX, GROUP_SEEN_MAX = 256, 2, 24
"""Jobs, groups of jobs that could meet, and jobs of one group that are looked at in one call: some 25 ms."""
DRAWN_EVERY_MS = 2_000


class Beside(NamedTuple):
    """How a job would join another one on its device."""

    place: ReplicaPlace
    mover: Pairing
    stayer: Pairing


def pairs_to_join(state: State, now_ms: int) -> tuple[PairProposal, ...]:
    """Return which jobs to put together now, best first: at most those of the groups looked at in this call.

    Jobs that could meet are a group: of one pool and one model, and of one tenant where tenants do not meet. Where
    there are many, a draw that follows from the time says which are looked at, so that all get their turn.
    """
    draw = now_ms // DRAWN_EVERY_MS
    groups = _groups(state, _drawn(sorted(state.indexes.shareable), JOBS_SEEN_MAX, draw))
    found: list[PairProposal] = []
    for key in _drawn(sorted(groups), GROUPS_SEEN_MAX, draw):
        found += _pairs_of(state, _drawn(groups[key], GROUP_SEEN_MAX, draw), now_ms)
    return tuple(found)


def _drawn(values: list[T], most: int, draw: int) -> list[T]:
    """Return at most so many of the values, in their order: others for each draw, and the same for the same one."""
    if len(values) <= most:
        return values

    def mixed(at: int) -> int:  # the finalizer of MurmurHash3 by Austin Appleby, public domain
        word = (at * 0x9E3779B1 + draw * 0x85EBCA77) & 0xFFFFFFFF
        word = (word ^ word >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        word = (word ^ word >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return word ^ word >> 16

    return [values[at] for at in sorted(nsmallest(most, range(len(values)), key=mixed))]


def _groups(state: State, job_ids: list[JobId]) -> dict[tuple[str, str, str], list[Job]]:
    """Return the jobs that could share a device now, by pool, model, and tenant where tenants do not meet."""
    joined, found = set(state.indexes.stopping.values()), dict[tuple[str, str, str], list[Job]]()
    for job_id in job_ids:
        job = state.jobs[job_id]
        attempt = job.undisturbed
        if attempt is None or job_id in joined or not _may_share(state, job):
            continue
        pool = job.placed.pool
        settings = _settings(state.config.pool_by_name.get(pool))
        if settings is not None:
            place = attempt.replicas[0].place
            model = state.nodes[place.node].spec.devices[place.devices[0]].model
            tenant = "" if settings.across_tenants else job.spec.tenant
            found.setdefault((pool, model, tenant), []).append(job)
    return {key: jobs for key, jobs in found.items() if len(jobs) > 1}


def _pairs_of(state: State, jobs: list[Job], now_ms: int) -> tuple[PairProposal, ...]:
    """Return the pairs of jobs of one pool."""
    settings = _settings(state.config.pool_by_name.get(jobs[0].placed.pool))
    assert settings is not None, "its pool shares devices"
    by_id = {job.id: job for job in jobs}
    running = [one for job in jobs if (one := _occupant(state, job, settings, now_ms)) is not None]
    parted = [Parted((job.id, one.job), one.parted_ms) for job in jobs for one in job.parted if one.job in by_id]

    def fits(mover: Occupant, stayer: Occupant) -> bool:
        return _has_room(state, by_id[mover.job], by_id[stayer.job])

    return to_join(running, parted, settings, now_ms=now_ms, fits=fits)


def pairs_to_part(state: State, now_ms: int) -> tuple[Parting, ...]:
    """Return which pairs to part now, the worst first."""
    by_pool: dict[PoolName, list[Together]] = {}
    for job_id in sorted(state.indexes.shareable):
        job = state.jobs[job_id]
        other = partner(state, job)
        if other is None or other.id < job.id or job.undisturbed is None or other.undisturbed is None:
            continue
        place = job.undisturbed.replicas[0].place
        steps = (_step(job, state, now_ms), _step(other, state, now_ms))
        use_milli = max(one.use.busy_milli if _is_beside(one) else 0 for one in (job, other))
        together = Together(place.node, place.devices[0], steps, use_milli)
        by_pool.setdefault(job.placed.pool, []).append(together)
    found: list[Parting] = []
    for name, pairs in sorted(by_pool.items()):
        found += to_part(pairs, _settings(state.config.pool_by_name.get(name)) or SharingSettings())
    return tuple(found)


def partner(state: State, job: Job) -> Job | None:
    """Return the job with which a running job shares its device now; None where there is none."""
    attempt = job.attempt
    if attempt is None or attempt.pairing is None:
        return None
    other = state.jobs.get(attempt.pairing.other)
    theirs = other.attempt if other is not None else None
    if other is None or theirs is None or theirs.pairing is None or theirs.pairing.other != job.id:
        return None
    return other if theirs.replicas[0].holds else None


def beside(state: State, job: Job, ask: GangAsk, stayer_id: JobId, now_ms: int) -> Beside | None:
    """Return how a waiting job joins `stayer_id` on its device now, None where that is not possible any more.

    Args:
        ask: the shape in which it ran on a device of its own.
    """
    stayer = state.jobs.get(stayer_id)
    if stayer is None or not job.ready or job.cancel_requested or job.not_before_ms > now_ms:
        return None
    settings = _settings(state.config.pool_by_name.get(ask.pool))
    if settings is None or not _may_share(state, stayer) or job.spec.tenant in state.money.holds():
        return None
    if stayer.spec.tenant != job.spec.tenant and not settings.across_tenants:
        return None
    attempt = stayer.attempt
    assert attempt is not None, "what may share runs"
    place = attempt.replicas[0].place
    device = state.nodes[place.node].spec.devices[place.devices[0]]
    used = (job.use.memory_peak_bytes, stayer.use.memory_peak_bytes)
    spare_bytes = device.memory_bytes - sum(used)
    if FULL * spare_bytes < settings.memory_margin_milli * device.memory_bytes:
        return None
    mine_bytes = used[0] + spare_bytes // 2
    left_bytes = device.memory_bytes - mine_bytes
    if not _fits(state, job, ask, stayer, place, mine_bytes, left_bytes):
        return None
    why = "both use their devices little"
    if job.spec.tenant == stayer.spec.tenant:
        why += f", {_percent(job)} and {_percent(stayer)} of the time"
    return Beside(
        place, Pairing(stayer.id, mine_bytes, job.use.step_us, why), Pairing(job.id, left_bytes, _alone_us(stayer), why)
    )


def _settings(pool: Pool | None) -> SharingSettings | None:
    """Return how a pool shares, None where it does not."""
    settings = pool.sharing if pool is not None else SharingSettings()
    halves = pool is None or pool.virtualization in ("any", "time_slicing", "mps")
    return settings if settings.enabled and halves else None


def _may_share(state: State, job: Job) -> bool:
    """Return whether a job runs alone on one device that could be shared."""
    attempt = job.undisturbed
    if attempt is None or not attempt.running_ms or attempt.pairing is not None or attempt.scheduler:
        return False
    ask, place = job.placed_alone, attempt.replicas[0].place
    wanted = ask.each.devices
    if ask.replica_total != 1 or job.spec.ask.elastic or job.spec.lease or wanted is None or ask.each.affinity:
        return False
    if (
        ask.each.claimed
        or not wanted.whole
        or wanted.count != 1
        or wanted.isolation != "none"
        or not attempt.replicas[0].holds
    ):
        return False
    node = state.nodes.get(place.node)
    if node is None or node.state != "ready" or node.draining or place.devices[0] >= len(node.spec.devices):
        return False
    device = node.spec.devices[place.devices[0]]
    reserved = any(place.node in kept.nodes and kept.end_ms > state.time_ms for kept in state.config.reservations)
    return device.healthy and not device.mig and job.spec.shareable and not reserved


def _occupant(state: State, job: Job, settings: SharingSettings, now_ms: int) -> Occupant | None:
    """Return a job as the choice of pairs sees it, None where its use was not measured lately."""
    attempt, use = job.undisturbed, job.use
    if attempt is None or use.attempt != attempt.number or use.beside is not None or not use.memory_peak_bytes:
        return None
    if now_ms - use.noted_ms > FRESH_WINDOWS * max(settings.window_ms, 1):
        return None
    place = attempt.replicas[0].place
    device = state.nodes[place.node].spec.devices[place.devices[0]]
    whole = FULL * use.covered_ms >= COVERED_ENOUGH_MILLI * settings.window_ms
    return Occupant(
        job=job.id,
        tenant=job.spec.tenant,
        node=place.node,
        device=place.devices[0],
        model=device.model,
        device_memory_bytes=device.memory_bytes,
        utilisation_milli=use.busy_milli,
        measured_ms=settings.window_ms if whole else use.covered_ms,
        memory_used_bytes=use.memory_peak_bytes,
        may_share=True,
        movable=can_move(job),
        moving_cost=move_cost(job, state.config.settings, now_ms),
    )


def _step(job: Job, state: State, now_ms: int) -> PairedStep:
    attempt = job.attempt
    assert attempt is not None
    assert attempt.pairing is not None
    known = _is_beside(job)
    return PairedStep(
        job.id,
        attempt.pairing.step_us,
        job.use.step_us if known else 0,
        job.use.steps if known else 0,
        movable=can_move(job),
        moving_cost=move_cost(job, state.config.settings, now_ms),
    )


def _is_beside(job: Job) -> bool:
    """Return whether the last note of use is of the time in which it shared its device with the present other."""
    attempt = job.attempt
    if attempt is None or attempt.pairing is None or job.use.attempt != attempt.number:
        return False
    return job.use.beside == attempt.pairing.other and job.use.noted_ms > attempt.pairing.since_ms


def _alone_us(job: Job) -> int:
    attempt = job.attempt
    return job.use.step_us if attempt is not None and job.use.attempt == attempt.number else 0


def _has_room(state: State, mover: Job, stayer: Job) -> bool:
    """Return whether all that a job needs beside its part of the device is there for it, too."""
    attempt = stayer.undisturbed
    assert attempt is not None
    place = attempt.replicas[0].place
    memory = state.nodes[place.node].spec.devices[place.devices[0]].memory_bytes
    return _fits(state, mover, mover.placed_alone, stayer, place, memory // 2, memory - memory // 2)


def _fits(
    state: State, mover: Job, ask: GangAsk, stayer: Job, place: ReplicaPlace, mine_bytes: int, left_bytes: int
) -> bool:
    free: NodeCapacity = state.indexes.free[place.node]
    here = mover.undisturbed.replicas[0].place if mover.undisturbed is not None else None
    if here is not None and here.node == place.node:
        free = free.put_back(mover.ask.each, here.devices)
    whole = stayer.placed_alone
    free = free.put_back(whole.each, place.devices).take(halved(whole, left_bytes).each, place.devices)
    (need, _), *_ = needs_of(halved(ask, mine_bytes), mover.spec.tenant)
    return not closed_refusal(need, free) and place_free(need.each, free, (place.devices, ()))


def _percent(job: Job) -> str:
    return f"job {job.id} {job.use.busy_milli / 10:g} %"


def lonely(state: State) -> Iterator[tuple[Job, Attempt]]:
    """Yield attempts that hold half of a device whose other half is free, and that may have all of it back."""
    if state.indexes.beneficiaries:
        return  # the other half may have been freed for one of them
    for job_id in sorted(state.indexes.shareable):
        job = state.jobs[job_id]
        attempt = job.undisturbed
        if attempt is None or attempt.pairing is None or partner(state, job) is not None:
            continue
        place = attempt.replicas[0].place
        if attempt.replicas[0].holds and state.indexes.load(place.node).devices.get(place.devices[0]) == [job_id]:
            yield job, attempt
