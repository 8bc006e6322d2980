"""What single kinds do beside pods: defaults and checks, bindings, evictions within PodDisruptionBudgets.

Sources: pkg/registry/core/pod/storage (binding, eviction) and pkg/apis of Kubernetes 1.36.
"""

from collections.abc import Mapping

from penstock.engines.kubernetes.install.crds import crds
from penstock.sim.apiserver.claims import ResourceClaims
from penstock.sim.apiserver.definitions import Defined
from penstock.sim.apiserver.pods import OVER, Pods, set_condition
from penstock.sim.apiserver.refusals import Refused, conflict, invalid, too_many
from penstock.sim.apiserver.selecting import Object, selected
from penstock.sim.apiserver.store import Kind, Plain, Store, required

EVICTION_WAIT_S = 10
NOTE_MAX = 1024
"""Characters of the note of an event."""


class Volumes(Plain):
    """Claims and volumes: who binds them is in `volumes.py`."""

    def create(self, one: Object, store: Store) -> None:
        one["status"] = {"phase": "Pending"}


class Jobs(Plain):
    """Defaults of batch/v1; what makes its pods is in `controllers.py`."""

    def create(self, one: Object, store: Store) -> None:
        spec = one.setdefault("spec", {})
        spec.setdefault("parallelism", 1)
        if "completions" not in spec and spec["parallelism"] == 1:
            spec["completions"] = 1
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("backoffLimit", 6)
        spec.setdefault("suspend", False)
        one["status"] = {}

    def update(self, one: Object, old: Object, store: Store) -> None:
        if one["spec"].get("template") != old["spec"].get("template") and not old["spec"].get("suspend"):
            raise invalid("Job", one["metadata"]["name"], "spec.template", "field is immutable")


class Events(Plain):
    """Their notes are bounded."""

    def create(self, one: Object, store: Store) -> None:
        if len(one.get("note", "")) > NOTE_MAX:
            text = f"Invalid value: can have at most {NOTE_MAX} characters"
            raise invalid("Event", one["metadata"]["name"], "note", text)


class Budgets(Plain):
    """They say one number."""

    def create(self, one: Object, store: Store) -> None:
        if "minAvailable" in one.get("spec", {}) and "maxUnavailable" in one["spec"]:
            text = "Invalid value: minAvailable and maxUnavailable cannot be both set"
            raise invalid("PodDisruptionBudget", one["metadata"]["name"], "spec", text)


class PriorityClasses(Plain):
    """Their pods preempt unless they say otherwise."""

    def create(self, one: Object, store: Store) -> None:
        one.setdefault("preemptionPolicy", "PreemptLowerPriority")


def bind(store: Store, pods: Kind, namespace: str, binding: Object) -> None:
    """Assign a pod to a node: once, with the uid and version that the binding names. Raises: Refused."""
    meta = binding.get("metadata", {})
    name, target = meta.get("name", ""), binding.get("target", {})
    if target.get("kind", "Node") != "Node" or not target.get("name"):
        raise invalid("Binding", name, "target", "a node and its name are required")

    def assigned(pod: Object) -> Object:
        spec = pod["spec"]
        if pod["metadata"].get("deletionTimestamp"):
            raise conflict("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            raise conflict("pods/binding", name, f"pod {name} is already assigned to node {spec['nodeName']!r}")
        if spec.get("schedulingGates"):
            raise conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
        spec["nodeName"] = target["name"]
        pod["status"].pop("nominatedNodeName", None)
        annotations = meta.get("annotations")
        if annotations:
            pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **annotations}
        labels = meta.get("labels")
        if labels:
            pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **labels}
        set_condition(pod, "PodScheduled", "True", "", "", store.now())
        return pod

    wanted = {"uid": meta.get("uid", ""), "resourceVersion": meta.get("resourceVersion", "")}
    store.update(pods, (namespace, name), assigned, part="*", **wanted)


def evict(store: Store, pods: Kind, namespace: str, name: str, eviction: Object) -> None:
    """Delete a pod if its PodDisruptionBudget allows one disruption more. Raises: Refused (429 where it does not)."""
    options = eviction.get("deleteOptions") or {}
    pod = store.get(pods, (namespace, name))
    wanted: Mapping[str, str] = options.get("preconditions") or {}
    over = pod["status"].get("phase") in OVER
    if not (over or pod["status"].get("phase") == "Pending" or pod["metadata"].get("deletionTimestamp")):
        budgets = [
            budget
            for budget in store.all_of("poddisruptionbudgets").values()
            if budget["metadata"]["namespace"] == namespace and selected(budget["spec"].get("selector"), pod)
        ]
        if len(budgets) > 1:
            text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise Refused(500, "InternalError", text)
        for budget in budgets:
            _spend(store, budget, name)
    required(pods, pod, wanted)  # after the budget: it is spent all the same
    if not over:
        store.update(pods, (namespace, name), lambda one: _disrupted(one, store.now()), part="*")
    store.delete(pods, (namespace, name), options.get("gracePeriodSeconds"), uid=wanted.get("uid", ""))


def _disrupted(pod: Object, now: str) -> Object:
    set_condition(pod, "DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting", now)
    return pod


def _spend(store: Store, budget: Object, pod: str) -> None:
    meta = budget["metadata"]
    left = int(budget.get("status", {}).get("disruptionsAllowed", 0))
    if left < 1:
        text = "Cannot evict pod as it would violate the pod's disruption budget."
        raise too_many(text, EVICTION_WAIT_S, "DisruptionBudget")

    def spent(one: Object) -> Object:
        status = one.setdefault("status", {})
        status["disruptionsAllowed"] = left - 1
        status.setdefault("disruptedPods", {})[pod] = store.now()
        return one

    store.update(store.kind("policy", "poddisruptionbudgets"), (meta["namespace"], meta["name"]), spent, part="*")


def _defined(definition: Object) -> Kind:
    spec, names = definition["spec"], definition["spec"]["names"]
    version, namespaced = spec["versions"][0]["name"], spec["scope"] == "Namespaced"
    return Kind(spec["group"], version, names["plural"], names["kind"], namespaced, Defined(definition))


def usual_kinds() -> dict[tuple[str, str], Kind]:
    """Return the kinds that a scheduler meets, by group and plural name."""
    plain = Plain()
    found = [
        Kind("", "v1", "pods", "Pod", True, Pods()),
        Kind("", "v1", "nodes", "Node", False, plain, status_at_create=True),
        Kind("", "v1", "namespaces", "Namespace", False, plain),
        Kind("", "v1", "configmaps", "ConfigMap", True, plain, has_status=False),
        Kind("events.k8s.io", "v1", "events", "Event", True, Events(), has_status=False),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, plain, has_status=False),
        Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, Budgets()),
        Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClasses(), has_status=False),
        Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True, plain),
        Kind("batch", "v1", "jobs", "Job", True, Jobs()),
        Kind("", "v1", "services", "Service", True, plain),
        Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, Volumes()),
        Kind("", "v1", "persistentvolumes", "PersistentVolume", False, Volumes()),
        Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, plain, has_status=False),
        Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False, plain, has_status=False),
        Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, plain, has_status=False),
        Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True, plain, has_status=False),
        Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, ResourceClaims()),
        Kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, plain, has_status=False),
        Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, plain, has_status=False),
        Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False, plain, has_status=False),
        Kind("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", False, plain),
        *(_defined(one) for one in crds()),
    ]
    return {(kind.group, kind.plural): kind for kind in found}
