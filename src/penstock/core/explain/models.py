"""How a job does on the device models of its pool, in words: where it runs, what another would gain, who says so."""

from collections import Counter
from collections.abc import Collection, Mapping

from penstock.core.elastic.model_rates import Rate, rates_of
from penstock.core.model.cluster import Pool
from penstock.core.model.jobs import Attempt, GangAsk, Job
from penstock.core.model.words import counted
from penstock.core.place.fit import capacity, needs_of
from penstock.core.preempt.consolidate import can_move
from penstock.core.state.replicas import model_of
from penstock.core.state.snapshot import Snapshot

EQUAL_MILLI = 1_050
"""Models on which a job is less than 5 % faster are said to be as good."""


def model_text(job: Job, snapshot: Snapshot) -> str:
    """Return, to be added to a sentence, how the job does on the models of a pool that matches them; '' for nothing."""
    pool = snapshot.config.matching.get(job.placed.pool)
    wanted = job.spec.ask.each.devices
    if pool is None or wanted is None or not wanted.whole:
        return ""
    shapes = {free.shape for free in snapshot.free.values() if free.shape.pool == pool.name}
    models = {device.model for shape in shapes for device in shape.devices if wanted.accepts(device) is None}
    known = snapshot.model_speeds
    rates = rates_of(job, known.of(job.spec, job.user), pool.speeds, known.usual, models)
    if len(models) < 2:
        return ""
    if job.attempt is None:
        return _waiting(pool, rates)
    if not job.attempt.model:
        return _mixed(job, job.attempt, pool, rates, snapshot)
    return _running(job, pool, rates, models)


def _waiting(pool: Pool, rates: Mapping[str, Rate]) -> str:
    if len(rates) < 2:
        return ""
    best, worst = _ends(rates)
    return f"; it is {_times(pool, rates, best, worst)}" if _differ(rates, best, worst) else ""


def _running(job: Job, pool: Pool, rates: Mapping[str, Rate], models: Collection[str]) -> str:
    attempt = job.attempt
    assert attempt is not None
    here = attempt.model
    if here not in rates or len(rates) < 2:
        unknown = sorted(set(models) - {here})
        return f"; it runs on {here}, and how fast it is on {', '.join(unknown)} is not known yet"
    others = {model: rate for model, rate in rates.items() if model != here}
    best, worst = _ends(others)
    if rates[best].rate * 1000 > rates[here].rate * EQUAL_MILLI:
        return f"; it runs on {here}, and is {_times(pool, rates, best, here)}: {_why_not_there(job, pool)}"
    if not _differ(rates, here, worst):
        return f"; it runs on {here}, and is hardly faster anywhere else ({_source(rates, here, worst)})"
    return f"; it runs on {here}, {_times(pool, rates, here, worst)}"


def _mixed(job: Job, attempt: Attempt, pool: Pool, rates: Mapping[str, Rate], snapshot: Snapshot) -> str:
    """Return what several models mean for a gang, and how much room the best one has for it."""
    nodes = snapshot.nodes
    held = Counter(nodes[r.place.node].spec.devices[i].model for r in attempt.replicas for i in r.place.devices)
    text = "; it runs on " + " and ".join(f"{count} {model}" for model, count in sorted(held.items()))
    if len(rates) < 2 or not all(model in rates for model in held):
        return f"{text}, as fast as on the slowest of them"
    best, _ = _ends(rates)
    slowest = min(held, key=lambda model: (rates[model].rate, model))
    text += f", as fast as on {slowest} alone"
    if not _differ(rates, best, slowest):
        return f"{text}, and is hardly faster on {best} ({_source(rates, best, slowest)})"
    text += f": it is {_times(pool, rates, best, slowest)}"
    there = sum(model_of([replica.place], nodes) == best for replica in attempt.replicas)
    room, wanted = there + _room_on(job.ask, best, snapshot), job.ask.replicas
    if room < wanted:
        text += f", but {best} has room for {room} of its {counted(wanted, 'replica')}"
        return f"{text}, with those that it has there"
    return f"{text}: {_why_not_there(job, pool)}"


def _room_on(ask: GangAsk, model: str, snapshot: Snapshot) -> int:
    """Return how many replicas of a gang fit on free devices of one model."""
    need = needs_of(ask.on_models((model,)))[0][0]
    return sum(capacity(need, free, ask.replicas) for free in snapshot.free.values())


def _why_not_there(job: Job, pool: Pool) -> str:
    if not pool.models.moves:
        return "running jobs do not move in this pool (`models: move`)"
    if not can_move(job):
        return "it stays, for it has not said how it saves, or must not be preempted"
    return "it moves when it gets room there that pays for its restart, and that others do not need more"


def _ends(rates: Mapping[str, Rate]) -> tuple[str, str]:
    """Return the fastest and the slowest model."""
    ordered = sorted(rates, key=lambda model: (-rates[model].rate, model))
    return ordered[0], ordered[-1]


def _differ(rates: Mapping[str, Rate], fast: str, slow: str) -> bool:
    return rates[fast].rate * 1000 > rates[slow].rate * EQUAL_MILLI


def _times(pool: Pool, rates: Mapping[str, Rate], fast: str, slow: str) -> str:
    """Return how much faster the job is on one model than on another, at which cost, and who says so."""
    tenths = 10 * rates[fast].rate // rates[slow].rate
    hundredths = 100 * rates[fast].rate // rates[slow].rate
    times = f"{tenths / 10:g}" if tenths >= 12 else f"{hundredths / 100:g}"
    text = f"{times} times as fast on {fast} as on {slow}"
    costs = {model: cost for model, _, cost in pool.speeds}
    one, other = costs.get(fast, 1000), costs.get(slow, 1000)
    if one != other:
        text += f", for {10 * one // max(1, other) / 10:g} times its cost"
    return f"{text} ({_source(rates, fast, slow)})"


def _source(rates: Mapping[str, Rate], fast: str, slow: str) -> str:
    pair = (rates[fast], rates[slow])
    found = ["its own reports"] if any(one.source == "own" for one in pair) else []
    runs = max((one.runs for one in pair if one.source == "similar"), default=0)
    if runs:
        found.append(f"measured on {counted(runs, 'run')} like it")
    if any(one.source == "declared" for one in pair):
        found.append("`speeds` of the pool")
    if any(one.source == "usual" for one in pair):
        found.append("what is usual for jobs here")
    return ", ".join(found)
