"""Notes about attempts that are idle while they hold their places: one each, once the queue's idle time is over.

Where the queue wants them to make room, plans decide when, once a job waits for it (`core/preempt`).
"""

from penstock.core.lifecycle.transaction import Transaction
from penstock.core.model.events import IdleNoted
from penstock.core.state.idleness import idle_for_ms, idle_of


def note_idle(tx: Transaction) -> None:
    """Note each attempt that has been idle for long enough, unless that was noted."""
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
