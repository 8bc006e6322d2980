"""What every log promises that outlives its process: all or none, two servers on one log, readers beside a writer."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.errors import StaleEpoch, StoreError
from penstock.core.model.events import JobCancelRequested, LeaderElected, Record
from tests.properties import examples
from tests.store.builders import finished, kept, record, records
from tests.store.places import KINDS, NAMES, opened


@pytest.fixture
def store(place):
    return place.open()


def test_a_batch_with_one_bad_record_is_not_kept_at_all(store):
    term = store.acquire_epoch()
    store.append(records(1, 2), [], term)
    with pytest.raises(StoreError):
        store.append([record(3), record(2)], [finished(3)], term)
    assert (kept(store), store.outcomes([3])) == (records(1, 2), {})


def test_a_job_cannot_end_twice(store):
    term = store.acquire_epoch()
    store.append(records(1, 1), [finished(1)], term)
    with pytest.raises(StoreError):
        store.append(records(2, 2), [finished(1, "failed")], term)
    assert (kept(store), store.outcomes([1])) == (records(1, 1), {1: "succeeded"})


def test_what_was_appended_is_there_for_the_next_process(place):
    first = place.open()
    first.append(records(1, 3), [finished(1)], first.acquire_epoch())
    second = place.open()
    assert (kept(second), second.outcomes([1]), second.acquire_epoch()) == (records(1, 3), {1: "succeeded"}, 2)


@examples(15)
@given(steps=st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=12))
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_of_two_servers_only_the_newest_ever_commits(kind, steps, tmp_path_factory):
    for place in opened(kind, tmp_path_factory.mktemp("shared")):
        stores, terms, length = [place.open(), place.open()], [-1, -1], 0
        for who, begins in steps:
            if begins:
                terms[who] = stores[who].acquire_epoch()
            elif terms[who] == max(terms) > 0:
                length += 1
                stores[who].append(records(length, length), [], terms[who])
            else:
                with pytest.raises(StaleEpoch):
                    stores[who].append(records(length + 1, length + 1), [], terms[who])
        assert kept(stores[0]) == records(1, length)


def test_readers_in_other_threads_see_whole_batches_while_it_grows(store):
    term, problems, over = store.acquire_epoch(), [], threading.Event()

    def read() -> None:
        while not over.is_set():
            seen = [r.seq for r in store.records(0, 1_000)]
            if seen != list(range(1, len(seen) + 1)) or len(seen) % 4:
                problems.append(seen)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for first in range(1, 160, 4):
        store.append(records(first, first + 3), [], term)
    over.set()
    for reader in readers:
        reader.join(10)
    assert (problems, len(store.records(0, 1_000))) == ([], 160)


def test_reads_begin_after_a_number_and_end_at_the_limit(store):
    store.append(records(1, 9), [], store.acquire_epoch())
    assert [r.seq for r in store.records(3, 4)] == [4, 5, 6, 7]
    assert store.records(9, 4) == []


def test_the_records_of_a_job_are_those_about_it_and_no_others(store):
    election = Record(3, 2_000, LeaderElected(1, "server"))
    store.append([*records(1, 2), election], [], store.acquire_epoch())
    assert (store.records_of_job(2), store.records_of_job(9)) == ([record(2)], [])


def test_submits_of_jobs_are_found_by_number_and_unknown_ones_left_out(store):
    store.append([*records(1, 2), Record(3, 9, JobCancelRequested(1, "ann"))], [], store.acquire_epoch())
    assert store.submits([1, 2, 9]) == {1: record(1).event, 2: record(2).event}
    assert store.submits([]) == {}


def test_finished_jobs_come_newest_first_and_page_by_page(store):
    store.append(records(1, 5), [finished(i) for i in (2, 5, 1, 4)], store.acquire_epoch())
    assert [j.id for j in store.finished_jobs(3)] == [5, 4, 2]
    assert [j.id for j in store.finished_jobs(3, before=2)] == [1]
    assert (store.finished_job(4), store.finished_job(3)) == (finished(4), None)


def test_a_projection_is_kept_under_its_name_over_restarts(place):
    store = place.open()
    assert store.projection("bills") is None
    store.save_projection("bills", 3, b"\x00three")
    store.save_projection("usage", 2, b"")
    assert [place.open().projection(name) for name in ("bills", "usage")] == [(3, b"\x00three"), (2, b"")]


def test_of_projections_the_newest_is_kept_whoever_comes_last(store):
    found = []
    for seq, body in ((3, b"a"), (5, b"b"), (4, b"late"), (5, b"c")):
        store.save_projection("bills", seq, body)
        found.append(store.projection("bills"))
    assert found == [(3, b"a"), (5, b"b"), (5, b"b"), (5, b"c")]


def test_projections_are_kept_by_any_thread_while_the_log_grows(store):
    term = store.acquire_epoch()
    keepers = [
        threading.Thread(target=lambda n=n: [store.save_projection(f"p{n}", seq, b"x" * 5_000) for seq in range(20)])
        for n in range(3)
    ]
    for keeper in keepers:
        keeper.start()
    for seq in range(1, 100):
        store.append(records(seq, seq), [], term)
    for keeper in keepers:
        keeper.join(20)
    assert [store.projection(f"p{n}") for n in range(3)] == [(19, b"x" * 5_000)] * 3
    assert kept(store) == records(1, 99)
