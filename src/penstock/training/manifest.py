"""The manifest of a checkpoint: which pieces belong to it, how long they are and what they hash to.

A manifest is one canonical JSON document that carries its own checksum. Reading re-encodes what was parsed
and compares the bytes, so a flipped bit anywhere in the file is noticed, not only in the fields we look at.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 2**20
_BLOB_NAME = re.compile(r"(rank-\d{4,}/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class ManifestProblem(Exception):
    """Says in one phrase why a manifest cannot be trusted. Never leaves the package."""


@dataclass(frozen=True, slots=True)
class Blob:
    """One file of a checkpoint: path relative to its folder, size in bytes, SHA-256 in hex."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint is.

    Args:
        step: training steps completed by the saved state.
        world_size: ranks that were running; all of them have a part here if `sharded`.
        created_ms: Unix time in milliseconds.
    """

    job: str | None
    attempt: int
    step: int
    world_size: int
    sharded: bool
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
    if body.get("format_version") != FORMAT_VERSION:
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
        blobs = tuple(
            Blob(name=str(blob["name"]), size_bytes=int(blob["size_bytes"]), sha256=str(blob["sha256"]))
            for blob in body["blobs"]
        )
        manifest = Manifest(
            job=None if body["job"] is None else str(body["job"]),
            attempt=int(body["attempt"]),
            step=int(body["step"]),
            world_size=int(body["world_size"]),
            sharded=bool(body["sharded"]),
            created_ms=int(body["created_ms"]),
            blobs=blobs,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestProblem(f"{MANIFEST_NAME} lacks a field or has one of a wrong type: {error}") from None
    for blob in blobs:
        if not _BLOB_NAME.fullmatch(blob.name):
            raise ManifestProblem(f"{MANIFEST_NAME} names {blob.name!r}, which is outside its folder")
    return manifest
