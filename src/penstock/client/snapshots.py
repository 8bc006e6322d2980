"""Sends snapshots of folders: first the list of what differs, then the contents that the server lacks.

`with_snapshots` does that for each folder that the jobs of a request start in.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.api.snapshots import NewSnapshot, SnapshotAnswer
from penstock.core.model import folder_snapshots as fs
from penstock.core.model.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.client.http import ApiClient
    from penstock.client.packing import Packed

BATCH_BYTES = 4 * 2**20
"""Of contents in one request."""
BATCH_CHUNKS = 4_096
TRIES = 3
_LENGTH = struct.Struct(">I")
OnText = Callable[[str], None]


class Sent(NamedTuple):
    """A snapshot that the server has."""

    name: str
    files: int
    bytes: int
    """Of its files."""
    sent_bytes: int
    """Bodies of the requests for it: lists of files, and contents."""


def sent(client: "ApiClient", folder: Path, on_text: OnText = lambda text: None) -> Sent:
    """Send a snapshot of a folder as it is now. Raises: InvalidInput; ApiProblem."""
    from penstock.client import packing

    for _ in range(TRIES):
        found = packing.packed(folder)
        try:
            sent_bytes = _send(client, found, on_text)
        except packing.Changed as error:
            changed = str(error)
            continue
        if found.cache.files != found.files:
            found.cache.files = found.files
            packing.save(found)
        return Sent(found.name, len(found.files), fs.total_bytes(found.files), sent_bytes)
    text = f"{folder / changed} changes while the folder is being sent"
    raise InvalidInput(text, hint=f"put {changed} into .penstockignore, or submit when it is complete")


def with_snapshots(client: "ApiClient", request: Any, on_text: OnText = lambda text: None) -> Any:
    """Return a request with names of snapshots in place of folders, which are sent.

    A relative folder is one of the present folder. What is no job is returned as it is: the server reports it.
    """
    names: dict[str, str] = {}

    def name_of(folder: str) -> str:
        if folder not in names:
            names[folder] = sent(client, Path(folder), on_text).name
        return names[folder]

    return named(request, name_of)


def named(request: Any, name_of: Callable[[str], str]) -> Any:
    """Return a request in which the folder of each snapshot is replaced by what `name_of` returns for it."""
    if isinstance(request, list):
        return [named(one, name_of) for one in request]
    if not isinstance(request, Mapping):
        return request
    if isinstance(request.get("jobs"), list):
        return {**request, "jobs": named(request["jobs"], name_of)}
    workdir = request.get("workdir")
    if not isinstance(workdir, Mapping):
        return request
    folder = workdir.get("snapshot")
    if not isinstance(folder, str) or not folder or fs.NAME.fullmatch(folder):
        return request
    return {**request, "workdir": {**workdir, "snapshot": name_of(folder)}}


def _send(client: "ApiClient", found: "Packed", on_text: OnText) -> int:
    """Send what the server lacks; return how many bytes that took. Raises: Changed."""
    total = 0
    wanted = _first(found)
    for _ in range(TRIES):
        total += _size(wanted)
        answer = client.declare_snapshot(wanted)
        if not answer.complete and not answer.files_known:
            wanted = NewSnapshot(found.name, found.files)
            total += _size(wanted)
            answer = client.declare_snapshot(wanted)
        if answer.complete:
            return total
        total += _send_missing(client, found, answer, on_text)
    raise InvalidInput("the server lost what was sent meanwhile", hint="submit again")


def _first(found: "Packed") -> NewSnapshot:
    """Return the shortest declaration: by what has changed since the last snapshot."""
    former = found.cache.files
    base = fs.name_of(fs.encoded(former)) if former else ""
    if not base or base == found.name:
        return NewSnapshot(found.name)
    files, removed = fs.changed(found.files, former)
    return NewSnapshot(found.name, files, base, removed)


def _size(wanted: NewSnapshot) -> int:
    import msgspec

    return len(msgspec.json.encode(wanted))


def _send_missing(client: "ApiClient", found: "Packed", answer: SnapshotAnswer, on_text: OnText) -> int:
    missing, total, count = set(answer.missing), 0, 0
    batch = bytearray()
    for done, data in enumerate(_contents(found, missing), 1):
        batch += _LENGTH.pack(len(data)) + data
        count += 1
        if len(batch) + fs.CHUNK_BYTES > BATCH_BYTES or count == BATCH_CHUNKS or done == len(missing):
            client.send_chunks(bytes(batch))
            total, count = total + len(batch), 0
            batch.clear()
            on_text(f"sending the folder: {100 * done // len(missing)} %")
    return total


def _contents(found: "Packed", missing: set[bytes]) -> Iterator[bytes]:
    from penstock.client import packing

    left = set(missing)
    for one in found.files:
        for index, chunk in enumerate(one.chunks):
            if chunk in left:
                left.discard(chunk)
                yield packing.read_chunk(found.folder, one, index)
