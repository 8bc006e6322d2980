"""Builders of slices, classes and claims, as the API has them; quantities and names as in tables of allocations."""

from typing import Any

import msgspec

from penstock.engines.kubernetes.devices.allocator import Ask, Cluster, allocate
from penstock.engines.kubernetes.devices.pools import Inventory
from penstock.engines.kubernetes.devices.use import Use
from penstock.engines.kubernetes.objects.devices import (
    Allocation,
    ClaimSpec,
    DeviceClass,
    DeviceTaintRule,
    ResourceSlice,
)

DRIVER = "gpu.example.com"
KINDS = {bool: "bool", int: "int", str: "string", list: "strings"}
LABELS = {"region": "west", "planet": "earth"}
"""Of every node."""


def dev(name: str, *, memory: str = "", counters: Any = None, on: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a device; what is no field of devices is an attribute.

    Args:
        counters: amounts of counters of one set, by `SET/COUNTER`; `on`: its own node, labels of nodes, or True: all.
    """
    known = {"taints", "bindingConditions", "bindingFailureConditions", "bindsToNode", "allowMultipleAllocations",
             "capacity"}  # fmt: skip
    found = {key: value for key, value in fields.items() if key in known}
    found["attributes"] = {key: _attribute(value) for key, value in fields.items() if key not in known}
    found["name"] = name
    if memory:
        found["capacity"] = {"memory": {"value": memory}}
    sets: dict[str, Any] = {}
    for key, value in (counters or {}).items():
        which, _, counter = key.partition("/")
        sets.setdefault(which, {})[counter] = {"value": value}
    found["consumesCounters"] = [{"counterSet": which, "counters": has} for which, has in sets.items()]
    return {**found, **_nodes(on)}


def _attribute(value: Any) -> dict[str, Any]:
    if isinstance(value, str) and value.startswith("v:"):
        return {"version": value[2:]}
    return {KINDS[type(value)]: value} if value is not None else {}


def _nodes(on: Any) -> dict[str, Any]:
    if on is None:
        return {}
    if on is True:
        return {"allNodes": True}
    if isinstance(on, str):
        return {"nodeName": on}
    rules = [{"key": key, "operator": "In", "values": [value]} for key, value in on.items()]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": rules}]}}


def slice_of(*devices: Any, on: Any = "n1", pool: str = "p1", driver: str = DRIVER, **more: Any) -> dict[str, Any]:
    """Return a slice; `on` None: each device says its nodes itself; `counters` of its sets, by `SET/COUNTER`."""
    sets: dict[str, Any] = {}
    for key, value in more.pop("counters", {}).items():
        which, _, counter = key.partition("/")
        sets.setdefault(which, {})[counter] = {"value": value}
    name = more.pop("name", f"{driver}-{pool}")
    whole = {"name": pool, "generation": more.pop("generation", 1), "resourceSliceCount": more.pop("of", 1)}
    where = {"perDeviceNodeSelection": True} if on is None else _nodes(on)
    shared = [{"name": which, "counters": has} for which, has in sets.items()]
    spec = {"driver": driver, "pool": whole, "devices": list(devices), "sharedCounters": shared, **where}
    return {"metadata": {"name": name}, "spec": spec}


def class_of(name: str = "gpu", *expressions: str, driver: str = DRIVER, **spec: Any) -> dict[str, Any]:
    texts = [f'device.driver == "{driver}"', *expressions]
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": e}} for e in texts], **spec}}


def req(name: str = "r", count: int = 1, *expressions: str, of: str = "gpu", **more: Any) -> dict[str, Any]:
    """Return a plain request; `any_of` are its alternatives instead."""
    if "any_of" in more:
        return {"name": name, "firstAvailable": [{"name": one["name"], **one["exactly"]} for one in more["any_of"]]}
    exactly: dict[str, Any] = {"deviceClassName": of, "selectors": [{"cel": {"expression": e}} for e in expressions]}
    if more.pop("all", False):
        exactly["allocationMode"] = "All"
    else:
        exactly["count"] = count
    if "takes" in more:
        exactly["capacity"] = {"requests": more.pop("takes")}
    return {"name": name, "exactly": {**exactly, **more}}


def claim_of(*requests: Any, **devices: Any) -> dict[str, Any]:
    return {"devices": {"requests": list(requests), **devices}}


def same(attribute: str, *requests: str, driver: str = DRIVER) -> dict[str, Any]:
    return {"matchAttribute": f"{driver}/{attribute}", "requests": list(requests)}


def different(attribute: str, *requests: str) -> dict[str, Any]:
    return {"distinctAttribute": f"{DRIVER}/{attribute}", "requests": list(requests)}


def taint(effect: str = "NoSchedule", value: str = "") -> dict[str, str]:
    return {"key": "ill", "effect": effect, "value": value}


def had(*names: str, pool: str = "p1", share: bool = False, **consumed: str) -> dict[str, Any]:
    """Return an allocation of a claim that has these devices."""
    more = {"shareID": "s", "consumedCapacity": consumed} if share else {}
    one = [{"request": "r", "driver": DRIVER, "pool": pool, "device": name, **more} for name in names]
    return {"devices": {"results": one}}


def cluster_of(slices: Any, classes: Any = None, allocated: Any = (), rules: Any = ()) -> Cluster:
    inventory, use = Inventory(), Use()
    for one in slices:
        inventory.put(msgspec.convert(one, ResourceSlice))
    inventory.taint(msgspec.convert(one, DeviceTaintRule) for one in rules)
    known = [msgspec.convert(one, DeviceClass) for one in ([class_of()] if classes is None else classes)]
    for number, one in enumerate(allocated):
        use.put(f"before-{number}", msgspec.convert(one, Allocation))
    return Cluster(inventory, {one.metadata.name: one for one in known}, use, lambda node: LABELS)


def found(claims: Any, cluster: Cluster, node: str = "n1") -> Any:
    """Return the allocations of claims on a node by claim, or why there are none; a claim may name its own node."""
    asks = [
        Ask(f"c{number}", msgspec.convert(spec, ClaimSpec), spec.get("node", node))
        for number, spec in enumerate(claims)
    ]
    return allocate(asks, cluster, lambda: "share")


def short(allocations: Any) -> Any:
    """Return devices as `REQUEST=DEVICE`, those of other pools than p1 as `REQUEST=POOL/DEVICE`; or None for no fit."""
    if not isinstance(allocations, dict):
        return None
    return [
        " ".join(f"{r.request}={r.device if r.pool == 'p1' else f'{r.pool}/{r.device}'}" for r in one.devices.results)
        for one in allocations.values()
    ]
