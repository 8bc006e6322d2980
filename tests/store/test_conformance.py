"""What every event log promises: the one on disk, the one in PostgreSQL and the one of the simulator alike."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.core.model.errors import StaleEpoch, StoreFull
from penstock.core.state.state import fold
from penstock.sim.world.disk import SimDisk
from tests.properties import examples
from tests.store.builders import finished, image_of, kept, record, records, restarted, same
from tests.store.places import PostgresPlace, SqlitePlace, opened


class Rig:
    """One log, and the ways to fill and free its disk."""

    def __init__(self, store, fill: Callable[[], object], free: Callable[[], object]) -> None:
        self.store, self.fill, self.free = store, fill, free


def _sqlite(folder: Path) -> Iterator[Rig]:
    for place in opened(SqlitePlace, folder):
        yield Rig(place.open(), place.fill, place.free)


def _postgres(folder: Path) -> Iterator[Rig]:
    for place in opened(PostgresPlace, folder):
        yield Rig(place.open(), place.fill, place.free)


def _simulated(_: Path) -> Iterator[Rig]:
    disk = SimDisk(random.Random(0))
    yield Rig(disk, lambda: setattr(disk, "full", True), lambda: setattr(disk, "full", False))


@pytest.fixture(params=[_sqlite, _postgres, _simulated], ids=["sqlite", "postgres", "simulated"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    yield from request.param(tmp_path)


def test_a_new_log_is_empty(rig):
    assert kept(rig.store) == []
    assert rig.store.outcomes([1]) == {}


def test_records_come_back_as_they_were_and_in_order(rig):
    term = rig.store.acquire_epoch()
    rig.store.append(records(1, 3), [], term)
    rig.store.append(records(4, 4), [], term)
    assert kept(rig.store) == records(1, 4)


def test_every_term_has_a_higher_number_than_the_last(rig):
    assert [rig.store.acquire_epoch() for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("ended", [[], [finished(1)]], ids=["none ended", "one ended"])
@pytest.mark.parametrize("count", [0, 1, 8, 9, 100])
def test_a_stale_term_is_refused_and_keeps_nothing(rig, count, ended):
    old = rig.store.acquire_epoch()
    rig.store.acquire_epoch()
    with pytest.raises(StaleEpoch, match=f"term {old} has ended"):
        rig.store.append(records(1, count), ended, old)
    assert (kept(rig.store), rig.store.outcomes([1])) == ([], {})


@pytest.mark.parametrize("ended", [[], [finished(1)]], ids=["none ended", "one ended"])
def test_groups_of_every_size_are_kept_in_order(rig, ended):
    term, first = rig.store.acquire_epoch(), 1
    for count in (1, 2, 7, 8, 9, 63, 64, 65, 73, 200):
        rig.store.append(records(first, first + count - 1), ended if first == 1 else [], term)
        first += count
    assert (kept(rig.store), rig.store.outcomes([1])) == (records(1, first - 1), {1: ended[0].state} if ended else {})


def test_a_full_disk_keeps_nothing_of_a_batch(rig):
    term = rig.store.acquire_epoch()
    rig.store.append(records(1, 1), [], term)
    rig.fill()
    big = [record(seq, "x" * 5_000) for seq in range(2, 200)]
    with pytest.raises(StoreFull):
        rig.store.append(big, [finished(1)], term)
    assert (kept(rig.store), rig.store.outcomes([1])) == (records(1, 1), {})


def test_the_same_batch_is_kept_once_there_is_room_again(rig):
    term = rig.store.acquire_epoch()
    big = [record(seq, "x" * 5_000) for seq in range(1, 200)]
    rig.fill()
    with pytest.raises(StoreFull):
        rig.store.append(big, [finished(7)], term)
    rig.free()
    rig.store.append(big, [finished(7)], term)
    assert (kept(rig.store), rig.store.outcomes([7])) == (big, {7: "succeeded"})


def test_how_a_job_ended_is_kept_with_its_records(rig):
    term = rig.store.acquire_epoch()
    rig.store.append(records(1, 2), [finished(1, "failed"), finished(2, "cancelled")], term)
    assert rig.store.outcomes([1, 2, 3]) == {1: "failed", 2: "cancelled"}


def test_the_tail_is_what_follows_a_number(rig):
    rig.store.append(records(1, 5), [], rig.store.acquire_epoch())
    assert [[r.seq for r in rig.store.tail(after)] for after in (0, 3, 5)] == [[1, 2, 3, 4, 5], [4, 5], []]


def test_a_start_reads_the_snapshot_and_only_the_records_after_it(rig):
    rig.store.append(records(1, 5), [], rig.store.acquire_epoch())
    rig.store.save_snapshot(image_of(records(1, 3)))
    image, tail = rig.store.load()
    assert (image, list(tail)) == (image_of(records(1, 3)), records(4, 5))


@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=8))
@pytest.mark.parametrize("kind", [_sqlite, _postgres, _simulated], ids=["sqlite", "postgres", "simulated"])
def test_a_restart_gives_the_state_of_the_whole_log(kind, sizes, tmp_path_factory):
    for rig in kind(tmp_path_factory.mktemp("log")):
        term, log = rig.store.acquire_epoch(), []
        for size, keep_snapshot in sizes:
            batch = records(len(log) + 1, len(log) + size)
            rig.store.append(batch, [], term)
            log += batch
            if keep_snapshot:
                rig.store.save_snapshot(image_of(log))
        assert same(restarted(rig.store), fold(log))
