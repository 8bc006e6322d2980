"""What the scripts of attempts say, in files on storage that the server and all nodes see under the same path.

    claims/JOB.ATTEMPT                                   made by the job of Slurm that runs it, or the server: which
    news/JOB.ATTEMPT.RANK.start.NUMBER.PID.NODE          its program runs
    news/JOB.ATTEMPT.RANK.end.NUMBER.CODE.SIGNAL.STOP    it ended, with a code or by a signal, after a stop or not
    alive/JOB.ATTEMPT.RANK                               touched every few seconds
    stop/JOB.ATTEMPT.RANK.stop, .kill                    made by the server
    hosts/JOB.ATTEMPT                                    of a gang: the node of each rank

A name says all of it: it is there whole or not at all. Each account has a folder of its own, which no other can write.
"""

import contextlib
import errno
import os
import re
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, Rank, is_node_name
from penstock.engines.processes import account_files
from penstock.engines.processes.accounts import account_of, private

OWN = "own"
"""The folder of jobs that run as the server does."""
PARTS = ("claims", "news", "alive", "stop", "hosts")
CLAIMS_KEPT_S = 86_400
"""An attempt that has ended keeps its claim this long: no `sbatch` is on its way for so long."""
WITHDRAWN = "withdrawn"
"""In the claim of an attempt that the server has given up."""
CLAIM_MAX_BYTES = 64
NEWS_MAX = 50_000
"""Files of one account that are looked at: it may leave any number of them, and delays nobody else's by that."""
_KEY = r"([1-9]\d{0,15})\.([1-9]\d{0,9})\.(0|[1-9]\d{0,6})"
_NUMBER = r"(\d{1,10}(?:_\d{1,9})?)"
_START = re.compile(rf"{_KEY}\.start\.{_NUMBER}\.(\d{{1,10}})\.([^/]+)", re.ASCII)
_END = re.compile(rf"{_KEY}\.end\.{_NUMBER}\.(\d{{1,3}}|-)\.(\d{{1,3}}|-)\.([A-Z0-9]{{1,9}}|-)", re.ASCII)


class AttemptKey(NamedTuple):
    job_id: JobId
    attempt: AttemptNumber

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}"


class Started(NamedTuple):
    key: ReplicaKey
    number: str
    """Of the job in Slurm, of an element `12_3`."""
    pid: int
    node: NodeName


class Ended(NamedTuple):
    key: ReplicaKey
    number: str
    code: int | None
    signal: int | None
    stopped: str
    """The signal that asked it to stop; '' for none."""


