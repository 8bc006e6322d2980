"""What becomes of claims and volumes: they are bound to each other, made by their classes, and given back.

Sources: pkg/controller/volume/persistentvolume and .../ephemeral of Kubernetes 1.37, and the external-provisioner.
"""

from typing import Any

from penstock.sim.apiserver.selecting import Object, selected
from penstock.sim.apiserver.store import Key, Kind, Store, merged

ZONE = "topology.kubernetes.io/zone"
SELECTED = "volume.kubernetes.io/selected-node"
BOUND, MADE = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/provisioned-by"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
OVER = ("Succeeded", "Failed")


class VolumeControllers:
    """The controllers of claims and volumes, and the provisioners of all classes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refusing: set[str] = set()
        """Nodes for which no class makes a volume: there is no room."""
        self.idle = False
        """Nothing is made or bound."""

    def reconcile(self) -> None:
        if self.idle:
            return
        for pod in list(self._store.all_of("pods").values()):
            self._claims_of(pod)
        for key, volume in list(self._store.all_of("persistentvolumes").items()):
            self._volume(key, volume)
        for key, claim in list(self._store.all_of("persistentvolumeclaims").items()):
            self._claim(key, claim)

    def _kind(self, plural: str) -> Kind:
        return self._store.kind("", plural)

    def _claims_of(self, pod: Object) -> None:
        """Make the claims of a pod's ephemeral volumes."""
        meta = pod["metadata"]
        if pod["status"]["phase"] in OVER or meta.get("deletionTimestamp"):
            return
        for volume in pod["spec"].get("volumes", ()):
            key = (meta["namespace"], f"{meta['name']}-{volume['name']}")
            if "ephemeral" in volume and key not in self._store.all_of("persistentvolumeclaims"):
                owner = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                }
                spec = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
                body = {"metadata": {"name": key[1], "ownerReferences": [owner]}, "spec": spec}
                self._store.create(self._kind("persistentvolumeclaims"), key[0], body)

    def _set(self, plural: str, key: Key, **parts: Any) -> None:
        self._store.update(self._kind(plural), key, lambda one: merged(one, parts), part="*")

    def _volume(self, key: Key, volume: Object) -> None:
        ref = volume["spec"].get("claimRef")
        if ref is None:
            self._set("persistentvolumes", key, status={"phase": "Available"})
            return
        claim = self._store.all_of("persistentvolumeclaims").get((ref["namespace"], ref["name"]))
        if claim is not None and ref.get("uid", "") in ("", claim["metadata"]["uid"]):
            if not claim["spec"].get("volumeName") or claim["spec"]["volumeName"] == key[1]:
                self._bind(key, claim)
        elif MADE in (volume["metadata"].get("annotations") or {}):
            self._store.delete(self._kind("persistentvolumes"), key)
        elif volume.get("status", {}).get("phase") == "Bound":
            self._set("persistentvolumes", key, status={"phase": "Released"})

    def _bind(self, key: Key, claim: Object) -> None:
        meta = claim["metadata"]
        named = {
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        }
        self._set("persistentvolumes", key, spec={"claimRef": named}, status={"phase": "Bound"})
        self._set(
            "persistentvolumeclaims",
            (meta["namespace"], meta["name"]),
            metadata={"annotations": {BOUND: "yes"}},
            spec={"volumeName": key[1]},
            status={"phase": "Bound"},
        )

    def _claim(self, key: Key, claim: Object) -> None:
        meta, spec = claim["metadata"], claim["spec"]
        found = self._store.all_of("storageclasses").get(("", spec.get("storageClassName") or ""))
        if spec.get("volumeName") or meta.get("deletionTimestamp") or self._is_named(key):
            return
        late = found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"
        node = (meta.get("annotations") or {}).get(SELECTED, "")
        if not late:
            free = [one for one in self._store.all_of("persistentvolumes").values() if _may_get(one, spec)]
            if free:
                self._bind(("", min(free, key=_size)["metadata"]["name"]), claim)
                return
        if found is None or found["provisioner"] == NO_PROVISIONER or (late and not node):
            return
        if node in self.refusing or (late and ("", node) not in self._store.all_of("nodes")):
            self._set("persistentvolumeclaims", key, metadata={"annotations": {SELECTED: None}})
        else:
            self._make(claim, found, node)

    def _is_named(self, key: Key) -> bool:
        refs = (one["spec"].get("claimRef") or {} for one in self._store.all_of("persistentvolumes").values())
        return any((ref.get("namespace"), ref.get("name")) == key for ref in refs)

    def _make(self, claim: Object, found: Object, node: str) -> None:
        """Make a volume in the zone of a node, or where there is none in that of its class, or in any."""
        meta, spec = claim["metadata"], claim["spec"]
        label = (found.get("parameters") or {}).get("topology", ZONE)
        nodes = [one for (_, name), one in sorted(self._store.all_of("nodes").items()) if node in ("", name)]
        zones = sorted({value for one in nodes if (value := one["metadata"].get("labels", {}).get(label))})
        zones = [zone for zone in ((found.get("parameters") or {}).get("zone"),) if zone and not node] or zones
        name = f"pvc-{meta['uid']}"
        body: Object = {
            "metadata": {"name": name, "annotations": {MADE: found["provisioner"]}},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "volumeMode": spec.get("volumeMode", "Filesystem"),
                "storageClassName": spec["storageClassName"],
                "claimRef": {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
                "csi": {"driver": found["provisioner"], "volumeHandle": name},
            },
        }
        if zones:
            zone = zones[int(meta["uid"].rpartition("-")[2]) % len(zones)]
            rules = [{"key": label, "operator": "In", "values": [zone]}]
            body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": rules}]}}
        self._store.create(self._kind("persistentvolumes"), "", body)


def _may_get(volume: Object, spec: Object) -> bool:
    own = volume["spec"]
    return (
        not own.get("claimRef")
        and own.get("storageClassName", "") == (spec.get("storageClassName") or "")
        and own.get("volumeMode", "Filesystem") == spec.get("volumeMode", "Filesystem")
        and set(spec["accessModes"]) <= set(own["accessModes"])
        and _size(volume) >= int(spec["resources"]["requests"]["storage"].removesuffix("Gi"))
        and ("selector" not in spec or selected(spec["selector"], volume))
    )


def _size(volume: Object) -> int:
    """Return a size in GiB, as tests write them all."""
    return int(volume["spec"]["capacity"]["storage"].removesuffix("Gi"))
