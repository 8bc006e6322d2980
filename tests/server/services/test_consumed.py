"""Usage up to now is folded on from one question to the next: what came since is in it, and the rest is not twice."""

from types import SimpleNamespace

from penstock.core.ledger.consumption import Consumption
from penstock.server.services import consumed
from penstock.server.services.consumed import ConsumedSince
from penstock.testing.harness import World, node


def backend(w):
    asked = []

    def records(after, limit):
        asked.append(after)
        return w.records[after : after + limit]

    clock = SimpleNamespace(unix_ms=lambda: w.now)
    return SimpleNamespace(clock=clock, log=SimpleNamespace(records=records)), asked


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
    since = ConsumedSince(known)
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
    since = ConsumedSince(known)
    for from_ms in (0, begin, *range(1, consumed.FOLDS_MAX)):
        assert since.rows(("user",), from_ms) == at_once(w, ("user",), from_ms)
    asked.clear()
    since.rows(("user",), begin)
    assert asked[0] != 0
    since.rows(("user",), 0)
    assert 0 in asked
    assert len(since._folds) == consumed.FOLDS_MAX


def test_a_fold_that_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(consumed, "SIZE_MAX", 1)
    w = World(node("a", 2))
    ran(w, 1_000)
    ran(w, 1_000)
    since = ConsumedSince(backend(w)[0])
    assert len(since.rows(("job",), 0)) == 2
    assert not since._folds
