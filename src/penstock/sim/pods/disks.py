"""Volumes of a simulated cluster: classes, disks of nodes, who looks after them, and what must hold of them."""

import random
from collections.abc import Callable
from typing import Any

from penstock.sim.apiserver.pods import OVER
from penstock.sim.apiserver.selecting import Object
from penstock.sim.apiserver.store import Change, Store
from penstock.sim.apiserver.volumes import BOUND, NO_PROVISIONER, VolumeControllers

DRIVER = "disks.example.com"
SIZE = "10Gi"
HOST, ZONE = "kubernetes.io/hostname", "zone"
LIMIT = 1
"""Volumes of the driver that a small node can hold."""


class Disks:
    """The volumes of one world, chosen by its seed.

    Args:
        used: whether pods have volumes in this world.
    """

    def __init__(self, store: Store, controllers: VolumeControllers, rng: random.Random, *, used: bool) -> None:
        self._store, self._controllers, self._rng, self.used = store, controllers, rng, used
        self._disks = 0
        if used:
            for name, provisioner in (("zonal", DRIVER), ("local", NO_PROVISIONER)):
                body = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
                body["parameters"] = {"topology": ZONE}  # type: ignore[assignment]
                self._create("storageclasses", name, body, "storage.k8s.io")

    def _create(self, plural: str, name: str, body: Object, group: str = "") -> None:
        kind = self._store.kind(group, plural)
        namespace = "default" if kind.namespaced else ""
        self._store.create(kind, namespace, {"metadata": {"name": name}, **body})

    def node_added(self, name: str, *, big: bool) -> None:
        """Give a new node its disks, and say how many volumes it can hold."""
        if not self.used:
            return
        for _ in range(12 if big else self._rng.randint(0, 2)):
            self._add_disk(name)
        if not big and self._rng.random() < 0.7:
            driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": LIMIT}}
            self._create("csinodes", name, {"spec": {"drivers": [driver]}}, "storage.k8s.io")

    def _add_disk(self, node: str) -> None:
        self._disks += 1
        rules = [{"key": HOST, "operator": "In", "values": [node]}]
        spec = {
            "capacity": {"storage": SIZE},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": rules}]}},
            "local": {"path": f"/{self._disks}"},
        }
        self._create("persistentvolumes", f"disk{self._disks}", {"spec": spec})

    def for_pods(self, name: str) -> dict[str, Any]:
        """Return what pods of this name say of volumes: nothing, a claim that they share, or one of each pod's own."""
        if not self.used or self._rng.random() < 0.4:
            return {}
        if self._rng.random() < 0.3:
            self._create("persistentvolumeclaims", f"{name}-data", {"spec": _claim("zonal", "ReadWriteMany")})
            return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": f"{name}-data"}}]}
        of = self._rng.choice(("zonal", "local"))
        source = {"volumeClaimTemplate": {"spec": _claim(of, "ReadWriteOnce")}}
        return {"volumes": [{"name": "scratch", "ephemeral": source}]}

    def reconcile(self) -> None:
        """Clean disks that were given back; disks of nodes that are gone go too, with the pods that wait for them."""
        if not self.used:
            return
        nodes = {name for _, name in self._store.all_of("nodes")}
        for key, one in list(self._store.all_of("persistentvolumes").items()):
            node = _node_of(one)
            if node and (node not in nodes or one.get("status", {}).get("phase") == "Released"):
                self._store.delete(self._store.kind("", "persistentvolumes"), key)
                if node in nodes:
                    self._add_disk(node)
        for key, pod in list(self._store.all_of("pods").items()):
            lost = any(
                claim["spec"].get("volumeName") and ("", claim["spec"]["volumeName"]) not in self._volumes
                for claim in claims_of(self._store, pod)
            )
            if lost and not pod["spec"].get("nodeName"):
                self._store.delete(self._store.kind("", "pods"), key, 0)

    @property
    def _volumes(self) -> dict[tuple[str, str], Object]:
        return self._store.all_of("persistentvolumes")

    def trouble(self) -> None:
        """Let no class make volumes for some nodes, or let there be no trouble."""
        nodes = sorted(name for _, name in self._store.all_of("nodes"))
        self._controllers.refusing = set(self._rng.sample(nodes, self._rng.randint(0, len(nodes) - 1)))

    def heal(self) -> None:
        self._controllers.refusing = set()


