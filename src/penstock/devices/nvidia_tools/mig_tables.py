"""Tables of `nvidia-smi mig`: profiles, placements and instances.

One function for each command; each gives a `MigReading`. A row counts only as a whole: one that is cut, or has columns
that this version does not know, is a finding. Instances that claim the same id or the same slices are not given.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from penstock.devices.nvidia_tools.mig_facts import (
    EMPTY,
    LINE_MAX,
    NAME,
    ComputeProfile,
    Instance,
    MigReading,
    N,
    Notes,
    Placement,
    Profile,
    lines_of,
    sentence,
    unread,
)
from penstock.devices.reading import Finding, number, short

_EDGE, _RULER = "+", "="
_VALUE = r"(\S{1,16})"
_BAR = re.compile(r"\+[-=]{8,400}\+")
_RULE = re.compile(r"\|={8,400}\|")
Row = TypeVar("Row", Profile, ComputeProfile, Placement, Instance)


def gpu_instances(text: str) -> MigReading:
    """Return the GPU instances that `nvidia-smi mig -lgi` lists."""
    table = _Table("GPU instances:", "GPU Name Profile Instance Placement ID ID Start:Size")
    row = re.compile(rf"{N} {NAME} {N} {N} {N}:{N}")

    def make(m: re.Match[str]) -> Instance:
        return Instance(
            gpu=int(m[1]), name=m[2], profile=int(m[3]), instance=int(m[4]), start=int(m[5]), size=int(m[6])
        )

    notes = Notes()
    rows = table.rows(text, row, make, notes)
    return MigReading(instances=_apart(rows, notes), findings=notes.all)


def compute_instances(text: str) -> MigReading:
    """Return the compute instances that `nvidia-smi mig -lci` lists."""
    table = _Table("Compute instances:", "GPU GPU Name Profile Instance Placement Instance ID ID Start:Size ID")
    row = re.compile(rf"{N} {N} {NAME} {N} {N} {N}:{N}")

    def make(m: re.Match[str]) -> Instance:
        return Instance(
            gpu=int(m[1]), instance=int(m[2]), name=m[3], profile=int(m[4]), compute_instance=int(m[5]),
            start=int(m[6]), size=int(m[7]),
        )  # fmt: skip

    notes = Notes()
    rows = table.rows(text, row, make, notes)
    return MigReading(instances=_apart(rows, notes), findings=notes.all)


def profiles(text: str) -> MigReading:
    """Return the profiles of GPU instances that `nvidia-smi mig -lgip` lists."""
    table = _Table(
        "GPU instance profiles:",
        "GPU Name ID Instances Memory P2P SM DEC ENC Free/Total GiB CE JPEG OFA",
        second=re.compile(r"\S{1,8} \S{1,8} \S{1,8}"),
    )
    row = re.compile(rf"{N} {NAME} {N} {N}/{N} {_VALUE} \S{{1,8}} {_VALUE} \S{{1,8}} \S{{1,8}}")

    def make(m: re.Match[str]) -> Profile | None:
        size = number(m[6])
        free, total = int(m[4]), int(m[5])
        if free > total:
            return None
        return Profile(
            gpu=int(m[1]), name=m[2], profile=int(m[3]), free=free, total=total, multiprocessors=_some(m[7]),
            memory_bytes=round(size * 2**30) if size is not None and 0 < size < 2**20 else None,
        )  # fmt: skip

    notes = Notes()
    rows = table.rows(text, row, make, notes)
    return MigReading(profiles=_once(rows, lambda p: (p.gpu, p.profile), notes), findings=notes.all)


def compute_profiles(text: str) -> MigReading:
    """Return the profiles of compute instances that `nvidia-smi mig -lcip` lists."""
    table = _Table(
        "Compute instance profiles:",
        "GPU GPU Name Profile Instances Exclusive Shared Instance ID Free/Total SM DEC ENC OFA ID CE JPEG",
        second=re.compile(r"\S{1,8} \S{1,8}"),
    )
    row = re.compile(rf"{N} {N} {NAME} {N}(\*?) {N}/{N} {_VALUE} \S{{1,8}} \S{{1,8}} \S{{1,8}}")

    def make(m: re.Match[str]) -> ComputeProfile | None:
        free, total = int(m[6]), int(m[7])
        if free > total:
            return None
        return ComputeProfile(
            gpu=int(m[1]), instance=int(m[2]), name=m[3], profile=int(m[4]), default=bool(m[5]), free=free, total=total,
            multiprocessors=_some(m[8]),
        )  # fmt: skip

    notes = Notes()
    rows = table.rows(text, row, make, notes)
    kept = _once(rows, lambda p: (p.gpu, p.instance, p.profile), notes)
    return MigReading(compute_profiles=kept, findings=notes.all)


_PLACEMENT = re.compile(rf"GPU +{N} Profile ID +{N} Placements? ?: ?\{{([0-9]{{1,3}}(?:,[0-9]{{1,3}}){{0,63}})\}}:{N}")


def placements(text: str) -> MigReading:
    """Return the placements that `nvidia-smi mig -lgipp` lists."""
    rows: list[Placement] = []
    notes = Notes()
    for line in lines_of(text, notes):
        if match := _PLACEMENT.fullmatch(line):
            starts = tuple(int(start) for start in match[3].split(","))
            row = Placement(gpu=int(match[1]), profile=int(match[2]), starts=starts, size=int(match[4]))
            if row.size and len(set(starts)) == len(starts):
                rows.append(row)
            else:
                notes.add(Finding(code="unreadable", text=short(f"a placement that cannot be: {line}"), index=row.gpu))
        else:
            notes.add(sentence(line) or unread(line))
    kept = _once(rows, lambda p: (p.gpu, p.profile), notes)
    return MigReading(placements=kept, findings=notes.all)


def _some(text: str) -> int | None:
    """Return a number above 0."""
    value = number(text)
    return int(value) if value is not None and 0 < value < 2**20 else None


class _Table:
    """A table between bars, read by its headings: a form that this version does not know gives no rows."""

    def __init__(self, title: str, heading: str, second: re.Pattern[str] | None = None) -> None:
        self.heading = f"{title} {heading}"
        self.second = second
        """The second line of each row, which has no facts for us."""

    def rows(
        self, text: str, pattern: re.Pattern[str], make: Callable[[re.Match[str]], Row | None], notes: Notes
    ) -> list[Row]:
        """Return the whole rows."""
        cells = self._body([cell for line in lines_of(text, notes) if (cell := _cell(line, notes)) is not None], notes)
        rows: list[Row] = []
        at = 0
        while at < len(cells):
            if cells[at] == _EDGE:
                if at and cells[at - 1] == _EDGE:
                    notes.add(Finding(code="cut", text="a row of the table is missing"))
            elif match := pattern.fullmatch(cells[at]):
                row = make(match)
                if self.second is not None:
                    at += 1
                    whole = at < len(cells) and self.second.fullmatch(cells[at]) is not None
                    row, at = (row, at) if whole else (None, at - 1)
                if row is not None:
                    rows.append(row)
                else:
                    notes.add(Finding(code="cut", text=short(f"a row that is not whole: {match[0]}")))
            else:
                notes.add(unread(cells[at]))
            at += 1
        if cells and cells[-1] != _EDGE:
            notes.add(Finding(code="cut", text="the end of the table is missing"))
        if cells and not rows:
            notes.add(Finding(code="cut", text="a table without a row"))
        return rows

    def _body(self, cells: list[str], notes: Notes) -> list[str]:
        """Return what stands below the headings; nothing where they are not the known ones."""
        if not cells:
            return []
        if _RULER not in cells:
            notes.add(Finding(code="cut", text="the headings of the table are missing"))
            return cells
        at = cells.index(_RULER)
        heading = " ".join(cell for cell in cells[:at] if cell != _EDGE)
        if heading == self.heading:
            return cells[at + 1 :]
        if heading and self.heading.endswith(f" {heading}"):
            notes.add(Finding(code="cut", text="part of the headings is missing"))
            return cells[at + 1 :]
        notes.add(Finding(code="unknown_format", text=short(f"headings that are not known: {heading[:LINE_MAX]}")))
        return []


def _cell(line: str, notes: Notes) -> str | None:
    """Return what stands between the bars of a line, `_EDGE` for a border, None for what is no part of the table."""
    if _BAR.fullmatch(line):
        return _EDGE
    if _RULE.fullmatch(line):
        return _RULER
    if line.startswith("|") and line.endswith("|") and 1 < len(line) < LINE_MAX:
        return " ".join(part for part in line[1:-1].split(" ") if part)
    if line.startswith(("|", "+")):
        notes.add(Finding(code="cut", text=short(f"a line that is not whole: {line[:LINE_MAX]}")))
    elif not EMPTY.fullmatch(line):
        notes.add(sentence(line) or unread(line))
    return None


def _once(rows: Iterable[Row], key: Callable[[Row], Hashable], notes: Notes) -> tuple[Row, ...]:
    """Return rows that are the only ones with their key; of equal ones the first."""
    by_key: dict[Hashable, list[Row]] = {}
    for row in rows:
        by_key.setdefault(key(row), []).append(row)
    for same in by_key.values():
        if len(same) > 1:
            notes.add(Finding(code="duplicate", text=short(f"listed twice: {same[0]}"), index=same[0].gpu))
    return tuple(same[0] for same in by_key.values() if all(row == same[0] for row in same))


def _apart(rows: Iterable[Instance], notes: Notes) -> tuple[Instance, ...]:
    """Return instances that share neither an id nor a slice with another."""
    kept = _once(rows, lambda i: (i.gpu, i.instance, i.compute_instance), notes)
    bad = {at for at, row in enumerate(kept) if not row.size}
    ends: dict[tuple[int, int | None], tuple[int, int]] = {}
    for at in sorted(range(len(kept)), key=lambda at: kept[at].start):
        row = kept[at]
        within = (row.gpu, row.instance if row.compute_instance is not None else None)
        end, last = ends.get(within, (0, at))
        if row.start < end:
            bad |= {last, at}
        if row.start + row.size > end:
            ends[within] = (row.start + row.size, at)
    for at in sorted(bad):
        text = short(f"an instance that overlaps with another, or is empty: {kept[at]}")
        notes.add(Finding(code="duplicate", text=text, index=kept[at].gpu))
    return tuple(row for at, row in enumerate(kept) if at not in bad)
