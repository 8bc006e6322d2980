"""A log that an older program made opens and is brought up to date; that of a newer one is refused and left alone."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model.errors import StoreError
from penstock.store import migrations
from penstock.store.migrations import SCHEMA_VERSION, VERSIONS
from penstock.store.postgres import PostgresStore
from penstock.store.sqlite import SqliteStore
from tests.store.builders import kept, records
from tests.store.places import Place, PostgresPlace, SqlitePlace, opened

OLD = Path(__file__).parent / "files" / "schema-1.sql"
"""The dump of a file that the program of schema 1 made."""
POSTGRES_SHAPE = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
WHERE table_schema = current_schema()
UNION ALL SELECT tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = current_schema()
UNION ALL SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '' FROM pg_constraint
WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2, 3
"""


def make_old(place: Place, version: int = 1) -> None:
    """Leave at `place` what a program of schema `version` left."""
    if isinstance(place, SqlitePlace):
        place.folder.mkdir()
        connection = sqlite3.connect(place.folder / "log.sqlite")
        connection.executescript(OLD.read_text())
        connection.close()
        return
    for module in VERSIONS[:version]:
        place.ask(*module.STATEMENTS["postgresql"])
    place.ask(migrations.STAMPS, f"INSERT INTO alembic_version VALUES ('{migrations.revision(version)}')")


def shape(place: Place) -> list[Any]:
    """Return everything that makes up a schema."""
    if isinstance(place, PostgresPlace):
        return place.ask(POSTGRES_SHAPE)
    connection = sqlite3.connect(place.folder / "log.sqlite")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found: list[Any] = []
    for table in sorted(tables):
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        indexes = connection.execute(f"PRAGMA index_list({table})").fetchall()
        found.append(
            (table, columns, [(i[1:], connection.execute(f"PRAGMA index_info({i[1]})").fetchall()) for i in indexes])
        )
    found.append(connection.execute("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL").fetchall())
    connection.close()
    return found


def version(place: Place) -> tuple[str, int]:
    """Return the version by Alembic's count and by the database's own."""
    if isinstance(place, PostgresPlace):
        ((found,),) = place.ask("SELECT version_num FROM alembic_version")
        return found, int(found)
    connection = sqlite3.connect(place.folder / "log.sqlite")
    (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    (own,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return found, own


def set_version(place: Place, number: int) -> None:
    if isinstance(place, PostgresPlace):
        place.ask(f"UPDATE alembic_version SET version_num = '{migrations.revision(number)}'")
        return
    with sqlite3.connect(place.folder / "log.sqlite") as connection:
        connection.execute(f"PRAGMA user_version={number}")
    connection.close()


def test_a_file_of_the_first_programs_opens_with_all_that_is_in_it(tmp_path):
    for place in opened(SqlitePlace, tmp_path):
        make_old(place)
        store = place.open()
        assert kept(store) == records(1, 5)
        assert store.outcomes([1, 2, 3]) == {1: "succeeded", 2: "failed"}
        term = store.acquire_epoch()
        store.append(records(6, 6), [], term)
        store.save_projection("p", 6, b"")
        assert (term, kept(store), store.projection("p")) == (2, records(1, 6), (6, b""))


def test_an_upgraded_schema_is_that_of_a_fresh_one(place, tmp_path):
    make_old(place)
    place.open()
    for fresh in opened(type(place), tmp_path / "fresh"):
        fresh.open()
        assert shape(place) == shape(fresh)
        assert version(place) == version(fresh) == (migrations.revision(SCHEMA_VERSION), SCHEMA_VERSION)


def test_an_upgrade_is_made_once(place):
    make_old(place)
    place.open()
    first = shape(place)
    place.open()
    assert shape(place) == first


def test_an_upgrade_that_fails_leaves_the_old_schema_and_can_be_tried_again(place, monkeypatch):
    make_old(place)
    before = shape(place)
    with monkeypatch.context() as patch:
        _breaking(patch)
        with pytest.raises(StoreError, match="could not be brought"):
            place.open()
    assert shape(place) == before
    place.open()
    assert version(place)[1] == SCHEMA_VERSION


def _breaking(patch: pytest.MonkeyPatch) -> None:
    """Let every upgrade fail after it has made a table."""
    from alembic.operations import Operations

    real = Operations.execute

    def execute(self: Any, statement: Any, **given: Any) -> None:
        real(self, statement, **given)
        if "projections" in str(statement):
            real(self, "CREATE nonsense")

    patch.setattr(Operations, "execute", execute)


def test_four_programs_that_start_at_once_upgrade_once(place):
    make_old(place)
    assert opened_by_four(place) == []
    assert version(place)[1] == SCHEMA_VERSION


def test_four_programs_that_find_nothing_make_it_once(place):
    assert opened_by_four(place) == []
    assert version(place)[1] == SCHEMA_VERSION


def opened_by_four(place: Place) -> list[BaseException]:
    """Open a log four times at once and return what went wrong."""
    problems: list[BaseException] = []

    def open_it() -> None:
        try:
            place.open()
        except Exception as error:  # noqa: BLE001 - whatever went wrong is what is looked for
            problems.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return problems


def test_the_log_of_a_newer_program_is_refused_and_left_alone(place):
    place.open().close()
    set_version(place, SCHEMA_VERSION + 1)
    before = shape(place)
    with pytest.raises(StoreError, match=f"has schema {SCHEMA_VERSION + 1}") as refused:
        place.open()
    assert refused.value.hint == "use the newer program that wrote it"
    assert shape(place) == before


def test_a_log_that_is_up_to_date_opens_without_the_library_of_migrations(place):
    place.open()
    where = place.folder if isinstance(place, SqlitePlace) else place.url
    kind = "sqlite" if isinstance(place, SqlitePlace) else "postgres"
    name = {"sqlite": SqliteStore, "postgres": PostgresStore}[kind].__name__
    code = (
        f"import sys, pathlib; from penstock.store.{kind} import {name} as Store\n"
        f"Store({'pathlib.Path' if kind == 'sqlite' else ''}({str(where)!r})).close()\n"
        "print(sorted({'alembic', 'sqlalchemy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
