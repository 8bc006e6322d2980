"""An agent's observations of ranks that make no progress, and the diagnosis drawn from all of them."""

from typing import Literal

import msgspec

from penstock.core.model.ids import Rank

FRAMES_MAX = 48
"""Innermost frames of one stack that are examined."""

Activity = Literal["stopped", "gone", "waits", "data", "saves", "computes", "blocked", "unknown"]
"""Suspended or a child of it is; ended; waits for other ranks; for its data; writes a checkpoint; uses the CPU; idle
in code of its own; could not be looked at."""


class Frame(msgspec.Struct, frozen=True):
    """One call on a stack."""

    function: str
    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.function} ({short(self.file)}:{self.line})"


class Sight(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank, as seen twice about a second apart."""

    rank: Rank
    state: str = "?"
    """Of its program's first thread, as in /proc/PID/stat; X: it is gone."""
    child_stopped: bool = False
    cpu_milli: int = 0
    """Use of the CPU by its first thread between both looks, thousandths of one CPU."""
    stack: tuple[Frame, ...] = ()
    """Of its first thread, innermost first; empty where it could not be read."""
    changed: bool = False
    """The stack was another at the second look."""
    native: tuple[str, ...] = ()
    """Names of native functions on it, where they were asked for."""
    problem: str = ""
    killed: str = ""
    """Why the kernel has killed processes of the replica; empty where it has not."""


class Finding(msgspec.Struct, frozen=True):
    """The diagnosis of a stall. `culprits` is empty where none can be named."""

    hung: bool
    culprits: tuple[Rank, ...]
    text: str
    certain: bool = False
    """It cannot continue without help: a process is suspended."""
    look_closer: tuple[Rank, ...] = ()
    """Ranks whose native stacks may decide it."""


def short(file: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(file.rsplit("/", 2)[-2:])