class Spool:
    """The files below one shared folder."""

    def __init__(self, shared: Path) -> None:
        self.root = shared / "slurm"

    def folder(self, account: str) -> Path:
        return self.root / (f"account-{account}" if account else OWN)

    def prepare(self, account: str) -> Path:
        """Return the folder of an account, made where it is missing. Raises: OSError, KeyError for no account."""
        folder = self.folder(account)
        if (folder / PARTS[-1]).is_dir():  # root's: an account's folder is the server's
            return folder
        private(self.root, 0o711)
        private(folder, 0o711)  # stays the server's: no account can put another folder in its place
        known = account_of(account) if account else None
        for part in PARTS:
            account_files.make_folder(folder / part, 0o700, known.uid if known else -1, known.gid if known else -1)
        return folder

    def read(self, known: Container[str] = ()) -> Iterator[tuple[str, Started | Ended]]:
        """Yield what the scripts have said, and whose folder it is in; ends after starts. Raises: OSError.

        Args:
            known: names of files that are passed over.
        """
        if not self.root.is_dir():  # root's: the server's
            return
        with os.scandir(self.root) as folders:  # root's: the server's
            # root's: the server's
            named = [(_account(one.name), one.path) for one in folders if one.is_dir(follow_symlinks=False)]
        for account, path in named:
            found: list[str] = []
            with contextlib.suppress(FileNotFoundError), account_files.folder(f"{path}/news") as opened:
                found = account_files.first_names(opened, NEWS_MAX)
            read = [one for name in found if name not in known and (one := _news(name)) is not None]
            yield from ((account, one) for one in sorted(read, key=lambda one: isinstance(one, Ended)))

    def withdraw(self, account: str, key: AttemptKey) -> bool:
        """Return whether an attempt will never run: it had not begun, and from now on cannot. Raises: OSError."""
        with account_files.folder(self.prepare(account) / "claims") as claims:
            try:
                account_files.write_new(str(key), WITHDRAWN.encode(), claims)
            except FileExistsError:
                return self.claimed(account, key) == WITHDRAWN
        return True

    def claimed(self, account: str, key: AttemptKey) -> str:
        """Return the number of the job that has an attempt, '' where none has, or none is known. Raises: OSError."""
        try:
            descriptor = account_files.plain_file(self.folder(account) / "claims" / str(key))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):  # an account may leave anything there
                return ""
            raise
        try:
            said = os.read(descriptor, CLAIM_MAX_BYTES).decode("ascii", "replace")
        finally:
            os.close(descriptor)
        return said if said == WITHDRAWN or re.fullmatch(_NUMBER, said, re.ASCII) else ""

    def ask(self, account: str, key: ReplicaKey, *, kill: bool) -> None:
        """Leave a file that asks a replica to stop, or to be killed. Raises: OSError."""
        with account_files.folder(self.prepare(account) / "stop") as stops, contextlib.suppress(FileExistsError):
            account_files.write_new(f"{key}.{'kill' if kill else 'stop'}", b"", stops, 0o600)

    def beat_ms(self, account: str, key: ReplicaKey) -> int:
        """Return when a replica showed last that it lives (of the storage's clock), 0 where it never did."""
        with contextlib.suppress(OSError), account_files.folder(self.folder(account) / "alive") as alive:
            return os.stat(str(key), dir_fd=alive, follow_symlinks=False).st_mtime_ns // 1_000_000
        return 0

    def forget(self, account: str, key: ReplicaKey, names: Iterable[str]) -> None:
        """Remove what a replica has said in these files, once its end is in the log; claims stay."""
        gone = {"news": list(names), "stop": [f"{key}.stop", f"{key}.kill"], "alive": [str(key)]}
        for part, left in gone.items():
            with contextlib.suppress(FileNotFoundError), account_files.folder(self.folder(account) / part) as opened:
                for name in left:
                    account_files.remove(name, opened)

    def sweep(self) -> None:
        """Remove what is old: claims, and what was said of attempts that nobody knows."""
        before = time.time() - CLAIMS_KEPT_S
        for folder in self.root.glob("*"):  # root's: the server's
            for part in ("news", "hosts", "stop", "claims"):
                with contextlib.suppress(OSError), account_files.folder(folder / part) as opened:
                    for name in account_files.first_names(opened, NEWS_MAX):
                        with contextlib.suppress(OSError):
                            if part == "news" and ".end." not in name:
                                continue
                            if os.stat(name, dir_fd=opened, follow_symlinks=False).st_mtime < before:
                                os.unlink(name, dir_fd=opened)


def name_of(news: Started | Ended) -> str:
    """Return the name of the file that says it."""
    if isinstance(news, Started):
        return f"{news.key}.start.{news.number}.{news.pid}.{news.node}"
    code, signal = (str(one) if one is not None else "-" for one in (news.code, news.signal))
    return f"{news.key}.end.{news.number}.{code}.{signal}.{news.stopped or '-'}"


def _account(folder: str) -> str:
    return folder.removeprefix("account-") if folder != OWN else ""


def _news(name: str) -> Started | Ended | None:
    """Return what a file says, None where it is none of ours: accounts may leave any file there."""
    start = _START.fullmatch(name)
    if start is not None:
        key = ReplicaKey(JobId(int(start[1])), AttemptNumber(int(start[2])), Rank(int(start[3])))
        return Started(key, start[4], int(start[5]), NodeName(start[6])) if is_node_name(start[6]) else None
    end = _END.fullmatch(name)
    if end is None:
        return None
    key = ReplicaKey(JobId(int(end[1])), AttemptNumber(int(end[2])), Rank(int(end[3])))
    code, signal = (int(text) if text != "-" else None for text in (end[5], end[6]))
    if (code is None) == (signal is None):
        return None
    return Ended(key, end[4], code, signal, "" if end[7] == "-" else end[7])
