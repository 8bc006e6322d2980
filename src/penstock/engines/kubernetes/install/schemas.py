"""Structural schemas (OpenAPI v3, as CustomResourceDefinitions want them) from msgspec types.

Types, enums, bounds, descriptions and defaults come from the types alone. What only Kubernetes knows, such as list
types and rules in CEL, is added by `crds.py`.
"""

from typing import Any

import msgspec
from msgspec import inspect

from penstock.engines.kubernetes.objects.common import Condition

Schema = dict[str, Any]
ITEMS_MAX = 64
"""Entries of a list whose type names no other bound: without one the cost of a rule over it has no bound either."""
RESOURCES_MAX = 64
"""Entries of a map of quantities."""
INT32_MAX = 2**31 - 1
QUANTITY = (
    r"^\+?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})"
    r"([eE][+-]?[0-9]{1,9}|Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?$"
)
"""What `formats.quantities.kubernetes_quantity` reads, without a sign: amounts are never negative."""
_TEXT_OR_NUMBER = frozenset({inspect.StrType, inspect.IntType, inspect.FloatType})


def struct_schema(cls: type[msgspec.Struct]) -> Schema:
    """Return the schema of an object with the fields of `cls`. Raises: TypeError for a type that has no schema."""
    found = inspect.type_info(cls)
    assert isinstance(found, inspect.StructType)
    return _struct(found)


def _struct(info: inspect.StructType) -> Schema:
    found: Schema = {"type": "object"}
    if info.cls.__doc__:
        found["description"] = " ".join(info.cls.__doc__.split())
    required = [field.encode_name for field in info.fields if field.required]
    if required:
        found["required"] = required
    found["properties"] = {field.encode_name: _field(field, info.cls) for field in info.fields}
    return found


def _field(field: inspect.Field, cls: type[msgspec.Struct]) -> Schema:
    found = _schema(field.type)
    if cls is Condition:
        return found  # `kubectl wait` takes an observedGeneration of 0 for a condition that is out of date
    default = field.default
    if isinstance(default, bool | int | float) or (isinstance(default, str) and default):
        found["default"] = default
    elif isinstance(default, msgspec.Struct) and "required" not in found:
        found["default"] = {}  # so that the defaults within it apply
    return found


def _schema(info: inspect.Type) -> Schema:
    match info:
        case inspect.Metadata():
            return {**_schema(info.type), **(info.extra_json_schema or {})}
        case inspect.StructType():
            return _struct(info)
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            small = info.le is not None and info.le <= INT32_MAX
            bounds = _present(minimum=info.ge, maximum=info.le)
            return {"type": "integer", "format": "int32" if small else "int64", **bounds}
        case inspect.StrType():
            bounds = _present(minLength=info.min_length, maxLength=info.max_length, pattern=info.pattern)
            return {"type": "string", **bounds}
        case inspect.LiteralType():
            return {"type": "string", "enum": sorted(info.values)}
        case inspect.UnionType():
            return _union(info.types)
        case inspect.DictType():
            return _map(info)
        case inspect.VarTupleType():
            most = ITEMS_MAX if info.max_length is None else info.max_length
            return {"type": "array", "maxItems": most, "items": _schema(info.item_type)}
        case _:
            raise TypeError(f"no structural schema for {info}")


def _union(types: tuple[inspect.Type, ...]) -> Schema:
    """Return the schema of one type or None (a field that may be absent), of several words, or of a quantity."""
    present = [one for one in types if not isinstance(one, inspect.NoneType)]
    if len(present) == 1:
        return _schema(present[0])
    words = [word for one in present if isinstance(one, inspect.LiteralType) for word in one.values]
    if all(isinstance(one, inspect.LiteralType) for one in present):
        return {"type": "string", "enum": sorted(words)}
    if {inspect.StrType, inspect.IntType} <= {type(one) for one in present} <= _TEXT_OR_NUMBER:
        return {  # no fractions without quotes: Kubernetes has no such type
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 0,
            "pattern": QUANTITY,
        }
    raise TypeError(f"no structural schema for a choice of {types}")


def _map(info: inspect.DictType) -> Schema:
    if isinstance(info.value_type, inspect.AnyType):
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    most = RESOURCES_MAX if info.max_length is None else info.max_length
    return {"type": "object", "maxProperties": most, "additionalProperties": _schema(info.value_type)}


def _present(**bounds: int | float | str | None) -> Schema:
    return {name: bound for name, bound in bounds.items() if bound is not None}
