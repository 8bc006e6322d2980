"""Prints the types of the API's answers and requests as TypeScript, from the OpenAPI document; for `ui/`."""

import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.request import urlopen

import msgspec

from penstock.testing.server import InProcessServer

HEAD = "// Made by `make ui` from the OpenAPI document of the server: do not edit.\n"


def omitting() -> set[str]:
    """Return the names of structs that leave out fields which are as by default."""
    modules = [name for name in sys.modules if name.startswith("penstock.")]
    structs = (one for name in modules for one in vars(sys.modules[name]).values() if isinstance(one, type))
    return {one.__name__ for one in structs if issubclass(one, msgspec.Struct) and one.__struct_config__.omit_defaults}


def main() -> None:
    with InProcessServer() as server:
        document = json.load(urlopen(f"{server.url}/api/v1/openapi.json"))  # noqa: S310 - of this process
    schemas = document["components"]["schemas"]
    left_out = omitting()
    print(HEAD)
    for name in sorted(schemas):
        if name.isidentifier() and name != "JobRequest":
            print(declared(name, schemas[name], optional=name in left_out))


def declared(name: str, schema: Mapping[str, Any], *, optional: bool) -> str:
    """Return the declaration of one named schema."""
    about = schema.get("description", "").split("\n\n")[0]
    comment = f"/** {about} */\n" if about else ""
    return f"{comment}export type {name} = {typed(schema, optional=optional)};\n"


def typed(schema: Mapping[str, Any], *, optional: bool = False) -> str:
    """Return the TypeScript type of a JSON schema; `unknown` for what it does not say."""
    if ref := schema.get("$ref"):
        return str(ref.rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(f'"{value}"' if isinstance(value, str) else str(value).lower() for value in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " | ".join(dict.fromkeys(typed(one) for one in schema[word]))
    kind = schema.get("type")
    if kind == "array":
        return f"Array<{typed(schema.get('items') or {})}>"
    if kind == "object":
        return _object(schema, optional=optional)
    return {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}.get(
        str(kind), "unknown"
    )


def _object(schema: Mapping[str, Any], *, optional: bool) -> str:
    fields = schema.get("properties")
    if not fields:
        more = schema.get("additionalProperties")
        return f"{{ [name: string]: {typed(more) if isinstance(more, Mapping) else 'unknown'} }}"
    needed = set(schema.get("required", ()))
    signs = {name: "?" if optional and name not in needed else "" for name in fields}
    lines = [f"  {name}{signs[name]}: {typed(field)};" for name, field in fields.items()]
    return "{\n" + "\n".join(lines) + "\n}"


if __name__ == "__main__":
    main()
