"""A checkpoint made by all ranks together, over the shared directory alone: no collective library is needed.

Each rank writes its part to `.parts-step-N-aA/rank-R` under a temporary name and renames it once it is on
disk with a part manifest. Rank 0 waits until every part is there, writes the manifest of the whole and
publishes the folder by one rename. A rank that dies on the way leaves an unpublished folder, which the next
attempt clears.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.training.errors import PartsMissing
from penstock.training.storage import durable
from penstock.training.storage.blobs import Folder, Ready, ready, write_pieces
from penstock.training.storage.checkpoints import folder_name, part_name
from penstock.training.storage.directory import CheckpointDirectory
from penstock.training.storage.manifest import (
    Blob,
    Manifest,
    ManifestProblem,
    decode_manifest,
    encode_manifest,
)
from penstock.training.storage.values import encode_state

PART_MANIFEST_NAME = "part.json"
DEFAULT_PARTS_WAIT_S = 120.0
_POLL_S = 0.02


def write_part(directory: CheckpointDirectory, step: int, state: Mapping[str, Any]) -> Manifest:
    """Put this rank's `state` on disk as its part of the checkpoint of `step`.

    A part that the same attempt wrote before (a retry) is replaced. Returns the manifest of the part.
    Raises: FencedAttempt, UnsavableValue, OSError.
    """
    return write_part_files(directory, step, ready(encode_state(state)))


def write_part_files(directory: CheckpointDirectory, step: int, pieces: Iterable[Ready]) -> Manifest:
    """Like `write_part`, for a state that was turned into files already."""
    directory.fence.check()
    name = part_name(directory.place.rank)
    parts = _parts_folder(directory, step)
    parts.mkdir(exist_ok=True)
    work = parts / f".{name}-{secrets.token_hex(4)}"
    durable.create_folder(work)
    part = Manifest(
        job=directory.place.job,
        attempt=directory.fence.attempt,
        step=step,
        world_size=directory.place.world_size,
        layout="parts",
        created_ms=time.time_ns() // 1_000_000,
        blobs=tuple(
            write_pieces(Folder(work), pieces, directory.shelf, compress=directory.compress, prefix=f"{name}/")
        ),
    )
    durable.write_bytes(work / PART_MANIFEST_NAME, encode_manifest(part))
    durable.sync_folder(work)
    if (parts / name).exists():
        durable.move(parts / name, parts / f".old-{name}-{secrets.token_hex(4)}")
    durable.move(work, parts / name)
    directory.shelf.fill(str(directory.folder / folder_name(step)), part.blobs)  # lends nothing before it is published
    return part


def publish_parts(directory: CheckpointDirectory, step: int, *, wait_s: float = DEFAULT_PARTS_WAIT_S) -> Manifest:
    """Wait for the parts of all ranks and publish them as one checkpoint. For rank 0, after its own part.

    Raises: PartsMissing naming the ranks that did not deliver in `wait_s` seconds, FencedAttempt, OSError.
    """
    parts = _parts_folder(directory, step)
    deadline_s = time.monotonic() + wait_s
    found: dict[int, list[Blob]] = {}
    while True:
        for rank in set(range(directory.place.world_size)) - found.keys():
            part = _read_part(directory, parts, step, rank)
            if part is not None:
                found[rank] = part
        if len(found) == directory.place.world_size:
            break
        if time.monotonic() >= deadline_s:
            missing = sorted(set(range(directory.place.world_size)) - found.keys())
            raise PartsMissing(
                f"checkpoint of step {step} has no part of rank {_list(missing)} after {wait_s:g} s; "
                f"expected {directory.place.world_size} parts. Did these ranks reach the same step?"
            )
        time.sleep(_POLL_S)
    for name in os.listdir(parts):
        if name.startswith("."):
            durable.remove_folder(parts / name)
    manifest = directory.publish(parts, step, [blob for rank in sorted(found) for blob in found[rank]], layout="parts")
    _clear_given_up(directory, step)
    return manifest


def _clear_given_up(directory: CheckpointDirectory, step: int) -> None:
    """Delete the parts of earlier steps that never became whole, so that they cannot pile up."""
    for parts in directory.folder.glob(f".parts-step-*-a{directory.fence.attempt}"):
        if parts.name < _parts_folder(directory, step).name:
            durable.remove_folder(parts)


def _parts_folder(directory: CheckpointDirectory, step: int) -> Path:
    return directory.folder / f".parts-{folder_name(step)}-a{directory.fence.attempt}"


def _read_part(directory: CheckpointDirectory, parts: Path, step: int, rank: int) -> list[Blob] | None:
    folder = parts / part_name(rank)
    try:
        raw = (folder / PART_MANIFEST_NAME).read_bytes()
        part = decode_manifest(raw)
        whole = all((parts / blob.name).stat().st_size == blob.size_bytes for blob in part.blobs)
    except (FileNotFoundError, ManifestProblem):
        return None
    if not whole or part.step != step or part.world_size != directory.place.world_size:
        return None
    return list(part.blobs)


def _list(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
