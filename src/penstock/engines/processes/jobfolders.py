"""Folders of jobs carry the mark of their job (`core/state/identity.py`): no job finds the files of another one.

Nothing is deleted. A folder of another job of the same number is moved aside under its mark, and back when that job
runs here again, as after a return to its log.
"""

# root's: folders of jobs are the agent's, and what lies in their `checkpoints` and `work` is the account's

import contextlib
import errno
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.core.messages.orders import StartReplica
from penstock.engines.processes import account_files, locks
from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import write_whole

log = logging.getLogger(__name__)

MARK_NAME = ".penstock-job"
"""In a job's folder, which is its program's directory where it names none."""
ATTEMPT_RECORD = "attempt"
"""In the folder of checkpoints, as `training/storage/fence.py` writes it."""
UNMARKED = "unmarked"
MARK_MAX_BYTES = 200
_MARK = re.compile(r"[0-9a-f]{16}-\d{1,16}", re.ASCII)
"""As `Identity.mark` writes it, which agents do not load."""
LOCK_WAIT_S = 0.5
"""How long the agent, which serves others meanwhile, waits for agents of the same machine."""


def prepare_folder(data: DataFolder, order: StartReplica, *, synced: bool = True) -> None:
    """Make sure that the folder of a replica's job is its own, and carries its mark.

    Args:
        synced: the mark is on disk when this returns.
    Raises: OSError.
    """
    if not order.mark:
        return
    make_own(data.job(order.key.job_id), order.mark, unmarked=order.unmarked, synced=synced)
    _set_aside_later(data, order)


def make_own(folder: Path, mark: str, *, unmarked: bool = False, synced: bool = True) -> None:
    """Make sure that a folder is that of the job with this mark.

    Args:
        unmarked: whether a folder without a mark may be the job's.
        synced: the mark is on disk when this returns.
    Raises: OSError.
    """
    with _alone(folder.parent):
        found = mark_of(folder)
        if found == UNMARKED and unmarked:
            _write_mark(folder, mark, synced=synced)
        elif found != mark:
            _exchange(folder, found, mark, synced=synced)


def mark_of(folder: Path) -> str:
    """Return the mark of a job's folder, `UNMARKED` where it has none that is valid, '' where there is no folder."""
    try:
        descriptor = account_files.plain_file(folder / MARK_NAME)
    except FileNotFoundError:
        return UNMARKED if folder.exists() else ""
    except OSError as error:
        if error.errno == errno.ELOOP:  # something that no agent writes
            return UNMARKED
        raise
    try:
        text = os.read(descriptor, MARK_MAX_BYTES).decode("ascii", errors="replace").strip()
    finally:
        os.close(descriptor)
    return text if _MARK.fullmatch(text) else UNMARKED


def _exchange(folder: Path, found: str, mark: str, *, synced: bool) -> None:
    """Move the folder of another job aside, if there is one; bring back the job's own, or make it."""
    if found:
        aside = _aside(folder, found)
        folder.rename(aside)
        log.warning("the folder of another job of this number was moved: %s", aside)
    own = folder.with_name(f"{folder.name}.{mark}")
    if own.exists():
        own.rename(folder)
        return
    new = folder.with_name(f".{folder.name}.new")
    new.mkdir(0o700, exist_ok=True)
    _write_mark(new, mark, synced=synced)
    new.rename(folder)


def _aside(folder: Path, found: str) -> Path:
    """Return a free name for a folder that is moved aside."""
    path, count = folder.with_name(f"{folder.name}.{found}"), 1
    while path.exists():
        count += 1
        path = folder.with_name(f"{folder.name}.{found}.{count}")
    return path


def _write_mark(folder: Path, mark: str, *, synced: bool) -> None:
    write_whole(folder / MARK_NAME, mark + "\n", synced=synced)


def _set_aside_later(data: DataFolder, order: StartReplica) -> None:
    """Set aside what this attempt and later ones have left: of a log that was restored from a backup since.

    The attempts ran after the backup, and have ended with their agents. Their checkpoints are the job's, and stay; the
    record of the highest attempt goes, for it would keep this one from saving.
    """
    key = order.key
    later = [path for attempt, rank, path in data.outputs(key.job_id) if attempt > key.attempt]
    if not later and not data.output(key).exists():
        return
    for path in [*later, data.output(key)]:
        for left in (path, path.with_suffix(".report"), path.with_suffix(".never-ran")):
            with contextlib.suppress(FileNotFoundError):
                left.rename(_aside(left.with_name(f"restored.{left.stem}"), left.suffix.removeprefix(".")))
    if later:
        log.warning("job %s continues from before attempts that the log does not know: it was restored", key.job_id)
        with contextlib.suppress(OSError), account_files.folder(data.checkpoints(key.job_id)) as checkpoints:
            account_files.remove(ATTEMPT_RECORD, checkpoints)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep agents of other nodes of this machine from changing the folders meanwhile.

    Raises: OSError when another process keeps the lock.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not locks.take(descriptor, LOCK_WAIT_S):
            raise OSError(errno.EWOULDBLOCK, "another process holds the lock of the jobs' folders", str(folder))
        yield
    finally:
        os.close(descriptor)
