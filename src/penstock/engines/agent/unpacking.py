"""Snapshots of folders on a node: fetched from the server over the agent's link, unpacked once, read-only.

Each snapshot has a thread while it is unpacked, however many replicas wait for it; what threads need from the server
the agent's loop asks for (`fetching.py`). Everything that comes is checked against its hash.

A tree is unpacked under another name, then renamed, and used again while not a single entry of it has changed since:
the kernel notes each change in a time that no program can set. What a crash of the machine leaves is not trusted:
trees belong to one boot of it.
"""

import contextlib
import logging
import os
import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model import folder_snapshots as fs
from penstock.core.model.errors import PenstockError
from penstock.engines.agent import unpacked
from penstock.engines.agent.fetching import Fetching
from penstock.engines.agent.parts import Prepared
from penstock.engines.agent.protocol import PART_BYTES, WANTED_MAX, AgentFetch
from penstock.engines.processes.accounts import account_of, private
from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import PASSED, write_whole

log = logging.getLogger(__name__)

THREADS_MAX = 32
"""Snapshots that are unpacked at once; each takes some MiB meanwhile."""
KEPT_S = 7 * 86_400
"""A tree that nothing has used for so long is removed."""
KEPT_BYTES = 20 * 2**30
"""Of all trees of a node that nothing uses; the longest unused ones leave first."""
LOOKED_IN = 2
"""Trees of an account, the latest, in which chunks are looked for before the server is asked."""
OWN = "own"
"""In place of an account: that of the agent."""
UNFINISHED = ".unfinished"
"""The folder, beside those of accounts, in which trees are made."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Tree(msgspec.Struct):
    """An unpacked snapshot, as noted in the node's folder."""

    path: str
    snapshot: str
    """Its name, without the holder."""
    account: str
    boot: str
    state: str
    """Digest of what the kernel says of all its entries."""
    size: int
    used_s: float
    users: list[str] = []
    """Replicas that have it."""


class Wanted(NamedTuple):
    """A snapshot for an account."""

    snapshot: str
    """`HOLDER/NAME`."""
    account: str

    @property
    def key(self) -> tuple[str, str]:
        """Its name and the account: whose trees are the same."""
        return self.snapshot.partition("/")[2], self.account


class NotUnpacked(PenstockError):
    """A snapshot cannot be had, or not be unpacked here."""

    code = "not_unpacked"


