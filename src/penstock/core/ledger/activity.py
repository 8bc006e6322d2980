"""How attempts used their allocations over time, as far as known: a fold of the log beside that of sessions.

Sources are programs' own reports, as the server noted them, and hangs that were found. A note holds until the next
one, and no longer than `known_for_ms`: a silent program is noted again with the same numbers, which adds nothing. Where
a program says nothing, the use of its devices counts, as its nodes measured it (`UseNoted`: of the time before it). The
rest of the time is not known.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, JobId
from penstock.core.model.progress import Gauges
from penstock.core.state.idleness import IdleCause, known_for_ms, tells_more

_FOREVER_MS = 2**62
AttemptKey = tuple[JobId, AttemptNumber]


class ActivityPart(NamedTuple):
    """[from_ms, until_ms) in which an attempt was idle for this part of its time (thousandths), and why."""

    from_ms: int
    until_ms: int
    cause: IdleCause
    idle_milli: int


class Activity:
    """Folds records. A hang reaches back to the last step: pieces are final once their attempt has ended."""

    def __init__(self) -> None:
        self._pieces: dict[AttemptKey, list[ActivityPart]] = {}
        self._noted: dict[AttemptKey, tuple[int, Gauges]] = {}
        """Step and gauges of the last note of each live attempt."""
        self._measured: dict[AttemptKey, list[ActivityPart]] = {}
        """By nodes; of times about which the program may say something, too: its own words go first."""

    def take(self, record: ev.Record) -> None:
        event, now_ms = record.event, record.time_ms
        match event:
            case ev.ProgressNoted():
                self._note((event.job_id, event.attempt), event.step, event.gauges, now_ms)
            case ev.HangFound():
                pieces = self._cut((event.job_id, event.attempt), now_ms - event.idle_ms)
                pieces.append(ActivityPart(now_ms - event.idle_ms, _FOREVER_MS, "hang", 1000))
            case ev.AttemptResumed() if (event.job_id, event.attempt) in self._noted:
                _, gauges = self._noted[event.job_id, event.attempt]
                self._put((event.job_id, event.attempt), gauges, now_ms)
            case ev.CheckpointSaved() if self._hangs((event.job_id, event.attempt)):
                self._cut((event.job_id, event.attempt), now_ms)
            case ev.UseNoted():
                self._measure((event.job_id, event.attempt), now_ms - event.covered_ms, now_ms, event.busy_milli)
            case ev.AttemptEnded():
                self._noted.pop((event.job_id, event.attempt), None)
            case _:
                pass

    def between(self, key: AttemptKey, start_ms: int, end_ms: int) -> Iterator[ActivityPart]:
        """Yield the known activity of an attempt in [start_ms, end_ms), cut to it, in order."""
        measured = self._measured.get(key, ())
        for piece in _cut_to(self._pieces.get(key, ()), start_ms, end_ms):
            yield from _cut_to(measured, start_ms, piece.from_ms)
            yield piece
            start_ms = piece.until_ms
        yield from _cut_to(measured, start_ms, end_ms)

    def of(self, keys: Collection[AttemptKey]) -> "Activity":
        """Return a copy with these attempts alone, to read or to fold on."""
        found = Activity()
        found._pieces = {key: list(self._pieces[key]) for key in keys if key in self._pieces}
        found._noted = {key: self._noted[key] for key in keys if key in self._noted}
        found._measured = {key: list(self._measured[key]) for key in keys if key in self._measured}
        return found

    def forget(self, key: AttemptKey) -> None:
        """Drop the activity of an ended attempt, once no caller needs it any more."""
        if key not in self._noted:
            self._pieces.pop(key, None)
            self._measured.pop(key, None)

    def keep(self, keys: Collection[AttemptKey]) -> None:
        """Drop all attempts but these and the live ones."""
        for key in [key for key in self._pieces.keys() | self._measured.keys() if key not in keys]:
            self.forget(key)

    def _measure(self, key: AttemptKey, from_ms: int, until_ms: int, busy_milli: int) -> None:
        known = self._measured.setdefault(key, [])
        from_ms = max(from_ms, known[-1].until_ms) if known else from_ms
        if from_ms < until_ms:
            known.append(ActivityPart(from_ms, until_ms, "unused", 1000 - busy_milli))

    def _note(self, key: AttemptKey, step: int, gauges: Gauges, now_ms: int) -> None:
        if tells_more(self._noted.get(key), step, gauges):
            self._noted[key] = step, gauges
            self._put(key, gauges, now_ms)

    def _put(self, key: AttemptKey, gauges: Gauges, now_ms: int) -> None:
        pieces = self._cut(key, now_ms)
        until_ms = now_ms + known_for_ms(gauges)
        last = pieces[-1] if pieces else None
        if last is not None and last[1:] == (now_ms, "data", gauges.data_wait_milli):
            pieces[-1] = last._replace(until_ms=until_ms)
        else:
            pieces.append(ActivityPart(now_ms, until_ms, "data", gauges.data_wait_milli))

    def _cut(self, key: AttemptKey, at_ms: int) -> list[ActivityPart]:
        """Return the pieces of an attempt, cut to end at a moment."""
        pieces = self._pieces.setdefault(key, [])
        while pieces and pieces[-1].from_ms >= at_ms:
            pieces.pop()
        if pieces and pieces[-1].until_ms > at_ms:
            pieces[-1] = pieces[-1]._replace(until_ms=at_ms)
        return pieces

    def _hangs(self, key: AttemptKey) -> bool:
        pieces = self._pieces.get(key)
        return pieces is not None and len(pieces) > 0 and pieces[-1].until_ms == _FOREVER_MS


def _cut_to(pieces: Sequence[ActivityPart], start_ms: int, end_ms: int) -> Iterator[ActivityPart]:
    first = max(0, bisect_right(pieces, start_ms, key=lambda piece: piece.from_ms) - 1)
    for at in range(first, len(pieces)):
        begin_ms, finish_ms = max(start_ms, pieces[at].from_ms), min(end_ms, pieces[at].until_ms)
        if pieces[at].from_ms >= end_ms:
            return
        if begin_ms < finish_ms:
            yield pieces[at]._replace(from_ms=begin_ms, until_ms=finish_ms)
