"""Which pods are work in a shadow, and what their scheduler says of them."""

import msgspec
import pytest

from penstock.engines.kubernetes.asks import ask_of
from penstock.engines.kubernetes.gangs.gang import Gang, Slot, order_of
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.shadow import asked
from penstock.engines.kubernetes.shadow.asked import Asked
from penstock.engines.kubernetes.shadow.terms import in_slots, is_work, kinds_of, said_by


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


def test_each_slot_gets_a_pod_that_asks_for_the_same_and_each_pod_is_looked_at_once():
    pods = [pod({"name": f"w-{n}"}, limits={"cpu": str(1 + n % 2)}) for n in range(6)]
    looked: list[str] = []

    def kinds(one):
        looked.append(one.metadata.name)
        return kinds_of(one, ask_of(one))

    slots = [Slot(ask_of(pods[0])) for _ in range(3)] + [Slot(ask_of(pods[1])) for _ in range(3)]
    slots[1].pod = "w-4"
    found = in_slots(Gang("default", "g", slots=slots), reversed(pods), kinds)
    assert [one.metadata.name for one in found or ()] == ["w-0", "w-4", "w-2", "w-1", "w-3", "w-5"]
    assert len(looked) == 6
    assert in_slots(Gang("default", "g", slots=slots), [pods[0], *pods[2:], pods[0]], kinds) is None


def team(size=3):
    """Return a gang with a slot for each of its pods, what is known of it, and whose asks were worked out."""
    asks: list[str] = []

    def asked_of(_, one):
        asks.append(one.metadata.name)
        return ask_of(one)

    gang, known = Gang("default", "g"), Asked(asked_of)
    for i in range(size):
        join(known, gang, pod({"name": f"w-{i}"}))
    gang.slots = [Slot(ask_of(one)) for one in gang.members.values()]
    return gang, known, asks


def join(known, gang, one):
    known.put(gang, one)
    gang.members[one.metadata.name] = one


def test_a_gang_that_waits_is_looked_at_once_while_nothing_changes_that_its_pods_ask_for(monkeypatch):
    """For 10,000 pods it took a second in each turn in which the scheduler of one of them had said something."""
    gang, known, asks = team()
    looks: list[int] = []
    monkeypatch.setattr(asked, "in_slots", lambda *what: looks.append(1) or in_slots(*what))
    monkeypatch.setattr(asked, "order_of", lambda one: asks.append("ordered") or order_of(one))
    del asks[:]
    for i in range(20):
        join(known, gang, pod({"name": f"w-{i % 3}"}, conditions=[{"type": "PodScheduled", "status": "False"}]))
        assert known.fits(gang)
        assert known.lead_of(gang) is gang.members["w-0"]
    assert looks == [1]
    assert [name for name in asks if name != "ordered"] == [f"w-{i % 3}" for i in range(20)], "each new version alone"
    assert asks.count("ordered") == 3


CHANGES = [
    ("another ask", lambda known, gang: join(known, gang, pod({"name": "w-1"}, limits={"cpu": "7"}))),
    ("one less", lambda known, gang: known.take(gang, gang.members.pop("w-1"))),
    ("other slots", lambda known, gang: setattr(gang, "slots", [Slot(ask_of(pod(limits={"cpu": "7"})))])),
]


@pytest.mark.parametrize("change", [row[1] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_a_gang_is_looked_at_again_once_its_pods_may_fit_its_slots_no_more(change):
    gang, known, _ = team()
    assert known.fits(gang)
    change(known, gang)
    assert not known.fits(gang)


def test_the_pod_that_speaks_for_a_gang_is_the_first_that_stays():
    gang, known, _ = team()
    assert known.lead_of(gang).metadata.name == "w-0"
    join(known, gang, pod({"name": "w-0", "deletionTimestamp": "2026-11-25T12:00:00Z"}))
    assert known.lead_of(gang).metadata.name == "w-1"
    known.take(gang, gang.members.pop("w-1"))
    assert known.lead_of(gang).metadata.name == "w-2"
