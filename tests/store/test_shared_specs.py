"""A spec that jobs of one group share is in the log once, and in what is read with each of them."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.control.log_check import Verifier
from penstock.core.lifecycle import requests
from penstock.core.model.events import JobSubmitted, Record
from penstock.core.model.jobs import Scheduled
from penstock.core.state.images import packed, unpacked
from penstock.core.state.state import Image, State, fold
from penstock.store import encoding
from penstock.store.address import Address, copy_of, restoring
from penstock.store.archive import restore_archive, write_archive
from penstock.store.sqlite import SqliteStore
from penstock.testing.builders import job_spec
from penstock.testing.harness import World, cluster
from tests.core.former import former
from tests.core.state.test_fold import facts
from tests.store.places import PostgresPlace, SqlitePlace, opened

ENV = (("SETTINGS", "x" * 4_000),)


@pytest.fixture(params=[SqlitePlace, PostgresPlace], ids=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlitePlace | PostgresPlace]:
    yield from opened(request.param, tmp_path)


def arrays(*sizes: int) -> World:
    """Return a world with arrays that have each an environment of 4 KB, each in a request of its own."""
    w = cluster(1, 0)
    for number, size in enumerate(sizes):
        w.request(job_spec(0, name=f"a{number}", env=ENV), array=size)
    return w


def kept(place, records) -> None:
    store = place.open()
    store.append(records, [], store.acquire_epoch())


def bodies(place) -> list[bytes]:
    with copy_of(Address(getattr(place, "folder", Path()), getattr(place, "url", ""))) as log:
        return [row.body for row in log.events()]


def test_an_array_takes_its_spec_of_the_log_once(place):
    w = arrays(50)
    kept(place, w.records)
    assert sum(map(len, bodies(place))) < 4_000 + 53 * 256
    assert sum(b"SETTINGS" in body for body in bodies(place)) == 1


def test_what_is_read_has_the_spec_and_members_share_it(place):
    w = arrays(5, 5)
    kept(place, w.records)
    read = list(place.open().tail(0))
    assert read == w.records
    assert len({id(r.event.spec) for r in read[-10:]}) == 2
    state = fold(read)
    assert len({id(job.spec) for job in state.jobs.values()}) == 2


def test_a_read_from_the_middle_of_an_array_finds_its_spec(place):
    w = arrays(9)
    kept(place, w.records)
    assert place.open().records(len(w.records) - 3, 2) == w.records[-3:-1]
    assert place.open().records_of_job(8) == [r for r in w.records if getattr(r.event, "job_id", 0) == 8]


def test_more_specs_than_are_remembered_are_looked_up(place, monkeypatch):
    monkeypatch.setattr(encoding, "SPECS_KEPT_MAX", 1)
    w, specs = cluster(1, 0), [job_spec(0, name=name) for name in "ab"]
    w.request(*specs, *specs, *specs)
    kept(place, w.records)
    assert list(place.open().tail(0)) == w.records


def test_large_specs_are_not_all_remembered(monkeypatch):
    monkeypatch.setattr(encoding, "SPECS_KEPT_MAX_BYTES", 10_000)
    w = arrays(2, 2, 2, 2)
    rows = list(encoding.event_rows(w.records))
    specs = encoding.Specs(lambda seq: rows[seq - 1].body)
    assert [specs.record(row) for row in rows] == w.records
    assert specs._bytes == sum(size for _, size in specs._kept.values()) < 10_000


def test_groups_of_records_do_not_lean_on_each_other():
    """What a group that failed had is not in the log."""
    array = arrays(2).records[-2:]
    later = [msgspec.structs.replace(record, seq=record.seq + 10) for record in array]
    first, second = (list(encoding.event_rows(group)) for group in (array, later))
    assert [b"SETTINGS" in row.body for row in (*first, *second)] == [True, False, True, False]


@pytest.mark.parametrize("damage", ["DELETE FROM events WHERE seq = 4", "UPDATE events SET seq = 99 WHERE seq = 4"])
def test_a_record_whose_spec_is_gone_is_damage(tmp_path, damage):
    for place in opened(SqlitePlace, tmp_path):
        w = arrays(3)
        kept(place, w.records)
        assert w.records[3].event.job_id == 1
        with sqlite3.connect(place.folder / "log.sqlite") as connection:
            connection.execute(damage)
        with pytest.raises(msgspec.DecodeError, match="spec of record 4, which has none"):
            place.open().records(4, 1)
        with copy_of(Address(place.folder)) as log:
            assert "record 4 is missing" in Verifier(log).verify().problem


def test_a_record_that_names_one_of_another_kind_is_damage(tmp_path):
    row = encoding.EventRow(9, 0, 2, encoding.encode(encoding.AlikeSubmitted(2, 1, "ann")))
    rows = list(encoding.event_rows(arrays(1).records))
    with pytest.raises(msgspec.DecodeError, match="spec of record 1, which has none"):
        encoding.Specs(lambda seq: rows[seq - 1].body).record(row)


def test_a_backup_brings_arrays_back_and_is_whole(place, tmp_path):
    w = arrays(20)
    kept(place, w.records)
    store = place.open()
    store.save_snapshot(w.state.image())
    source = Address(getattr(place, "folder", Path()), getattr(place, "url", ""))
    with copy_of(source) as log:
        assert Verifier(log).verify().problem == ""
        write_archive(tmp_path / "backup.zip", log, program="0", made_ms=0)
    with restoring(Address(tmp_path / "again")) as target:
        restore_archive(tmp_path / "backup.zip", target)
    again = SqliteStore(tmp_path / "again")
    image, _ = again.load()
    assert list(again.tail(0)) == w.records
    assert facts(State.from_image(image)) == facts(w.state)
    again.close()


def test_a_snapshot_has_a_shared_spec_once_and_gives_one_object(place):
    w = arrays(50, 1)
    kept(place, w.records)
    place.open().save_snapshot(w.state.image())
    assert len(encoding.encode_image(w.state.image())) < 2 * 4_100 + 51 * 400 + 2_000
    image, _ = place.open().load()
    assert image == w.state.image()
    assert len({id(job.spec) for job in image.jobs}) == 2


def test_an_image_without_shared_specs_is_stored_as_it_is():
    image = arrays(1, 1).state.image()
    assert packed(image) is image
    assert unpacked(image) is image


def test_a_snapshot_that_names_a_spec_it_does_not_have_is_passed_over():
    image = packed(arrays(3).state.image())
    body = encoding.encode(msgspec.structs.replace(image, specs=()))
    assert encoding.image_of(encoding.digest_of(body), body) is None


# What the former version wrote.


def dependent(count: int) -> World:
    w = cluster(1, 0, cpus=2)
    entries = (
        requests.NewJob(job_spec(0, name="a"), count),
        requests.NewJob(job_spec(0, name="b"), count, (("a", "after_any"),)),
    )
    w.commit(lambda tx: requests.submit(tx, requests.Submit(entries, "ann"), {}))
    w.run(1, 2)
    return w


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_log_with_a_dependency_for_each_pair_of_jobs_opens_and_is_compact(tmp_path, snapshot):
    w, plain = dependent(200), msgspec.msgpack.encode
    rows = [(r.seq, r.time_ms, getattr(r.event, "job_id", None), r.event) for r in w.records]
    store = SqliteStore(tmp_path)
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        wrote = [(*row, plain(former(event, object))) for *row, event in rows]
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", wrote)
    assert sum(len(body) for *_, body in wrote) > 200 * 200 * 20
    if snapshot:
        body = plain(former(w.state.image(), object))
        (tmp_path / "snapshots").mkdir()
        (tmp_path / "snapshots" / f"{w.state.seq:020d}").write_bytes(encoding.digest_of(body) + body)
    image, tail = store.load()
    assert (image is not None) == snapshot
    state = fold(list(tail), State.from_image(image) if image else None)
    assert facts(state) == facts(w.state)
    assert len(encoding.encode_image(state.image())) < 200_000
    with copy_of(Address(tmp_path)) as log:
        assert Verifier(log).verify().problem == ""
    store.close()


def test_an_image_from_outside_is_read_whether_or_not_its_specs_are_apart():
    image = arrays(3).state.image()
    stored = [msgspec.msgpack.decode(msgspec.msgpack.encode(i), type=Image) for i in (image, packed(image))]
    assert [unpacked(i) for i in stored] == [image, image]


def test_a_log_is_read_in_pieces_that_fit_into_memory(monkeypatch):
    monkeypatch.setattr(encoding, "ROWS_MAX_BYTES", 10_000)
    sized = [[encoding.EventRow(1, 0, None, b"x" * size)] * 4 for size in (0, 100, 2_500, 50_000)]
    assert [encoding.rows_next(rows) for rows in sized] == [encoding.ROWS_MAX, 100, 4, 1]


def test_pieces_of_a_log_follow_one_another(place, monkeypatch):
    monkeypatch.setattr(encoding, "ROWS_MAX_BYTES", 6_000)
    w = arrays(3, 40, 1)
    kept(place, w.records)
    assert list(place.open().tail(2)) == w.records[2:]


def test_every_field_of_a_submit_is_kept_with_a_shared_spec():
    """A field that is forgotten would be lost at a restart; of a token's reach that would be a hole."""
    spec = job_spec(0, env=ENV)
    whole = JobSubmitted(2, spec, "ann", 1, 1, "key", "digest", 3, "nobody", True, Scheduled("nightly", 4, 1))
    assert all(getattr(whole, name) != default for name, default in defaults_of_submits())
    rows = list(encoding.event_rows([Record(1, 5, JobSubmitted(1, spec, "ann", 1, 0)), Record(2, 5, whole)]))
    assert b"SETTINGS" not in rows[1].body
    specs = encoding.Specs({row.seq: row.body for row in rows}.get)
    assert specs.record(rows[1]).event == whole


def defaults_of_submits():
    fields = msgspec.structs.fields(JobSubmitted)
    return [(field.name, field.default) for field in fields if field.default is not msgspec.NODEFAULT]
