"""How pods say that they are a gang: what each dialect means, and which comes first."""

from typing import Any

import msgspec
import pytest

from penstock.engines.kubernetes.gangs.dialects import NotYet, gang_of, queue_said
from penstock.engines.kubernetes.gangs.gang import Facts
from penstock.engines.kubernetes.gangs.workloads import JOB_SETS, JOBS, PodSet, Workload
from penstock.engines.kubernetes.objects.groups import PodGroup
from penstock.engines.kubernetes.objects.pods import Pod


def pod(labels: Any = None, annotations: Any = None, **spec: Any) -> Pod:
    meta = {"name": "p-1", "namespace": "ns", "labels": labels or {}, "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


class Cluster:
    """What is known of the cluster: groups by kind and name, one workload, one priority class."""

    def __init__(self, groups: Any = None, workload: Workload | None = None, *, queued: bool = False) -> None:
        self._groups, self._workload, self._queued = groups or {}, workload, queued

    def pod_group(self, kind: str, namespace: str, name: str) -> PodGroup | None:
        spec = self._groups.get((kind, name)) if namespace == "ns" else None
        return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PodGroup) if spec is not None else None

    def workload_of(self, pod: Pod) -> Workload | None:
        return self._workload

    def started_here(self, workload: Workload) -> bool:
        return self._queued

    def priority_of(self, name: str) -> int | None:
        return {"high": 900}.get(name)


OURS = {"penstock.dev/gang": "g", "penstock.dev/gang-size": "3"}
KAI = {"pod-group-name": "g", "kai.scheduler/batch-min-member": "4"}
KUEUE = {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/pod-group-total-count": "5"}
LWS = {"leaderworkerset.sigs.k8s.io/name": "g", "leaderworkerset.sigs.k8s.io/size": "6"}
TASKS = '[{"name": "head"}, {"name": "work", "minMember": 6}]'
YUNIKORN = {"applicationId": "g", "yunikorn.apache.org/task-group-name": "work"}
NATIVE = {"schedulingGroup": {"podGroupName": "g"}}
GANG = {"schedulingPolicy": {"gang": {"minCount": 7}}}


@pytest.mark.parametrize(
    ("one", "known", "name", "facts"),
    [
        (pod(), Cluster(), "pod/p-1", Facts()),
        (pod(OURS), Cluster(), "gang/g", Facts(3)),
        (pod(annotations=OURS), Cluster(), "gang/g", Facts(3)),
        (pod(KAI), Cluster(), "kai/g", Facts(4)),
        (pod({**KAI, "kai.scheduler/queue": "q"}), Cluster(), "kai/g", Facts(4, "q")),
        (pod({"pod-group-name": "g"}), Cluster(), "pod/p-1", Facts()),
        (pod(KAI, {"kai.scheduler/topology-required-placement": "rack"}), Cluster(), "kai/g", Facts(4, near="rack")),
        (pod(KUEUE), Cluster(), "kueue/g", Facts(5)),
        (pod({**KUEUE, "kueue.x-k8s.io/queue-name": "q"}), Cluster(), "kueue/g", Facts(5, "q")),
        (pod(KUEUE, {"kueue.x-k8s.io/podset-required-topology": "z"}), Cluster(), "kueue/g", Facts(5, near="z")),
        (pod(LWS), Cluster(), "leaderworkerset/g-0", Facts(6)),
        (pod({**LWS, "leaderworkerset.sigs.k8s.io/group-index": "2"}), Cluster(), "leaderworkerset/g-2", Facts(6)),
        (pod(YUNIKORN, {"yunikorn.apache.org/task-groups": TASKS}), Cluster(), "yunikorn/g", Facts(7)),
        (
            pod({**YUNIKORN, "queue": "root.q"}, {"yunikorn.apache.org/task-groups": TASKS}),
            Cluster(), "yunikorn/g", Facts(7, "root.q"),
        ),
        (pod({"applicationId": "g"}), Cluster(), "pod/p-1", Facts()),
        (pod(**NATIVE), Cluster({("native", "g"): GANG}), "podgroup/g", Facts(7)),
        (pod(**NATIVE), Cluster({("native", "g"): {**GANG, "priority": 5}}), "podgroup/g", Facts(7, priority=5)),
        (
            pod(**NATIVE),
            Cluster({("native", "g"): {**GANG, "schedulingConstraints": {"topology": [{"key": "rack"}]}}}),
            "podgroup/g", Facts(7, near="rack"),
        ),
        (pod(**NATIVE), Cluster({("native", "g"): {"schedulingPolicy": {"basic": {}}}}), "pod/p-1", Facts()),
        (
            pod({"scheduling.x-k8s.io/pod-group": "g"}),
            Cluster({("coscheduling", "g"): {"minMember": 8}}), "coscheduling/g", Facts(8),
        ),
        (pod({"scheduling.x-k8s.io/pod-group": "g"}), Cluster({("coscheduling", "g"): {}}), "coscheduling/g", Facts()),
        (
            pod(annotations={"scheduling.k8s.io/group-name": "g"}),
            Cluster({("volcano", "g"): {"minMember": 9, "queue": "q", "priorityClassName": "high"}}),
            "volcano/g", Facts(9, "q", 900),
        ),
        (
            pod({"volcano.sh/queue-name": "own"}, {"scheduling.k8s.io/group-name": "g"}),
            Cluster({("volcano", "g"): {"minMember": 9, "queue": "q"}}), "volcano/g", Facts(9, "own"),
        ),
        (pod({**KAI, **OURS, **KUEUE}, **NATIVE), Cluster(), "gang/g", Facts(3)),
        (pod(KAI, **NATIVE), Cluster({("native", "g"): GANG}), "podgroup/g", Facts(7)),
        (pod({**KAI, **KUEUE}), Cluster(), "kai/g", Facts(4)),
    ],
    ids=[
        "nothing", "ours", "ours by annotations", "kai", "kai queue", "kai without a size", "kai topology", "kueue",
        "kueue queue", "kueue topology", "lws", "lws of several", "yunikorn", "yunikorn queue", "yunikorn alone",
        "native", "native priority", "native topology", "basic", "coscheduling", "coscheduling without a size",
        "volcano", "volcano queue of the pod", "ours first", "native before kai", "kai before kueue",
    ],
)  # fmt: skip
def test_a_pod_is_of_the_gang_that_it_names(one: Pod, known: Cluster, name: str, facts: Facts) -> None:
    assert gang_of(one, known) == (("ns", name), facts)


def workload(kind: Any, size: int) -> Workload:
    return Workload(kind, "ns", "w", "u", {}, (PodSet(size, pod()),), suspended=False, over=False)


@pytest.mark.parametrize(
    ("made", "queued", "name", "facts"),
    [
        (workload(JOBS, 4), True, "job/w", Facts(4)),
        (workload(JOBS, 4), False, "pod/p-1", Facts()),
        (workload(JOB_SETS, 4), False, "jobset/w", Facts(4)),
        (workload(JOBS, 0), True, "job/w", Facts(1)),
    ],
    ids=["a job with a queue", "a job without", "a job set without", "the last of its job has ended"],
)
def test_a_pod_is_of_the_gang_of_its_workload(made: Workload, queued: bool, name: str, facts: Facts) -> None:
    assert gang_of(pod(KAI if queued else {}), Cluster(workload=made, queued=queued)) == (("ns", name), facts)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (pod(**NATIVE), "PodGroup g does not exist yet"),
        (pod({"scheduling.x-k8s.io/pod-group": "g"}), "PodGroup g (scheduling.x-k8s.io) does not exist yet"),
        (
            pod(annotations={"scheduling.k8s.io/group-name": "g"}),
            "PodGroup g (scheduling.volcano.sh) does not exist yet",
        ),
        (pod(YUNIKORN), "no pod of application g has named its task groups yet"),
    ],
)
def test_a_pod_waits_for_the_object_that_says_what_its_gang_is(one: Pod, text: str) -> None:
    with pytest.raises(NotYet) as caught:
        gang_of(one, Cluster())
    assert str(caught.value) == text


