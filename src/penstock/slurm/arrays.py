"""Index lists of job arrays: `0-15:4,20%5`. Source: sbatch(1), --array."""

import re
from collections.abc import Sequence
from typing import NamedTuple

MEMBERS_MAX = 100_000
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
EXPECTED = "indexes such as 1-10, 4,7,22, 0-20:5 or 1-100%4"


class ArraySpec(NamedTuple):
    indexes: tuple[int, ...]
    """Each once, lowest first."""
    parallel: int = 0
    """How many run at a time; 0: all."""

    @property
    def step(self) -> int:
        """The distance of its indexes where it is always the same, else 1."""
        gaps = {after - before for before, after in zip(self.indexes, self.indexes[1:], strict=False)}
        return gaps.pop() if len(gaps) == 1 else 1

    @property
    def is_series(self) -> bool:
        return len(self.indexes) == len(range(self.indexes[0], self.indexes[-1] + 1, self.step))

    def ours(self) -> str:
        """Return the array as a job file says it; one that is no series is counted from 0."""
        at_once = f"%{self.parallel}" if self.parallel else ""
        if not self.is_series:
            return f"0-{len(self.indexes) - 1}{at_once}"
        by = f":{self.step}" if self.step > 1 else ""
        return f"{self.indexes[0]}-{self.indexes[-1]}{by}{at_once}"


def read_array(text: str) -> ArraySpec:
    """Return the indexes of an array. Raises: ValueError saying what was expected."""
    listed, percent, parallel = text.partition("%")
    if percent and not (parallel.isdecimal() and 0 < int(parallel) < 10**9):
        raise ValueError(EXPECTED)
    found: set[int] = set()
    for part in listed.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(EXPECTED)
        low = int(match[1])
        numbers = range(low, int(match[2] or low) + 1, int(match[3] or 1) or 1)
        if not numbers or match[3] == "0":
            raise ValueError(EXPECTED)
        if len(numbers) > MEMBERS_MAX or len(found) + len(numbers) > 2 * MEMBERS_MAX:
            raise ValueError(f"at most {MEMBERS_MAX} indexes")
        found.update(numbers)
    if len(found) > MEMBERS_MAX:
        raise ValueError(f"at most {MEMBERS_MAX} indexes")
    return ArraySpec(tuple(sorted(found)), int(parallel) if percent else 0)


def index_at(listed: str, position: int) -> int:
    """Return the index at a position of a list that is no series. Raises: ValueError, IndexError."""
    return read_array(listed).indexes[position]


def listed(indexes: Sequence[int]) -> str:
    """Return indexes in the short form, such as `1-3,7`."""
    parts: list[list[int]] = []
    for number in indexes:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
