"""What the API server fills in, checks and keeps of pods.

Sources: pkg/apis/core/v1/defaults.go, pkg/apis/core/validation and pkg/registry/core/pod of Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any

from penstock.sim.apiserver.refusals import Cause, Refused, invalid, invalid_for
from penstock.sim.apiserver.selecting import Object
from penstock.sim.apiserver.store import Plain, Store

NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
MAY_CHANGE = ("tolerations", "schedulingGates", "activeDeadlineSeconds", "terminationGracePeriodSeconds")
"""Of a pod's spec, beside images; and, as long as it is gated, where it may run."""
WHILE_GATED = ("nodeSelector", "affinity")
OVER = ("Succeeded", "Failed")
DEFAULTS: Object = {
    "schedulerName": "default-scheduler", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst", "enableServiceLinks": True, "securityContext": {},
}  # fmt: skip
OF_CONTAINERS = {"imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
                 "terminationMessagePolicy": "File"}  # fmt: skip


class Pods(Plain):
    """Defaults, what never changes, and deletion in the kubelet's hands once a pod is bound."""

    def create(self, one: Object, store: Store) -> None:
        spec = one.setdefault("spec", {})
        for field, value in DEFAULTS.items():
            spec.setdefault(field, value)
        _use_class(one, store)
        for container in _containers(spec):
            for field, text in OF_CONTAINERS.items():
                container.setdefault(field, text)
            resources = container.setdefault("resources", {})
            if "limits" in resources:
                resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
        tolerations = spec.setdefault("tolerations", [])
        for key in NOT_READY:
            if not any(t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        if causes := [*_problems(spec)]:
            raise invalid_for("Pod", one["metadata"]["name"], causes)
        one["status"] = {"phase": "Pending", "qosClass": _quality(spec)}
        if spec.get("schedulingGates"):
            set_condition(one, "PodScheduled", "False", "SchedulingGated", "Scheduling is blocked due to non-empty "
                          "scheduling gates", store.now())  # fmt: skip

    def update(self, one: Object, old: Object, store: Store) -> None:
        name, gated = one["metadata"]["name"], old["spec"].get("schedulingGates", ())
        may_change = (*MAY_CHANGE, *(WHILE_GATED if gated else ()))
        for field in {**old["spec"], **one["spec"]}:
            if field in may_change or one["spec"].get(field) == old["spec"].get(field):
                continue
            if not field.lower().endswith("containers") or _but_images(one, field) != _but_images(old, field):
                raise invalid("Pod", name, "spec", f"Forbidden: pod updates may not change fields other than {field}")
        if any(gate not in gated for gate in one["spec"].get("schedulingGates") or ()):
            raise invalid("Pod", name, "spec.schedulingGates", "Forbidden: only deletion is allowed")

    def gone_at_once(self, one: Object) -> bool:
        return not one["spec"].get("nodeName") or one["status"].get("phase") in OVER


def set_condition(one: Object, kind: str, status: str, reason: str, message: str, now: str) -> None:
    """Set a condition; its time of transition changes with its status alone. Empty texts are left out."""
    conditions = one.setdefault("status", {}).setdefault("conditions", [])
    found = next((c for c in conditions if c["type"] == kind), None)
    if found is None:
        found = {"type": kind}
        conditions.append(found)
    if found.get("status") != status:
        found["lastTransitionTime"] = now
    found["status"] = status
    for field, text in (("reason", reason), ("message", message)):
        found.pop(field, None)
        if text:
            found[field] = text


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _but_images(one: Object, field: str) -> list[Object]:
    return [{**box, "image": ""} for box in one["spec"].get(field) or ()]


def _use_class(pod: Object, store: Store) -> None:
    """Give a pod the priority of its class, or the default one. Raises: Refused (403), as of an admission plugin."""
    spec, classes = pod["spec"], store.all_of("priorityclasses")
    if name := spec.get("priorityClassName"):
        found = classes.get(("", name))
        if found is None:
            raise _forbidden(pod, f"no PriorityClass with name {name} was found")
    else:
        found = next((c for c in classes.values() if c.get("globalDefault")), {})
    computed: Object = {"priority": int(found.get("value", 0))}
    if found:
        computed["preemptionPolicy"] = found.get("preemptionPolicy") or "PreemptLowerPriority"
    for field, value in computed.items():
        if spec.get(field, value) != value:
            why = f"the value of {field} ({spec[field]}) must not be provided in pod spec; computed {value}"
            raise _forbidden(pod, why)
    spec.update(computed)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _forbidden(pod: Object, why: str) -> Refused:
    name = pod["metadata"]["name"]
    return Refused(403, "Forbidden", f'pods "{name}" is forbidden: {why}', name=name, kind="pods")


def _quality(spec: Object) -> str:
    """Return the class of service. Source: pkg/apis/core/v1/helper/qos of Kubernetes, for cpu and memory."""
    asked = [box.get("resources", {}) for box in _containers(spec)]
    pairs = [
        (of.get("requests", {}).get(name), of.get("limits", {}).get(name)) for of in asked for name in ("cpu", "memory")
    ]
    if not any(one for pair in pairs for one in pair):
        return "BestEffort"
    return "Guaranteed" if all(limit and request == limit for request, limit in pairs) else "Burstable"


def _problems(spec: Object) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield Cause("FieldValueRequired", "Required value", "spec.containers")
    for field in ("containers", "initContainers"):
        for at, box in enumerate(spec.get(field) or ()):
            yield from _container_problems(box, f"spec.{field}[{at}]")
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        text = f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always", "OnFailure", "Never"'
        yield Cause("FieldValueNotSupported", text, "spec.restartPolicy")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "Forbidden: cannot be set until all schedulingGates have been cleared"
        yield Cause("FieldValueForbidden", text, "spec.nodeName")


def _container_problems(box: Object, path: str) -> Iterator[Cause]:
    for field in ("name", "image"):
        if not box.get(field):
            yield Cause("FieldValueRequired", "Required value", f"{path}.{field}")
    requests: Any = box["resources"].get("requests") or {}
    limits: Any = box["resources"].get("limits") or {}
    for name, amount in requests.items():
        if "/" in name and str(limits.get(name, "")) != str(amount):
            text = f'Invalid value: "{amount}": must be equal to {name} limit of {limits.get(name, 0)}'
            yield Cause("FieldValueInvalid", text, f"{path}.resources.requests")
