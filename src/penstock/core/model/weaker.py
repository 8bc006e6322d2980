"""What nodes that an engine brings cannot promise, unlike those of Penstock's own agents: one list for each engine."""

import msgspec

from penstock.core.model.nodes import NodeSpec


class NotPromised(msgspec.Struct, frozen=True):
    """One promise that does not hold on a node, or not in full."""

    name: str
    text: str


LENT, PASSED, SHADOW = "slurm", "slurm-passed", "slurm-shadow"
KUBERNETES, KUBERNETES_SHADOW, RAY = "kubernetes", "kubernetes-shadow", "ray"
_WATCHED = NotPromised("everything", "it is only watched: another scheduler starts, stops and limits what runs there")
_AWAY = NotPromised("last output", "what of an output has not reached the server when the node is lost is gone with it")
NOT_PROMISED: dict[str, tuple[NotPromised, ...]] = {
    "": (),
    RAY: (
        NotPromised("exclusive use", "Ray enforces nothing: programs of its other users may use more than they ask"),
        NotPromised("isolation of users", "whoever may use the Ray cluster runs programs as its user, beside all jobs"),
        NotPromised("jobs outlive Ray", "where Ray ends what its container or resource isolation holds, jobs end, too"),
        NotPromised("growth", "the autoscaler has one request for the whole cluster: others' overwrite Penstock's"),
    ),
    LENT: (
        NotPromised("memory of a job", "what takes gigabytes in half a second may reach the allocation's limit first"),
        NotPromised("CPUs of a job", "jobs share those of the allocation: Slurm limits all of them together"),
        NotPromised("isolation of users", "all jobs run as the server's account"),
        NotPromised("time", "the node goes when its allocation ends; its jobs are asked to save before, and move"),
    ),
    PASSED: (
        NotPromised("freezing", "a job that is suspended saves and waits instead, and none saves while it runs"),
        NotPromised("measured use", "usage is what was given: nothing is measured on the node"),
        NotPromised("parts of CPUs", "CPUs are whole in Slurm, and so are devices"),
        NotPromised("start", "Slurm's other jobs may come first: what it does not start in 5 minutes waits here again"),
        NotPromised("no process left", "without proctrack/cgroup a program that leaves its session may stay"),
        NotPromised("prepared starts", "snapshots, inputs, images, python, setup and ports are refused at submit"),
    ),
    SHADOW: (_WATCHED,),
    KUBERNETES: (
        NotPromised("prepared starts", "snapshots, inputs, images, python and setup are refused: pods bring their own"),
        NotPromised("limits", "the node's kubelet limits, stops and cleans up pods, as their own specs say"),
    ),
    KUBERNETES_SHADOW: (_WATCHED,),
}
"""By `NodeSpec.engine`. Reasons: docs/ray.md, docs/slurm.md, docs/kubernetes.md, docs/adr/0050 to 0054."""


def not_promised(spec: NodeSpec) -> tuple[NotPromised, ...]:
    """Return what does not hold on a node; of an engine that is not known nothing can be said."""
    return NOT_PROMISED.get(spec.engine, ()) + ((_AWAY,) if spec.at else ())
