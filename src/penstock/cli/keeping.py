"""Backing up, restoring and verifying the log of a data folder or of a database."""

import time
from pathlib import Path

import typer

from penstock import __version__
from penstock.cli.options import data_folder
from penstock.cli.output import print_json, say
from penstock.cli.secrets import hide
from penstock.control.log_check import Verifier
from penstock.engines.local.paths import DataFolder
from penstock.store.address import Address, address_of, copy_of, restoring
from penstock.store.archive import Manifest, restore_archive, write_archive


def address(data: Path | None, store: str | None) -> Address:
    """Return where the log lies that is meant. Raises: InvalidInput."""
    hide(store)
    folder = DataFolder(data_folder(data))
    return address_of(folder.log, store, folder.store_address)


def backup(file: Path, data: Path | None, store: str | None, *, as_json: bool) -> None:
    where = address(data, store)
    with copy_of(where) as log:
        manifest = write_archive(file, log, program=__version__, made_ms=time.time_ns() // 1_000_000)
    _say("kept", manifest, where, file, as_json=as_json)


def restore(file: Path, data: Path | None, store: str | None, *, as_json: bool) -> None:
    where = address(data, store)
    with restoring(where) as target:
        manifest = restore_archive(file, target)
    _say("restored", manifest, where, file, as_json=as_json)


def _say(done: str, manifest: Manifest, where: Address, file: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"log": where.shown, "file": str(file), "manifest": manifest})
        return
    finished = manifest.members["finished.rows"].rows
    say(f"{done} {manifest.last_seq} record(s) and {finished} finished job(s): {where.shown}, {file}")


def verify(data: Path | None, store: str | None, *, as_json: bool) -> None:
    where = address(data, store)
    with copy_of(where) as log:
        verdict = Verifier(log).verify()
    if as_json:
        print_json({"log": where.shown, "verdict": verdict})
    elif verdict.problem:
        say(f"{where.shown}: {verdict.problem}", err=True)
    else:
        snapshot = f"the snapshot of record {verdict.snapshot_seq}" if verdict.snapshot_seq else "no snapshot"
        say(
            f"{where.shown}: {verdict.records} record(s) without a gap, {verdict.finished} finished and "
            f"{verdict.live} live job(s), {snapshot}: all as the log tells"
        )
    if verdict.problem:
        raise typer.Exit(1)
