"""Devices by claims of a simulated cluster: what drivers publish, and what must hold of claims."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.sim.apiserver.claims import trouble_with, twice_allocated
from penstock.sim.apiserver.pods import OVER
from penstock.sim.apiserver.selecting import Object
from penstock.sim.apiserver.store import Change, Store

DRIVER = "gpu.example.com"
DOUBLE_S = 30.0
"""A device that two claims have, as a leader that was replaced wrote one of them, has one again after this long."""


def _request(count: int, *expressions: str) -> dict[str, Any]:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    exactly = {"deviceClassName": "gpu", "count": count, "selectors": selectors}
    return {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


LARGE, PART = (f'device.attributes["{DRIVER}"].kind == "{kind}"' for kind in ("large", "part"))
SPECS = {
    "one": _request(1, f"!({PART})"),
    "two": _request(2, f"!({PART})"),
    "large": _request(1, LARGE),
    "part": _request(1, PART),
}


def claimed_by(store: Store, pod: Object) -> dict[str, int]:
    """Return how many devices a pod claims, by claim; one of its own has the pod's name."""
    found: dict[str, int] = {}
    for one in pod["spec"].get("resourceClaims") or ():
        template, name = one.get("resourceClaimTemplateName"), one.get("resourceClaimName", "")
        made = store.all_of("resourceclaims").get(("default", name))
        spec = SPECS[template]["spec"] if template else made["spec"] if made else {"devices": {"requests": ()}}
        key = f"of pod {pod['metadata']['name']}" if template else name
        found[key] = sum(request["exactly"]["count"] for request in spec["devices"]["requests"])
    return found


def declare(store: Store) -> None:
    """Make a class, and templates of claims."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    body = {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}
    store.create(store.kind("resource.k8s.io", "deviceclasses"), "", body)
    for name, spec in SPECS.items():
        kind = store.kind("resource.k8s.io", "resourceclaimtemplates")
        store.create(kind, "default", {"metadata": {"name": name}, "spec": spec})


def publish(store: Store, node: str, rng: random.Random, count: int | None = None) -> None:
    """Let a driver publish the devices of a node: small and large ones, and parts of another one."""
    number = rng.randint(0, 3) if count is None else count
    kinds = [rng.choice(("small", "large")) if count is None else "large" for _ in range(number)]
    devices: list[dict[str, Any]] = [
        {"name": f"d{i}", "attributes": {"kind": {"string": kind}}} for i, kind in enumerate(kinds)
    ]
    parts = rng.choice((0, 2, 3)) if count is None else count
    used = [{"counterSet": "parts", "counters": {"slices": {"value": "2"}}}]
    devices += [
        {"name": f"p{i}", "attributes": {"kind": {"string": "part"}}, "consumesCounters": used} for i in range(parts)
    ]
    slices = str(4 if count is None else 2 * count)
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    common = {"driver": DRIVER, "pool": pool, "nodeName": node}
    counters = [{"name": "parts", "counters": {"slices": {"value": slices}}}]
    for name, part in (("devices", {"devices": devices}), ("counters", {"sharedCounters": counters})):
        body = {"metadata": {"name": f"{node}-{name}"}, "spec": {**common, **part}}
        store.create(store.kind("resource.k8s.io", "resourceslices"), "", body)


def withdraw(store: Store, node: str) -> None:
    """Take the devices of a node away."""
    for key, one in list(store.all_of("resourceslices").items()):
        if one["spec"]["nodeName"] == node:
            store.delete(store.kind("resource.k8s.io", "resourceslices"), key)


class DeviceChecks:
    """Follows the claims of a store.

    Args:
        excused: whether a leader that was replaced may still give devices out: nobody is bound with what is double.
        found: gets each violation.
    """

    def __init__(
        self, store: Store, now_s: Callable[[], float], excused: Callable[[], bool], found: Callable[[str], None]
    ) -> None:
        self._store, self._now_s, self._excused, self._found = store, now_s, excused, found
        self._double_since_s: dict[str, float] = {}
        self.allocated = 0
        store.listeners.append(self._see)

    def _see(self, change: Change) -> None:
        if change.kind.plural == "resourceclaims" and change.type != "DELETED" and not self._excused():
            had = (change.old or {}).get("status", {}).get("allocation")
            if change.new.get("status", {}).get("allocation") and not had:
                self.allocated += 1
                for text in (*twice_allocated(self._store), *self._too_many_parts()):
                    if text not in self._double_since_s:
                        self._found(text)
        if change.kind.plural == "pods" and change.old is not None and change.type != "DELETED":
            if not change.old["spec"].get("nodeName"):
                self._bound(change.new)
        elif change.kind.plural == "resourceclaims" and change.type != "DELETED":
            for pod in self._store.all_of("pods").values():
                self._bound(pod)

    def _bound(self, pod: Object) -> None:
        """Check that a pod has its claims from its Binding to its end."""
        bound = pod["spec"].get("nodeName") and pod["status"]["phase"] not in OVER
        ours = pod["spec"].get("schedulerName") == SCHEDULER
        trouble = trouble_with(self._store, pod) if bound and ours else ""
        if trouble:
            self._found(f"pod {pod['metadata']['name']} is bound, but {trouble}")

    def _too_many_parts(self) -> Iterator[str]:
        used: dict[str, int] = {}
        for claim in self._store.all_of("resourceclaims").values():
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for one in (allocation.get("devices") or {}).get("results", ()):
                used[one["pool"]] = used.get(one["pool"], 0) + 2 * one["device"].startswith("p")
        for one in self._store.all_of("resourceslices").values():
            for counters in one["spec"].get("sharedCounters", ()):
                most, has = int(counters["counters"]["slices"]["value"]), used.get(one["spec"]["pool"]["name"], 0)
                if has > most:
                    yield f"parts of {has} slices are given out of {one['spec']['pool']['name']}, which has {most}"

    def look(self) -> None:
        """Check that no device has two claims for long."""
        now_s, doubles = self._now_s(), twice_allocated(self._store)
        self._double_since_s = {text: self._double_since_s.get(text, now_s) for text in doubles}
        for text, since_s in self._double_since_s.items():
            if now_s - since_s > DOUBLE_S and not self._excused():
                self._found(f"for {now_s - since_s:.0f} s: {text}")

    def left(self) -> list[str]:
        """Return claims that are reserved for pods that are over, or have devices and nobody."""
        found = []
        for (_, name), claim in self._store.all_of("resourceclaims").items():
            status = claim.get("status") or {}
            users = [
                self._store.all_of("pods").get(("default", one["name"])) for one in status.get("reservedFor") or ()
            ]
            if any(pod is None or pod["status"]["phase"] in OVER for pod in users) or (
                status.get("allocation") and not users
            ):
                found.append(f"claim {name} is left: {status}")
        return found
