"""Usage up to now is folded on from one question to the next: what came since is in it, and the rest is not twice."""

from types import SimpleNamespace

from penstock.core.ledger.consumption import Consumption
from penstock.server.services import consumed, held
from penstock.server.services.consumed import ConsumedSince
from penstock.server.services.held import HeldLog
from penstock.testing.harness import World, node


def backend(w):
    asked = []

    def records(after, limit):
        asked.append(after)
        return w.records[after : after + limit]

    clock = SimpleNamespace(unix_ms=lambda: w.now)
    log, state = SimpleNamespace(records=records), SimpleNamespace(config=w.state.config)
    return SimpleNamespace(clock=clock, log=log, state=state), asked


def consumed_since(known):
    return ConsumedSince(known, HeldLog(known))


def ran(w, length_ms):
    job = w.submit(1)
    w.run(job)
    w.now += length_ms
    w.exit_replica(job, 0)


def at_once(w, by, from_ms):
    found = Consumption(by, from_ms, w.now)
    found.take(w.records)
    return found.rows()


def test_a_second_question_folds_only_what_is_new():
    w = World(node("a", 2))
    ran(w, 1_000)
    known, asked = backend(w)
    since = consumed_since(known)
    assert since.rows(("tenant",), 0) == at_once(w, ("tenant",), 0)
    first = len(w.records)
    asked.clear()
    ran(w, 500)
    assert since.rows(("tenant",), 0) == at_once(w, ("tenant",), 0)
    assert asked[0] == first


def test_questions_are_kept_apart_and_only_the_latest():
    w = World(node("a", 2))
    ran(w, 1_000)
    begin = w.now
    ran(w, 500)
    known, asked = backend(w)
    since = consumed_since(known)
    for from_ms in (0, begin, *range(1, consumed.FOLDS_MAX)):
        assert since.rows(("user",), from_ms) == at_once(w, ("user",), from_ms)
    asked.clear()
    latest = since._folds[("user",), begin]
    since.rows(("user",), begin)
    assert since._folds[("user",), begin] is latest
    assert 0 not in asked
    assert (("user",), 0) not in since._folds
    assert len(since._folds) == consumed.FOLDS_MAX


def test_a_fold_that_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(consumed, "SIZE_MAX", 1)
    w = World(node("a", 2))
    ran(w, 1_000)
    ran(w, 1_000)
    since = consumed_since(backend(w)[0])
    assert len(since.rows(("job",), 0)) == 2
    assert not since._folds


def test_the_sums_of_one_job_are_those_of_its_row():
    w = World(node("a", 2))
    for length_ms in (1_000, 500, 700):
        ran(w, length_ms)
    begin = w.now
    w.run(w.submit(1))
    w.now += 300
    since = consumed_since(backend(w)[0])
    for from_ms in (0, begin):
        by_job = {row.job: [row] for row in at_once(w, ("tenant", "job"), from_ms)}
        for job_id in (1, 2, 4, 9):
            assert since.of_job(("tenant", "job"), from_ms, job_id) == by_job.get(job_id, [])


def test_sums_since_a_time_whose_use_is_no_longer_in_memory_are_folded_from_the_log(monkeypatch):
    monkeypatch.setattr(held, "BATCH", 20)
    monkeypatch.setattr(held, "KEPT_MS", 1_000)
    w = World(node("a", 2))
    for _ in range(80):
        ran(w, 86_400_000)
    known, _ = backend(w)
    since = consumed_since(known)
    assert since._held.image(0) is None
    for by in (("tenant",), ("tenant", "job")):
        assert since.rows(by, 0) == at_once(w, by, 0)
    assert since.of_job(("tenant", "job"), 0, 2) == [row for row in at_once(w, ("tenant", "job"), 0) if row.job == 2]
