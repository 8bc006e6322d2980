"""What the server may do in the cluster: each rule is used, and nothing else is. No wildcards, no secrets, no deletes.

Reading and starting workloads is a role of its own for each integration: a cluster that wants none of it leaves it out.
"""

from typing import Any, NamedTuple

FOLLOW = ("list", "watch")


class Rule(NamedTuple):
    """Verbs on resources of one group."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Of the only objects that it is about; none: all. Lists and watches have to select by such a name."""

    def body(self) -> dict[str, Any]:
        named = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs), **named}


ROLES: dict[str, tuple[Rule, ...]] = {
    "penstock-scheduler": (
        Rule("", ("nodes", "namespaces"), FOLLOW),
        Rule("", ("pods",), ("get", "list", "watch", "patch")),
        Rule("", ("pods/binding", "pods/eviction"), ("create",)),
        Rule("", ("pods/status",), ("patch",)),
        Rule("events.k8s.io", ("events",), ("create",)),
        Rule("policy", ("poddisruptionbudgets",), FOLLOW),
        Rule("scheduling.k8s.io", ("priorityclasses", "podgroups"), FOLLOW),
        Rule("scheduling.x-k8s.io", ("podgroups",), FOLLOW),
        Rule("scheduling.volcano.sh", ("podgroups",), FOLLOW),
    ),
    "penstock-volumes": (
        Rule("", ("persistentvolumeclaims", "persistentvolumes"), ("list", "watch", "patch")),
        Rule("storage.k8s.io", ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities"), FOLLOW),
    ),
    "penstock-jobs": (Rule("batch", ("jobs",), ("list", "watch", "patch")),),
    "penstock-jobsets": (Rule("jobset.x-k8s.io", ("jobsets",), ("list", "watch", "patch")),),
    "penstock-trainjobs": (Rule("trainer.kubeflow.org", ("trainjobs",), ("list", "watch", "patch")),),
    "penstock-elasticjobs": (
        Rule("penstock.dev", ("elasticjobs",), FOLLOW),
        Rule("penstock.dev", ("elasticjobs/status",), ("patch",)),
        Rule("", ("pods",), ("create", "delete")),
        Rule("", ("services",), ("get", "create")),
    ),
    "penstock-queues": (
        Rule("penstock.dev", ("queues", "computepools"), FOLLOW),
        Rule("penstock.dev", ("queues/status", "computepools/status"), ("patch",)),
    ),
    "penstock-devices": (
        Rule(
            "resource.k8s.io",
            ("resourceclaimtemplates", "resourceslices", "deviceclasses", "devicetaintrules"),
            FOLLOW,
        ),
        Rule("resource.k8s.io", ("devicetaintrules",), ("create", "delete")),
        Rule("resource.k8s.io", ("resourceclaims",), ("get", "list", "watch", "create", "patch")),
        Rule("resource.k8s.io", ("resourceclaims/status", "resourceclaims/binding"), ("patch",)),
    ),
    "penstock-ray": (Rule("ray.io", ("rayclusters", "rayjobs"), ("list", "watch", "patch")),),
}
"""Cluster roles of the server, by name."""
SHADOW: dict[str, tuple[Rule, ...]] = {
    "penstock-shadow": (
        Rule("", ("nodes", "namespaces", "pods"), FOLLOW),
        Rule("policy", ("poddisruptionbudgets",), FOLLOW),
        Rule("scheduling.k8s.io", ("priorityclasses", "podgroups"), FOLLOW),
        Rule("scheduling.x-k8s.io", ("podgroups",), FOLLOW),
        Rule("scheduling.volcano.sh", ("podgroups",), FOLLOW),
        Rule("batch", ("jobs",), FOLLOW),
        Rule("jobset.x-k8s.io", ("jobsets",), FOLLOW),
        Rule("trainer.kubeflow.org", ("trainjobs",), FOLLOW),
        Rule("ray.io", ("rayclusters", "rayjobs"), FOLLOW),
        Rule("kueue.x-k8s.io", ("localqueues", "workloads"), FOLLOW),
    ),
}
"""The only cluster role of a server that watches other schedulers."""


def own_roles(queue_config: str) -> dict[str, tuple[Rule, ...]]:
    """Return the roles of the server in its own namespace, by name. Args: queue_config: the ConfigMap with queues."""
    return {"penstock-queue-config": (Rule("", ("configmaps",), FOLLOW, (queue_config,)),)}
