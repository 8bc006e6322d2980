"""Books: what they keep is what may still count for a bill, and an image of them is as good as they are."""

import random

import msgspec
import pytest

from penstock.core.ledger.books import BooksImage, UsageLog
from penstock.core.ledger.settlement import BilledUse
from penstock.core.model import events as ev
from penstock.core.model.jobs import ExitInfo, ReplicaPlace
from penstock.testing.builders import job_spec, node
from tests.core.ledger.test_settlement import (
    APRIL,
    DAY,
    HOUR,
    MARCH,
    SECOND,
    TENANTS,
    Desk,
    billing_of,
    history,
    job,
    looked,
    moments,
)


@pytest.mark.parametrize("seed", range(4))
def test_books_go_on_from_an_image_at_any_record(seed):
    rng = random.Random(3000 + seed)
    desk = Desk(billing_of(rng), history(rng, 8))
    for now_ms in moments(rng, "seldom"):
        desk.look(now_ms)
    whole = UsageLog()
    whole.take(desk.records)
    for cut in sorted(rng.sample(range(len(desk.records) + 1), 12)):
        first = UsageLog()
        first.take(desk.records[:cut])
        again = UsageLog(msgspec.msgpack.decode(msgspec.msgpack.encode(first.image()), type=BooksImage))
        again.take(desk.records[cut:])
        assert again.image() == whole.image()
        assert again.journal() == whole.journal()
        assert [again.held(name) for name in TENANTS] == [whole.held(name) for name in TENANTS]


def test_what_was_dropped_is_gone_and_what_may_still_count_is_not():
    told = [*job(MARCH, MARCH + DAY), *job(APRIL - HOUR, APRIL + HOUR, 2)[1:], *job(APRIL, 0, 3)[1:]]
    desk = looked(sorted(told, key=lambda one: one[0]), APRIL + DAY + HOUR)
    assert [session.job_id for session in desk.books.held("a").sessions] == [2, 3]
    assert desk.books.tenants() == ["a"]


def test_a_minimum_that_reaches_over_the_border_keeps_its_session():
    books = UsageLog()
    books.take(ev.Record(seq, *one) for seq, one in enumerate(job(APRIL - 90 * SECOND, APRIL - 30 * SECOND), 1))
    books.drop("a", APRIL, 30 * SECOND)
    assert len(books.held("a").sessions) == 1
    books.drop("a", APRIL, 30 * SECOND - 1)
    assert (books.held("a"), books.tenants()) == (BilledUse([], {}), [])


def test_losses_are_dropped_with_their_sessions():
    books = UsageLog()
    books.take(ev.Record(seq, *one) for seq, one in enumerate(job(MARCH, MARCH + HOUR, lost=True), 1))
    assert list(books.held("a").losses) == [(1, 1)]
    books.drop("a", APRIL, 0)
    assert books.log.losses == {}


def test_what_has_ended_of_an_attempt_that_lives_on_is_kept():
    """What a failed node takes of it reaches back to its begin, in all of its replicas."""
    places = (ReplicaPlace("n", "i1", (0,)), ReplicaPlace("n", "i1", (1,)))
    told = [
        (MARCH, ev.NodeRegistered(node("n", 2), "i1")),
        (MARCH, ev.JobSubmitted(1, job_spec(1, 2, tenant="a"), "ann")),
        (MARCH, ev.AttemptAllocated(1, 1, places)),
        (MARCH + HOUR, ev.ReplicaExited(1, 1, 0, ExitInfo(0))),
    ]
    books = UsageLog()
    books.take(ev.Record(seq, *one) for seq, one in enumerate(told, 1))
    books.drop("a", APRIL, 0)
    assert sorted(session.rank for session in books.held("a").sessions) == [0, 1]