class UnpackedFolders:
    """Unpacks snapshots for the replicas of one node.

    Args:
        living: replicas of a former worker: what they use stays.
        wake: called when there is something to ask the server, or a result. In the thread.
    """

    def __init__(self, data: DataFolder, node: str, living: Iterable[ReplicaKey], wake: Callable[[], None]) -> None:
        self._data, self._node, self._wake = data, node, wake
        self._notes = data.node(node) / "unpacked.json"
        self._lists = data.node(node) / "unpacked"
        """The list of files of each tree, by the last part of its path."""
        self._living = {str(key) for key in living}
        """Replicas that may use a tree."""
        self.done: queue.SimpleQueue[Prepared] = queue.SimpleQueue()
        self.fetching = Fetching(wake)
        self._lock = threading.Lock()
        """Of what is to be done: held for moments, the agent's loop takes it."""
        self._orders: dict[Wanted, list[StartReplica]] = {}
        self._work: deque[Wanted | None] = deque()
        """Snapshots to unpack, and None where old trees are to be looked at."""
        self._threads = 0
        self._trees_lock = threading.Lock()
        """Of the trees and their notes: threads alone take it."""
        self._trees: list[Tree] | None = None

    # On the agent's loop.

    def unpack(self, order: StartReplica) -> None:
        """Unpack what a replica starts in; `done` gets the order, with the folder in `workdir`."""
        wanted = Wanted(order.snapshot, order.account)
        with self._lock:
            self._living.add(str(order.key))
            waiting = self._orders.setdefault(wanted, [])
            waiting.append(order)
            if len(waiting) == 1:
                self._work.append(wanted)
        self._go()

    def left(self, key: ReplicaKey) -> None:
        """Take note that nothing of a replica is left."""
        with self._lock:
            if str(key) not in self._living:
                return
            self._living.discard(str(key))
            if None not in self._work:
                self._work.append(None)
        self._go()

    def _go(self) -> None:
        with self._lock:
            if not self._work or self._threads >= THREADS_MAX:
                return
            self._threads += 1
        threading.Thread(target=self._run, name="penstock-unpack", daemon=True).start()

    # In threads.

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._threads -= 1
                    return
                wanted = self._work.popleft()
            try:
                if wanted is not None:
                    self._serve(wanted)
                self._clean()
            except Exception:  # the top of the thread: other snapshots go on
                log.exception("unpacked folders were not cleaned")

    def _serve(self, wanted: Wanted) -> None:
        """Give the orders that wait for a snapshot their tree, or say why there is none."""
        tree, problem = None, ""
        try:
            tree = self._tree(wanted)
        except (PenstockError, OSError) as error:
            problem = error.message if isinstance(error, PenstockError) else str(error)
        except Exception as error:  # of this snapshot alone
            log.exception("a folder was not unpacked")
            problem = f"{type(error).__name__}: {error}"
        with self._lock:
            orders = [order for order in self._orders.pop(wanted) if str(order.key) in self._living]
            if tree is None and not problem and orders:  # all were stopped, and these came meanwhile
                self._orders[wanted] = orders
                self._work.append(wanted)
                return
        if tree is not None:
            with self._trees_lock:
                self._mark(tree, orders)
        for order in orders:
            if tree is not None:
                self.done.put(Prepared(replace(order, workdir=tree.path, snapshot=""), (), ""))
            else:
                self.done.put(Prepared(order, (), f"its folder was not unpacked: {problem}"))
        self._wake()

    def _tree(self, wanted: Wanted) -> Tree | None:
        """Return a tree for replicas that wait for it; None where all were stopped. Raises: PenstockError; OSError."""
        with self._lock:
            orders = [order for order in self._orders[wanted] if str(order.key) in self._living]
        if not orders:
            return None
        with self._trees_lock:
            trees = self._trees = self._begun() if self._trees is None else self._trees
            known = [one for one in trees if (one.snapshot, one.account, one.boot) == (*wanted.key, _boot())]
            if known:
                self._mark(known[-1], orders)
            there = self._there(trees, wanted.account)
        for tree in known[-1:]:  # that before it was changed already
            with contextlib.suppress(OSError):
                if unpacked.state_of(Path(tree.path)) == tree.state:
                    return tree
            log.warning("an unpacked folder was changed, and is unpacked anew", extra={"path": tree.path})
        made = self._make(wanted, there)
        with self._trees_lock:
            trees.append(made)
            self._mark(made, orders)
        return made

    def _mark(self, tree: Tree, orders: Sequence[StartReplica]) -> None:
        """Note users of a tree: they keep it."""
        users = [*tree.users, *(str(order.key) for order in orders)]
        tree.used_s, tree.users = time.time(), [user for user in dict.fromkeys(users) if user in self._living]
        self._write_notes()

    def _make(self, wanted: Wanted, there: Mapping[bytes, tuple[Path, int]]) -> Tree:
        """Fetch and unpack a snapshot. Raises: PenstockError; OSError."""
        name, account = wanted.key
        home = self._home(account)
        mark = secrets.token_hex(4)
        temporary, path = private(home.parent / UNFINISHED) / mark, home / f"{name[:32]}.{mark}"
        temporary.mkdir(0o700)
        try:
            files = self._files(wanted.snapshot, name)
            folders, places = unpacked.make_folders(temporary, files), unpacked.places(files)
            for chunk, data in self._contents(wanted.snapshot, files, there):
                for inside, offset in places[chunk]:
                    unpacked.write(temporary / inside, offset, data)
            unpacked.complete(temporary, files, folders)
            temporary.rename(path)
        except BaseException:
            unpacked.remove(temporary)
            raise
        write_whole(self._lists / path.name, fs.encoded(files), synced=False)
        return Tree(str(path), name, account, _boot(), unpacked.state_of(path), fs.total_bytes(files), time.time())

    def _home(self, account: str) -> Path:
        """Return the folder of an account's trees: that account alone can pass it.

        It owns the folder, so it may move what is there: the agent, which may be root, writes nothing in it.
        """
        base = self._data.unpacked(self._node)
        private(base.parent, PASSED)
        private(base, PASSED)
        home = private(base / (account or OWN))
        if account:
            user = account_of(account)
            os.chown(home, user.uid, user.gid, follow_symlinks=False)
            home.chmod(0o500)
        return home

    def _files(self, snapshot: str, name: str) -> fs.Files:
        """Return the list of a snapshot's files. Raises: NotUnpacked."""
        data = b""
        while True:
            part = self.fetching.answer(self.fetching.ask(AgentFetch(0, snapshot, offset=len(data))))
            data += b"".join(part.chunks)
            if len(data) >= part.total or not any(part.chunks):
                break
        if fs.name_of(data) != name:
            raise NotUnpacked("the server sent another list of files than that of the snapshot")
        files = fs.decoded(data)
        if problem := fs.problem_of(files):
            raise NotUnpacked(f"the snapshot {problem}")
        return files

    def _there(self, trees: Sequence[Tree], account: str) -> dict[bytes, tuple[Path, int]]:
        """Return where chunks of the account's latest trees are: files, and offsets (bytes) in them."""
        found: dict[bytes, tuple[Path, int]] = {}
        latest = sorted((tree for tree in trees if tree.account == account), key=lambda one: one.used_s)
        for tree in latest[-LOOKED_IN:]:
            root = Path(tree.path)
            with contextlib.suppress(OSError, PenstockError):
                files = fs.decoded((self._lists / root.name).read_bytes())
                found |= {chunk: (root / path, at) for chunk, ((path, at), *_) in unpacked.places(files).items()}
        return found

    def _contents(
        self, snapshot: str, files: fs.Files, there: Mapping[bytes, tuple[Path, int]]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield all chunks with their hashes, each once: those of former trees, then what the server sends.

        Raises: NotUnpacked.
        """
        hashes = fs.chunks_of(files)
        sizes = {chunk: size for one in files for chunk, size in zip(one.chunks, fs.sizes_of(one), strict=True)}
        missing = []
        for number, chunk in enumerate(hashes):
            data = unpacked.read(*there[chunk], sizes[chunk]) if chunk in there else b""
            if data and fs.chunk_hash(data) == chunk:
                yield chunk, data
            else:
                missing.append(number)
        questions = (
            (batch, self.fetching.ask(AgentFetch(0, snapshot, wanted=batch)))
            for batch in _batches([(number, sizes[hashes[number]]) for number in missing])
        )
        ahead = next(questions, None)
        try:
            while ahead is not None:
                batch, question = ahead
                ahead = next(questions, None)  # on its way while what came is written
                part = self.fetching.answer(question)
                if len(part.chunks) != len(batch):
                    raise NotUnpacked(f"the server sent {len(part.chunks)} chunks, wanted were {len(batch)}")
                for number, data in zip(batch, part.chunks, strict=True):
                    if fs.chunk_hash(data) != hashes[number]:
                        raise NotUnpacked("the server sent another content than that of the snapshot")
                    yield hashes[number], data
        finally:
            if ahead is not None:
                self.fetching.give_up(ahead[1])

    # Cleaning.

    def _begun(self) -> list[Tree]:
        """Return the trees that a former worker has noted, once what it has not noted is removed."""
        trees = self._read_notes()
        self._remove_strangers(trees)
        return trees

    def _read_notes(self) -> list[Tree]:
        try:
            return msgspec.json.decode(self._notes.read_bytes(), type=list[Tree])
        except (OSError, msgspec.MsgspecError):
            return []

    def _write_notes(self) -> None:
        write_whole(self._notes, msgspec.json.encode(self._trees), synced=False)

    def _remove_strangers(self, trees: Sequence[Tree]) -> None:
        """Remove what a former worker left half unpacked, or has not noted."""
        noted = {tree.path for tree in trees}
        private(self._lists)
        for left in self._lists.iterdir():
            if not any(path.endswith(f"/{left.name}") for path in noted):
                left.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for home in self._data.unpacked(self._node).iterdir():
                for path in home.iterdir():
                    if str(path) not in noted:
                        unpacked.remove(path)

    def _clean(self) -> None:
        """Remove trees that nothing uses: old ones, and the longest unused beyond `KEPT_BYTES`."""
        left, now_s, boot = KEPT_BYTES, time.time(), _boot()
        gone = []
        with self._trees_lock:
            trees = self._trees = self._begun() if self._trees is None else self._trees
            for tree in sorted(trees, key=lambda one: -one.used_s):
                if any(user in self._living for user in tree.users):
                    continue
                left -= tree.size
                if left < 0 or now_s - tree.used_s > KEPT_S or tree.boot != boot:
                    trees.remove(tree)
                    gone.append(tree)
            if gone:
                self._write_notes()
        for tree in gone:
            unpacked.remove(Path(tree.path))
            (self._lists / Path(tree.path).name).unlink(missing_ok=True)


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


def _boot() -> str:
    return BOOT.read_text(encoding="ascii").strip()
