"""What people and autoscalers read: why a pod is not placed, with numbers, once, and no longer than it is so."""

from typing import Any
from unittest import mock

import pytest

from penstock.core.model.cluster import Queue
from penstock.core.model.ids import QueueName
from penstock.engines.kubernetes import saying, selectors
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.scenes import Scene, box, in_scene, scene

DEFAULT, SMALL = Queue(QueueName("default")), Queue(QueueName("small"), max=(("devices", 1000),))


def condition(c: Scene, name: str) -> dict[str, Any]:
    """Return the PodScheduled condition of a pod; empty where it has none."""
    conditions = c.get(name)["status"].get("conditions", ())
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


def writes(c: Scene, name: str) -> int:
    return c.requests("PATCH", f"{name}/status")


@in_scene("n1")
async def test_a_pod_without_room_is_unschedulable_with_numbers(c: Scene) -> None:
    """Autoscalers act on this reason; ours says how much is missing, too."""
    c.theirs("theirs", gpus=3)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 3)
    c.pod("large", gpus=2)
    await c.waits("large")
    found = condition(c, "large")
    assert (found["status"], found["reason"]) == ("False", "Unschedulable")
    assert "needs 1 x 2 devices; 1 free in all" in found["message"]


@in_scene(allow_waiting_for_nodes=True)
async def test_a_pod_that_waits_for_an_extended_resource_names_it(c: Scene) -> None:
    """AI conformance, cluster autoscaling: the message contains the name of the resource."""
    c.node("n1")
    c.change("/nodes", "n1", {"status": {"allocatable": {"example.com/fpga": "1"}}}, part="status")
    await until(lambda: c.ready() and c.state.nodes["n1"].spec.capacity.extended != ())
    for name in ("first", "second"):
        c.pod(name, containers=[box(0, **{"example.com/fpga": "1"})])
    await until(lambda: sorted(c.where("first", "second")) == ["", "n1"])
    (late,) = [name for name in ("first", "second") if not c.where(name)[0]]
    await c.waits(late)
    assert "example.com/fpga" in c.says(late)[1]


@in_scene("n1", allow_waiting_for_nodes=True)
async def test_a_pod_that_only_another_node_could_hold_is_unschedulable(c: Scene) -> None:
    """AI conformance, cluster autoscaling from zero, with the setting that lets such work wait; KAI#1615."""
    c.pod("large", gpus=8)
    await c.waits("large")
    c.node("n2")
    more = {"allocatable": {"cpu": "16", "nvidia.com/gpu": "8", "pods": "9"}}
    c.change("/nodes", "n2", {"status": more}, part="status")
    await until(lambda: c.where("large") == ["n2"])


@in_scene("n1", queues=(DEFAULT, SMALL))
async def test_a_reason_changes_with_what_is_in_the_way(c: Scene) -> None:
    """KAI#1615: first its quota, then the lack of room: each under its own reason."""
    labels = {"penstock.dev/queue": "small"}
    c.pod("first", labels=labels)
    await until(lambda: c.where("first") == ["n1"])
    c.pod("second", labels=labels)
    await c.waits("second", reason="QuotaExceeded")
    c.theirs("theirs", gpus=3)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 3)
    c.theirs("more", gpus=1, cpus="0")
    c.ends("first")
    await c.waits("second", reason="Unschedulable")
    c.ends("theirs")
    await until(lambda: c.where("second") == ["n1"])
    assert condition(c, "second")["status"] == "True"


@in_scene("n1")
async def test_what_has_not_changed_is_not_written_again(c: Scene) -> None:
    """A write for each look would be load on the API server, and wake every watch of pods."""
    c.theirs("theirs", gpus=4)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
    c.pod("large", gpus=2)
    await c.waits("large")
    c.pod("other", gpus=1)
    await c.waits("other")
    server = c.at_work._server
    with mock.patch.object(server, "outlooks", side_effect=server.outlooks) as outlooks:
        await until(lambda: outlooks.call_count >= 4)
    assert (writes(c, "large"), writes(c, "other"), len(c.events("large"))) == (1, 1, 1)


@in_scene("n1")
async def test_an_event_says_why_a_gang_waits(c: Scene) -> None:
    """events.k8s.io/v1: once for the gang, about its first pod."""
    c.theirs("theirs", gpus=4)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
    c.gang("team", 2)
    await c.waits("team-0", "team-1")
    (event,) = [*c.events("team-0"), *c.events("team-1")]
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "FailedScheduling", "Scheduling")
    assert event["reportingController"] == "penstock.dev/scheduler"
    about = event["regarding"]
    assert about["uid"] == c.get(about["name"])["metadata"]["uid"]
    assert about["kind"] == "Pod"
    assert c.says(about["name"])[1] == f"{event['note']}; it asks for nvidia.com/gpu 1"


