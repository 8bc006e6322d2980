"""Types of messages and events as tables, for pages of docs/: from their JSON Schema and the texts in the code."""

import ast
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

Json = dict[str, Any]
UNITS = (
    "Names say units: `..._ms` are milliseconds (of a moment: unix time), `..._s` seconds, `..._bytes` bytes,",
    "`..._milli` thousandths.",
)


def classes(kinds: Iterable[Any]) -> dict[str, type]:
    """Return all structs that values of these types are made of, by name."""
    found: dict[str, type] = {}

    def walk(one: Any) -> None:
        if isinstance(one, msgspec.inspect.StructType):
            if one.cls.__name__ in found:
                return
            found[one.cls.__name__] = one.cls
        for field in getattr(one, "fields", ()):
            walk(field.type)
        for part in ("item_type", "key_type", "value_type"):
            if hasattr(one, part):
                walk(getattr(one, part))
        for several in ("item_types", "types"):
            for each in getattr(one, several, ()):
                walk(each)

    for info in msgspec.inspect.multi_type_info(list(kinds)):
        walk(info)
    return found


def reach(name: str, schemas: Mapping[str, Json], seen: dict[str, None], not_into: Iterable[str]) -> None:
    """Add a type and all that its values are made of."""
    if name in seen:
        return
    seen[name] = None
    if name not in not_into:
        for other in re.findall(r'"\$ref": "(?:[^"]*/)?(\w+)"', json.dumps(schemas[name])):
            reach(other, schemas, seen, not_into)


def texts(kind: type) -> tuple[str, dict[str, str]]:
    """Return the text of a class, and those below its fields, also of the classes it comes from."""
    told: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if not one.__module__.startswith("penstock."):
            continue
        (body,) = (node for node in ast.parse(inspect.getsource(one)).body if isinstance(node, ast.ClassDef))
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                told[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return " ".join((kind.__doc__ or "").split()), told


def shape(
    name: str, schemas: Mapping[str, Json], structs: Mapping[str, type], common: Mapping[str, str], link: Any
) -> list[str]:
    """Return a type as a heading, its text, and a table of its fields.

    Args:
        common: texts of fields that have none in the code, by field or by type and field.
    """
    schema = schemas[name]
    about, told = texts(structs[name]) if name in structs else ("", {})
    lines = [f"### {name}", "", *([about, ""] if about else [])]
    if "properties" not in schema:
        return [*lines, kind_of(schema, link), ""]
    rows = []
    for field, of in schema["properties"].items():
        if field == "type" and list(of.get("enum", ())) == [name]:
            continue
        text = told.get(field) or common.get(f"{name}.{field}") or common.get(field, "")
        given = json.dumps(of["default"], ensure_ascii=False) if "default" in of else ""
        rows.append(f"| `{field}` | {kind_of(of, link)} | {f'`{given}`' if given else ''} | {cell(text)} |")
    return [
        *lines,
        *(["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""] if rows else ["No fields.", ""]),
    ]


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def kind_of(schema: Json, link: Any) -> str:
    """Return what values of a JSON Schema are, for people."""
    if "$ref" in schema:
        return str(link(schema["$ref"].rpartition("/")[2]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind_of(one, link) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{word}`" if word != "" else '`""`' for word in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return "[" + ", ".join(kind_of(one, link) for one in schema["prefixItems"]) + "]"
        case "array":
            return f"list of {kind_of(schema['items'], link)}" if schema.get("items") else "list"
        case "object":
            inner = schema.get("additionalProperties")
            return f"mapping of names to {kind_of(inner, link)}" if isinstance(inner, dict) and inner else "mapping"
        case "integer" | "number" | "string" | "boolean" | "null" as word:
            name = {"integer": "whole number", "string": "text", "boolean": "`true` or `false`", "null": "`null`"}
            return name.get(word, word) + _bounds(schema)
        case _:
            return "any"


def _bounds(schema: Json) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None and high < 2**53:
        return f", {low:,} to {high:,}" if low is not None else f", at most {high:,}"
    if "maxLength" in schema:
        return f", up to {schema['maxLength']} characters"
    return f", {low:,} or more" if low is not None else ""
