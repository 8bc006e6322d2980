"""What is said of attempts that are idle while they hold their places: once, after as long as their queue allows.

What follows, where the queue wants that, is for plans to decide: they make room when somebody waits (`room/maker.py`).
"""

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import IdleNoted
from penstock.core.state.idleness import idle_for_ms, idle_of


def note_idle(tx: Transaction) -> None:
    """Say of each attempt that is idle for long enough that it is, unless that was said."""
    rules = tx.state.config.idle_rules
    if not rules:
        return
    for job_id in sorted(tx.state.indexes.idle):
        job = tx.state.jobs[job_id]
        rule, idle = rules.get(job.spec.queue), idle_of(job, tx.now_ms)
        if rule is None or idle is None or job.attempt is None or job.progress.idle_noted:
            continue
        for_ms = idle_for_ms(job, idle, tx.now_ms)
        if for_ms >= rule.after_ms:
            reclaim = rule.reclaim == "when_wanted"
            tx.emit(IdleNoted(job_id, job.attempt.number, idle.cause, for_ms, idle.text, reclaim))