def test_a_text_is_cut_to_what_an_event_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """kueue#12028: a longer message was refused by the API server, and nothing was said."""
    monkeypatch.setattr(saying, "TEXT_MAX", 40)

    async def work() -> None:
        async with scene("n1") as c:
            c.theirs("theirs", gpus=4)
            await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
            c.pod("large", gpus=2)
            await c.waits("large")
            event = await c.explained("large")
            assert (len(c.says("large")[1]), len(event["note"])) == (40, 40)
            c.pod("wrong", labels={"penstock.dev/gang": "x", "penstock.dev/gang-size": "many"})
            await until(lambda: c.says("wrong")[0] == "InvalidGang")
            assert len(c.says("wrong")[1]) == 40

    run(work)


@pytest.mark.parametrize(
    ("labels", "annotations", "text"),
    [
        ({"penstock.dev/gang": "x"}, {}, "penstock.dev/gang-size is '', expected a number from 1 to 10,000"),
        ({"penstock.dev/gang": "x", "penstock.dev/gang-size": "0"}, {}, "penstock.dev/gang-size is '0'"),
        ({"penstock.dev/gang": "x", "penstock.dev/gang-size": "10001"}, {}, "is '10001', expected"),
        ({"pod-group-name": "x", "kai.scheduler/batch-min-member": "-2"}, {}, "batch-min-member is '-2'"),
        ({"kueue.x-k8s.io/pod-group-name": "x"}, {}, "pod-group-total-count is ''"),
        (
            {"applicationId": "x"},
            {"yunikorn.apache.org/task-group-name": "w", "yunikorn.apache.org/task-groups": "{"},
            "yunikorn.apache.org/task-groups is no list of task groups",
        ),
    ],
    ids=["no size", "nobody", "too many", "less than nobody", "kueue without a size", "yunikorn without a list"],
)
def test_a_gang_that_says_what_cannot_be_is_refused(
    labels: dict[str, str], annotations: dict[str, str], text: str
) -> None:
    async def work() -> None:
        async with scene("n1") as c:
            spec = {"schedulerName": "penstock", "containers": [box()]}
            c.make("/pods", "wrong", spec, labels=labels, annotations=annotations)
            await c.waits("wrong", reason="InvalidGang")
            assert text in c.says("wrong")[1]
            assert c.states() == {}

    run(work)


@in_scene("n1")
async def test_a_pod_that_is_corrected_is_placed(c: Scene) -> None:
    """Labels may change while a pod waits."""
    c.pod("one", labels={"penstock.dev/gang": "x", "penstock.dev/gang-size": "many"})
    await c.waits("one", reason="InvalidGang")
    c.change("/pods", "one", {"metadata": {"labels": {"penstock.dev/gang-size": "1"}}})
    await until(lambda: c.where("one") == ["n1"])


@in_scene("n1")
async def test_a_spread_that_cannot_hold_is_said(c: Scene) -> None:
    rule = {"maxSkew": 0, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    c.pod("wrong", topologySpreadConstraints=[rule])
    await c.waits("wrong", reason="Unsupported")
    assert c.says("wrong")[1] == "topologySpreadConstraints: maxSkew 0, expected 1 or more"


def test_a_pod_that_brings_too_many_rules_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each different rule between pods costs at every pod: their number is bounded."""
    monkeypatch.setattr(selectors, "SELECTORS_MAX", 1)

    def apart(app: str) -> dict[str, Any]:
        one = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [one]}}

    async def work() -> None:
        async with scene("n1") as c:
            for name in ("one", "two"):
                c.pod(name, affinity=apart("red"))
            await until(lambda: c.where("one", "two") == ["n1", "n1"])
            c.pod("three", affinity=apart("blue"))
            await c.waits("three", reason="TooManyRules")

    run(work)


@in_scene("n1")
async def test_nothing_is_written_on_pods_of_other_schedulers(c: Scene) -> None:
    """Who waits for another scheduler reads what that one says."""
    c.pod("theirs", gpus=9, schedulerName="default-scheduler")
    c.pod("ours", gpus=9)
    await until(lambda: c.says("ours")[0] != "")
    assert (c.says("theirs"), writes(c, "theirs")) == (("", ""), 0)


@in_scene("n1")
async def test_a_pod_says_what_it_waits_for_only_as_long_as_it_waits(c: Scene) -> None:
    """One that is deleted and made anew says it anew."""
    c.theirs("theirs", gpus=4)
    await until(lambda: len(c.state.nodes["n1"].others.devices) == 4)
    c.pod("large", gpus=2)
    await c.waits("large")
    c.delete("large")
    await until(lambda: c.states() == {})
    c.pod("large", gpus=2)
    assert c.says("large") == ("", "")
    await c.waits("large")
