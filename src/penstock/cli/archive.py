"""`penstock store`: the log of a data folder or of a database, backed up, restored and verified without a server."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from penstock import __version__
from penstock.cli.options import JsonOption, StoreOption
from penstock.cli.output import print_done, print_json, say
from penstock.cli.place import folder_here
from penstock.cli.progress import OnShare, progress, shared
from penstock.cli.secrets import hide
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.store.address import Address
    from penstock.store.archive import ArchiveManifest
    from penstock.store.copying import LogCopy, Restoring
    from penstock.store.encoding import EventRow


def backup(
    file: Annotated[Path, typer.Argument(help="Archive to write; must not exist.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Back up the log, as of now, to one archive. Servers may be running."""
    from penstock.store.address import copy_of
    from penstock.store.archive import write_archive

    where = _address(store)
    with copy_of(where) as log, _reading(log, quiet=json) as source:
        manifest = write_archive(file, source, program=__version__, made_ms=time.time_ns() // 1_000_000)
    _say("kept", manifest, where, file, as_json=json)


def restore(
    file: Annotated[Path, typer.Argument(help="Archive written by backup.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Restore the log from an archive, where there is none yet. All of it, or nothing."""
    from penstock.store.address import restoring
    from penstock.store.archive import open_archive, read_manifest, restore_archive

    where = _address(store)
    with open_archive(file) as archive:
        total = read_manifest(archive).last_seq
    with restoring(where) as target, progress("restoring", total=total, noun="records", quiet=json) as on_share:
        manifest = restore_archive(file, _filled(target, on_share, total))
    _say("restored", manifest, where, file, as_json=json)


@contextmanager
def _reading(log: "LogCopy", *, quiet: bool) -> "Iterator[LogCopy]":
    """Yield the log; it shows how many of its records have been read."""
    total = log.last_seq()
    with progress(f"{total:,} records", total=total, noun="records", quiet=quiet) as on_share:
        yield cast("LogCopy", _Counted(log, events=lambda: shared(log.events(), on_share, total)))


def _filled(target: "Restoring", on_share: OnShare | None, total: int) -> "Restoring":
    """Return the target; it shows how many records it has been given."""

    def add_events(rows: "Iterable[EventRow]") -> None:
        target.add_events(shared(rows, on_share, total))

    return cast("Restoring", _Counted(target, add_events=add_events))


class _Counted:
    """Another object, but for some of its methods."""

    def __init__(self, other: object, **methods: object) -> None:
        self._other = other
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> object:
        return getattr(self._other, name)


def _address(store: str | None) -> "Address":
    """Return the address of the log to use. Raises: InvalidInput."""
    from penstock.store.address import address_of

    hide(store)
    folder = folder_here()
    return address_of(folder.log, store, folder.store_address)


def _say(done: str, manifest: "ArchiveManifest", where: "Address", file: Path, *, as_json: bool) -> None:
    finished = manifest.members["finished.rows"].rows
    text = (
        f"{done} {counted(manifest.last_seq, 'record')} and {counted(finished, 'finished job')}: {where.shown}, {file}"
    )
    print_done({"log": where.shown, "file": str(file), "manifest": manifest}, text, as_json=as_json)


def verify(store: StoreOption = None, json: JsonOption = False) -> None:
    """Check the log: sequence, snapshot, finished jobs. Folds it from its first record; exit code 1 if they differ."""
    from penstock.control.log_check import Verifier
    from penstock.store.address import copy_of

    where = _address(store)
    with copy_of(where) as log, _reading(log, quiet=json) as source:
        verdict = Verifier(source).verify()
    if json:
        print_json({"log": where.shown, "verdict": verdict})
    elif verdict.problem:
        say(f"{where.shown}: {verdict.problem}", err=True)
    else:
        snapshot = f"the snapshot of record {verdict.snapshot_seq}" if verdict.snapshot_seq else "no snapshot"
        say(
            f"{where.shown}: {counted(verdict.records, 'record')} without a gap, {verdict.finished} finished and "
            f"{counted(verdict.live, 'live job')}, {snapshot}: all as the log tells"
        )
    if verdict.problem:
        raise typer.Exit(1)
