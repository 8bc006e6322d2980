"""Folders that a node keeps for the next replicas that need the same: each made once for an account, then used again
while not a single entry of it has changed.

The kernel notes each change of an entry in a time that no program can set, so a digest of these times, taken when the
folder was complete, shows whether it still is as it was. What a crash of the machine leaves is not trusted: folders
belong to one boot of it, but for those that were on the disk before they counted as complete.
"""

import contextlib
import hashlib
import logging
import os
import secrets
import shutil
import stat
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from penstock.core.model.quantities import format_size
from penstock.engines.agent.preparation import NotPrepared
from penstock.engines.processes import account_files
from penstock.engines.processes.accounts import account_of, private
from penstock.engines.processes.procfs import boot_id
from penstock.engines.processes.spawn import NEVER_RAN_CODE
from penstock.privatefiles import PASSED, write_whole

log = logging.getLogger(__name__)

OWN = "own"
"""In place of an account: that of the agent."""
UNFINISHED = ".unfinished"
"""The folder, beside those of accounts, in which trees are made that the agent itself fills."""
NAME_SHOWN = 32
"""Characters of a name in that of its folder."""
LEFT_MAX = 10_000
"""Entries of one account's folder that are looked at for what a former worker has left."""
SPARE_BYTES = 2**30
"""Of the disk, left to the log and to others."""

_walking: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""By account: one walks one of its trees at a time, and keeps no other account waiting by their size."""


def owned(folder: Path, account: str, mode: int = 0o700) -> Path:
    """Return a folder in one of the agent's, created where missing, that an account owns and nobody else can pass."""
    user = account_of(account) if account else None
    return account_files.make_folder(folder, mode, user.uid if user else -1, user.gid if user else -1)


def size_of(root: Path, account: str) -> int:
    """Return what the files of a tree take (bytes), each once. Links are not followed. Raises: OSError."""
    several: set[tuple[int, int]] = set()
    total = 0
    with _walking[account], account_files.folder(root) as tree:
        for _, about in account_files.walk(tree):
            if stat.S_ISDIR(about.st_mode) or (about.st_dev, about.st_ino) in several:
                continue
            total += about.st_blocks * 512
            if about.st_nlink > 1:
                several.add((about.st_dev, about.st_ino))
    return total


