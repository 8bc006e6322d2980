"""The effect of a request without submitting it: decided on a copy of the state by the code that decides for real."""

from collections.abc import Callable, Mapping, Sequence

from penstock.control.calendar import offsets
from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.explain import explain
from penstock.core.ledger.quote import quote
from penstock.core.lifecycle import requests
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.requests import Refusal
from penstock.core.model import answers
from penstock.core.model.answers import Quote
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job, JobSpec, JobState, ReplicaPlace
from penstock.core.model.plan import Plan
from penstock.core.model.prices import HOUR_MS
from penstock.core.model.start_text import waits_text
from penstock.core.order.extension import Policies
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.state import Image, State
from penstock.sim.forecast.further_jobs import ArrivalDays
from penstock.sim.forecast.outlook import SAMPLES, Lengths, Outlook, outlook

EXPLAINED_MAX = 16
"""Entries of a request that are explained; further ones get only their start times."""


def dry_run(
    image: Image,
    request: requests.Submit,
    now_ms: int,
    lengths: Lengths,
    *,
    finished: Mapping[JobId, JobState] | None = None,
    policies: Policies | None = None,
    samples: int = SAMPLES,
    days: ArrivalDays = (),
    spent: Callable[[], float] = lambda: 0.0,
) -> answers.PlanAnswer | Refusal:
    """Return the planned outcome of the jobs of `request`, or why a submit would be refused.

    Args:
        image: the state as it is; it is not changed.
        finished: final states of the jobs on which the request depends.
        days, spent: see `outlook`.
    """
    state = State.from_image(image)
    reply = requests.submit(Transaction(state, now_ms), request, finished or {})
    if isinstance(reply, Refusal):
        return reply
    plan = PlanChooser(policies).plan(take_snapshot(state), now_ms)
    starting = {start.job_id for start in plan.starts}
    later = [job_id for job_id in reply.job_ids if job_id not in starting]
    seen: Mapping[JobId, Outlook] = {}
    if later:
        seen = outlook(
            state.image(), later, now_ms, lengths, samples=samples, policies=policies, days=days, spent=spent
        )
    jobs, at = [], 0
    for number, new in enumerate(request.jobs):
        count = max(1, new.array)
        ids = reply.job_ids[at : at + count]
        at += count
        jobs.append(_planned(state, plan, seen, ids, now_ms, policies, explained=number < EXPLAINED_MAX))
    return answers.PlanAnswer(now_ms, jobs)


def _planned(
    state: State,
    plan: Plan,
    seen: Mapping[JobId, Outlook],
    ids: Sequence[JobId],
    now_ms: int,
    policies: Policies | None,
    *,
    explained: bool,
) -> answers.PlannedJob:
    """Return the outcome of one entry's jobs: that of the job that starts last."""
    waiting = [job_id for job_id in ids if job_id in seen]
    last = max(waiting, key=lambda i: (-len(seen[i].starts_ms), seen[i].quantile_ms(0.5), i), default=ids[-1])
    job = state.jobs[last]
    found = seen.get(last)
    starts = {start.job_id: start for start in plan.starts}
    places = starts[last].places if last in starts else ()
    chosen = set(ids)
    preempts = tuple(
        answers.PlannedVictim(p.victim, state.jobs[p.victim].spec.name, p.rule)
        for p in plan.preemptions
        if p.beneficiary in chosen
    )
    times = [now_ms] * 3 if found is None else [found.quantile_ms(part) for part in (0.1, 0.5, 0.9)]
    return answers.PlannedJob(
        name=job.spec.name,
        count=len(ids),
        starts_now=found is None,
        places=tuple(answers.PlannedPlace(rank, p.node, p.devices) for rank, p in enumerate(places)),
        preempts=preempts,
        start_p10_ms=times[0],
        start_p50_ms=times[1],
        start_p90_ms=times[2],
        samples=found.samples if found is not None else 1,
        started=len(found.starts_ms) if found is not None else 1,
        text=_text(found, now_ms),
        explanation=explain(state, job, now_ms, policies) if explained and found is not None else None,
        price=_price(state, job, places, times[1] or now_ms),
        device_milli_ms_max=_device_time_max(job.spec),
    )


def _device_time_max(spec: JobSpec) -> int | None:
    """Return the most device time that a job holds within its time limit and retries; None: it has no limit."""
    shapes = [ask.sized(max(ask.replicas, ask.replicas_max)) for ask in (spec.ask, *spec.alternatives)]
    devices_milli = max(shape.charged_milli for shape in shapes)
    if devices_milli and not spec.time_limit_ms:
        return None
    return devices_milli * spec.time_limit_ms * (1 + spec.retries_max)


def _price(state: State, job: Job, places: Sequence[ReplicaPlace], start_ms: int) -> Quote | None:
    """Return the quote for a job by the devices that it gets or may get; None without prices."""
    billing, spec = state.config.billing, job.spec
    if not billing.tariff.prices:
        return None
    nodes = [state.nodes[place.node] for place in places] or list(state.nodes.values())
    given = [[node.spec.devices[i].model for i in place.devices] for node, place in zip(nodes, places, strict=False)]
    pool = (d.model for node in nodes if node.spec.pool == spec.ask.pool for d in node.spec.devices)
    models = sorted({model for one in given for model in one} or set(pool))
    length_ms = job.predicted_ms or spec.estimated_duration_ms or spec.time_limit_ms
    zone = offsets(billing.time_zone, start_ms, start_ms + max(HOUR_MS, length_ms))
    return quote(spec, models, billing, zone, start_ms, length_ms)


def _text(found: Outlook | None, now_ms: int) -> str:
    if found is None:
        return "starts now"
    half = found.quantile_ms(0.5)
    if not found.samples:
        return "waits; for how long could not be worked out in time"
    if not found.starts_ms:
        return "is not estimated to start within 30 days"
    if not half:
        return f"may start, in {len(found.starts_ms)} of {found.samples} samples"
    return waits_text(now_ms, found.quantile_ms(0.1), half, found.quantile_ms(0.9))
