"""Tables of fields: from one table follow how a section is read and written, its JSON Schema and its documentation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import msgspec

from penstock.core.config.reader import NAME_MAX, PAIRS_MAX, TEXT_MAX, Raw, Reader
from penstock.core.model.quantities import (
    MILLI,
    exact_duration,
    exact_size,
    format_time,
    parse_duration_ms,
    parse_size_bytes,
)

Json = dict[str, Any]
Plain = dict[str, Any]
"""Texts, numbers, lists and mappings, as a file has them."""
Values = dict[str, Any]
"""Values read, by field; an omitted field is not in it."""
Read = Callable[[Reader, str, Any], Any]
CPUS_MAX = 100_000
T = TypeVar("T", bound=msgspec.Struct)


def whole(low: int, high: int) -> Json:
    return {"type": "integer", "minimum": low, "maximum": high}


def described(schema: Json, about: str, **more: Any) -> Json:
    """Return a schema with a line on it for people, which editors show."""
    return {**schema, "description": about, **more}


def struct(**properties: Json) -> Json:
    """Return the schema of a mapping that has these fields and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


STRING: Json = {"type": "string"}
BOOLEAN: Json = {"type": "boolean"}
QUANTITY: Json = {"type": ["string", "number"]}
DURATION: Json = {**QUANTITY, "examples": ["90s", "2h"]}
SIZE: Json = {**QUANTITY, "examples": ["512MiB", "40GiB"]}
TIME: Json = {**QUANTITY, "examples": ["2027-01-31T18:00+01:00"]}
NAMES: Json = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}


class Field(msgspec.Struct, frozen=True):
    """How one field is read and written, its JSON Schema, and a line on it for people."""

    read: Read
    schema: Json
    about: str
    at: str = ""
    """The attribute that it sets, where its name differs from the field's: a unit at its end."""
    write: Callable[[Any], Any] = lambda value: value
    """Makes plain data of a value; `read` returns that value from it."""
    alias: bool = False
    """Another spelling of a field: read, but neither written nor documented."""
    fields: Mapping[str, "Field"] = {}
    """The fields of this mapping, or of each mapping of this list."""
    grouped: bool = False
    """A mapping whose fields set attributes of the same struct."""

    def as_alias(self) -> "Field":
        return msgspec.structs.replace(self, alias=True)


def flag(about: str, *, at: str = "", default: bool = False) -> Field:
    return Field(lambda r, f, v: r.flag(f, v, default=default), BOOLEAN, about, at)


def word(about: str, words: Sequence[str], default: str = "", *, at: str = "") -> Field:
    default = default or words[0]
    return Field(lambda r, f, v: r.word(f, v, words, default), {"enum": list(words)}, about, at)


def integer(about: str, low: int, high: int, *, default: int | None = None, at: str = "") -> Field:
    bad = low if default is None else default
    return Field(lambda r, f, v: r.integer(f, v, low=low, high=high, default=bad), whole(low, high), about, at)


def text(about: str, default: str = "", *, most: int = TEXT_MAX, at: str = "") -> Field:
    return Field(lambda r, f, v: r.text(f, v, default, most), STRING, about, at)


def label(about: str, default: str = "") -> Field:
    return text(about, default, most=NAME_MAX)


def note(about: str) -> Field:
    """A text that may be empty; a number is accepted as it prints, for racks are often numbered."""
    return Field(_read_note, {"type": ["string", "integer"]}, about)


