"""Routes about snapshots of folders. They are taken in by their list of files first, then the chunks that are missing.

Nobody is told what others have sent: a holder's snapshots and chunks are looked up among their own.
"""

import struct
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from penstock.api.snapshots import ChunksAnswer, NewSnapshot, SnapshotAnswer, SnapshotList, SnapshotView
from penstock.api.types import DoneAnswer
from penstock.core.model import folder_snapshots as fs
from penstock.core.model.access import Scope
from penstock.core.model.errors import PenstockError, Problem
from penstock.server.backend import Backend
from penstock.server.http.parsing import allow, invalid, large_body_of
from penstock.server.http.responses import ApiError, answer
from penstock.server.lists import SNAPSHOTS
from penstock.server.routes.openapi import returns
from penstock.server.tables import ListQuery, list_query, paged
from penstock.store.folder_snapshots import FolderSnapshots, Holder, holder

LIST_MAX_BYTES = 8 * 2**20
"""Of a request with a list of files."""
CHUNKS_MAX_BYTES = 4 * 2**20 + 2**16
"""Of a request with chunks."""
CHUNKS_MAX = 4_096
"""In one request."""
MEDIA = "application/octet-stream"
_LENGTH = struct.Struct(">I")
_decode = msgspec.json.Decoder(NewSnapshot).decode
NAME_EXPECTED = "64 hexadecimal digits in lower case"
NamePath = Annotated[str, Path(max_length=200, description="name of the snapshot", examples=["0" * 64])]
EXAMPLE = {"snapshot": "0" * 64, "files": []}


def snapshot_routes(app: FastAPI, backend: Backend, caller: Any) -> None:
    @app.post("/api/v1/snapshots", **returns(SnapshotAnswer, body=NewSnapshot, example=EXAMPLE))
    async def declare_snapshot(request: Request, who: caller) -> Response:
        """Declare a snapshot of a folder; the answer names the chunks that the server lacks."""
        allow(who.submits_anywhere, "send snapshots")
        kept = kept_by(backend)
        with await large_body_of(request, backend.bodies, LIST_MAX_BYTES) as body:
            return await backend.pools.files.run(_declared, kept, holder_of(who), body)

    @app.post("/api/v1/snapshots/chunks", **returns(ChunksAnswer, media="application/json"), openapi_extra=_BINARY)
    async def send_chunks(request: Request, who: caller) -> Response:
        """Send contents for a snapshot: each chunk after its length, four bytes, the highest first."""
        allow(who.submits_anywhere, "send snapshots")
        kept = kept_by(backend)
        with await large_body_of(request, backend.bodies, CHUNKS_MAX_BYTES) as body:
            return await backend.pools.files.run(_added, kept, holder_of(who), body)

    @app.get("/api/v1/snapshots", **returns(SnapshotList))
    async def list_snapshots(who: caller, query: Annotated[ListQuery, list_query(SNAPSHOTS)]) -> Response:
        """List the snapshots of folders that the server keeps for the caller."""
        allow(who.submits_anywhere, "see snapshots")
        kept, by = kept_by(backend), holder_of(who)

        def compute() -> Response:
            needed = backend.snapshots_held()
            views = [SnapshotView(*one, needed[f"{by}/{one.name}"]) for one in kept.listed(by)]
            return paged(SNAPSHOTS, query, views, SnapshotList)

        return await backend.pools.files.run(compute)

    @app.delete("/api/v1/snapshots/{name}", **returns(DoneAnswer))
    async def remove_snapshot(who: caller, name: NamePath) -> Response:
        """Remove a snapshot of the caller that no live job and no schedule starts in."""
        allow(who.submits_anywhere, "remove snapshots")
        kept = kept_by(backend)
        await backend.pools.files.run(_removed, kept, holder_of(who), name)
        return answer(DoneAnswer(True))


_BINARY = {"requestBody": {"required": True, "content": {MEDIA: {"schema": {"type": "string", "format": "binary"}}}}}


def holder_of(who: Scope) -> Holder:
    """Return whose snapshots a caller sends and uses."""
    return holder(who.user, delegated=who.delegated, only=who.only or ())


def kept_by(backend: Backend) -> FolderSnapshots:
    """Return where snapshots are kept. Raises: ApiError where the nodes could not unpack them."""
    if backend.snapshots is None:
        hint = "put the folder into the image or on storage of the nodes, and name it in workdir"
        raise ApiError("unavailable", "the nodes of this server do not unpack snapshots of folders", hint=hint)
    return backend.snapshots


def _declared(kept: FolderSnapshots, by: Holder, body: bytes) -> Response:
    try:
        wanted = _decode(body)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        field = where.strip("`.") or "body"
        raise invalid([Problem("bad_value", field, f"{field}: {text}")]) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("not_json", "the body is not JSON", detail=str(error)) from error
    for field, name in (("snapshot", wanted.snapshot), ("base", wanted.base)):
        if not fs.NAME.fullmatch(name) and (name or field == "snapshot"):
            text = f"{field} is '{name[:80]}', expected {NAME_EXPECTED}"
            raise invalid([Problem("bad_value", field, text, name[:80])])
    if len(wanted.files) > fs.FILES_MAX or len(wanted.removed) > fs.FILES_MAX:
        raise ApiError("too_large", f"a snapshot may have {fs.FILES_MAX} files")
    try:
        found = kept.declare(by, wanted.snapshot, wanted.files, wanted.removed, wanted.base)
    except PenstockError as error:
        raise ApiError(error.code, error.message, hint=error.hint) from error
    return answer(SnapshotAnswer(wanted.snapshot, found.complete, found.base_known, found.missing))


def _removed(kept: FolderSnapshots, by: Holder, name: str) -> None:
    try:
        kept.remove(by, name)
    except PenstockError as error:
        raise ApiError(error.code, error.message, hint=error.hint) from error


def _added(kept: FolderSnapshots, by: Holder, body: bytes) -> Response:
    at = 0
    chunks: list[bytes] = []
    while at < len(body):
        if len(body) - at < _LENGTH.size or len(chunks) == CHUNKS_MAX:
            raise _not_chunks(f"there are more than {CHUNKS_MAX} chunks, or a length is cut off")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if not 0 < length <= min(fs.CHUNK_BYTES, len(body) - at):
            raise _not_chunks(f"a chunk of {length} bytes, expected 1 to {fs.CHUNK_BYTES}, all of them in the body")
        chunks.append(body[at : at + length])
        at += length
    if not chunks:
        raise _not_chunks("there is no chunk")
    try:
        new_bytes = kept.add(by, chunks)
    except PenstockError as error:
        raise ApiError(error.code, error.message, hint=error.hint) from error
    return answer(ChunksAnswer(len(chunks), new_bytes))


def _not_chunks(what: str) -> ApiError:
    return invalid([Problem("bad_value", "body", f"body: {what}")])
