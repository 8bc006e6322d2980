"""What keeps others from going round the quota: admission policies in CEL, no webhook.

They hold in namespaces with the label `penstock.dev/managed: "true"` and from Kubernetes 1.30 on.
"""

from typing import Any

from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.names import (
    CLUSTER_ANNOTATION,
    DEVICES_ANNOTATION,
    QUEUE_LABEL,
    REPLICA_ANNOTATION,
)

MANAGED_LABEL = "penstock.dev/managed"
_GROUP = "admissionregistration.k8s.io"
_NODES = "request.userInfo.username.startsWith('system:node:')"


def policies(account: str) -> list[dict[str, Any]]:
    """Return the policies with their bindings; `account` is the user name of the server's service account."""
    us = f"request.userInfo.username == '{account}'"
    claims = [REPLICA_ANNOTATION, DEVICES_ANNOTATION, CLUSTER_ANNOTATION]
    pods = [
        (
            f"object.spec.schedulerName == '{SCHEDULER}' || {_daemon('object')}",
            f"in this namespace pods are placed by Penstock: set schedulerName to {SCHEDULER}",
        ),
        (
            f"!has(object.spec.nodeName) || {_daemon('object')} || {_NODES}",
            "in this namespace no pod may name its node: that goes round the quota of its queue",
        ),
        (
            f"!has(object.metadata.annotations) || !{claims}.exists(n, n in object.metadata.annotations)",
            "the annotations of a placed pod are written by Penstock alone",
        ),
    ]
    changed = [
        (
            f"{us} || {_same('object', 'oldObject', claims)}",
            "the annotations of a placed pod are written by Penstock alone",
        )
    ]
    queue = f"has(object.metadata.labels) && '{QUEUE_LABEL}' in object.metadata.labels"
    jobs = [
        (
            f"!({queue}) || (has(object.spec.suspend) && object.spec.suspend) || {us}",
            "a Job with a queue is created suspended, and started by Penstock: set spec.suspend to true",
        )
    ]
    waits = "has({0}.spec.suspend) && {0}.spec.suspend"
    left_alone = f"!({waits.format('oldObject')}) || ({waits.format('object')})"
    started = [
        (
            f"!({queue}) || {us} || {left_alone}",
            "a Job with a queue is started by Penstock when its turn has come",
        )
    ]
    theirs = "request.userInfo.username == 'system:kube-scheduler'"  # pods of DaemonSets, which name it
    bindings = [(f"{us} || {theirs}", "pods of this namespace are bound by Penstock alone")]
    return [
        *_policy("penstock-pods", "", "pods", ("CREATE",), pods),
        *_policy("penstock-pods-changed", "", "pods", ("UPDATE",), changed),
        *_policy("penstock-bindings", "", "pods/binding", ("CREATE",), bindings),
        *_policy("penstock-jobs", "batch", "jobs", ("CREATE",), jobs),
        *_policy("penstock-jobs-started", "batch", "jobs", ("UPDATE",), started),
    ]


def _daemon(one: str) -> str:
    owners = f"{one}.metadata.ownerReferences"
    return f"(has({owners}) && {owners}.exists(o, o.kind == 'DaemonSet' && o.apiVersion == 'apps/v1'))"


def _same(one: str, other: str, names: list[str]) -> str:
    parts = []
    for name in names:
        values = [
            f"(has({which}.metadata.annotations) && '{name}' in {which}.metadata.annotations"
            f" ? {which}.metadata.annotations['{name}'] : '')"
            for which in (one, other)
        ]
        parts.append(" == ".join(values))
    return f"({' && '.join(parts)})"


def _policy(
    name: str, group: str, resource: str, operations: tuple[str, ...], checks: list[tuple[str, str]]
) -> list[dict[str, Any]]:
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": list(operations), "resources": [resource]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": cel, "message": text} for cel, text in checks],
    }
    where = {"namespaceSelector": {"matchLabels": {MANAGED_LABEL: "true"}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    return [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": spec,
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": binding,
        },
    ]
