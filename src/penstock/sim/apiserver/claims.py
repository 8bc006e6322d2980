"""The controller of resource claims: it makes those of templates, and takes back what pods that are over had.

Source: pkg/controller/resourceclaim of Kubernetes.
"""

from penstock.sim.apiserver.pods import OVER
from penstock.sim.apiserver.refusals import invalid
from penstock.sim.apiserver.selecting import Object
from penstock.sim.apiserver.store import Key, Plain, Store, merged

CONSUMERS_MAX = 256
FINALIZER = "resource.kubernetes.io/delete-protection"


class ResourceClaims(Plain):
    """What a claim has does not change while it has it. Source: pkg/apis/resource/validation of Kubernetes."""

    def update(self, one: Object, old: Object, store: Store) -> None:
        name, status, before = one["metadata"]["name"], one.get("status") or {}, old.get("status") or {}
        if one["spec"] != old["spec"]:
            raise invalid("ResourceClaim", name, "spec", "field is immutable")
        has, had = status.get("allocation"), before.get("allocation")
        if has and had and has != had:
            raise invalid("ResourceClaim", name, "status.allocation", "field is immutable")
        if status.get("reservedFor") and not has:
            raise invalid("ResourceClaim", name, "status.reservedFor", "may not be specified when not allocated")
        if len(status.get("reservedFor") or ()) > CONSUMERS_MAX:
            raise invalid("ResourceClaim", name, "status.reservedFor", f"must have at most {CONSUMERS_MAX} items")


class ClaimController:
    """The controller of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def reconcile(self) -> None:
        for key, pod in list(self._store.all_of("pods").items()):
            if pod["spec"].get("resourceClaims") and not pod["metadata"].get("deletionTimestamp"):
                self._make(key, pod)
        for key, claim in list(self._store.all_of("resourceclaims").items()):
            self._free(key, claim)

    def _make(self, key: Key, pod: Object) -> None:
        """Make the claims of a pod's templates that are missing."""
        made = {one["name"]: one for one in pod["status"].get("resourceClaimStatuses", ())}
        before = dict(made)
        for one in pod["spec"]["resourceClaims"]:
            templates, name = self._store.all_of("resourceclaimtemplates"), one.get("resourceClaimTemplateName", "")
            template = templates.get((key[0], name))
            if template is None or one["name"] in made or pod["status"]["phase"] in OVER:
                continue
            uid = pod["metadata"]["uid"]
            owner = {"apiVersion": "v1", "kind": "Pod", "name": key[1], "uid": uid, "controller": True}
            meta = {"generateName": f"{key[1]}-{one['name']}-", "ownerReferences": [owner]}
            body = {"metadata": meta, "spec": template["spec"]["spec"]}
            claim = self._store.create(self._store.kind("resource.k8s.io", "resourceclaims"), key[0], body)
            made[one["name"]] = {"name": one["name"], "resourceClaimName": claim["metadata"]["name"]}
        if made != before:
            status = {"status": {"resourceClaimStatuses": list(made.values())}}
            self._store.update(self._store.kind("", "pods"), key, lambda old: merged(old, status), part="status")

    def _free(self, key: Key, claim: Object) -> None:
        """Take consumers that are over out of a claim, and its devices once there are none; its finalizer last."""
        kind, status = self._store.kind("resource.k8s.io", "resourceclaims"), claim.get("status") or {}
        reserved = status.get("reservedFor") or []
        left = [one for one in reserved if self._uses(key[0], one)]
        if len(left) < len(reserved):
            change = {"reservedFor": left or None, **({} if left else {"allocation": None, "devices": None})}
            self._store.update(kind, key, lambda old: merged(old, {"status": change}), part="status")
            claim = self._store.get(kind, key)
        meta = claim["metadata"]
        idle = not (claim.get("status") or {}).get("allocation")
        if idle and meta.get("deletionTimestamp") and FINALIZER in meta.get("finalizers", ()):
            kept = [one for one in meta["finalizers"] if one != FINALIZER]
            self._store.update(kind, key, lambda old: merged(old, {"metadata": {"finalizers": kept}}))

    def _uses(self, namespace: str, consumer: Object) -> bool:
        one = self._store.all_of(consumer["resource"]).get((namespace, consumer["name"]))
        if one is None or one["metadata"]["uid"] != consumer["uid"]:
            return False
        return consumer["resource"] != "pods" or one["status"]["phase"] not in OVER


def trouble_with(store: Store, pod: Object) -> str:
    """Return why a kubelet does not start a pod with its claims; '' if it does."""
    made = {one["name"]: one.get("resourceClaimName", "") for one in pod["status"].get("resourceClaimStatuses", ())}
    beyond = pod["status"].get("extendedResourceClaimStatus")
    more = [{"name": "extended", "resourceClaimName": beyond["resourceClaimName"]}] if beyond else []
    for one in (*pod["spec"].get("resourceClaims", ()), *more):
        name = one.get("resourceClaimName") or made.get(one["name"], "")
        claim = store.all_of("resourceclaims").get((pod["metadata"]["namespace"], name))
        status = (claim or {}).get("status") or {}
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
        users = {(user["resource"], user["name"]) for user in status.get("reservedFor") or ()}
        if not status.get("allocation"):
            return f"claim {one['name']} is not allocated"
        if not users & {("pods", pod["metadata"]["name"]), ("podgroups", group)}:
            return f"claim {one['name']} is not reserved for it"
    return ""


def twice_allocated(store: Store) -> list[str]:
    """Return the devices that several claims have as a whole, with these claims."""
    found: dict[tuple[str, ...], list[str]] = {}
    for (_, name), claim in store.all_of("resourceclaims").items():
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for one in (allocation.get("devices") or {}).get("results", ()):
            if not one.get("adminAccess") and not one.get("shareID"):
                found.setdefault((one["driver"], one["pool"], one["device"]), []).append(name)
    return [f"device {'/'.join(device)} has {', '.join(names)}" for device, names in found.items() if len(names) > 1]