@pytest.mark.parametrize("size", ["", "0", "-1", "1.5", "many", "10001"])
def test_a_size_is_a_number_of_pods(size: str) -> None:
    with pytest.raises(ValueError, match=f"penstock.dev/gang-size is '{size}', expected a number from 1 to 10,000"):
        gang_of(pod({**OURS, "penstock.dev/gang-size": size}), Cluster())


def test_the_largest_gang_is_allowed() -> None:
    assert gang_of(pod({**OURS, "penstock.dev/gang-size": "10000"}), Cluster())[1] == Facts(10_000)


def test_groups_are_looked_for_in_the_namespace_of_the_pod() -> None:
    elsewhere = msgspec.convert({"metadata": {"name": "p", "namespace": "other"}, "spec": NATIVE}, Pod)
    with pytest.raises(NotYet):
        gang_of(elsewhere, Cluster({("native", "g"): GANG}))


@pytest.mark.parametrize(
    ("labels", "annotations", "queue"),
    [
        ({}, {}, ""),
        ({"penstock.dev/queue": "a", "kai.scheduler/queue": "b"}, {}, "a"),
        ({"volcano.sh/queue-name": "c"}, {}, "c"),
        ({"kai.scheduler/queue": "b"}, {}, "b"),
        ({}, {"penstock.dev/queue": "d"}, "d"),
    ],
)
def test_a_pod_names_its_queue_in_any_dialect(labels: Any, annotations: Any, queue: str) -> None:
    assert queue_said(pod(labels, annotations)) == queue
