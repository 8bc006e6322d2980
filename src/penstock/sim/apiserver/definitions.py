"""Kinds that a CustomResourceDefinition defines: what is dropped, filled in and refused of their objects.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/, for what the
schemas of `penstock manifests` use.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

from penstock.engines.kubernetes.cel.evaluating import Evaluation
from penstock.engines.kubernetes.cel.syntax import parsed
from penstock.sim.apiserver.refusals import Cause, invalid, invalid_for
from penstock.sim.apiserver.selecting import Object, value_of
from penstock.sim.apiserver.store import Key, Kind, Plain, Store, copied, merged

RULE_STEPS_MAX = 100_000
"""Of a rule of a definition."""
Schema = dict[str, Any]
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
}  # fmt: skip


class Defined(Plain):
    """Objects of one definition.

    Args:
        definition: a CustomResourceDefinition with one version.
    """

    def __init__(self, definition: Object) -> None:
        version = definition["spec"]["versions"][0]
        self.schema: Schema = version["schema"]["openAPIV3Schema"]
        self._name: str = definition["spec"]["names"]["kind"]
        self.scale: dict[str, str] | None = version["subresources"].get("scale")

    def create(self, one: Object, store: Store) -> None:
        self._check(one)

    def update(self, one: Object, old: Object, store: Store) -> None:
        self._check(one)

    def _check(self, one: Object) -> None:
        complete(self.schema, one)
        if causes := [*problems(self.schema, one, "")]:
            raise invalid_for(self._name, one["metadata"]["name"], causes)


def scale_of(kind: Kind, one: Object) -> Object:
    """Return the scale of an object, by which `kubectl scale` and autoscalers know it."""
    paths = _paths(kind)
    meta = {name: one["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")}
    found: Object = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta}
    found["spec"] = {"replicas": value_of(one, paths["specReplicasPath"][1:]) or 0}
    found["status"] = {"replicas": value_of(one, paths["statusReplicasPath"][1:]) or 0}
    if selector := value_of(one, paths["labelSelectorPath"][1:]):
        found["status"]["selector"] = selector
    return found


def scaled(store: Store, kind: Kind, key: Key, patch: Object) -> Object:
    """Change the scale of an object by a merge patch, and return it. Raises: Refused."""
    wanted = merged(scale_of(kind, store.get(kind, key)), patch)["spec"].get("replicas", 0)
    if not isinstance(wanted, int) or wanted < 0:
        raise invalid("Scale", key[1], "spec.replicas", f"Invalid value: {wanted}: must be greater than or equal to 0")
    change: Any = wanted
    for name in reversed(_paths(kind)["specReplicasPath"].split(".")[1:]):
        change = {name: change}
    return scale_of(kind, store.update(kind, key, lambda one: merged(one, change)))


def _paths(kind: Kind) -> dict[str, str]:
    behaviour = kind.behaviour
    assert isinstance(behaviour, Defined)
    assert behaviour.scale is not None
    return behaviour.scale


def complete(schema: Schema, value: Any) -> None:
    """Drop fields that a schema does not have, and fill in defaults, in place."""
    if isinstance(value, list):
        for item in value:
            complete(schema.get("items", {}), item)
    if not isinstance(value, dict):
        return
    known: dict[str, Schema] = schema.get("properties", {})
    others: Schema | None = schema.get("additionalProperties")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") or others is not None or not known
    for name in [name for name in value if name not in known and not keeps]:
        del value[name]
    for name, one in known.items():
        if name not in value and "default" in one:
            value[name] = copied({"": one["default"]})[""]
        if name in value and name != "metadata":
            complete(one, value[name])
    for name in value if others is not None else ():
        complete(others or {}, value[name])


def problems(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    """Yield what a schema refuses of a value."""
    wanted = schema.get("type")
    if wanted and (not isinstance(value, TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean")):
        text = f'Invalid value: "{type(value).__name__}": {path} in body must be of type {wanted}'
        yield Cause("FieldValueTypeInvalid", text, path or "<nil>")
        return
    found = [*_bounds(schema, value, path), *_inside(schema, value, path)]
    yield from found
    for rule in schema.get("x-kubernetes-validations", ()) if not found else ():
        if not _evaluated(rule["rule"], value):
            text = f"Invalid value: {_evaluated(rule['messageExpression'], value)}"
            yield Cause("FieldValueInvalid", text, (path + rule.get("fieldPath", "")).removeprefix("."))


def _evaluated(expression: str, own: Any) -> Any:
    """Return the value of a rule about `self`. Raises: Failed."""
    return Evaluation(RULE_STEPS_MAX).value(_parsed(expression), {"self": own})


_parsed = functools.cache(parsed)


def _inside(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from problems(schema.get("items", {}), item, f"{path}[{at}]")
        keys = schema.get("x-kubernetes-list-map-keys", ())
        names = [tuple(item.get(key) for key in keys) for item in value if isinstance(item, dict)]
        if keys and len(set(names)) < len(names):
            yield Cause("FieldValueDuplicate", "Duplicate value", path)
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield Cause("FieldValueRequired", "Required value", f"{path}.{name}".removeprefix("."))
        known = schema.get("properties", {})
        for name, item in value.items():
            if name in known or schema.get("additionalProperties"):
                one = known.get(name) or schema["additionalProperties"]
                yield from problems(one, item, f"{path}.{name}".removeprefix("."))


def _bounds(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    said: list[str] = []
    if isinstance(value, str | list | dict):
        words = {str: "Length", list: "Items", dict: "Properties"}[type(value)]
        least, most = schema.get(f"min{words}", 0), schema.get(f"max{words}")
        if len(value) < least or (most is not None and len(value) > most):
            said.append(f"Too many or too few: {len(value)}, expected {least} to {most}")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        said.append(f'Invalid value: "{value}": should match {schema["pattern"]}')
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        said.append(f"Invalid value: {value}: out of bounds")
    if "enum" in schema and value not in schema["enum"]:
        said.append(f'Unsupported value: "{value}": supported values: {schema["enum"]}')
    yield from (Cause("FieldValueInvalid", text, path) for text in said)
