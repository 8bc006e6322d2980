"""Batches as programs are told of them: a variable at the start, and a file that is replaced when it changes."""

import contextlib
import logging

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.batching import BatchChoice
from penstock.engines.processes.accounts import private
from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import PASSED, write_whole

log = logging.getLogger(__name__)


def batch_text(batch: BatchChoice) -> str:
    """Return a batch as programs read it: samples of one pass, and further passes before an update."""
    return f"{batch.local},{batch.accumulation}"


def batch_variables(data: DataFolder, key: ReplicaKey, batch: BatchChoice | None) -> dict[str, str]:
    """Return the variables that tell a replica its batch, and where it is told of another."""
    if batch is None:
        return {}
    return {"PENSTOCK_BATCH": batch_text(batch), "PENSTOCK_BATCH_FILE": str(data.batch(key))}


def make_told(data: DataFolder, key: ReplicaKey, *, passed: bool) -> None:
    """Make the folder of what a job's programs are told, without what was told a former life of this replica.

    Args:
        passed: they run as another account.
    Raises: OSError.
    """
    private(data.told(key.job_id), PASSED if passed else 0o700)
    with contextlib.suppress(FileNotFoundError):
        data.batch(key).unlink()  # root's: accounts may read `told` alone


def tell_batch(data: DataFolder, key: ReplicaKey, batch: BatchChoice) -> None:
    """Tell a running program its batch; it looks between two updates. What fails is logged, and comes again later."""
    try:
        write_whole(
            data.batch(key), batch_text(batch) + "\n", 0o644, synced=False
        )  # root's: accounts may read `told` alone
    except OSError as error:
        log.warning("a batch could not be told", extra={"key": str(key), "error": str(error)})
