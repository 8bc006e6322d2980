"""Folders that a node keeps for the next replicas that need the same: each made once for an account, then used again
while not a single entry of it has changed.

The kernel notes each change of an entry in a time that no program can set, so a digest of these times, taken when the
folder was complete, shows whether it still is as it was. What a crash of the machine leaves is not trusted: folders
belong to one boot of it, but for those that were on the disk before they counted as complete.
"""

import contextlib
import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from penstock.engines.agent import unpacked
from penstock.engines.processes.accounts import account_of, private
from penstock.engines.processes.procfs import boot_id
from penstock.privatefiles import PASSED, write_whole

log = logging.getLogger(__name__)

OWN = "own"
"""In place of an account: that of the agent."""
UNFINISHED = ".unfinished"
"""The folder, beside those of accounts, in which trees are made that the agent itself fills."""
NAME_SHOWN = 32
"""Characters of a name in that of its folder."""


def owned(folder: Path, account: str) -> Path:
    """Return a folder, created where missing, that an account owns and nobody else can pass."""
    private(folder)
    if account:
        user = account_of(account)
        os.chown(folder, user.uid, user.gid, follow_symlinks=False)
    return folder


def size_of(root: Path) -> int:
    """Return what the files of a tree take (bytes), each once. Links are not followed."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for where, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):
                about = os.lstat(os.path.join(where, name))
                total += 0 if (about.st_dev, about.st_ino) in seen else about.st_blocks * 512
                seen.add((about.st_dev, about.st_ino))
    return total


def _move(made: Path, path: Path) -> None:
    """Rename a tree. Who is not root needs the right to write it, for its parent changes.

    Root needs no right, and must not change modes where an account may have put a link meanwhile.
    """
    mode = made.stat().st_mode
    if os.geteuid() != 0:
        made.chmod(mode | 0o200)
    made.rename(path)
    if os.geteuid() != 0:
        path.chmod(mode)


def unwritten(account: str) -> tuple[tuple[str, str], ...]:
    """Return variables for programs whose account may write into any folder: Python leaves no files beside modules."""
    return (("PYTHONDONTWRITEBYTECODE", "1"),) if not account and os.geteuid() == 0 else ()


class Tree(msgspec.Struct):
    """A folder that is kept, as noted by the node."""

    path: str
    name: str = msgspec.field(name="snapshot")
    """What it was made from: equal names mean equal contents."""
    account: str = ""
    boot: str = ""
    state: str = ""
    """Digest of what the kernel says of all its entries."""
    size: int = 0
    used_s: float = 0.0
    users: list[str] = []
    """Replicas that have it."""


class KeptTrees:
    """The trees of one kind of a node. Its methods are for threads; each tree is made by one of them.

    Args:
        base: holds a folder for each account, which that account alone can pass.
        notes: file of the trees that are complete.
        in_place: programs of the account fill a tree, which it owns, where it stays; else the agent fills it under
            another name, and owns it.
        lasting: trees are used beyond the boot in which they were made: who fills them has them on the disk when they
            are complete.
    """

    def __init__(self, base: Path, notes: Path, *, in_place: bool = False, lasting: bool = False) -> None:
        self._base, self._notes, self._in_place = base, notes, in_place
        self._boot = _any_boot if lasting else boot_id
        self._lock = threading.Lock()
        """Of the trees and their notes: held for moments."""
        self._making = weakref.WeakValueDictionary[tuple[str, str], threading.Lock]()
        """Held by who makes a tree; kept while somebody waits for it."""
        self._trees: list[Tree] | None = None

    def get(self, name: str, account: str, users: Sequence[str], fill: Callable[[Path], int]) -> tuple[Path, bool]:
        """Return the tree of a name, which is there unchanged or is made, and whether it was there.

        Args:
            users: replicas that will use it: it stays while one of them lives.
            fill: makes it, in the empty folder given, and returns its size (bytes).
        Raises: OSError, and what `fill` raises: nothing is left of the tree then.
        """
        with self._lock:
            making = self._making.setdefault((name, account), threading.Lock())
        with making:
            if (known := self.known(name, account, users)) is not None:
                return known, True
            return self._make(name, account, users, fill), False

    def known(self, name: str, account: str, users: Sequence[str]) -> Path | None:
        """Return the tree of a name if it is there, unchanged."""
        boot = self._boot()
        with self._lock:
            found = [one for one in self._all() if (one.name, one.account, one.boot) == (name, account, boot)]
            if found:
                self._mark(found[-1], users)
        for tree in found[-1:]:  # that before it was changed already
            with contextlib.suppress(OSError):
                if unpacked.state_of(Path(tree.path)) == tree.state:
                    return Path(tree.path)
            log.warning("a folder that was kept has changed, and is made anew", extra={"path": tree.path})
        return None

    def _make(self, name: str, account: str, users: Sequence[str], fill: Callable[[Path], int]) -> Path:
        home = self._home(account)
        mark = secrets.token_hex(4)
        path = home / f"{name[:NAME_SHOWN]}.{mark}"
        making = path if self._in_place else private(self._base / UNFINISHED) / mark
        making.mkdir(0o700)
        try:
            if self._in_place:
                owned(making, account)
            size = fill(making)
            if not self._in_place:
                _move(making, path)
        except BaseException:
            unpacked.remove(making)
            raise
        tree = Tree(str(path), name, account, self._boot(), unpacked.state_of(path), size)
        with self._lock:
            self._all().append(tree)
            self._mark(tree, users)
        return path

    def mark(self, path: Path, users: Sequence[str]) -> None:
        """Note more users of a tree: they keep it."""
        with self._lock:
            for tree in self._all():
                if tree.path == str(path):
                    self._mark(tree, users)

    def latest(self, account: str, most: int) -> list[Path]:
        """Return the trees of an account that were used last."""
        with self._lock:
            own = sorted((tree for tree in self._all() if tree.account == account), key=lambda one: one.used_s)
        return [Path(tree.path) for tree in own[-most:]]

    def clean(self, living: Collection[str], *, kept_s: float, kept_bytes: int) -> Iterator[Path]:
        """Remove trees that no living replica uses, and yield them: old ones, and unused ones beyond `kept_bytes`."""
        left, now_s, boot = kept_bytes, time.time(), self._boot()
        gone = []
        with self._lock:
            trees = self._all()
            for tree in sorted(trees, key=lambda one: -one.used_s):
                tree.users = [user for user in tree.users if user in living]
                if tree.users:
                    continue
                left -= tree.size
                if left < 0 or now_s - tree.used_s > kept_s or tree.boot != boot:
                    trees.remove(tree)
                    gone.append(tree)
            if gone:
                self._write_notes()
        for tree in gone:
            unpacked.remove(Path(tree.path))
            yield Path(tree.path)

    def paths(self) -> list[Path]:
        """Return all trees."""
        with self._lock:
            return [Path(tree.path) for tree in self._all()]

    def _home(self, account: str) -> Path:
        """Return the folder of an account's trees: that account alone can pass it.

        It owns the folder, so it may move what is there: the agent, which may be root, writes nothing in it.
        """
        private(self._base.parent, PASSED)
        private(self._base, PASSED)
        home = owned(self._base / (account or OWN), account)
        if account:
            home.chmod(0o500)
        return home

    def _mark(self, tree: Tree, users: Iterable[str]) -> None:
        tree.used_s, tree.users = time.time(), list(dict.fromkeys([*tree.users, *users]))
        self._write_notes()

    def _all(self) -> list[Tree]:
        """Return the trees. At first those that a former worker has noted; what it has not noted is removed."""
        if self._trees is None:
            try:
                self._trees = msgspec.json.decode(self._notes.read_bytes(), type=list[Tree])
            except (OSError, msgspec.MsgspecError):
                self._trees = []
            noted = {tree.path for tree in self._trees}
            with contextlib.suppress(OSError):
                for home in self._base.iterdir():
                    for path in home.iterdir():
                        if str(path) not in noted:
                            unpacked.remove(path)
        return self._trees

    def _write_notes(self) -> None:
        write_whole(self._notes, msgspec.json.encode(self._trees), synced=False)


def _any_boot() -> str:
    return "any"
