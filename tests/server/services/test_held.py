"""What was held is folded once for all questions: sessions are dropped by age and number, never what still counts."""

import random

from msgspec.structs import replace

from penstock.core.ledger.activity import Activity
from penstock.core.ledger.books import UsageLog
from penstock.server.services import held
from penstock.server.services.held import HeldLog
from penstock.testing.harness import World, node, note
from tests.server.services.test_consumed import backend, ran

DAY = 86_400_000


def long_past(jobs=60):
    w, chance = World(node("a", 4)), random.Random(7)
    for number in range(jobs):
        w.now += chance.randrange(DAY)
        job = w.submit(1)
        w.run(job)
        if number % 3 == 0:
            note(w, job, 1, step_ms=1_000, data_wait_milli=chance.randrange(1_000))
        w.now += chance.randrange(DAY)
        w.exit_replica(job, 0)
    w.run(w.submit(1))
    return w


def parts(log, from_ms, until_ms):
    """Return the sessions that overlap a span, and how each was used in it."""
    use = log.since(from_ms, lambda _: True)
    found = [s for one in use.uses.values() for s in one.sessions if s.start_ms < until_ms]
    return {
        (s.job_id, s.start_ms, s.end_ms): list(use.activity.between((s.job_id, s.attempt), from_ms, until_ms))
        for s in found
        if not s.end_ms or s.end_ms > from_ms
    }


def test_what_counts_since_a_time_is_what_the_whole_log_says_however_little_is_kept(monkeypatch):
    w = long_past()
    known, asked = backend(w)
    whole = HeldLog(known)
    monkeypatch.setattr(held, "BATCH", 7)
    monkeypatch.setattr(held, "KEPT_MS", 20 * DAY)
    few = HeldLog(known)
    for ago in (1, 10, 19, 45, 70, 3, 19):
        assert parts(few, w.now - ago * DAY, w.now) == parts(whole, w.now - ago * DAY, w.now)
    assert few._fold.books.ended < whole._fold.books.ended == 60
    asked.clear()
    ran(w, 1_000)
    parts(few, w.now - DAY, w.now)
    assert 0 not in asked, "it goes on with what is kept"


def test_many_sessions_are_kept_for_a_shorter_time(monkeypatch):
    w = long_past()
    known, _ = backend(w)
    monkeypatch.setattr(held, "BATCH", 7)
    monkeypatch.setattr(held, "SESSIONS_MAX", 12)
    few, whole = HeldLog(known), UsageLog()
    whole.take(w.records)
    found = parts(few, w.now - DAY, w.now)
    assert found
    assert few._fold.books.ended <= 2 * 12 + 7 + 31, "a month is kept as a whole"
    assert few._kept_ms < held.KEPT_MS
    sessions = {s.job_id for s in (*whole.all_ended(), *whole.log.open.values())}
    assert {key for key, *_ in parts(few, 0, w.now + 1)} == sessions


def test_other_prices_begin_a_new_fold_as_they_may_reach_back():
    w = long_past(3)
    known, asked = backend(w)
    log = HeldLog(known)
    log.since(0, lambda _: True)
    asked.clear()
    billing = w.state.config.billing
    known.state.config = replace(w.state.config, billing=replace(billing, tax_milli=billing.tax_milli + 1))
    log.since(0, lambda _: True)
    assert asked[0] == 0


def test_a_copy_of_activity_does_not_follow_the_log():
    w = World(node("a", 2))
    job = w.submit(1)
    w.run(job)
    note(w, job, 1, step_ms=1_000, data_wait_milli=500)
    activity = Activity()
    for record in w.records:
        activity.take(record)
    copy, known = activity.of({(job, 1)}), len(w.records)
    before = list(copy.between((job, 1), 0, w.now + 5_000))
    w.now += 1_000
    w.exit_replica(job, 0)
    for record in w.records[known:]:
        activity.take(record)
    activity.keep(())
    assert before
    assert list(copy.between((job, 1), 0, w.now + 4_000)) == before
