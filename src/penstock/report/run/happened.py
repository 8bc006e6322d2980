"""The run in a few sentences: the facts a newcomer needs before looking at any chart."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.model.ids import JobId
from penstock.report.run.model import Interruption, InterruptionKind, JobRow, RunReport
from penstock.report.text import clock, counted, duration, esc

SENTENCES_MAX = 8
NAMES_MAX = 3
_WEIGHTS: dict[InterruptionKind, int] = {"lost": 0, "drained": 2, "preempted": 3, "failed": 4}


class Sentence(NamedTuple):
    time_ms: int
    weight: int
    html: str


def happened(report: RunReport) -> list[str]:
    """Return up to `SENTENCES_MAX` sentences as safe HTML, by time.

    Where there are more, losses and failures come before preemptions, and the last sentence counts the omitted ones.
    """
    told = _Teller(report).sentences()
    left = len(told) - SENTENCES_MAX + 1
    kept = sorted(told, key=lambda s: (s.weight, s.time_ms))[: SENTENCES_MAX - 1] if left > 1 else told
    lines = [
        f"<time>{clock(s.time_ms - report.start_ms)}</time> {s.html}" for s in sorted(kept, key=lambda s: s.time_ms)
    ]
    return [*lines, f"… and {counted(left, 'more event')} in the tables below."] if left > 1 else lines


class _Teller:
    def __init__(self, report: RunReport) -> None:
        self._report = report
        self._jobs = {job.id: job for job in report.jobs}

    def sentences(self) -> list[Sentence]:
        """Return one sentence for each preemption (by beneficiary), node loss, drain, retry and final failure."""
        groups: dict[tuple[object, ...], list[Interruption]] = {}
        for item in self._report.interruptions:
            cause = item.beneficiary if item.kind == "preempted" else item.detail
            groups.setdefault((item.time_ms, item.kind, cause), []).append(item)
        told = [
            Sentence(items[0].time_ms, _WEIGHTS[items[0].kind], self._interruption(items)) for items in groups.values()
        ]
        return told + [
            Sentence(job.ended_ms, 1, f"{self._name(job.id)} failed for good: {esc(job.exit)}.")
            for job in self._report.jobs
            if job.state == "failed" and job.ended_ms is not None
        ]

    def _interruption(self, items: Sequence[Interruption]) -> str:
        first, who = items[0], self._names([i.job_id for i in items])
        if first.kind == "preempted":
            return self._preempted(items, who)
        if first.kind == "lost":
            noticed = f", noticed after {duration(first.noticed_after_ms)}" if first.noticed_after_ms else ""
            return f"{who} lost a replica ({esc(first.detail)}{noticed}). {_resumption(items)}"
        if first.kind == "drained":
            return f"{who} moved away from a node that is being drained. {_resumption(items)}"
        return f"{who} failed ({esc(first.detail)}) and is tried again. {_resumption(items)}"

    def _preempted(self, items: Sequence[Interruption], who: str) -> str:
        first, taker = items[0], self._name(items[0].beneficiary)
        left = [i.left_after_ms for i in items if i.left_after_ms is not None]
        facts = [f"gone {duration(max(left))} after the order"] if left else []
        if first.beneficiary_after_ms is not None:
            facts.append(f"{taker} running {duration(first.beneficiary_after_ms)} after it")
        return f"{who} made room for {taker}{': ' if facts else ''}{', '.join(facts)}. {_resumption(items)}"

    def _names(self, job_ids: Sequence[JobId]) -> str:
        arrays = {self._jobs[i].array_id for i in job_ids}
        if len(job_ids) > 1 and len(arrays) == 1 and None not in arrays:
            return f"{counted(len(job_ids), 'member')} of <b>{esc(self._jobs[job_ids[0]].name or 'an array')}</b>"
        shown = [self._name(i) for i in job_ids[:NAMES_MAX]]
        if len(job_ids) > NAMES_MAX:
            shown.append(counted(len(job_ids) - NAMES_MAX, "more job"))
        return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]

    def _name(self, job_id: JobId | None) -> str:
        job: JobRow | None = self._jobs.get(job_id) if job_id is not None else None
        return f"<b>{esc(job.label)}</b>" if job is not None else "another job"


def _resumption(items: Sequence[Interruption]) -> str:
    """Return how the jobs resumed: of one job with its steps, of several in sum."""
    back = [i for i in items if i.restarted_after_ms is not None]
    if not back:
        return "Not started again."
    latest = max(i.restarted_after_ms or 0 for i in back)
    lost = sum(i.lost_steps or 0 for i in back)
    reported = any(i.lost_steps is not None for i in back)
    steps = f", {counted(lost, 'step')} lost" if reported else ""
    if len(items) == 1:
        at = f" at step {back[0].resumed_step:,}" if back[0].resumed_step is not None else ""
        return f"Back after {duration(latest)}{at}{steps}."
    return f"{len(back)} of {len(items)} back within {duration(latest)}{steps}."
