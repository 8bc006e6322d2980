"""How a state that one or several ranks hold becomes one checkpoint, and comes back from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from penstock.training.ranks.shards import DEFAULT_PARTS_WAIT_S, publish_parts, write_part_files
from penstock.training.ranks.staging import Stage
from penstock.training.storage.blobs import ready
from penstock.training.storage.checkpoints import Checkpoints, Found
from penstock.training.storage.directory import on_disk
from penstock.training.storage.manifest import Manifest
from penstock.training.storage.values import encode_state


class Layout(Protocol):
    """Turns the captured state of this rank into its share of a checkpoint.

    What `stage` and `direct` return is handed to `write`, the first from another thread.
    """

    together: bool
    """Every rank has a share, so all must save at the same step."""

    def saves(self, rank: int) -> bool:
        """Whether this rank writes anything."""
        ...

    def prepare(self, state: Mapping[str, Any], *, behind: bool) -> None:
        """Check, without writing, that `state` can be saved; begin to get the memory if it is to be copied."""
        ...

    def stage(self, directory: Checkpoints, state: Mapping[str, Any]) -> Any:
        """Copy the state: training is held only for this."""
        ...

    def direct(self, directory: Checkpoints, state: Mapping[str, Any]) -> Any:
        """Take the state as it stands: nothing changes it before `write` returns."""
        ...

    def write(self, directory: Checkpoints, step: int, staged: Any) -> Manifest:
        """Write this rank's share; the rank that publishes returns when all shares are there."""
        ...

    def read(self, directory: Checkpoints, step: int, into: Mapping[str, Any] | None) -> Found:
        """Return the state of `step` for this rank, loaded into the values of `into` where the layout needs that."""
        ...


class Whole:
    """Rank 0 saves its state, which all ranks resume from: right for plain data parallelism."""

    together = False

    def __init__(self) -> None:
        self._stage = Stage()

    def saves(self, rank: int) -> bool:
        return rank == 0

    def prepare(self, state: Mapping[str, Any], *, behind: bool) -> None:
        pieces = encode_state(state)
        if behind:
            self._stage.reserve(pieces)

    def stage(self, directory: Checkpoints, state: Mapping[str, Any]) -> Any:
        return self._stage.copy(encode_state(state), directory.shelf)

    def direct(self, directory: Checkpoints, state: Mapping[str, Any]) -> Any:
        return ready(encode_state(state))

    def write(self, directory: Checkpoints, step: int, staged: Any) -> Manifest:
        return directory.write_files(step, staged)

    def read(self, directory: Checkpoints, step: int, into: Mapping[str, Any] | None) -> Found:
        return directory.read(step)


class Parts(Whole):
    """Each rank saves its own state and gets it back; resumes at the same world size only.

    Args:
        wait_s: how long rank 0 waits for the parts of the others, in seconds.
    """

    together = True

    def __init__(self, wait_s: float = DEFAULT_PARTS_WAIT_S) -> None:
        super().__init__()
        self._wait_s = wait_s

    def saves(self, rank: int) -> bool:
        return True

    def write(self, directory: Checkpoints, step: int, staged: Any) -> Manifest:
        folder = on_disk(directory, "sharded=True")
        part = write_part_files(folder, step, staged)
        return publish_parts(folder, step, wait_s=self._wait_s) if directory.place.rank == 0 else part
