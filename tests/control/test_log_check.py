"""A log held against itself: a right one is right, and whatever was changed behind its back is named."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.control.finished_jobs import finished_row
from penstock.control.log_check import CheckResult, Verifier
from penstock.core.model.events import AttemptStopRequested, JobFinished, Record
from penstock.core.state.state import Image, State, fold
from penstock.ports import FinishedDetails
from penstock.store import encoding
from penstock.store.address import Address, copy_of
from tests.core.histories import NAMES, operations, play, small_world
from tests.properties import examples
from tests.store.places import KINDS, Place, PostgresPlace, SqlitePlace, opened
from tests.store.places import NAMES as PLACES


def history() -> list[Record]:
    """Return a log in which jobs have run, waited, failed and been preempted."""
    chance = random.Random(5)
    return play(small_world(), [(chance.choice(NAMES), chance.randrange(1000)) for _ in range(250)]).records


def write(place: Place, log: list[Record], snapshot_at: int | None = None) -> Any:
    """Keep `log` as a controller would have, a record a commit."""
    store, state = place.open(), State()
    term = store.acquire_epoch()
    for record in log:
        ended = []
        if isinstance(record.event, JobFinished):
            ended = [finished_row(state.jobs[record.event.job_id], record)]
        state.apply(record)
        store.append([record], ended, term)
        if record.seq == snapshot_at:
            store.save_snapshot(state.image())
    return store


def verified(place: Place) -> CheckResult:
    where = Address(place.folder) if isinstance(place, SqlitePlace) else Address(Path("/nowhere"), place.url)
    with copy_of(where) as log:
        return Verifier(log).verify()


@pytest.fixture(scope="module")
def log() -> list[Record]:
    return history()


@pytest.fixture(params=KINDS, ids=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from opened(request.param, tmp_path)


@pytest.fixture
def one(tmp_path: Path, log: list[Record]) -> Iterator[SqlitePlace]:
    """A log in a folder with a snapshot in its middle, to be changed behind the store's back."""
    for made in opened(SqlitePlace, tmp_path):
        write(made, log, snapshot_at=len(log) // 2)
        yield made


def change(place: SqlitePlace, query: str, *values: object) -> None:
    place.open()._writer.execute(query, values)


def test_a_right_log_is_found_right(place, log):
    write(place, log, snapshot_at=len(log) // 2)
    ended = sum(isinstance(record.event, JobFinished) for record in log)
    state = fold(log)
    assert ended > 5
    assert verified(place) == CheckResult(len(log), ended, len(state.jobs), 1, len(log) // 2)


def test_a_log_without_a_snapshot_and_an_empty_one_are_right(place, log):
    store = place.open()
    assert verified(place) == CheckResult(0, 0, 0, 0, 0)
    store.append(log[:3], [], store.acquire_epoch())
    assert verified(place).problem == ""


@examples(10)
@given(found=operations, part=st.floats(0, 1))
def test_any_history_with_a_snapshot_anywhere_is_found_right(found, part, tmp_path_factory):
    log = play(small_world(), found).records
    for place in opened(SqlitePlace, tmp_path_factory.mktemp("log")):
        write(place, log, snapshot_at=int(part * len(log)))
        assert verified(place).problem == ""


def with_details(place, details):
    """Keep other details with the first finished job."""
    (job_id, body), *_ = place.open()._fetch("SELECT id, body FROM finished ORDER BY id LIMIT 1")
    row = msgspec.structs.replace(encoding.decode_finished(body), details=details)
    change(place, "UPDATE finished SET body = ? WHERE id = ?", encoding.encode(row), job_id)


def test_rows_of_older_versions_without_details_are_right(one):
    with_details(one, None)
    assert verified(one).problem == ""


def former(image: Image) -> Image:
    """Return a snapshot as versions wrote it that kept no record of a stop order; it has one."""
    stopping = [job for job in image.jobs if job.attempt is not None and job.attempt.stop is not None]
    assert stopping
    old = {job.id: replace(job.attempt, stop=replace(job.attempt.stop, seq=0)) for job in stopping}
    return replace(image, jobs=[replace(job, attempt=old.get(job.id, job.attempt)) for job in image.jobs])


def test_a_snapshot_of_a_version_that_kept_no_record_of_stop_orders_is_right(log, tmp_path):
    asked = next(record.seq for record in log if isinstance(record.event, AttemptStopRequested))
    for made in opened(SqlitePlace, tmp_path):
        write(made, log).save_snapshot(former(fold(log[:asked]).image()))
        found = verified(made)
        assert (found.problem, found.snapshot_seq) == ("", asked)


def test_details_that_the_log_does_not_give_are_named(one):
    with_details(one, FinishedDetails(preemptible=False, replica_total=7, devices_milli=0, devices_text=""))
    assert "details" in verified(one).problem


def test_a_missing_record_is_named(one):
    change(one, "DELETE FROM events WHERE seq = 17")
    assert verified(one).problem == "record 17 is missing: 18 comes there"


def test_a_missing_first_record_is_named(one):
    change(one, "DELETE FROM events WHERE seq = 1")
    assert verified(one).problem == "record 1 is missing: 2 comes there"


def test_a_record_that_cannot_be_read_is_named(one):
    change(one, "UPDATE events SET body = x'81' WHERE seq = 20")
    assert verified(one).problem.startswith("record 20 cannot be read: ")


def test_a_record_that_does_not_follow_is_named(one, log):
    seq = next(record.seq for record in log if isinstance(record.event, JobFinished))
    body = encoding.encode(log[seq - 1].event)
    change(one, "UPDATE events SET body = ? WHERE seq = ?", body, seq + 1)
    assert verified(one).problem.startswith(f"record {seq + 1} ends job ")


def test_a_snapshot_that_the_log_does_not_give_is_named_with_its_first_difference(one, log):
    image = fold(log[: len(log) // 2]).image()
    wrong = msgspec.structs.replace(image, finished_ok=image.finished_ok + 1)
    one.open().save_snapshot(wrong)
    assert verified(one).problem == (
        f"the snapshot of record {image.seq} is not what the log gives: "
        f"finished_ok is {image.finished_ok + 1}, and the log gives {image.finished_ok}"
    )


def test_a_job_that_a_snapshot_has_wrong_is_named_by_its_number(one, log):
    image = fold(log[: len(log) // 2]).image()
    first, *others = image.jobs
    wrong = msgspec.structs.replace(first, submit_seq=99)
    one.open().save_snapshot(msgspec.structs.replace(image, jobs=[wrong, *others]))
    assert f"jobs[{first.id}].submit_seq is 99, and the log gives {first.submit_seq}" in verified(one).problem


@pytest.mark.parametrize("place", [PostgresPlace], indirect=True)
def test_the_snapshot_in_a_database_is_compared_too(place, log):
    store = write(place, log)
    image = fold(log).image()
    store.save_snapshot(msgspec.structs.replace(image, next_job=1))
    assert verified(place).problem.endswith(f"next_job is 1, and the log gives {image.next_job}")


def test_a_finished_job_that_differs_is_named(one):
    job = one.open().finished_jobs(1)[0]
    body = encoding.encode(msgspec.structs.replace(job, preemptions=7))
    change(one, "UPDATE finished SET body = ? WHERE id = ?", body, job.id)
    assert verified(one).problem == f"finished job {job.id}: preemptions is 7, and the log gives {job.preemptions}"


def test_a_finished_job_that_is_not_kept_is_named(one):
    job = one.open().finished_jobs(1)[0]
    change(one, "DELETE FROM finished WHERE id = ?", job.id)
    assert verified(one).problem == f"job {job.id} has finished by the log, and is not among the finished jobs"


def test_a_finished_job_that_never_was_is_found(one):
    job = msgspec.structs.replace(one.open().finished_jobs(1)[0], id=9_999)
    change(one, "INSERT INTO finished VALUES (?, ?, ?)", *encoding.finished_row(job))
    assert verified(one).problem == "1 finished job in the store, but not in the log"


def test_a_term_that_went_back_is_found(one, log):
    from penstock.core.model.events import LeaderElected

    change(
        one, "INSERT INTO events VALUES (?, ?, NULL, ?)", len(log) + 1, 10**9, encoding.encode(LeaderElected(5, "x"))
    )
    assert verified(one).problem == "the term is 1, and the log has seen 5"
