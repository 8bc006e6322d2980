"""Keeps an old attempt of a job from changing the checkpoint directory once a newer one has started.

The highest attempt that ever started is recorded in the file `attempt`. Recording, and publishing a
checkpoint after a look at the record, happen under one advisory lock (flock): without it an old process could
look, be suspended, and publish after the newer attempt has chosen where to resume.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from penstock.training.errors import DirectoryBusy, FencedAttempt
from penstock.training.storage import durable

MARKER_NAME = "attempt"
LOCK_NAME = ".lock"
LOCK_WAIT_S = 30.0
_LOCK_POLL_S = 0.02
_NO_LOCKS_HERE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)

_log = logging.getLogger("penstock.training")


class AttemptRecord(ABC):
    """The record of the highest attempt, seen from one attempt; alone it is a fence with a gap.

    Args:
        attempt: number of this attempt; None (outside Penstock) takes over the recorded one.
        highest_known: consulted when the record cannot be read: the highest attempt that left a checkpoint.
    """

    def __init__(self, attempt: int | None, highest_known: Callable[[], int]) -> None:
        self._highest_known = highest_known
        self._wanted = attempt
        self.attempt = attempt or 0

    @abstractmethod
    def _read(self) -> bytes | None:
        """Return the record, None if there is none. Raises: OSError."""

    @abstractmethod
    def _replace(self, data: bytes) -> None:
        """Write the record: a reader sees the old one or the new. Raises: OSError."""

    @abstractmethod
    def _locked(self) -> AbstractContextManager[None]:
        """Keep other attempts from claiming meanwhile, where locks exist."""

    def claim(self) -> None:
        """Record this attempt. All ranks of one attempt may claim. Raises: FencedAttempt, DirectoryBusy."""
        with self._locked():
            recorded = self.recorded()
            if self._wanted is None:
                self.attempt = recorded or 0
            self._refuse_if_old(recorded)
            if recorded != self.attempt:
                self._replace(f"{self.attempt}\n".encode("ascii"))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Run the body while no newer attempt can claim the folder. Raises: FencedAttempt, DirectoryBusy."""
        with self._locked():
            self.check()
            yield

    def check(self) -> None:
        """Raises: FencedAttempt if a newer attempt has claimed the directory."""
        self._refuse_if_old(self.recorded())

    def recorded(self) -> int | None:
        """Return the highest attempt that claimed the directory, None if none did."""
        text = self._read()
        if text is None:
            return None
        if text.strip().isdigit():
            return int(text)
        highest = self._highest_known()
        _log.warning("attempt record unreadable", extra={"found": repr(text[:40]), "highest_known": highest})
        return highest

    def _refuse_if_old(self, recorded: int | None) -> None:
        if recorded is not None and recorded > self.attempt:
            raise FencedAttempt(mine=self.attempt, recorded=recorded)


class Fence(AttemptRecord):
    """The fence around one checkpoint directory.

    Args:
        folder: the checkpoint directory; exists.
        attempt, highest_known: see `AttemptRecord`.
    """

    def __init__(self, folder: Path, attempt: int | None, highest_known: Callable[[], int]) -> None:
        super().__init__(attempt, highest_known)
        self._folder = folder
        self._locks_missing = False

    def _read(self) -> bytes | None:
        try:
            return (self._folder / MARKER_NAME).read_bytes()
        except FileNotFoundError:
            return None

    def _replace(self, data: bytes) -> None:
        durable.replace_file(self._folder / MARKER_NAME, data)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait_for(descriptor)
            yield
        finally:
            os.close(descriptor)  # also releases the lock

    def _wait_for(self, descriptor: int) -> None:
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise DirectoryBusy(
                        f"the lock {self._folder / LOCK_NAME} was held by another process for "
                        f"{LOCK_WAIT_S:.0f} s; expected a few milliseconds. "
                        "Is a suspended process of this job still alive?"
                    ) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS_HERE:
                    raise
                self._warn_once(error)
                return
            time.sleep(_LOCK_POLL_S)

    def _warn_once(self, error: OSError) -> None:
        if not self._locks_missing:
            self._locks_missing = True
            _log.warning(
                "file system has no locks: fencing is by the attempt record alone",
                extra={"folder": str(self._folder), "error": str(error)},
            )
