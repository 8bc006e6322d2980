"""Compares two OpenAPI documents of one API: what clients of the former would miss, or could no longer send.

`docs/schema/openapi-v1.json` is the promise of `/api/v1`: tests hold the server against it, and `make docs` writes it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
_LOWERED = {"maximum": "most", "exclusiveMaximum": "most", "maxLength": "longest", "maxItems": "most entries"}
_RAISED = {"minimum": "least", "exclusiveMinimum": "least", "minLength": "shortest", "minItems": "fewest entries"}


def incompatible(old: Document, new: Document) -> list[str]:
    """Return what of the old document the new one does not keep, each in a sentence; empty: old clients go on.

    Kept are operations, parameters, fields of requests and answers, their types, accepted values and bounds, statuses,
    media types, headers and error codes. New ones are fine, unless a request needs them.
    """
    return sorted(set(_Comparison(old, new).found()))


class _Comparison:
    def __init__(self, old: Document, new: Document) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[str, str, bool]] = set()

    def found(self) -> Iterator[str]:
        for path, methods in self._old["paths"].items():
            for method, operation in methods.items():
                where = f"{method.upper()} {path}"
                now = self._new["paths"].get(path, {}).get(method)
                if now is None:
                    yield f"{where} is gone"
                else:
                    yield from self._operation(where, operation, now)
        codes, left = self._old.get("x-error-codes", {}), self._new.get("x-error-codes", {})
        for code, status in codes.items():
            if left.get(code) != status:
                yield f"error code {code} was {status}, is {left.get(code, 'gone')}"

    def _operation(self, where: str, old: Document, new: Document) -> Iterator[str]:
        before = {(one["name"], one["in"]): one for one in old.get("parameters", ())}
        after = {(one["name"], one["in"]): one for one in new.get("parameters", ())}
        for key, parameter in before.items():
            if key not in after:
                yield f"{where}: parameter {key[0]} is gone"
            else:
                yield from self._schema(f"{where}: {key[0]}", parameter["schema"], after[key]["schema"], sent=True)
        for key, parameter in after.items():
            if parameter.get("required") and not before.get(key, {}).get("required"):
                yield f"{where}: parameter {key[0]} is required now"
        yield from self._body(where, old.get("requestBody"), new.get("requestBody"))
        for status, answer in old["responses"].items():
            now = new["responses"].get(status)
            if now is None:
                yield f"{where}: answer {status} is gone"
                continue
            for header in answer.get("headers", {}).keys() - now.get("headers", {}).keys():
                yield f"{where}: header {header} is gone"
            yield from self._content(f"{where}: answer {status}", answer, now, sent=False)

    def _body(self, where: str, old: Document | None, new: Document | None) -> Iterator[str]:
        if old is None:
            if new is not None and new.get("required"):
                yield f"{where}: a body is required now"
        elif new is None:
            yield f"{where}: the body is gone"
        else:
            yield from self._content(f"{where}: body", old, new, sent=True)

    def _content(self, where: str, old: Document, new: Document, *, sent: bool) -> Iterator[str]:
        for media, content in old.get("content", {}).items():
            now = new.get("content", {}).get(media)
            if now is None:
                yield f"{where}: {media} is gone"
            else:
                yield from self._schema(where, content.get("schema", {}), now.get("schema", {}), sent=sent)

    def _schema(self, where: str, old: Document, new: Document, *, sent: bool) -> Iterator[str]:
        name, other = old.get("$ref", ""), new.get("$ref", "")
        if name or other:
            if (name, other, sent) in self._seen:
                return
            self._seen.add((name, other, sent))
            where = name.rpartition("/")[2] or where
        old, new = _resolved(self._old, old), _resolved(self._new, new)
        yield from _types(where, _kinds(self._old, old), _kinds(self._new, new), sent=sent)
        yield from self._fields(where, old, new, sent=sent)
        if sent:
            yield from _narrowed(where, old, new)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
                yield from self._schema(f"{where}[]", old[key], new[key], sent=sent)
        yield from self._variants(where, old.get("anyOf", ()), new.get("anyOf", ()), sent=sent)

    def _fields(self, where: str, old: Document, new: Document, *, sent: bool) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for field, schema in before.items():
            if field not in after:
                yield f"{where}.{field} is gone"
            else:
                yield from self._schema(f"{where}.{field}", schema, after[field], sent=sent)
        needed, need = set(old.get("required", ())), set(new.get("required", ()))
        for field in sorted(need - needed) if sent else ():
            yield f"{where}.{field} is required now"
        for field in sorted((needed - need) & after.keys()) if not sent else ():
            yield f"{where}.{field} may be missing now"

    def _variants(self, where: str, old: Any, new: Any, *, sent: bool) -> Iterator[str]:
        """Compare alternatives: named ones by name, others by their type and order."""
        after = dict(_numbered(new))
        for key, one in _numbered(old):
            if key in after:
                yield from self._schema(where, one, after[key], sent=sent)
            elif sent and new and "$ref" in one:
                yield f"{where}: {key[0].rpartition('/')[2]} is not accepted any more"


def _numbered(variants: Iterable[Document]) -> Iterator[tuple[tuple[str, int], Document]]:
    """Yield alternatives, each with its name or type and how many of that were before it."""
    counts: Counter[str] = Counter()
    for one in variants:
        name = one.get("$ref") or str(one.get("type"))
        yield (name, counts[name]), one
        counts[name] += 1


def _resolved(document: Document, schema: Document) -> Document:
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def _kinds(document: Document, schema: Document) -> set[str]:
    """Return the JSON types that a value may have; empty: any."""
    schema = _resolved(document, schema)
    if "anyOf" in schema:
        each = [_kinds(document, one) for one in schema["anyOf"]]
        return set().union(*each) if all(each) else set()
    kind = schema.get("type")
    if kind is None and schema.get("enum"):
        return {"string"} if all(isinstance(one, str) for one in schema["enum"]) else set()
    return set(kind) if isinstance(kind, list) else {kind} if kind else set()


def _types(where: str, old: set[str], new: set[str], *, sent: bool) -> Iterator[str]:
    wide, narrow = (new, old) if sent else (old, new)
    missing = narrow - wide
    if "number" in wide:
        missing.discard("integer")
    if wide and (missing or not narrow):
        yield f"{where} was {' or '.join(sorted(old)) or 'anything'}, is {' or '.join(sorted(new)) or 'anything'}"


def _narrowed(where: str, old: Document, new: Document) -> Iterator[str]:
    """Yield what was accepted and is no longer."""
    if "enum" in new:
        gone = [str(one) for one in old.get("enum", ()) if one not in new["enum"]]
        if gone or "enum" not in old:
            yield f"{where}: {', '.join(gone) or 'other values'} not accepted any more"
    for key, text in _LOWERED.items():
        if key in new and (key not in old or new[key] < old[key]):
            yield f"{where}: the {text} was {old.get(key, 'any')}, is {new[key]}"
    for key, text in _RAISED.items():
        if key in new and (key not in old or new[key] > old[key]):
            yield f"{where}: the {text} was {old.get(key, 'any')}, is {new[key]}"
