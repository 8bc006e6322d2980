"""Classes, claims and volumes for scenes."""

from typing import Any

from penstock.sim.apiserver.volumes import NO_PROVISIONER, ZONE
from tests.engines.kubernetes.scenes import Scene

HOST = "kubernetes.io/hostname"
DRIVER = "disks.example.com"
CLAIMS, VOLUMES = "/persistentvolumeclaims", "/persistentvolumes"


def storage_class(c: Scene, name: str, provisioner: str = DRIVER, *, late: bool = True, **fields: Any) -> None:
    """Create a class that makes volumes once the node is known (`late`), or at once."""
    mode = "WaitForFirstConsumer" if late else "Immediate"
    c.make("storage.k8s.io/storageclasses", name, provisioner=provisioner, volumeBindingMode=mode, **fields)


def local_class(c: Scene, name: str = "local") -> None:
    storage_class(c, name, NO_PROVISIONER)


def claim_spec(of: str = "zonal", size: str = "10Gi", *modes: str, **spec: Any) -> dict[str, Any]:
    asked = {"requests": {"storage": size}}
    return {"storageClassName": of, "accessModes": list(modes or ("ReadWriteOnce",)), "resources": asked, **spec}


def claim(c: Scene, name: str, of: str = "zonal", size: str = "10Gi", *modes: str, **spec: Any) -> Any:
    return c.make(CLAIMS, name, claim_spec(of, size, *modes, **spec))


def volume(
    c: Scene, name: str, of: str = "local", size: str = "10Gi", *, on: dict[str, str] | None = None, **spec: Any
) -> Any:
    """Create a volume; `on` are the labels of the nodes that reach it."""
    rules = [{"key": key, "operator": "In", "values": [value]} for key, value in (on or {}).items()]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": rules}]}}
    labels = spec.pop("labels", {})
    body = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": of, **spec}
    return c.make(VOLUMES, name, {**body, **({"nodeAffinity": affinity} if rules else {})}, labels=labels)


def bound(c: Scene, name: str, on: dict[str, str], of: str = "zonal", *modes: str, **spec: Any) -> None:
    """Create a claim with its volume, which nodes with these labels reach."""
    made = claim(c, name, of, "10Gi", *modes)
    ref = {"namespace": "default", "name": name, "uid": made["metadata"]["uid"]}
    volume(c, f"volume-{name}", of, on=on, claimRef=ref, accessModes=list(modes or ("ReadWriteOnce",)), **spec)
    c.controllers.volumes.reconcile()


def using(*names: str) -> list[dict[str, Any]]:
    """Return volumes of a pod that name claims."""
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]


def own(name: str = "data", of: str = "zonal", size: str = "10Gi", *modes: str) -> list[dict[str, Any]]:
    """Return a volume of a pod with a claim of its own."""
    return [{"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec(of, size, *modes)}}}]


def claim_of(c: Scene, name: str) -> Any:
    return c.store.all_of("persistentvolumeclaims")["default", name]


def volume_of(c: Scene, name: str) -> Any:
    """Return the volume that a claim is bound to; None if it is to none."""
    found = claim_of(c, name)
    return c.store.all_of("persistentvolumes").get(("", found["spec"].get("volumeName", "")))


def zone_of(c: Scene, node: str) -> str:
    return str(c.store.all_of("nodes")["", node]["metadata"]["labels"][ZONE])


def reached(c: Scene, pod: str) -> bool:
    """Return whether a pod is on a node that reaches all its volumes."""
    node = c.store.all_of("nodes")["", c.where(pod)[0]]["metadata"]["labels"]
    for one in c.get(pod)["spec"]["volumes"]:
        name = one["persistentVolumeClaim"]["claimName"] if "persistentVolumeClaim" in one else f"{pod}-{one['name']}"
        affinity = volume_of(c, name)["spec"].get("nodeAffinity")
        terms = affinity["required"]["nodeSelectorTerms"] if affinity else ()
        rules = [rule for term in terms for rule in term["matchExpressions"]]
        if not all(node.get(rule["key"]) in rule["values"] for rule in rules):
            return False
    return True
