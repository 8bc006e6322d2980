"""Planted bugs of the Kubernetes engine, each one that another scheduler had, to prove that the simulator finds it.

They replace functions, as those of `sim/world/planted.py` do. The issue that each is named after stands in its text.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from penstock.control.pods import PodJobs
from penstock.core.model.cluster import OthersLoad
from penstock.engines.kubernetes import asks, binding, budgets, judging, nodes, onnode, placing, selectors, sessions
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.reflector import Reflector
from penstock.engines.kubernetes.devices import kind, writing
from penstock.engines.kubernetes.devices.use import Use
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.engines.kubernetes.gangs.gang import Gang
from penstock.engines.kubernetes.objects.answers import Status
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.volumes import getting, limits, stock, view, volumes
from penstock.sim.world.planted import Bug, Patch, always, plant


def _plain_delete(real: Callable[..., Any]) -> Callable[..., Any]:
    async def evict(binder: Any, pod: Any, *_: Any, **__: Any) -> None:
        meta = pod.metadata
        await binder._note_why(pod, "a plain deletion", evicted=False)
        await binder._client.write("DELETE", binding.PODS.path(meta.namespace, meta.name), None, Status)

    return evict


def _at_once(real: Callable[..., Any]) -> Callable[..., Any]:
    async def suspend(binder: Any, workload: Any, pods: Any, why: str) -> None:
        for pod in pods():
            await binder._note_why(pod, why, evicted=False)
        await binder._set_suspended(workload, suspended=True)

    return suspend


def _by_name(real: Callable[..., Any]) -> Callable[..., Any]:
    def body(*args: Any) -> Any:
        found = real(*args)
        del found["metadata"]["uid"], found["metadata"]["resourceVersion"]
        return found

    return body


def _not_compared(real: Callable[..., Any]) -> Callable[..., Any]:
    def listed(reflector: Any, seen: Any, version: int) -> None:
        real(reflector, seen | reflector.objects.keys(), version)

    return listed


def _without_sidecars(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda pod: real(replace(pod, spec=replace(pod.spec, init_containers=())))


def _ready_at_once(real: Callable[..., Any]) -> Callable[..., Any]:
    async def prepare(*_: Any) -> str:
        return ""

    return prepare


def _given_up_at_once(real: Callable[..., Any]) -> Callable[..., Any]:
    async def bind(binder: Any, pod: Any, node: Any, key: Any, devices: Any, wanted: Any = None) -> str:
        meta = pod.metadata
        body = binding._binding(meta, node, binder.claims(key, devices))
        try:
            await binder._client.write("POST", binding.PODS.path(meta.namespace, meta.name, "binding"), body, Status)
        except KubernetesError as error:
            return str(error)
        return ""

    return bind


def _of_any_version(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda meta: {"uid": meta.uid}


async def _at_once_sure(*_: Any) -> None:
    """Nothing is asked, or waited for."""


def _over_once_asked(real: Any) -> Any:
    return property(lambda pod: pod.leaving or real.fget(pod))


def _never_short(real: Any) -> Any:
    return property(lambda gang: True)


PLANTED_BUGS: dict[str, Bug] = {
    "others_not_counted": Bug(
        "pods of other schedulers are no load (volcano#2700, KAI-Scheduler#1454)",
        (Patch(onnode.OnNode, "_load", always(OthersLoad())), Patch(onnode.OnNode, "short_for", always(""))),
    ),
    "failed_bind_keeps_room": Bug(
        "the server does not hear that a pod could not be bound (YUNIKORN-3128)",
        (Patch(placing.Placing, "_fail", always(None)),),
    ),
    "node_gone_unsaid": Bug(
        "a node that is gone stands for ever, and its gang stays in part (volcano#5805)",
        (Patch(sessions.Nodes, "gone", always(None)),),
    ),
    "lost_answer_is_a_refusal": Bug(
        "a Binding whose answer is lost counts as refused",
        (Patch(binding.Binder, "bind", _given_up_at_once),),
    ),
    "list_not_compared": Bug(
        "what is gone when everything is listed anew is not noticed (kopf#698)",
        (Patch(Reflector, "_listed", _not_compared),),
    ),
    "leaving_pods_not_counted": Bug(
        "pods that are being deleted are no load, though they run still",
        (Patch(Pod, "over", _over_once_asked),),
    ),
    "sidecars_not_counted": Bug(
        "init containers that go on running are no load (KAI-Scheduler#1556)",
        (Patch(asks, "pod_sums", _without_sidecars), Patch(judging, "pod_sums", _without_sidecars)),
    ),
    "budgets_ignored": Bug(
        "pods are deleted, whatever PodDisruptionBudgets say (volcano#2947, KAI-Scheduler#1579)",
        (Patch(binding.Binder, "_evict", _plain_delete), Patch(budgets.Budgets, "_why", always(""))),
    ),
    "suspended_at_once": Bug(
        "workloads are suspended, whatever the budgets of their pods say (kubernetes#91492)",
        (Patch(binding.Binder, "suspend", _at_once), Patch(budgets.Budgets, "_why", always(""))),
    ),
    "bound_by_name": Bug(
        "a Binding names its pod, and binds the next pod of that name as well (kubernetes#105261)",
        (Patch(binding, "_binding", _by_name),),
    ),
    "forgotten_in_a_restart": Bug(
        "gangs that were placed before a restart are not taken over",
        (Patch(KubernetesEngine, "_adopt", always(None)),),
    ),
    "cordon_ignored": Bug(
        "a node is shut after the plan, and a pod is bound to it all the same",
        (Patch(nodes, "taints_of", always(())),),
    ),
    "others_rules_ignored": Bug(
        "rules of pods about others keep nobody off",
        (Patch(selectors.Selectors, "use", always(())),),
    ),
    "bound_without_claims": Bug(
        "a pod is bound before its claims are allocated and reserved (volcano#5119)",
        (Patch(kind.DeviceClaims, "prepare", _ready_at_once),),
    ),
    "devices_given_twice": Bug(
        "a device that a claim has counts as free (kubernetes#136269)",
        (Patch(Use, "taken", always(False)), Patch(Use, "touched", always(False))),
    ),
    "written_unasked": Bug(
        "a leader that was replaced, and does not know it, goes on to write",
        (Patch(PodJobs, "leads", lambda _: _at_once_sure),),
    ),
    "former_bindings_not_fenced": Bug(
        "a Binding of a former leader that is on its way counts as never sent",
        (Patch(binding.Binder, "fence", lambda _: _at_once_sure),),
    ),
    "claims_of_any_version": Bug(
        "a claim is written without the version that was decided about",
        (Patch(writing, "as_known", _of_any_version),),
    ),
    "gangs_in_part": Bug(
        "a gang is placed before all its pods are there",
        (Patch(Gang, "complete", _never_short),),
    ),
    "volumes_anywhere": Bug(
        "a pod is placed, and its volume made, wherever there is room for the pod",
        (
            Patch(stock, "reach_of", always(())),
            Patch(view, "reach_of", always(())),
            Patch(volumes, "reach_of", always(())),
            Patch(getting, "reaches", always(True)),
            Patch(stock, "reaches", always(True)),
        ),
    ),
    "claims_not_waited_for": Bug(
        "a pod is bound before its claims have their volumes",
        (Patch(volumes.Volumes, "prepare", _ready_at_once),),
    ),
    "attachments_not_counted": Bug(
        "nodes get more volumes than their drivers can attach",
        (Patch(limits.Limits, "full", always("")), Patch(limits.Limits, "amount_of", always(""))),
    ),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one bug while the context lasts. Raises: ValueError where there is no bug of this name."""
    bug = PLANTED_BUGS.get(name)
    if bug is None:
        raise ValueError(f"no planted bug named {name}; known: {sorted(PLANTED_BUGS)}")
    with plant(bug):
        yield
