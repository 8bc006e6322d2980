"""The manifest of a checkpoint: its pieces, with their sizes and hashes.

A manifest is one canonical JSON document that carries its own checksum. Reading re-encodes what was parsed
and compares the bytes, so a flipped bit anywhere in the file is noticed, not only in the fields we look at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

FORMAT_VERSION = 2
"""1: SHA-256 of every blob, whole or in parts. 2: the checksum names its kind; layouts, compression, shared copies."""
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 2**20
NAME_MAX = 255
_READABLE = (1, FORMAT_VERSION)

Layout = Literal["whole", "parts", "dcp", "foreign"]
"""One state; a part of each rank; PyTorch's distributed checkpoint; files that another library wrote."""


class ManifestProblem(Exception):
    """Says in one phrase why a manifest cannot be trusted. Never leaves the package."""


@dataclass(frozen=True, slots=True)
class Blob:
    """One file of a checkpoint: path relative to its folder, size in bytes, checksum as `kind:hex`.

    `content` is the checksum of what was compressed, where `encoding` says that the file is ("zstd").
    """

    name: str
    size_bytes: int
    checksum: str
    encoding: str = ""
    content: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a checkpoint.

    Args:
        step: training steps completed by the saved state.
        world_size: ranks that were running.
        created_ms: Unix time in milliseconds.
    """

    job: str | None
    attempt: int
    step: int
    world_size: int
    layout: Layout
    created_ms: int
    blobs: tuple[Blob, ...]
    format_version: int = FORMAT_VERSION

    @property
    def size_bytes(self) -> int:
        """Sum of the sizes of all blobs, in bytes."""
        return sum(blob.size_bytes for blob in self.blobs)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the canonical file contents of `manifest`, its own checksum included."""
    return _seal(asdict(manifest))


def decode_manifest(raw: bytes) -> Manifest:
    """Return the manifest that `raw` holds.

    Raises: ManifestProblem if a byte is not as it was written, or the format is another one.
    """
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise ManifestProblem(f"{MANIFEST_NAME} is not JSON ({len(raw)} bytes)") from None
    if not isinstance(document, dict) or "sha256" not in document:
        raise ManifestProblem(f"{MANIFEST_NAME} has no checksum of its own")
    body = {key: value for key, value in document.items() if key != "sha256"}
    if _seal(body) != raw:
        raise ManifestProblem(f"{MANIFEST_NAME} does not match its own checksum")
    if body.get("format_version") not in _READABLE:
        raise ManifestProblem(
            f"{MANIFEST_NAME} has format version {body.get('format_version')!r}; this version reads {FORMAT_VERSION}"
        )
    return _from_body(body)


def _seal(body: Mapping[str, Any]) -> bytes:
    digest = hashlib.sha256(_canonical(body)).hexdigest()
    return _canonical({**body, "sha256": digest})


def _canonical(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, sort_keys=True, indent=1) + "\n").encode("ascii")


def _from_body(body: Mapping[str, Any]) -> Manifest:
    """Build the value; a sealed manifest with wrong fields was written by a broken program, not by a disk."""
    try:
        old = body["format_version"] == 1
        layout: Any = ("parts" if body["sharded"] else "whole") if old else body["layout"]
        if layout not in get_args(Layout):
            expected = ", ".join(get_args(Layout))
            raise ManifestProblem(f"{MANIFEST_NAME} has layout {layout!r}; expected one of {expected}")
        blobs = tuple(_blob(blob, old=old) for blob in body["blobs"])
        manifest = Manifest(
            job=None if body["job"] is None else str(body["job"]),
            attempt=int(body["attempt"]),
            step=int(body["step"]),
            world_size=int(body["world_size"]),
            layout=layout,
            created_ms=int(body["created_ms"]),
            blobs=blobs,
            format_version=int(body["format_version"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestProblem(f"{MANIFEST_NAME} lacks a field or has one of a wrong type: {error}") from None
    for blob in blobs:
        if not _stays_inside(blob.name):
            raise ManifestProblem(f"{MANIFEST_NAME} names {blob.name!r}, which is outside its folder")
    return manifest


def _blob(fields: Mapping[str, Any], *, old: bool) -> Blob:
    return Blob(
        name=str(fields["name"]),
        size_bytes=int(fields["size_bytes"]),
        checksum=f"sha256:{fields['sha256']}" if old else str(fields["checksum"]),
        encoding=str(fields.get("encoding", "")),
        content=str(fields.get("content", "")),
    )


def _stays_inside(name: str) -> bool:
    """Whether a path cannot lead out of the folder that it is relative to."""
    parts = name.split("/")
    return all(part not in ("", ".", "..") and "\0" not in part and len(part.encode()) <= NAME_MAX for part in parts)
