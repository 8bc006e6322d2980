"""The cluster's log of events, from its server or from a file."""

from pathlib import Path

import msgspec

from penstock.cli.place import client_of
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import Record


def log_of(log: Path | None) -> list[Record]:
    """Return the whole log: of the file if one is named, else of the running server.

    Raises: InvalidInput when the file is none, or when its records do not follow one another; ServerNotRunning.
    """
    if log is None:
        return list(client_of().all_events())
    try:
        records = msgspec.json.decode(log.read_bytes(), type=list[Record])
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"{log} cannot be read as a log: {error}") from error
    gap = next((i for i, record in enumerate(records, start=1) if record.seq != i), None)
    if gap is not None:
        found = records[gap - 1].seq
        raise InvalidInput(f"{log} is not a whole log: record {gap} is expected, and {found} comes there")
    return records
