"""Timelines: pages of rows, what others may see of them, and how much was held where there are too many bars."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ledger import timeline as tl
from penstock.core.ledger.allocations import Allocation
from penstock.core.ledger.timeline import BUCKETS, PastAllocations, Question, timeline_of
from tests.properties import examples


def bar(job, start_ms, end_ms, node="n1", tenant="vision", milli=1_000, user="ann"):
    return Allocation(job, 1, node, start_ms, end_ms, milli, tenant, user, f"job-{job}", (0,), "succeeded")


def asked(bars, question, sees=lambda _: True, nodes=(), now_ms=1_000):
    past = PastAllocations()
    past.add(one for one in bars if one.end_ms)
    source = past.between(question.from_ms, question.until_ms, [one for one in bars if not one.end_ms])
    return timeline_of(source, question, sees, nodes, now_ms=now_ms)


def test_what_overlaps_the_window_is_found_on_its_row():
    bars = [bar(1, 0, 10), bar(2, 5, 20, "n2"), bar(3, 20, 30), bar(4, 15, 0)]
    found = asked(bars, Question(10, 20), nodes=["n1", "n2", "n3"])
    assert [(row.key, row.bars) for row in found.rows] == [("n1", 1), ("n2", 1), ("n3", 0)]
    assert [one.job_id for one in found.bars] == [4, 2]
    assert (found.total, found.merged, found.following) == (2, False, "")


@pytest.mark.parametrize(
    ("filters", "jobs"),
    [({"node": "n2"}, [2]), ({"tenant": "audio"}, [3]), ({"user": "bob"}, [4]), ({"job": 1}, [1])],
)
@pytest.mark.parametrize("by", ["node", "job"])
def test_filters_keep_what_matches(by, filters, jobs):
    bars = [bar(1, 0, 9), bar(2, 0, 9, "n2"), bar(3, 0, 9, tenant="audio"), bar(4, 0, 9, user="bob")]
    found = asked(bars, Question(0, 10, by, **filters), nodes=["n1", "n2"])
    assert [one.job_id for one in found.bars] == jobs
    assert len(found.rows) == 1


@pytest.mark.parametrize(
    ("question", "jobs"),
    [
        (Question(0, 10), [1, 2]),
        (Question(0, 10, "tenant"), [1]),
        (Question(0, 10, "user"), [1]),
        (Question(0, 10, "job"), [1]),
        (Question(0, 10, tenant="audio"), []),
        (Question(0, 10, user="ann"), [1]),
        (Question(0, 10, job=2), []),
    ],
)
def test_what_the_caller_does_not_see_is_on_rows_of_nodes_alone_and_no_filter_finds_it(question, jobs):
    found = asked([bar(1, 0, 9), bar(2, 0, 9, tenant="audio")], question, lambda tenant: tenant == "vision")
    assert [one.job_id for one in found.bars] == jobs


def test_pages_of_rows_follow_each_other():
    bars = [bar(job, 0, 9) for job in (1, 2, 9, 10, 30)]
    pages, after = [], ""
    while True:
        found = asked(bars, Question(0, 10, "job", rows=2, after=after))
        pages.append([one.job_id for one in found.bars])
        after = found.following
        if not after:
            break
    assert pages == [[1, 2], [9, 10], [30]]


@pytest.mark.parametrize("by", ["node", "tenant", "user", "job"])
def test_more_allocations_than_are_remembered_are_shown_alike(monkeypatch, by):
    bars = [bar(job, job % 7, job + 9 if job % 3 else 0, f"n{job % 4}", user=f"u{job % 3}") for job in range(30)]
    questions = [Question(5, 20, by, rows=2), Question(5, 20, by, after="3"), Question(5, 20, by, user="u1")]
    known = [asked(bars, question, nodes=["n0", "n9"]) for question in questions]
    monkeypatch.setattr(tl, "COLLECTED_MAX", 3)
    assert [asked(bars, question, nodes=["n0", "n9"]) for question in questions] == known
    assert all(one.bars for one in known)


def test_what_has_ended_is_packed_and_the_oldest_is_dropped(monkeypatch):
    monkeypatch.setattr(tl, "PACK", 2)
    monkeypatch.setattr(tl, "PACKS_MAX", 2)
    past = PastAllocations()
    for job in range(1, 8):
        past.add([bar(job, job, job + 10)])
    again = PastAllocations(past.image())
    assert [one.job_id for one in again.between(0, 100)()] == [3, 4, 5, 6, 7]
    assert again.since_ms == past.since_ms == 12
    assert [one.job_id for one in again.between(0, 4)()] == [3]


HELD = st.tuples(st.integers(1, 400), st.integers(1, 400), st.sampled_from(["n1", "n2"]), st.integers(1, 8_000))


@examples(60)
@given(st.lists(HELD, max_size=12), st.integers(0, 150), st.integers(1, 300))
def test_density_is_what_was_held_on_average_in_each_part(held, from_ms, length_ms):
    bars = [bar(i, a, max(a, b), node, milli=milli) for i, (a, b, node, milli) in enumerate(held, 1)]
    question = Question(from_ms, from_ms + length_ms)
    most, tl.BARS_MAX = tl.BARS_MAX, -1
    try:
        found = asked(bars, question, now_ms=10_000)
    finally:
        tl.BARS_MAX = most
    assert (found.merged, found.bars) == (True, [])
    for row in found.rows:
        mine = [one for one in bars if one.node == row.key]
        assert row.density == pytest.approx([float(_held(mine, question, at)) for at in range(BUCKETS)], abs=6e-4)


def _held(bars, question, bucket):
    length = Fraction(question.until_ms - question.from_ms, BUCKETS)
    begin = question.from_ms + bucket * length
    covered = (max(0, min(one.end_ms, begin + length) - max(one.start_ms, begin)) * one.device_milli for one in bars)
    return sum(covered) / length / 1000
