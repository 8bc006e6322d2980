"""The cluster's log of events, from its server or from a file."""

from pathlib import Path

import msgspec

from penstock.cli.place import client_of
from penstock.cli.progress import progress, shared
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import Record


def log_of(log: Path | None, *, quiet: bool = True) -> list[Record]:
    """Return the whole log: of the file if one is named, else of the running server.

    Args:
        quiet: do not show how much of it has been read.
    Raises: InvalidInput when the file is none, or when its records do not follow one another; ServerNotRunning.
    """
    if log is None:
        client = client_of()
        total = client.cluster().seq
        with progress(f"reading {total:,} records", total=total, noun="records", quiet=quiet) as on_share:
            return list(shared(client.all_events(), on_share, total))
    try:
        records = msgspec.json.decode(log.read_bytes(), type=list[Record])
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"{log} cannot be read as a log: {error}") from error
    gap = next((i for i, record in enumerate(records, start=1) if record.seq != i), None)
    if gap is not None:
        found = records[gap - 1].seq
        raise InvalidInput(f"{log} is not a whole log: record {gap} is expected, and {found} comes there")
    return records
