"""What single kinds do: defaults and checks of pods, bindings, evictions within PodDisruptionBudgets.

Sources: pkg/registry/core/pod/storage (binding, eviction) and pkg/apis/core/v1/defaults.go of Kubernetes 1.37.
"""

from collections.abc import Mapping

from penstock.sim.apiserver.refusals import Refused, conflict, invalid, too_many
from penstock.sim.apiserver.selecting import Object, selected
from penstock.sim.apiserver.store import Kind, Store, required

NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
EVICTION_WAIT_S = 10
IMMUTABLE_POD = ("nodeName", "schedulerName", "priority", "schedulingGroup")


class Plain:
    """No more than every kind does."""

    def create(self, one: Object, store: Store) -> None:
        """Nothing is filled in."""

    def update(self, one: Object, old: Object, store: Store) -> None:
        """Everything may change."""

    def gone_at_once(self, one: Object) -> bool:
        return True


class Pods(Plain):
    """Defaults, what never changes, and deletion in the kubelet's hands once a pod is bound."""

    def create(self, one: Object, store: Store) -> None:
        spec = one.setdefault("spec", {})
        name = one["metadata"]["name"]
        if not spec.get("containers"):
            raise invalid("Pod", name, "spec.containers", "Required value")
        spec.setdefault("schedulerName", "default-scheduler")
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", 30)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        spec["priority"] = _priority(one, store)
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            resources = container.setdefault("resources", {})
            if "limits" in resources:
                resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
        tolerations = spec.setdefault("tolerations", [])
        for key in NOT_READY:
            if not any(t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        gates = bool(spec.get("schedulingGates"))
        one["status"] = {"phase": "Pending", "qosClass": "Burstable"}
        if gates:
            set_condition(one, "PodScheduled", "False", "SchedulingGated", "Scheduling is blocked due to non-empty "
                          "scheduling gates", store.now())  # fmt: skip

    def update(self, one: Object, old: Object, store: Store) -> None:
        for field in IMMUTABLE_POD:
            if one["spec"].get(field) != old["spec"].get(field):
                raise invalid(
                    "Pod", one["metadata"]["name"], f"spec.{field}", "Forbidden: pod updates may not change it"
                )
        before, after = (spec["spec"].get("schedulingGates", ()) for spec in (old, one))
        if any(gate not in before for gate in after):
            raise invalid("Pod", one["metadata"]["name"], "spec.schedulingGates", "Forbidden: only deletion is allowed")

    def gone_at_once(self, one: Object) -> bool:
        return not one["spec"].get("nodeName") or one["status"].get("phase") in ("Succeeded", "Failed")


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


def _priority(pod: Object, store: Store) -> int:
    name = pod["spec"].get("priorityClassName", "")
    classes = store.all_of("priorityclasses")
    if name:
        found = classes.get(("", name))
        if found is None:
            raise invalid(
                "Pod", pod["metadata"]["name"], "spec.priorityClassName", f"no PriorityClass with name {name}"
            )
        return int(found["value"])
    default = next((c for c in classes.values() if c.get("globalDefault")), None)
    return int(default["value"]) if default else 0


def set_condition(one: Object, kind: str, status: str, reason: str, message: str, now: str) -> None:
    """Set a condition; its time of transition changes with its status alone."""
    conditions = one.setdefault("status", {}).setdefault("conditions", [])
    found = next((c for c in conditions if c["type"] == kind), None)
    if found is None:
        found = {"type": kind}
        conditions.append(found)
    if found.get("status") != status:
        found["lastTransitionTime"] = now
    found.update(status=status, reason=reason, message=message)


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
    required(pods, pod, wanted)
    over = pod["status"].get("phase") in ("Succeeded", "Failed")
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
    conditions = {c.get("type") for c in pod["status"].get("conditions", ())}
    if "DisruptionTarget" not in conditions and not over:
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


def usual_kinds() -> dict[tuple[str, str], Kind]:
    """Return the kinds that a scheduler meets, by group and plural name."""
    plain = Plain()
    found = [
        Kind("", "v1", "pods", "Pod", True, Pods()),
        Kind("", "v1", "nodes", "Node", False, plain, status_at_create=True),
        Kind("", "v1", "namespaces", "Namespace", False, plain),
        Kind("", "v1", "configmaps", "ConfigMap", True, plain, has_status=False),
        Kind("events.k8s.io", "v1", "events", "Event", True, plain, has_status=False),
        Kind("coordination.k8s.io", "v1", "leases", "Lease", True, plain, has_status=False),
        Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, plain),
        Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, plain, has_status=False),
        Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True, plain),
        Kind("batch", "v1", "jobs", "Job", True, Jobs()),
        Kind("", "v1", "services", "Service", True, plain),
        Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, plain),
        Kind("", "v1", "persistentvolumes", "PersistentVolume", False, plain),
        Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, plain, has_status=False),
        Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False, plain, has_status=False),
        Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, plain, has_status=False),
        Kind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True, plain, has_status=False),
        Kind("penstock.dev", "v1alpha1", "elasticjobs", "ElasticJob", True, plain),
        Kind("penstock.dev", "v1alpha1", "queues", "Queue", False, plain),
        Kind("penstock.dev", "v1alpha1", "computepools", "ComputePool", False, plain),
    ]
    return {(kind.group, kind.plural): kind for kind in found}
