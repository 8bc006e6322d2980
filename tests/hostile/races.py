"""An account renames without end what root is about to touch: root never ends up elsewhere.

    python -m tests.hostile.races RACES [PLACE ...]

plays that many for each place where root touches a folder of an account, or for these, and prints a JSON line a place.
"""

import contextlib
import ctypes
import json
import logging
import os
import pwd
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.agent import kept
from penstock.engines.agent.kept import KeptTrees
from penstock.engines.containers import keeper, source_mounts
from penstock.engines.processes import account_files
from penstock.engines.processes.accounts import account_of, hand_over, private
from penstock.engines.processes.paths import DataFolder
from penstock.engines.slurm.passing.spool import AttemptKey, Spool
from penstock.privatefiles import PASSED

ACCOUNT = "nobody"
AT_FDCWD, RENAME_EXCHANGE, SYS_RENAMEAT2 = -100, 2, 316
KEY = ReplicaKey(JobId(1), AttemptNumber(1), Rank(0))


class Scene(NamedTuple):
    """A folder of the account, one of root's with a secret, and what the account exchanges: pairs of paths."""

    own: Path
    victim: Path
    pairs: list[tuple[Path, Path]]


@contextmanager
def renaming(pairs: list[tuple[Path, Path]]) -> Iterator[None]:
    """Let the account exchange these pairs of names as fast as it can."""
    child = os.fork()
    if not child:
        account = pwd.getpwnam(ACCOUNT)
        os.setgroups([])
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
        call, words = ctypes.CDLL(None).syscall, [(os.fsencode(one), os.fsencode(other)) for one, other in pairs]
        while os.getppid() != 1:
            for one, other in words:
                call(SYS_RENAMEAT2, AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def scene(root: Path) -> Scene:
    """Make a folder of the account with a folder, a file, a link and a pipe that take each other's names."""
    root.chmod(0o711)
    own, victim = root / "own", root / "victim"
    victim.mkdir(0o700)
    (victim / "secret").write_text("SECRET")
    (victim / "secret").chmod(0o600)
    own.mkdir(0o700)
    (own / "folder").mkdir()
    (own / "file").write_text("own")
    (own / "folder" / "secret").write_text("own")
    (own / "to-folder").symlink_to(victim)
    (own / "to-file").symlink_to(victim / "secret")
    os.mkfifo(own / "pipe")
    for path in (own, *own.rglob("*")):
        os.chown(path, *_ids(), follow_symlinks=False)
    return Scene(own, victim, [(own / "folder", own / "to-folder"), (own / "file", own / "to-file")])


def _ids() -> tuple[int, int]:
    account = account_of(ACCOUNT)
    return account.uid, account.gid


def untouched(victim: Path) -> bool:
    """Return whether nothing of root's folder was changed."""
    about, inner = victim.lstat(), (victim / "secret").lstat()
    modes = stat.S_IMODE(about.st_mode), stat.S_IMODE(inner.st_mode)
    content = (victim / "secret").read_text()
    return (modes, about.st_uid, inner.st_uid, content, os.listdir(victim)) == (
        (0o700, 0o600),
        0,
        0,
        "SECRET",
        ["secret"],
    )


# What root does, once for each race: returns whether the account has won.


def _reads(made: Scene) -> Callable[[], bool]:
    def race() -> bool:
        with account_files.folder(made.own) as own:
            for path in ("file", "folder/secret", "to-file"):
                with contextlib.suppress(OSError):
                    descriptor = account_files.plain_file(path, within=own)
                    data = os.read(descriptor, 99)
                    os.close(descriptor)
                    if data == b"SECRET":
                        return True
        return False

    return race


def _walks(made: Scene) -> Callable[[], bool]:
    inode = (made.victim / "secret").stat().st_ino

    def race() -> bool:
        with contextlib.suppress(OSError), account_files.folder(made.own) as own:
            return any(about.st_ino == inode for _, about in account_files.walk(own))
        return False

    return race


def _makes(made: Scene) -> Callable[[], bool]:
    """Folders and files that root makes for the account: in a folder of root's, where the account renames nothing."""
    data = DataFolder(made.own.parent / "data")
    private(data.job(KEY.job_id), PASSED)
    for folder in (data.checkpoints(KEY.job_id), data.work(KEY.job_id)):
        folder.mkdir()
    inner = data.checkpoints(KEY.job_id)
    hand_over(data, KEY, account_of(ACCOUNT))
    for name, target in (("a", None), ("b", made.victim)):
        (inner / name).mkdir() if target is None else (inner / name).symlink_to(target)
        os.chown(inner / name, *_ids(), follow_symlinks=False)
    made.pairs[:] = [(inner / "a", inner / "b"), (inner, data.work(KEY.job_id))]

    def race() -> bool:
        hand_over(data, KEY, account_of(ACCOUNT))
        return False

    return race


def _removes(made: Scene) -> Callable[[], bool]:
    """Root empties a folder of the account in which names are exchanged: each race makes it anew."""
    home = made.own / "home"

    def race() -> bool:
        with account_files.folder(made.own) as own:
            account_files.remove("home", own)
        home.mkdir(0o700)
        (home / "a").mkdir()
        (home / "a" / "x").touch()
        (home / "b").symlink_to(made.victim)
        for path in (home, home / "a", home / "b"):
            with contextlib.suppress(OSError):
                os.chown(path, *_ids(), follow_symlinks=False)
        return False

    made.pairs[:] = [(home / "a", home / "b")]
    return race


def _keeps(made: Scene) -> Callable[[], bool]:
    """Trees are made, looked at and removed, in a home whose account exchanges them for links."""
    base = made.own.parent / "trees"
    trees = {place: KeptTrees(base / str(place), base / f"{place}.json", in_place=place) for place in (True, False)}
    for place in trees:
        private(base / str(place), PASSED)
        home = kept.owned(base / str(place) / ACCOUNT, ACCOUNT)
        for number in range(2):
            (home / f"link{number}").symlink_to(made.victim)
            os.chown(home / f"link{number}", *_ids(), follow_symlinks=False)
        made.pairs.append((home / "tree", home / "link0"))
    numbers = iter(range(10**9))

    def fill(folder: Path) -> int:
        return 0

    def race() -> bool:
        number = next(numbers)
        tree = trees[bool(number % 2)]
        home = base / str(bool(number % 2)) / ACCOUNT
        with contextlib.suppress(OSError):
            path, _ = tree.get(f"n{number}", ACCOUNT, [], fill)
            with contextlib.suppress(OSError):
                os.rename(path, home / "tree")  # under the name that the account exchanges
                os.rename(home / "tree", path)
            tree.known(f"n{number}", ACCOUNT, [])
        list(tree.clean((), kept_s=-1, kept_bytes=0))
        return False

    return race


def _speaks(made: Scene) -> Callable[[], bool]:
    """The spool of jobs that Slurm runs: claims, stops, what was said."""
    spool = Spool(made.own.parent / "spool")
    private(spool.root, 0o711)
    folder = spool.prepare(ACCOUNT)
    key = AttemptKey(KEY.job_id, KEY.attempt)
    for part in ("claims", "stop", "news", "alive", "hosts"):
        link = folder / part / "link"
        link.symlink_to(made.victim / "secret")
        os.chown(link, *_ids(), follow_symlinks=False)
    made.pairs[:] = [
        (folder / "claims" / str(key), folder / "claims" / "link"),
        (folder / "stop" / f"{KEY}.kill", folder / "stop" / "link"),
        (folder / "alive" / str(KEY), folder / "alive" / "link"),
    ]

    def race() -> bool:
        with contextlib.suppress(OSError):
            spool.withdraw(ACCOUNT, key)
            spool.ask(ACCOUNT, KEY, kill=True)
            spool.beat_ms(ACCOUNT, KEY)
            if "SECRET" in spool.claimed(ACCOUNT, key):
                return True
            spool.forget(ACCOUNT, KEY, [])
        return False

    return race


def _mounts(made: Scene) -> Callable[[], bool]:
    """The keeper of a container mounts what the account could open, whatever stands there when it mounts."""
    source_mounts.own_mounts()
    parts = made.own.parent / "parts"
    account = account_of(ACCOUNT)
    sources = [[str(made.own / "folder"), [str(made.own)]]]

    def race() -> bool:
        parts.mkdir()
        try:
            with contextlib.suppress(source_mounts.NotAllowed):
                source_mounts.mount_opened(sources, (account.uid, account.gid, []), str(parts))
                return (parts / "0" / "secret").read_text() == "SECRET"
        finally:
            keeper.taken_down(str(parts))
        return False

    return race


def _by_path(made: Scene) -> Callable[[], bool]:
    """What root must not do: it shows that the account can win at all."""

    def race() -> bool:
        return (made.own / "file").read_text() == "SECRET"

    return race


PLACES: dict[str, Callable[[Scene], Callable[[], bool]]] = {
    "files are read": _reads,
    "trees are walked": _walks,
    "folders are made and given": _makes,
    "trees are removed": _removes,
    "trees are kept": _keeps,
    "spool": _speaks,
    "mounts": _mounts,
}


def wins(place: str, races: int) -> int:
    """Return how often an account has won, of this many races at one place; `by path` for one that root avoids."""
    logging.disable()  # that a tree was changed, each time
    root = Path(tempfile.mkdtemp(prefix="penstock-race-"))
    try:
        made = scene(root)
        race = {**PLACES, "by path": _by_path}[place](made)
        won = 0
        with renaming(made.pairs):
            for _ in range(races):
                won += race()
        return won + (not untouched(made.victim))
    finally:
        logging.disable(logging.NOTSET)
        shutil.rmtree(root, ignore_errors=True)


def main(races: int, places: list[str]) -> None:
    for place in places or PLACES:
        child = os.fork()  # mounts of one are none of the next
        if not child:
            print(json.dumps({"place": place, "races": races, "wins": wins(place, races)}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
