"""Why a running job has its size: what it gains by it, what one replica more would bring, and for whom it changes."""

from penstock.core.elastic.learned import LearnedSpeeds
from penstock.core.elastic.reported import why_not_larger
from penstock.core.elastic.restarts import next_restart_ms, restart_cost_ms
from penstock.core.elastic.rounds import takes_part
from penstock.core.model.batching import REBALANCE, KindSteps, total_of
from penstock.core.model.jobs import Attempt, Job
from penstock.core.model.quantities import format_duration
from penstock.core.model.words import counted
from penstock.core.state.replicas import model_of
from penstock.core.state.snapshot import Snapshot


def why_this_size(job: Job, attempt: Attempt, snapshot: Snapshot, now_ms: int) -> str:
    """Return, for people, how fast an elastic job is at its size, and what one replica more would bring or why not."""
    ask, config = job.spec.ask, snapshot.config
    if not job.spec.adapts or attempt.choice:
        return ""
    mode = config.elastic_mode(job.spec.queue, ask.pool)
    size, nodes = len(attempt.replicas), len({replica.place.node for replica in attempt.replicas})
    text = ""
    if attempt.batch is not None:
        text = f"; its batch is {total_of(attempt.batch, size):,} samples, {attempt.batch.local:,} a replica and pass"
    if not ask.elastic:
        return text
    if mode == "off":
        return f"{text}; it keeps {counted(size, 'replica')}: sizes in its queue and pool are off"
    if kept := why_not_larger(job, config.settings, now_ms):
        return f"{text}; {kept}"
    alike = snapshot.steps.of(job.spec, job.user) if job.spec.batch is not None else None
    learned = LearnedSpeeds().of(job, mode, alike=alike)
    known = "samples, as reported" if job.progress.sizes else "Amdahl's law"
    by = "useful samples" if learned.goodput is not None else known
    now = max(1, learned.curve.speed_milli(size, nodes))
    text += f"; it has {size} of {ask.replicas} to {ask.replicas_max} replicas"
    if size > 1:
        text += f" and is {now / 1000:.1f} times as fast as with one, by {by}"
    if size < ask.replicas_max:
        more = learned.curve.speed_milli(size + 1, nodes)
        text += f"; one more would bring {max(0, 1000 * (more - now) // now) / 10:.0f} %"
        text += "" if size > 1 else f", by {by}"
    return text + _restarts(job, alike, snapshot, now_ms)


def _restarts(job: Job, alike: KindSteps | None, snapshot: Snapshot, now_ms: int) -> str:
    """Return what a change of size costs, and whether it may be changed."""
    cost = format_duration(restart_cost_ms(job, snapshot.config.settings, alike))
    measured = "as measured" if job.progress.restart_ms else "as assumed"
    if not job.progress.restart_ms and alike is not None and alike.restart_ms:
        measured = "as jobs like it measured"
    text = f", and a restart costs {cost}, {measured}"
    pool = snapshot.config.pool_by_name.get(job.spec.ask.pool)
    if pool is None or not takes_part(job.spec, snapshot.config):
        return text
    per_hour = pool.elastic.restarts_per_hour
    until_ms = next_restart_ms(job, per_hour, now_ms)
    if until_ms > now_ms:
        text += f"; it was restarted as often as it may be in an hour ({per_hour})"
    return text


def what_changes(job: Job, attempt: Attempt, snapshot: Snapshot) -> str:
    """Return for people what a round has decided about a job that leaves; '' where none did."""
    stop = attempt.stop
    if stop is None or stop.rule != REBALANCE:
        return ""
    before, after = len(attempt.replicas), len(job.room) if stop.reason == "resized" else 0
    if not after:
        return f"; it waits until a later round has room for it; it had {counted(before, 'replica')}"
    nodes = ", ".join(dict.fromkeys(place.node for place in job.room))
    text = f"; it goes on with {counted(after, 'replica')} after {before}, on {nodes}"
    model = model_of(job.room, snapshot.nodes)
    moves = model and attempt.model and model != attempt.model
    return f"{text} ({model} after {attempt.model})" if moves else text
