"""What Volcano's API server takes: the schemas of its definitions, and what its admission of queues asks for.

Source: scheduling.volcano.sh/v1beta1 (types.go) and the webhooks of queues and PodGroups, as of August 2026.
"""

import re
from fractions import Fraction
from typing import Any

import jsonschema

from penstock.formats.quantities import kubernetes_quantity

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
AMOUNTS = {
    "type": "object",
    "additionalProperties": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]*)?([KMGTPE]i|[mkMGTPE])?$"},
}


def _object(kind: str, version: str, spec: Any, **fields: Any) -> Any:
    name = {"type": "string", "pattern": NAME, "maxLength": 253}
    meta = {"type": "object", "properties": {"name": name, "namespace": name}, "required": ["name"]}
    found = {"apiVersion": {"const": version}, "kind": {"const": kind}, "metadata": meta, **fields}
    return _closed(found | ({"spec": spec} if spec else {}))


def _closed(properties: Any) -> Any:
    return {"type": "object", "additionalProperties": False, "properties": properties}


VERSION = "scheduling.volcano.sh/v1beta1"
SCHEMAS = {
    "Queue": _object(
        "Queue",
        VERSION,
        _closed(
            {
                "weight": {"type": "integer", "minimum": 1, "maximum": 65_535},
                "capability": AMOUNTS,
                "deserved": AMOUNTS,
                "guarantee": _closed({"resource": AMOUNTS}),
                "reclaimable": {"type": "boolean"},
                "parent": {"type": "string", "pattern": NAME, "maxLength": 253},
                "priority": {"type": "integer", "minimum": 0},
                "dequeueStrategy": {"enum": ["fifo", "traverse"]},
            }
        ),
    ),
    "PodGroup": _object(
        "PodGroup",
        VERSION,
        _closed(
            {
                "minMember": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
                "minResources": AMOUNTS,
                "queue": {"type": "string", "pattern": NAME, "maxLength": 253},
                "priorityClassName": {"type": "string", "pattern": NAME, "maxLength": 253},
            }
        ),
    ),
    "PriorityClass": _object(
        "PriorityClass",
        "scheduling.k8s.io/v1",
        None,
        value={"type": "integer", "maximum": 10**9},
        preemptionPolicy={"enum": ["PreemptLowerPriority", "Never"]},
    ),
}
FRACTIONAL = ("cpu", "memory", "ephemeral-storage")


def admit(objects: Any) -> None:
    """Create objects one after the other. Raises: AssertionError where Volcano would refuse one."""
    queues: dict[str, Any] = {"root": {}, "default": {}}
    classes: set[str] = set()
    seen: set[tuple[str, str, str]] = set()
    for one in objects:
        jsonschema.validate(one, SCHEMAS[one["kind"]])
        meta, spec = one["metadata"], one.get("spec", {})
        key = (one["kind"], meta.get("namespace", ""), meta["name"])
        assert key not in seen, f"{key} is created twice"
        seen.add(key)
        if one["kind"] == "Queue":
            queues[meta["name"]] = spec
            _queue(meta["name"], spec, queues)
        elif one["kind"] == "PriorityClass":
            classes.add(meta["name"])
        else:
            assert spec["queue"] in queues
            assert spec["priorityClassName"] in classes
            assert set(meta["annotations"].values()) <= {"true", "false"}
            _whole(spec.get("minResources", {}))


def _queue(name: str, spec: Any, queues: dict[str, Any]) -> None:
    kept, deserved, most = _parts(spec)
    for amounts in (
        spec.get("capability", {}),
        spec.get("deserved", {}),
        spec.get("guarantee", {}).get("resource", {}),
    ):
        _whole(amounts)
    for resource, amount in kept.items():
        assert amount <= deserved[resource], f"{name}: deserved {resource} is below its guarantee"
    for resource, amount in deserved.items():
        assert amount <= most.get(resource, amount), f"{name}: deserved {resource} is above its capability"
    parent = spec.get("parent", "root")
    assert name != "root"
    assert parent in queues, f"{name}: its parent is created later"
    if parent == "root":
        return
    for at, own in ((0, kept), (1, deserved)):
        limit = _parts(queues[parent])[at]
        for resource in own:
            siblings = [_parts(one)[at] for one in queues.values() if one.get("parent") == parent]
            together = sum(one.get(resource, Fraction(0)) for one in siblings)
            assert together <= limit.get(resource, 0), f"{parent}: below it there is more {resource}"
    for resource, amount in most.items():
        above = _above(resource, parent, queues)
        assert above is None or amount <= above, f"{name}: capability {resource} is above that of a queue above"


def _above(resource: str, name: str, queues: dict[str, Any]) -> Fraction | None:
    while name != "root":
        found = _parts(queues[name])[2].get(resource)
        if found:
            return found
        name = queues[name].get("parent", "root")
    return None


def _parts(spec: Any) -> tuple[dict[str, Fraction], dict[str, Fraction], dict[str, Fraction]]:
    given = (spec.get("guarantee", {}).get("resource", {}), spec.get("deserved", {}), spec.get("capability", {}))
    kept, deserved, most = ({name: kubernetes_quantity(text) for name, text in one.items()} for one in given)
    return kept, deserved, most


def _whole(amounts: Any) -> None:
    for resource, text in amounts.items():
        assert resource in FRACTIONAL or re.fullmatch("[0-9]+", text), f"{resource}: {text} has to be whole"
