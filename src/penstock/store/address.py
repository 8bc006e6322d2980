"""Where a server's log lies: in its data folder, or in a database whose address the folder remembers.

The address of a database may hold a password: it is kept in a file that only its owner can read, goes from process
to process in that file only, and is never part of a message.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

import msgspec

from penstock.core.model.errors import InvalidInput
from penstock.ports import EventReader, EventStore, ProjectionStore, Seat
from penstock.privatefiles import write_whole
from penstock.starts import whole
from penstock.store.copying import LogCopy, Restoring, sqlite_copy, sqlite_restoring
from penstock.store.sqlite import SqliteStore

SQLITE = "sqlite"
"""The word given instead of an address, for a log in the data folder."""
SCHEMES = ("postgresql://", "postgres://")
FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "passfile")
"""Parameters of an address that name files or folders."""
SYSTEM_AUTHORITIES = "system"
FORMER = ".former"
"""Behind the name of the file with the address of a log that was left."""


class Store(EventStore, EventReader, ProjectionStore, Protocol):
    """A whole store."""

    def close(self) -> None: ...


class Address(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Where a log lies. `url` is empty for one in `folder`."""

    folder: Path
    url: str = ""

    def __repr__(self) -> str:
        return f"Address({self.shown})"

    @property
    def shown(self) -> str:
        """The address for people, without secrets."""
        if not self.url:
            return str(self.folder)
        from penstock.store.pgconnect import shown

        return shown(self.url)

    def same_place(self, other: "Address") -> bool:
        """Return whether both name one log, perhaps with another user or password."""
        if not self.url or not other.url:
            return self == other
        from penstock.store.pgconnect import place

        return place(self.url) == place(other.url)


def address_of(folder: Path, given: str | None, remembered: Path) -> Address:
    """Return where a log lies: as given, else as in the file `remembered`, else in `folder`.

    Raises: InvalidInput when `given` is no address, or its driver is not installed.
    """
    text = anchored(given) if given else None
    if not text:
        with contextlib.suppress(FileNotFoundError):
            text = remembered.read_text(encoding="utf-8").strip()
    if not text or text == SQLITE:
        return Address(folder)
    if not text.startswith(SCHEMES):
        raise InvalidInput("--store is no address of a store", hint="postgresql://USER@HOST/DATABASE, or sqlite")
    try:
        import psycopg  # noqa: F401 - whether it is there
    except ImportError as error:
        raise InvalidInput(
            f"PostgreSQL needs psycopg, which cannot be imported: {error}", hint="pip install 'penstock[postgres]'"
        ) from error
    found = Address(folder, text)
    assert found.shown  # refused here, before anything is made
    return found


def anchored(url: str) -> str:
    """Return an address whose files (certificates, passwords) are named by absolute paths: servers work in `/`."""
    head, mark, query = url.partition("?")
    return head + mark + "&".join(map(_anchored, query.split("&")))


def _anchored(pair: str) -> str:
    name, _, value = pair.partition("=")
    if name not in FILES or value in ("", SYSTEM_AUTHORITIES):
        return pair
    return f"{name}={quote(str(whole(unquote(value))))}"


def remember(address: Address, remembered: Path) -> None:
    """Let a later start without an address find the same log; the address of another one is kept beside."""
    before = Address(address.folder)
    with contextlib.suppress(FileNotFoundError):
        before = Address(address.folder, remembered.read_text(encoding="utf-8").strip())
    if before.url and not before.same_place(address):
        write_whole(remembered.with_name(remembered.name + FORMER), before.url + "\n")
    if address.url and address != before:
        write_whole(remembered, address.url + "\n")
    elif not address.url:
        remembered.unlink(missing_ok=True)


def open_store(address: Address) -> Store:
    """Raises: StoreError when it cannot be opened."""
    if not address.url:
        return SqliteStore(address.folder)
    from penstock.store.postgres import PostgresStore

    return PostgresStore(address.url)


def open_seat(address: Address, *, name: str, at: str) -> Seat | None:
    """Return the seat that decides which of several servers leads; None where there can be only one.

    Args:
        at: the address of this server, which standbys hand to clients.
    """
    if not address.url:
        return None
    from penstock.store.pgseat import PostgresSeat

    return PostgresSeat(address.url, name=name, address=at)


@contextlib.contextmanager
def copy_of(address: Address) -> Iterator[LogCopy]:
    """Open a log for reading as of now; servers may be running on it. Raises: StoreError, InvalidInput."""
    if not address.url:
        with sqlite_copy(address.folder) as file:
            yield file
        return
    from penstock.store.pgcopy import postgres_copy

    with postgres_copy(address.url) as database:
        yield database


@contextlib.contextmanager
def restoring(address: Address) -> Iterator[Restoring]:
    """Make a log where there is none; it appears when the block ends well. Raises: NotEmpty, StoreError."""
    if not address.url:
        with sqlite_restoring(address.folder) as file:
            yield file
        return
    from penstock.store.pgcopy import postgres_restoring

    with postgres_restoring(address.url) as database:
        yield database
