"""Checkpoints at a URL: any file system that fsspec knows (`s3://`, `gs://`, `abfs://`, `memory://`, `file://`).

Layout: `step-000000123/manifest.json`, `step-000000123/a2-6f1d09c3/` with the files that the manifest names, and
`attempt`. There is no rename on an object store, so the manifest makes the checkpoint: it is put last, by one
request, when all files are there. Each save has a folder of its own: two attempts that are alive at the same time
never write to one object, and files that no manifest names are garbage.

Needs fsspec and the package for the protocol, for instance s3fs.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Self

from penstock.training.errors import BadArgument, FencedAttempt, TrainingError
from penstock.training.storage import durable
from penstock.training.storage.blobs import Ready, Shelf, write_pieces, wrong_size
from penstock.training.storage.checkpoints import DEFAULT_KEEP, Checkpoints, Place, folder_name
from penstock.training.storage.contents import Window
from penstock.training.storage.fence import MARKER_NAME, AttemptRecord
from penstock.training.storage.manifest import (
    MANIFEST_NAME,
    Blob,
    Manifest,
    ManifestProblem,
    decode_manifest,
    encode_manifest,
)

READ_BYTES = 16 * 2**20
"""Size of one read request: large enough that the round trip does not count."""
_WITHOUT_FOLDERS = frozenset(
    ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2", "tos", "memory")
)
"""Protocols where folders are no objects; making one could make a mistyped bucket."""
_PUBLISHED = re.compile(r"step-(\d{9,12})/" + re.escape(MANIFEST_NAME))
_OF_A_SAVE = re.compile(r"(step-\d{9,12})/(a(\d+)-[0-9a-f]+/.+)")

_log = logging.getLogger("penstock.training")


class RemoteDirectory(Checkpoints):
    """The checkpoints of one job at `url`; rank 0 alone writes there (layout `Whole`).

    There are no locks at a URL, so the fence is by the attempt record alone: an old attempt that looks at the record
    just before a newer one writes it can still publish. It looks again afterwards and then takes its checkpoint back,
    but the newer attempt may have resumed from it meanwhile. A published checkpoint is whole in any case.
    Unchanged files are copied within the store where it can do that; whether they are still good there rests on its
    own checksums until they are read.

    Args:
        options: for fsspec: endpoint, credentials. By default they come from the environment and fsspec's own files.
    Raises: BadArgument where fsspec or the package for the protocol is missing.
    """

    def __init__(
        self,
        url: str,
        place: Place | None = None,
        *,
        keep: int = DEFAULT_KEEP,
        compress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._store = _Store(url, options or {})
        fence = _RemoteRecord(self._store, place.attempt if place else None, self._highest_attempt)
        super().__init__(place, fence, _RemoteShelf(), keep=keep, compress=compress)
        self._url = url

    @property
    def where(self) -> str:
        return self._url

    def steps(self) -> list[int]:
        found = (_PUBLISHED.fullmatch(name) for name in self._store.sizes())
        return sorted((int(name[1]) for name in found if name), reverse=True)

    def write_files(self, step: int, pieces: Iterable[Ready]) -> Manifest:
        self.fence.check()
        name = folder_name(step)
        kept = self._whole_already(step)
        if kept is not None:
            return kept
        own = f"a{self.fence.attempt}-{secrets.token_hex(4)}/"
        try:
            sink = _Sink(self._store, f"{name}/{own}")
            blobs = write_pieces(sink, pieces, self.shelf, compress=self.compress, prefix=own)
            manifest = self._new_manifest(step, "whole", blobs)
            self._publish(manifest)
        except (OSError, FencedAttempt) as error:
            self.shelf.clear()
            self._discard(step, own)
            if isinstance(error, OSError):
                self._explain(error)
            raise
        self._damaged.discard(step)
        self.shelf.fill(self._store.path(name), manifest.blobs)
        self._let_go(step)
        return manifest

    def _publish(self, manifest: Manifest) -> None:
        path, raw = _manifest_of(manifest.step), encode_manifest(manifest)
        with self.fence.held():
            try:
                self._store.put(path, raw)
            except OSError:
                # The request may have been carried out, and only the answer lost.
                if self._store.get_if_there(path) != raw:
                    raise
        try:
            self.fence.check()
        except FencedAttempt:
            if self._store.get_if_there(path) == raw:
                self._store.remove([path])
            raise

    def _discard(self, step: int, own: str) -> None:
        """Delete the files of a failed save, unless a manifest names them: its request may have succeeded."""
        try:
            if own.encode("ascii") not in (self._store.get_if_there(_manifest_of(step)) or b""):
                self._store.remove_folder(f"{folder_name(step)}/{own}")
        except OSError as error:
            _log.warning("files of a save that failed stay", extra={"step": step, "error": str(error)})

    def _prefix(self, manifest: Manifest) -> str:
        if manifest.layout == "parts":
            raise BadArgument(
                f"checkpoint of step {manifest.step} at {self._url} has the parts of several ranks; "
                "expected a state that rank 0 alone saved. Copy it to a directory and resume from there."
            )
        super()._prefix(manifest)
        return manifest.blobs[0].name.rpartition("/")[0] + "/"

    def _source(self, step: int) -> _Source:
        return _Source(self._store, folder_name(step))

    def _raw_manifest(self, step: int) -> bytes:
        return self._store.get(_manifest_of(step))

    def _sized(self, step: int, blobs: Iterable[Blob]) -> bool:
        sizes = self._store.sizes(folder_name(step))
        return all(sizes.get(blob.name) == blob.size_bytes for blob in blobs)

    def _let_go(self, newest: int) -> None:
        """Delete checkpoints beyond retention, the manifest first: files left after that are garbage."""
        try:
            for step in self._surplus(newest):
                self.fence.check()
                self._store.remove([_manifest_of(step)])
                self._store.remove_folder(f"{folder_name(step)}/")
        except OSError as error:
            _log.warning("old checkpoint stays", extra={"newest": newest, "error": str(error)})

    def _clear_leftovers(self) -> None:
        names = list(self._store.sizes())
        kept = {name for step in self.steps() for name in self._named_by_manifest(step, names)}
        leftovers = [
            name
            for name in names
            if (found := _OF_A_SAVE.fullmatch(name)) and int(found[3]) <= self.fence.attempt and name not in kept
        ]
        try:
            self._store.remove(leftovers)
        except OSError as error:
            _log.warning("what dead attempts left stays", extra={"files": len(leftovers), "error": str(error)})

    def _named_by_manifest(self, step: int, names: Iterable[str]) -> list[str]:
        """Return the files of the checkpoint of `step`: all in its folder where its manifest cannot be read."""
        folder = f"{folder_name(step)}/"
        try:
            return [f"{folder}{blob.name}" for blob in decode_manifest(self._raw_manifest(step)).blobs]
        except (ManifestProblem, OSError):
            return [name for name in names if name.startswith(folder)]


def _manifest_of(step: int) -> str:
    return f"{folder_name(step)}/{MANIFEST_NAME}"


class _Store:
    """A folder of a file system of fsspec's: names are relative to it. All methods raise OSError."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        try:
            import fsspec
        except ImportError:
            raise BadArgument(f"{url} needs the package fsspec: pip install fsspec") from None
        try:
            self._fs, root = fsspec.core.url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise BadArgument(f"{url} cannot be used: {error}") from None
        self._root = root.rstrip("/")
        protocols = (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        self._folders = not _WITHOUT_FOLDERS.intersection(protocols)

    def path(self, name: str) -> str:
        """Return the path of the file `name` in the file system."""
        return f"{self._root}/{name}"

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the sizes in bytes of all files in `folder` and below, by their names relative to it."""
        top = self.path(folder) if folder else self._root
        with _as_os_error():
            self._fs.invalidate_cache()  # other processes change the files
            try:
                found = self._fs.find(top, detail=True)
            except FileNotFoundError:
                return {}
        return {name[len(top) + 1 :]: int(entry["size"]) for name, entry in found.items() if name != top}

    def get(self, name: str, first: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes from `first` to `end`, or all."""
        with _as_os_error():
            return bytes(self._fs.cat_file(self.path(name), start=first, end=end))

    def get_if_there(self, name: str) -> bytes | None:
        try:
            return self.get(name)
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """Write a small file by one request."""
        with _as_os_error():
            self.make_folder(name.rpartition("/")[0])
            self._fs.pipe_file(self.path(name), data)

    def stream(self, name: str, windows: Iterable[Window | bytes]) -> durable.Written:
        """Write a file of any size."""
        with _as_os_error(), self._fs.open(self.path(name), "wb") as file:
            return durable.pass_on(windows, file.write)

    def copy(self, path: str, name: str) -> bool:
        """Copy within the store; False where it cannot."""
        try:
            with _as_os_error():
                self._fs.cp_file(path, self.path(name))
        except (NotImplementedError, FileNotFoundError):
            return False
        return True

    def make_folder(self, name: str) -> None:
        if self._folders:
            with _as_os_error():
                self._fs.makedirs(self.path(name).rstrip("/"), exist_ok=True)

    def remove_folder(self, folder: str) -> None:
        """Delete all files in `folder`, a name that ends with a slash."""
        self.remove([f"{folder}{name}" for name in self.sizes(folder.rstrip("/"))])

    def remove(self, names: list[str]) -> None:
        """Delete files; missing ones are no error."""
        with _as_os_error():
            for name in names:
                try:
                    self._fs.rm_file(self.path(name))
                except FileNotFoundError:
                    continue


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except (OSError, NotImplementedError, TrainingError, ManifestProblem):
        raise
    except Exception as error:  # each file system has errors of its own, and none of them may end training
        raise OSError(f"{type(error).__name__}: {error}") from error


class _RemoteRecord(AttemptRecord):
    """See `RemoteDirectory` for the gap of this fence."""

    def __init__(self, store: _Store, attempt: int | None, highest_known: Callable[[], int]) -> None:
        super().__init__(attempt, highest_known)
        self._store = store

    def _read(self) -> bytes | None:
        return self._store.get_if_there(MARKER_NAME)

    def _replace(self, data: bytes) -> None:
        self._store.put(MARKER_NAME, data)

    def _locked(self) -> AbstractContextManager[None]:
        return nullcontext()


class _RemoteShelf(Shelf):
    def _spare(self, path: str, blob: Blob) -> bool:
        """A copy within the store is a file of its own: any number may be made."""
        return True


class _Sink:
    """The files of one save."""

    def __init__(self, store: _Store, folder: str) -> None:
        self._store, self._folder = store, folder
        store.make_folder(folder)

    def put(self, name: str, windows: Iterable[Window | bytes]) -> durable.Written:
        return self._store.stream(self._folder + name, windows)

    def share(self, source: str, name: str) -> bool:
        return self._store.copy(source, self._folder + name)


class _Source:
    """The files of one checkpoint."""

    def __init__(self, store: _Store, folder: str) -> None:
        self._store, self._name = store, folder
        self.folder = store.path(folder)
        self._sizes = store.sizes(folder)

    def opened(self, blob: Blob) -> _Reader:
        if blob.name not in self._sizes:
            raise ManifestProblem(f"{blob.name} is missing")
        if self._sizes[blob.name] != blob.size_bytes:
            raise wrong_size(blob, self._sizes[blob.name])
        return _Reader(partial(self._store.get, f"{self._name}/{blob.name}"), blob.size_bytes)


class _Reader:
    """Reads a file of known size from front to back, by few requests."""

    def __init__(self, get: Callable[[int, int], bytes], size_bytes: int) -> None:
        self._get, self._size_bytes = get, size_bytes
        self._asked = 0
        self._held = memoryview(b"")

    def read(self, size_bytes: int) -> Window:
        """Return up to `size_bytes` bytes, none at the end."""
        if not self._held and self._asked < self._size_bytes:
            end = min(self._asked + READ_BYTES, self._size_bytes)
            self._held = memoryview(self._get(self._asked, end))
            self._asked = end
        part, self._held = self._held[:size_bytes], self._held[size_bytes:]
        return part

    def readinto(self, memory: Window) -> int:
        part = self.read(len(memory))
        memory[: len(part)] = part
        return len(part)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None
