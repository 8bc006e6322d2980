"""Snapshots of folders on a node: fetched from the server over the agent's link, unpacked once, read-only.

Everything that comes is checked against its hash. A tree is unpacked under another name, then renamed, and used again
while it has not changed (`kept.py`).
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from penstock.core.messages.orders import StartReplica
from penstock.core.model import folder_snapshots as fs
from penstock.core.model.errors import PenstockError
from penstock.core.model.quantities import format_size
from penstock.engines.agent import unpacked
from penstock.engines.agent.kept import KeptTrees, make_room, unwritten
from penstock.engines.agent.preparation import Contribution, Preparation, Preparer
from penstock.engines.agent.protocol import PART_BYTES, WANTED_MAX, AgentFetch
from penstock.engines.processes import account_files
from penstock.engines.processes.accounts import private
from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import write_whole

AT_ONCE = 32
"""Snapshots that are unpacked at once; each takes some MiB meanwhile."""
KEPT_S = 7 * 86_400
"""A tree that nothing has used for so long is removed."""
KEPT_BYTES = 20 * 2**30
"""Of all trees of a node that nothing uses; the longest unused ones leave first."""
USED_BYTES_MAX = 20 * 2**30
"""Of the trees that jobs of one account use at once: a small snapshot may name one content for many files."""
LOOKED_IN = 2
"""Trees of an account, the latest, in which chunks are looked for before the server is asked."""


class NotUnpacked(PenstockError):
    """A snapshot cannot be had, or not be unpacked here."""

    code = "not_unpacked"


class UnpackedFolders(Preparer):
    """Unpacks the snapshots that replicas of one node start in."""

    def __init__(self, data: DataFolder, node: str) -> None:
        self._trees = KeptTrees(data.unpacked(node), data.node(node) / "unpacked.json")
        self._lists = data.node(node) / "unpacked"
        """The list of files of each tree, by the last part of its path."""
        self._at_once = threading.Semaphore(AT_ONCE)

    def key(self, order: StartReplica) -> str:
        """Return the snapshot's name, with the holder whose it is."""
        return order.snapshot

    def prepare(self, job: Preparation) -> Contribution:
        """Unpack the folder that replicas start in."""
        snapshot = job.order.snapshot

        def fill(folder: Path) -> int:
            files = self._files(job, snapshot)
            used = self._trees.used_bytes(job.account, job.living()) + fs.total_bytes(files)
            if used > USED_BYTES_MAX:
                most = format_size(USED_BYTES_MAX)
                raise NotUnpacked(f"folders of this account's jobs would take {format_size(used)} here, of {most}")
            make_room(fs.total_bytes(files), folder, "its folder", lambda: self._clean(0, job.living()))
            self._fill(folder, snapshot, job, files)
            lists[0] = fs.encoded(files)
            return fs.total_bytes(files)

        lists = [b""]
        with self._at_once:
            path, there = self._trees.get(snapshot.partition("/")[2], job.account, job.users, fill)
        if not there:
            write_whole(private(self._lists) / path.name, lists[0], synced=False)  # root's: the node's folder
        return Contribution(defaults=unwritten(job.account), workdir=str(path), shown=(str(path),))

    def used(self, made: Contribution, users: Sequence[str]) -> None:
        """Keep the folder for these replicas."""
        self._trees.mark(Path(made.workdir), users)

    def left(self, living: Set[str]) -> None:
        """Remove old trees, and lists of trees that are not there."""
        self._clean(KEPT_BYTES, living)

    def _clean(self, kept_bytes: int, living: Set[str]) -> None:
        for path in self._trees.clean(living, kept_s=KEPT_S, kept_bytes=kept_bytes):
            (self._lists / path.name).unlink(missing_ok=True)  # root's: the node's folder

    def _fill(self, folder: Path, snapshot: str, job: Preparation, files: fs.Files) -> None:
        """Unpack a snapshot into an empty folder. Raises: PenstockError; OSError; Cancelled."""
        there = self._there(job.account)
        folders, places = unpacked.make_folders(folder, files), unpacked.places(files)
        for chunk, data in self._contents(job, snapshot, files, there):
            for inside, offset in places[chunk]:
                unpacked.write(folder / inside, offset, data)
        unpacked.complete(folder, files, folders)

    def _files(self, job: Preparation, snapshot: str) -> fs.Files:
        """Return the list of a snapshot's files. Raises: NotUnpacked; Cancelled."""
        data, name = b"", snapshot.partition("/")[2]
        while True:
            job.check()
            part = job.fetching.answer(job.fetching.ask(AgentFetch(0, snapshot, offset=len(data))))
            data += b"".join(part.chunks)
            if len(data) >= part.total or not any(part.chunks):
                break
        if fs.name_of(data) != name:
            raise NotUnpacked("the server sent another list of files than that of the snapshot")
        files = fs.decoded(data)
        if problem := fs.problem_of(files):
            raise NotUnpacked(f"the snapshot {problem}")
        return files

    def _there(self, account: str) -> dict[bytes, tuple[Path, str, int]]:
        """Return where chunks of the account's latest trees are: trees, files in them, and offsets (bytes) in these."""
        found: dict[bytes, tuple[Path, str, int]] = {}
        for root in self._trees.latest(account, LOOKED_IN):
            with contextlib.suppress(OSError, PenstockError):
                files = fs.decoded((self._lists / root.name).read_bytes())  # root's: the node's folder
                found |= {chunk: (root, path, at) for chunk, ((path, at), *_) in unpacked.places(files).items()}
        return found

    def _read(self, root: Path, path: str, offset: int, size: int) -> bytes:
        """Return a piece of a file of a tree; less, or nothing, where it cannot be read."""
        with contextlib.suppress(OSError), self._trees.opened(root) as tree:
            descriptor = account_files.plain_file(path, within=tree)
            try:
                return os.pread(descriptor, size, offset)
            finally:
                os.close(descriptor)
        return b""

    def _contents(
        self, job: Preparation, snapshot: str, files: fs.Files, there: Mapping[bytes, tuple[Path, str, int]]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield all chunks with their hashes, each once: those of former trees, then what the server sends.

        Raises: NotUnpacked; Cancelled.
        """
        hashes = fs.chunks_of(files)
        sizes = {chunk: size for one in files for chunk, size in zip(one.chunks, fs.sizes_of(one), strict=True)}
        missing = []
        for number, chunk in enumerate(hashes):
            data = self._read(*there[chunk], sizes[chunk]) if chunk in there else b""
            if data and fs.chunk_hash(data) == chunk:
                yield chunk, data
            else:
                missing.append(number)
        questions = (
            (batch, job.fetching.ask(AgentFetch(0, snapshot, wanted=batch)))
            for batch in _batches([(number, sizes[hashes[number]]) for number in missing])
        )
        ahead = next(questions, None)
        try:
            while ahead is not None:
                batch, question = ahead
                ahead = next(questions, None)  # on its way while what came is written
                job.check()
                part = job.fetching.answer(question)
                if len(part.chunks) != len(batch):
                    raise NotUnpacked(f"the server sent {len(part.chunks)} chunks, wanted were {len(batch)}")
                for number, data in zip(batch, part.chunks, strict=True):
                    if fs.chunk_hash(data) != hashes[number]:
                        raise NotUnpacked("the server sent another content than that of the snapshot")
                    yield hashes[number], data
        finally:
            if ahead is not None:
                job.fetching.give_up(ahead[1])


def _batches(chunks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """Yield numbers of chunks, given with their sizes (bytes), that the server sends in one part."""
    batch: list[int] = []
    left = PART_BYTES
    for number, size in chunks:
        if batch and (size > left or len(batch) == WANTED_MAX):
            yield tuple(batch)
            batch, left = [], PART_BYTES
        batch.append(number)
        left -= size
    if batch:
        yield tuple(batch)