def _claim(of: str, mode: str) -> dict[str, Any]:
    return {"storageClassName": of, "accessModes": [mode], "resources": {"requests": {"storage": SIZE}}}


def _node_of(volume: Object) -> str:
    """Return the node of which a volume is a disk; '' for other volumes."""
    if "local" not in volume["spec"]:
        return ""
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return str(term["matchExpressions"][0]["values"][0])


def claims_of(store: Store, pod: Object) -> list[Object]:
    """Return the claims of a pod that are there."""
    meta, found = pod["metadata"], []
    for volume in pod["spec"].get("volumes", ()):
        named = volume.get("persistentVolumeClaim")
        name = named["claimName"] if named else f"{meta['name']}-{volume['name']}"
        one = store.all_of("persistentvolumeclaims").get((meta["namespace"], name))
        if one is not None:
            found.append(one)
    return found


class DiskChecks:
    """Follows a store: no pod is bound where its volumes are not reached, and no volume is bound to two claims.

    Args:
        found: hears of violations.
    """

    def __init__(self, store: Store, found: Callable[[str], None]) -> None:
        self._store, self._found = store, found
        store.listeners.append(self._see)

    def _see(self, change: Change) -> None:
        if change.type == "DELETED":
            return
        if change.kind.plural == "persistentvolumes" and change.old is not None:
            self._kept(change.new, change.old)
        if change.kind.plural == "persistentvolumeclaims":
            self._bound(change.new)

    def _kept(self, volume: Object, old: Object) -> None:
        was, now = old["spec"].get("claimRef"), volume["spec"].get("claimRef")
        if was and now and was.get("uid", now["uid"]) != now["uid"]:
            name = volume["metadata"]["name"]
            self._found(f"volume {name} was taken from claim {was['name']} and given to {now['name']}")

    def _bound(self, claim: Object) -> None:
        name = claim["spec"].get("volumeName")
        for other in self._store.all_of("persistentvolumeclaims").values() if name else ():
            if other["spec"].get("volumeName") == name and other["metadata"]["uid"] != claim["metadata"]["uid"]:
                volume = self._store.all_of("persistentvolumes").get(("", name))
                kept = (volume or {"spec": {}})["spec"].get("claimRef") or {}
                if kept.get("uid") == claim["metadata"]["uid"]:
                    names = f"{claim['metadata']['name']} and {other['metadata']['name']}"
                    self._found(f"volume {name} is bound to claims {names}")

    def pod_bound(self, pod: Object) -> None:
        """Check a pod that was bound to a node just now."""
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        target = self._store.all_of("nodes").get(("", node))
        wanted = pod["spec"].get("volumes", ())
        if target is None or not wanted:
            return
        claims = claims_of(self._store, pod)
        if len(claims) < len(wanted):
            self._found(f"pod {name} was bound without its claims")
        for claim in claims:
            volume = self._store.all_of("persistentvolumes").get(("", claim["spec"].get("volumeName", "")))
            if volume is None or BOUND not in (claim["metadata"].get("annotations") or {}):
                self._found(f"pod {name} was bound to {node} without a volume for claim {claim['metadata']['name']}")
            elif not reached(volume, target):
                self._found(f"pod {name} was bound to {node}, which does not reach volume {volume['metadata']['name']}")
        self._hold(node)

    def _hold(self, node: str) -> None:
        """Check that a node holds no more volumes of the driver than it can."""
        limits = self._store.all_of("csinodes").get(("", node))
        if limits is None:
            return
        held = {
            claim["spec"].get("volumeName")
            for pod in self._store.all_of("pods").values()
            if pod["spec"].get("nodeName") == node and pod["status"]["phase"] not in OVER
            for claim in claims_of(self._store, pod)
            if claim["spec"]["storageClassName"] == "zonal"
        }
        if len(held) > LIMIT:
            self._found(f"node {node} holds {len(held)} volumes of {DRIVER}, and can hold {LIMIT}")


def reached(volume: Object, node: Object) -> bool:
    """Return whether a node reaches a volume."""
    labels = node["metadata"].get("labels") or {}
    affinity = volume["spec"].get("nodeAffinity")
    terms = affinity["required"]["nodeSelectorTerms"] if affinity else [{"matchExpressions": []}]
    return any(all(labels.get(one["key"]) in one["values"] for one in term["matchExpressions"]) for term in terms)