def _read_note(reader: Reader, field: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        value = str(value)
    return reader.text(field, value) if value != "" else ""


def duration(about: str, *, at: str = "", example: str = "2h or 90s") -> Field:
    return Field(lambda r, f, v: r.quantity(f, v, parse_duration_ms, example), DURATION, about, at, exact_duration)


def quantity(about: str, parse: Callable[[Any], int], example: str) -> Field:
    schema = {**QUANTITY, "examples": [example]}
    return Field(lambda r, f, v: r.quantity(f, v, parse, example), schema, about)


def size(about: str, *, at: str = "", example: str = "40GiB") -> Field:
    return Field(lambda r, f, v: r.quantity(f, v, parse_size_bytes, example), SIZE, about, at, exact_size)


def time(about: str, *, at: str) -> Field:
    """A moment (unix ms), with its offset from UTC."""
    return Field(Reader.time, TIME, about, at, format_time)


def number(about: str, expected: str, *, low: int = 0, high: int, default: int = MILLI, at: str = "") -> Field:
    """A number, kept in thousandths from `low` to `high`."""

    def read(reader: Reader, field: str, value: Any) -> int:
        return reader.milli(field, value, expected, low=low, high=high, default=default)

    return Field(read, QUANTITY, about, at, from_milli)


def from_milli(milli: int) -> int | float:
    """Return thousandths as the number whose shortest text is exact."""
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def cpus(about: str, *, at: str = "") -> Field:
    """CPU cores, rounded to thousandths."""

    def read(reader: Reader, field: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= CPUS_MAX:
            reader.wrong(field, value, "a number of CPUs such as 2 or 0.5")
            return 0
        return round(value * MILLI)

    return Field(read, {"type": "number", "minimum": 0, "maximum": CPUS_MAX}, about, at, from_milli)


def pairs(about: str, most: int = PAIRS_MAX, *, at: str = "") -> Field:
    return Field(lambda r, f, v: r.pairs(f, v, most), NAMES, about, at, dict)


NAME = Field(lambda reader, field, value: value, STRING, "name, of 1 to 63 letters, digits, '.', '_' or '-'")
"""The name of an entry, which is checked where the list of entries is read."""


def read_fields(reader: Reader, raw: Raw, fields: Mapping[str, Field]) -> Values:
    """Return the values of `fields`; unknown ones are reported, null ones count as omitted."""
    reader.unknown(raw, tuple(fields))
    return {
        name: fields[name].read(reader, name, value)
        for name, value in raw.items()
        if name in fields and value is not None
    }


def mappings(reader: Reader, field: str, value: Any, most: int) -> list[tuple[Reader, Raw]]:
    """Return the mappings of a list, each with the reader for its place; other entries are reported."""
    if not isinstance(value, list) or len(value) > most:
        found = f"a list of {len(value)}" if isinstance(value, list) else value
        reader.wrong(field, found, f"a list of at most {most} mappings")
        return []
    entries = []
    for index, entry in enumerate(value):
        if isinstance(entry, Mapping):
            entries.append((Reader(f"{reader.path(field)}[{index}]", reader.problems), entry))
        else:
            reader.wrong(f"{field}[{index}]", entry, "a mapping of fields")
    return entries


class Section(Generic[T]):
    """A mapping of a file that makes one struct: its fields in order, each setting one attribute.

    A field whose attribute has no default is read even where it is missing, so that its reader reports it.

    Args:
        made: the struct; the attributes of `fields` are its own, unless a subclass overrides `build` and `parts`.
        check: reports problems between fields, such as an end before its begin.
        defaults: of attributes for which the struct has none.
    """

    def __init__(
        self,
        made: type[T],
        fields: Mapping[str, Field],
        check: Callable[[Reader, T], None] | None = None,
        defaults: Values | None = None,
    ) -> None:
        self.made, self.fields, self._check = made, fields, check
        own = {f.name: f.default for f in msgspec.structs.fields(made) if not f.required}
        self.defaults: Values = own | (defaults or {})

    def read(self, reader: Reader, raw: object) -> T | None:
        """Return the struct that `raw` declares, None where it is no mapping; the reader collects the problems."""
        if not isinstance(raw, Mapping):
            reader.wrong("", raw, "a mapping with " + ", ".join(self.shown))
            return None
        built = self.build(reader, {**self.defaults, **self.values(reader, raw)})
        if self._check is not None:
            self._check(reader, built)
        return built

    def values(self, reader: Reader, raw: Raw) -> Values:
        """Return the attributes that `raw` sets."""
        return self._values(reader, raw, self.fields)

    def _values(self, reader: Reader, raw: Raw, fields: Mapping[str, Field]) -> Values:
        reader.unknown(raw, tuple(fields))
        found: Values = {}
        for field_name, field in fields.items():
            attribute, value = field.at or field_name, raw.get(field_name)
            if field.grouped:
                inner = Reader(reader.path(field_name), reader.problems)
                if isinstance(value, Mapping):
                    found |= self._values(inner, value, field.fields)
                elif value is not None:
                    inner.wrong("", value, "a mapping with " + ", ".join(field.fields))
            elif value is not None or (attribute not in self.defaults and not field.alias):
                found[attribute] = field.read(reader, field_name, value)
                if found[attribute] is None:  # no mapping where one is expected
                    del found[attribute]
        return found

    def build(self, reader: Reader, values: Values) -> T:
        return self.made(**values)

    def parts(self, value: T) -> Values:
        """Return the attributes that the fields set."""
        return {name: getattr(value, name) for name in value.__struct_fields__}

    def write(self, value: T, before: Values | None = None) -> Plain:
        """Return `value` as plain data, without attributes equal to those of `before` (by default, to the defaults)."""
        return _written(self.fields, self.parts(value), self.defaults if before is None else before)

    @property
    def shown(self) -> dict[str, Field]:
        """The fields without their other spellings."""
        return {field_name: field for field_name, field in self.fields.items() if not field.alias}

    @property
    def schema(self) -> Json:
        single = {name: field.at or name for name, field in self.shown.items() if not field.grouped}
        required = [name for name, attribute in single.items() if attribute not in self.defaults]
        return {**_schema(self.fields, self.defaults), **({"required": required} if required else {})}


def _written(fields: Mapping[str, Field], parts: Values, defaults: Values) -> Plain:
    found = {}
    for field_name, field in fields.items():
        attribute = field.at or field_name
        if field.grouped:
            if inner := _written(field.fields, parts, defaults):
                found[field_name] = inner
        elif not field.alias and (attribute not in defaults or parts[attribute] != defaults[attribute]):
            found[field_name] = field.write(parts[attribute])
    return found


def described_fields(fields: Mapping[str, Field]) -> Json:
    """Return the schema of each field, with what it says; another spelling is marked as deprecated."""
    return {
        name: described(field.schema, field.about, **({"deprecated": True} if field.alias else {}))
        for name, field in fields.items()
    }


def _schema(fields: Mapping[str, Field], defaults: Values) -> Json:
    found = described_fields(fields)
    for name, field in fields.items():
        value = defaults.get(field.at or name)
        if field.grouped:
            found[name] = described(_schema(field.fields, defaults), field.about)
        elif not (field.fields or field.alias or value in (None, "", (), {}) or (value == 0 and field.schema == TIME)):
            found[name]["default"] = field.write(value)
    return struct(**found)


def group(about: str, fields: Mapping[str, Field]) -> Field:
    """A mapping whose fields set attributes of the struct that the mapping above it makes."""
    return Field(
        lambda reader, field, value: value, struct(**described_fields(fields)), about, fields=fields, grouped=True
    )


def section(about: str, of: Section[T], *, at: str = "") -> Field:
    """A mapping that makes a struct; any other value reads as that struct's defaults."""

    def read(reader: Reader, field: str, value: Any) -> T | None:
        return of.read(Reader(reader.path(field), reader.problems), value)

    return Field(read, of.schema, about, at, of.write, fields=of.shown)


def sections(about: str, of: Section[T], most: int, *, at: str = "") -> Field:
    """A list of mappings, each of which makes a struct."""

    def read(reader: Reader, field: str, value: Any) -> tuple[T, ...]:
        return tuple(cast("T", of.read(inner, entry)) for inner, entry in mappings(reader, field, value or [], most))

    def write(values: Iterable[T]) -> list[Plain]:
        return [of.write(value) for value in values]

    return Field(read, {"type": "array", "maxItems": most, "items": of.schema}, about, at, write, fields=of.shown)
