"""The lines of slurm.conf, gres.conf and topology.conf: keys and values with their places, includes followed.

Grammar as in Slurm's parse_config.c: `Key=Value` pairs divided by blanks, keys in any case, values with blanks in
double quotes, `#` begins a comment unless a backslash is before it, a backslash at the end (blanks may follow) joins
the next line, `Include FILE` reads another file. Source: https://slurm.schedmd.com/slurm.conf.html
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.core.model.errors import nearest
from penstock.formats.files import whole_text
from penstock.migrate.errors import ImportFault, all_of
from penstock.migrate.report import Fate, MigrationReport, SourcePlace

LINE_CHARACTERS_MAX = 1_000_000
INCLUDE_DEPTH_MAX = 8
INCLUDED_FILES_MAX = 100
LINES_MAX = 200_000
"""Lines of one configuration, those of included files with it."""
CHARACTERS_MAX = 32 * 2**20
FAULTS_MAX = 100
"""Faults that are collected before reading stops."""
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|([^\s"]\S*))(?=\s|$)')
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#.*", re.DOTALL)


class SlurmField(NamedTuple):
    """One pair of a line; `key` as the documentation spells it once it has been checked, `value` without quotes."""

    key: str
    value: str


class SlurmLine(NamedTuple):
    """A logical line: its first pair is its subject."""

    place: SourcePlace
    fields: tuple[SlurmField, ...]

    @property
    def kind(self) -> str:
        return self.fields[0].key

    @property
    def name(self) -> str:
        return self.fields[0].value

    def get(self, key: str) -> str | None:
        """Return the last value of a key, or None."""
        return next((field.value for field in reversed(self.fields) if field.key == key), None)


class PlacedValue(NamedTuple):
    """The value of a key, and where it stands."""

    text: str
    place: SourcePlace


Values = dict[str, PlacedValue]
FateOf = Callable[[SlurmField], Fate]


def say_fields(line: SlurmLine, fate_of: FateOf, report: MigrationReport) -> None:
    """Add an entry for each field after the first."""
    for field in line.fields[1:]:
        report.add(line.place, field.key, field.value, fate_of(field))


def with_defaults(
    lines: Iterable[SlurmLine], kind: str, fate_of: FateOf, report: MigrationReport
) -> Iterator[tuple[SlurmLine, Values]]:
    """Yield the lines of a kind with their values, those of `DEFAULT` lines above them included.

    Entries of a line's fields are added once its reader goes on: behind what the reader says of the line itself.
    """
    defaults: Values = {}
    for line in lines:
        if line.kind != kind:
            continue
        own = {field.key: PlacedValue(field.value, line.place) for field in line.fields[1:]}
        if line.name.upper() == "DEFAULT":
            defaults.update(own)
            report.mapped(line.place, kind, line.name, "defaults of the lines below")
        else:
            yield line, {**defaults, **own}
        say_fields(line, fate_of, report)


def is_true(text: str) -> bool:
    """Return whether Slurm takes a value for yes."""
    return text.upper() in ("YES", "TRUE", "UP", "1")


Keys = Mapping[str, Mapping[str, str]]
"""By the first key of a line (lower case) the keys allowed in it: lower case to their own spelling. Under the
empty text the standalone keys, any number of them in a line."""


class _Reading:
    """Counts files and lines, and collects faults so that an owner sees all of them at once."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.files = 0
        self.lines = 0
        self.characters = 0
        self.faults: list[ImportFault] = []


def read_lines(path: Path, keys: Keys) -> list[SlurmLine]:
    """Return the lines of a configuration file with those of the files it includes, in their order.

    Raises: ImportFault that lists every malformed line and unknown key (up to `FAULTS_MAX`), and above the limits.
    """
    reading = _Reading(keys)
    found = list(_file(path, reading, 0, None))
    if reading.faults:
        raise all_of(reading.faults)
    return found


def _file(path: Path, reading: _Reading, depth: int, included: SourcePlace | None) -> Iterator[SlurmLine]:
    reading.files += 1
    if included is not None and (depth > INCLUDE_DEPTH_MAX or reading.files > INCLUDED_FILES_MAX):
        expected = f"at most {INCLUDE_DEPTH_MAX} levels and {INCLUDED_FILES_MAX} files of includes"
        raise included.fault("Include", str(path), expected, "it may include itself")
    try:
        text = whole_text(path, SourcePlace)
    except ImportFault as fault:
        if included is None:
            raise
        raise included.fault("Include", str(path), fault.expected, fault.hint) from fault
    reading.characters += len(text)
    if reading.characters > CHARACTERS_MAX:
        raise (included or SourcePlace(str(path))).fault(
            "Include", str(path), f"at most {CHARACTERS_MAX} characters in all"
        )
    for place, line in _logical(text, str(path), reading):
        include = _INCLUDE.fullmatch(line)
        if include is not None:
            yield from _file(path.parent / include[1], reading, depth + 1, place)
            continue
        try:
            yield from _lines_of(line, place, reading.keys)
        except ImportFault as fault:
            reading.faults.append(fault)
            if len(reading.faults) >= FAULTS_MAX:
                raise all_of(reading.faults) from fault


def _logical(text: str, file: str, reading: _Reading) -> Iterator[tuple[SourcePlace, str]]:
    """Yield non-empty lines: joined, without comments, at the place where they begin."""
    waiting, first = "", 0
    for number, raw in enumerate(text.split("\n"), 1):
        reading.lines += 1
        if reading.lines > LINES_MAX:
            raise SourcePlace(file, number).fault("", "", f"at most {LINES_MAX} lines")
        line = raw.rstrip()
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            waiting += line[:-1]
        else:
            whole = waiting + line
            if len(whole) > LINE_CHARACTERS_MAX:
                raise SourcePlace(file, first).fault("", "", f"a line of at most {LINE_CHARACTERS_MAX} characters")
            whole = _COMMENT.sub("", whole).replace("\\#", "#")
            if whole.strip():
                yield SourcePlace(file, first), whole
            waiting, first = "", 0
    if waiting.strip():
        yield SourcePlace(file, first), _COMMENT.sub("", waiting)


def _lines_of(text: str, place: SourcePlace, keys: Keys) -> Iterator[SlurmLine]:
    """Yield a line with a subject as it is, and each standalone key as a line."""
    fields = _pairs(text, place)
    own = keys.get(fields[0].key.lower())
    if own is not None:
        yield SlurmLine(place, tuple(_spelt(field, own, place) for field in fields))
        return
    alone = keys.get("", {})
    first = {kind: known[kind] for kind, known in keys.items() if kind}
    for field in fields:
        yield SlurmLine(place, (_spelt(field, {**first, **alone} if field is fields[0] else alone, place),))


def _pairs(text: str, place: SourcePlace) -> list[SlurmField]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _PAIR.match(text, at)
        if match is None:
            raise place.fault("", text[at:].strip(), "pairs such as Key=Value, with double quotes around blanks")
        found.append(SlurmField(match[1], match[3] if match[2] is None else match[2]))
        at = match.end()
    return found


def _spelt(field: SlurmField, known: Mapping[str, str], place: SourcePlace) -> SlurmField:
    spelling = known.get(field.key.lower())
    if spelling is None:
        raise place.fault(field.key, field.value, "a key that Slurm knows here", nearest(field.key, known.values()))
    return SlurmField(spelling, field.value)
