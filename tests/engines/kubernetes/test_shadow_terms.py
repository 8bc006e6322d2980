"""Which pods are work in a shadow, and what their scheduler says of them."""

import msgspec
import pytest

from penstock.engines.kubernetes.asks import ask_of
from penstock.engines.kubernetes.gangs.gang import Gang, Slot
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.shadow.terms import in_slots, is_work, said_by


def pod(meta=None, limits=None, conditions=(), **spec):
    box = {"name": "main", "resources": {"limits": limits or {"cpu": "1"}}}
    body = {"metadata": {"name": "a", **(meta or {})}, "spec": {"containers": [box], **spec}}
    return msgspec.convert({**body, "status": {"conditions": list(conditions)}}, Pod)


def owner(kind):
    return {"ownerReferences": [{"kind": kind, "name": "o", "uid": "u", "controller": True}]}


@pytest.mark.parametrize("one", [pod(), pod(owner("ReplicaSet")), pod(schedulerName="volcano")])
def test_pods_of_every_scheduler_are_work(one):
    assert is_work(one)


@pytest.mark.parametrize(
    "one",
    [
        pod(owner("DaemonSet")),
        pod({"annotations": {"kubernetes.io/config.mirror": "1"}}),
        pod(resourceClaims=[{"name": "gpu"}]),
        pod(limits={"nvidia.com/gpu": "1", "amd.com/gpu": "1"}),
        pod(limits={"cpu": "many"}),
        pod(schedulingGates=[{"name": "example.com/wait"}]),
    ],
    ids=["daemon", "static", "claim", "two vendors", "no amount", "gate"],
)
def test_what_no_scheduler_is_to_place_or_no_job_can_be_is_load(one):
    assert not is_work(one)


def test_a_pod_behind_the_gate_of_kueue_waits_for_it():
    assert is_work(pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]))


def test_the_words_of_the_scheduler_are_those_of_the_condition():
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    assert said_by(pod(conditions=[refused], schedulerName="volcano")) == "volcano: 0/1 nodes"
    assert said_by(pod(conditions=[{**refused, "message": ""}])) == "default-scheduler: Unschedulable"
    assert said_by(pod(conditions=[{**refused, "status": "True"}])) == ""


def test_each_slot_gets_a_pod_that_asks_for_the_same_and_each_pod_is_asked_once():
    pods = [pod({"name": f"w-{n}"}, limits={"cpu": str(1 + n % 2)}) for n in range(6)]
    asked: list[str] = []

    def asks(one):
        asked.append(one.metadata.name)
        return ask_of(one)

    slots = [Slot(ask_of(pods[0])) for _ in range(3)] + [Slot(ask_of(pods[1])) for _ in range(3)]
    slots[1].pod = "w-4"
    found = in_slots(Gang("default", "g", slots=slots), reversed(pods), asks)
    assert [one.metadata.name for one in found or ()] == ["w-0", "w-4", "w-2", "w-1", "w-3", "w-5"]
    assert len(asked) == 6
    assert in_slots(Gang("default", "g", slots=slots), [pods[0], *pods[2:], pods[0]], asks) is None
