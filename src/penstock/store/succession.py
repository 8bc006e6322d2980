"""Whether a data folder may leave its log for another one: only for one that continues it, unless that is wanted."""

from pathlib import Path

import msgspec

from penstock.core.model.errors import InvalidInput, StoreError
from penstock.core.state.identity import identity_of
from penstock.store.address import Address, address_of, copy_of
from penstock.store.copying import NoLog


class Extent(msgspec.Struct, frozen=True):
    """Which log it is, and how far it goes."""

    cluster: str
    last_seq: int


def kept_address(folder: Path, remembered: Path) -> Address | None:
    """Return where the log of a data folder lies; None where it has none yet. Raises: InvalidInput."""
    known = address_of(folder, None, remembered)
    return known if known.url or (folder / "log.sqlite").exists() else None


def refuse_other(kept: Address | None, wanted: Address) -> None:
    """Refuse a log that does not continue the one of the data folder.

    It does when it began like that and is at least as long: a copy that was restored, or the same database under
    another name. An empty log is nothing to be left behind.

    Raises: InvalidInput with what to do.
    """
    if kept is None or kept.same_place(wanted):
        return
    try:
        left = extent(kept)
    except StoreError as error:
        raise _refused(kept, f"{wanted.shown} cannot be compared with it: {error.message}") from error
    found = extent(wanted)
    if left is None or (found is not None and found.cluster == left.cluster and found.last_seq >= left.last_seq):
        return
    if found is None:
        raise _refused(kept, f"there is none in {wanted.shown}")
    if found.cluster != left.cluster:
        raise _refused(kept, f"{wanted.shown} has the log of another cluster")
    raise _refused(kept, f"{wanted.shown} has only {found.last_seq} of its {left.last_seq} records")


def _refused(kept: Address, why: str) -> InvalidInput:
    return InvalidInput(
        f"the log of this data folder is in {kept.shown}, and {why}",
        hint="without --store the server keeps its log; penstock store backup FILE and penstock store restore "
        "FILE --store ADDRESS bring it along; --switch-store leaves it behind",
    )


def extent(address: Address) -> Extent | None:
    """Return which log is at an address, None where there is none or an empty one. Raises: StoreError."""
    try:
        with copy_of(address) as log:
            first = log.first()
            return None if first is None else Extent(identity_of(log.record(first)), log.last_seq())
    except NoLog:
        return None
    except msgspec.DecodeError as error:
        raise StoreError(f"the first record of the log in {address.shown} cannot be read") from error