def state_of(tree: int, account: str) -> str:
    """Return a digest of what the kernel says of all entries of a tree. Raises: OSError."""
    found = hashlib.sha256()
    with _walking[account]:
        for path, about in account_files.walk(tree):
            of = (about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
            found.update(os.fsencode(path) + b"\0" + repr(of).encode())
    return found.hexdigest()


def make_room(size: int, path: Path, what: str, clean: Callable[[], object]) -> None:
    """Make room for `size` bytes in a folder, if need be by `clean`. Raises: NotPrepared; OSError."""
    for last in (False, True):
        free = shutil.disk_usage(path).free  # root's: the agent's, in which trees are filled
        if size + SPARE_BYTES <= free:
            return
        if last:
            raise NotPrepared(f"the node's disk has {format_size(free)} left, {what} has {format_size(size)}")
        clean()


def _move(name: str, new: str, within: int, home: int) -> None:
    """Rename a tree of a folder of the agent's into the home of an account, under a new name. Raises: OSError.

    Who is not root needs the right to write it, for its parent changes.
    """
    with account_files.folder(name, within) as made:
        mode = stat.S_IMODE(os.fstat(made).st_mode)
        if os.geteuid() != 0:
            os.fchmod(made, mode | 0o200)
        os.rename(name, new, src_dir_fd=within, dst_dir_fd=home)
        if os.geteuid() != 0:
            os.fchmod(made, mode)


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
        self._swept = False
        """What a former worker has left is removed."""
        self._begun: set[str] = set()
        """Where trees are being made."""
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
            with contextlib.suppress(OSError), self.opened(Path(tree.path)) as opened:
                if state_of(opened, account) == tree.state:
                    return Path(tree.path)
            log.warning("a folder that was kept has changed, and is made anew", extra={"path": tree.path})
        return None

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[int]:
        """Hold a tree open by its descriptor. Raises: OSError where something else has been put in its place."""
        with account_files.folder(path.parent) as home, account_files.folder(path.name, home) as tree:
            yield tree

    def _make(self, name: str, account: str, users: Sequence[str], fill: Callable[[Path], int]) -> Path:
        """Make a tree. It begins in a folder of the agent's own, where no account can rename it."""
        mark = secrets.token_hex(4)
        new = f"{name[:NAME_SHOWN]}.{mark}"
        home_path = self._home(account)
        path, unfinished = home_path / new, private(self._base / UNFINISHED)
        begun = {str(path), str(unfinished / mark)}
        with self._lock:
            self._begun |= begun
        with account_files.folder(home_path) as home, account_files.folder(unfinished) as making:
            try:
                if self._in_place:
                    owned(unfinished / mark, account)
                    _move(mark, new, making, home)
                    size = fill(path)
                else:
                    account_files.make_folder(unfinished / mark)
                    size = fill(unfinished / mark)
                    _move(mark, new, making, home)
                with account_files.folder(new, home) as tree:
                    state = state_of(tree, account)
            except BaseException as error:
                account_files.remove(mark, making)
                account_files.remove(new, home)
                with self._lock:
                    self._begun -= begun
                if isinstance(error, account_files.TooLarge):
                    raise NotPrepared(f"what was made cannot be kept: {error.strerror}", NEVER_RAN_CODE) from error
                raise
        tree_made = Tree(str(path), name, account, self._boot(), state, size)
        with self._lock:
            self._begun -= begun
            self._all().append(tree_made)
            self._mark(tree_made, users)
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
        for path in (*self._left_by_former(), *(Path(tree.path) for tree in gone)):
            with contextlib.suppress(OSError), account_files.folder(path.parent) as home:
                if not account_files.remove(path.name, home):
                    log.warning("a folder was not removed", extra={"path": str(path)})
            yield path

    def used_bytes(self, account: str, living: Collection[str]) -> int:
        """Return what the trees of an account take that living replicas use (bytes)."""
        with self._lock:
            own = [tree for tree in self._all() if tree.account == account]
        return sum(tree.size for tree in own if any(user in living for user in tree.users))

    def paths(self) -> list[Path]:
        """Return all trees."""
        with self._lock:
            return [Path(tree.path) for tree in self._all()]

    def _home(self, account: str) -> Path:
        """Return the folder of an account's trees: that account alone can pass it.

        It owns the folder, so it may move what is there: the agent, which may be root, reaches it by descriptor only.
        """
        private(self._base.parent, PASSED)
        private(self._base, PASSED)
        return owned(self._base / (account or OWN), account, 0o500 if account else 0o700)

    def _mark(self, tree: Tree, users: Iterable[str]) -> None:
        tree.used_s, tree.users = time.time(), list(dict.fromkeys([*tree.users, *users]))
        self._write_notes()

    def _all(self) -> list[Tree]:
        """Return the trees; at first those that a former worker has noted."""
        if self._trees is None:
            try:
                noted = self._notes.read_bytes()  # root's: the node's folder
                self._trees = msgspec.json.decode(noted, type=list[Tree])
            except (OSError, msgspec.MsgspecError):
                self._trees = []
        return self._trees

    def _left_by_former(self) -> list[Path]:
        """Return, once, what a former worker has left and not noted: nothing uses it."""
        if self._swept:
            return []
        self._swept = True
        found: list[Path] = []
        with contextlib.suppress(OSError):
            for home in sorted(self._base.iterdir()):  # root's: the homes, not what is in them
                with contextlib.suppress(OSError), account_files.folder(home) as opened:
                    found += [home / name for name in account_files.first_names(opened, LEFT_MAX)]
        with self._lock:
            known = {tree.path for tree in self._all()} | self._begun
        return [path for path in found if str(path) not in known]

    def _write_notes(self) -> None:
        write_whole(self._notes, msgspec.json.encode(self._trees), synced=False)  # root's: the node's folder


def _any_boot() -> str:
    return "any"
