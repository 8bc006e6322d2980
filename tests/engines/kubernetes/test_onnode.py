"""Reports of a node: what is ours, what others hold, and how pods ended."""

import msgspec
import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.resources import Device, DeviceAsk, ReplicaAsk, Resources
from penstock.engines.kubernetes.amounts import pod_sums
from penstock.engines.kubernetes.nodes import node_spec
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.onnode import OnNode, Standing, devices_of, exit_of, replica_of

SPEC = NodeSpec("n", Resources(8000), tuple(Device(i, "nvidia", "A100", 0) for i in range(4)))
KEY = ReplicaKey(7, 2, 0)


def pod(name, gpus=0, cpus="1", annotations=None, scheduler="penstock", **status):
    limits = {"cpu": cpus, **({"nvidia.com/gpu": gpus} if gpus else {})}
    spec = {"nodeName": "n", "schedulerName": scheduler, "containers": [{"name": "c", "resources": {"limits": limits}}]}
    meta = {"name": name, "namespace": "default", "uid": name, "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod)


def put(on, one, key=None):
    on.put(one, Standing(key, pod_sums(one), devices=devices_of(one)))


def test_devices_of_others_are_never_those_of_ours():
    on = OnNode("n")
    put(on, pod("ours", 2, annotations={"penstock.dev/devices": "2,3"}), KEY)
    put(on, pod("theirs", 2, scheduler="default-scheduler"), None)
    report = on.report(SPEC, "i")
    assert (report.others.devices, report.others.host.cpu_milli) == ((0, 1), 1000)
    assert [(seen.key, seen.state) for seen in report.replicas] == [(KEY, "starting")]
    put(on, pod("more", 2, scheduler="default-scheduler"), None)
    assert on.report(SPEC, "i").others.devices == (0, 1), "there are no more than the node has"


def test_a_binding_under_way_holds_its_devices():
    on = OnNode("n")
    on.starting[KEY] = (3,)
    put(on, pod("theirs", 1, scheduler="default-scheduler"), None)
    report = on.report(SPEC, "i")
    assert (report.others.devices, report.replicas[0].state) == ((2,), "starting")


def test_a_pod_that_is_being_bound_takes_its_part_until_it_is_seen():
    on, ask = OnNode("n"), ReplicaAsk(Resources(), DeviceAsk(1, "nvidia"))
    on.binding[KEY] = {"nvidia.com/gpu": len(SPEC.devices)}
    assert on.short_for(SPEC, ask) == "nvidia"
    put(on, pod("ours", len(SPEC.devices)), KEY)
    assert (on.short_for(SPEC, ask), on.binding) == ("nvidia", {})
    on.take(pod("ours"))
    assert on.short_for(SPEC, ask) == ""


def test_an_exit_is_reported_until_it_is_acknowledged():
    on = OnNode("n")
    put(on, pod("ours"), KEY)
    over = pod("ours", phase="Succeeded")
    assert on.take(over) == KEY
    on.ended(KEY, over)
    for _ in range(2):
        (seen,) = on.report(SPEC, "i").replicas
        assert (seen.state, seen.exit) == ("exited", ExitInfo(0))
    on.acknowledged(KEY)
    assert on.report(SPEC, "i").replicas == ()


@pytest.mark.parametrize("known", ["stopping", "evicted"])
def test_a_pod_that_is_gone_before_it_was_seen_to_leave_was_stopped_where_it_was_asked_to(known):
    on = OnNode("n")
    put(on, pod("ours"), KEY)
    getattr(on, known).add(KEY)
    on.ended(KEY, pod("ours"))
    assert on.exits[KEY].exit == ExitInfo(problem="pod: it is gone", stop_sent=True)
    on.failed(KEY, "it is gone")
    assert on.exits[KEY].exit.stop_sent, "how it was seen to end counts"
    on.acknowledged(KEY)
    on.ended(KEY, pod("ours"))
    assert not on.exits[KEY].exit.stop_sent


def test_reports_are_numbered():
    on = OnNode("n")
    assert [on.report(SPEC, "i").seq for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("terminated", "info"),
    [
        ({"exitCode": 3, "reason": "Error"}, ExitInfo(3)),
        ({"exitCode": 137, "reason": "OOMKilled"}, ExitInfo(signal=9, note="OOMKilled", observed=True)),
        ({"exitCode": 143}, ExitInfo(signal=15)),
    ],
)
def test_a_failed_pod_tells_how_its_container_ended(terminated, info):
    states = [
        {"name": "c", "state": {"terminated": {"exitCode": 0}}},
        {"name": "d", "state": {"terminated": terminated}},
    ]
    assert exit_of(pod("a", phase="Failed", containerStatuses=states)) == info


def test_a_pod_that_the_kubelet_refused_tells_why():
    found = exit_of(pod("a", phase="Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu"))
    assert found == ExitInfo(problem="pod: OutOfcpu: Node didn't have enough resource: cpu")


@pytest.mark.parametrize("text", ["", "7", "7.2", "7.2.x", "7.2.0.1", "-7.2.0"])
def test_what_is_no_replica_claims_nothing(text):
    assert replica_of(pod("a", annotations={"penstock.dev/replica": text})) is None
    assert replica_of(pod("a", annotations={"penstock.dev/replica": "7.2.0"})) == KEY
    assert replica_of(pod("a", annotations={"penstock.dev/replica": "7.2.0"}, scheduler="other")) is None


def test_a_node_is_what_it_can_allocate_with_the_labels_that_matter():
    told = {
        "metadata": {"name": "n", "labels": {
            "kubernetes.io/hostname": "n", "disk": "ssd", "topology.kubernetes.io/zone": "z1",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559",
        }},
        "spec": {"unschedulable": True, "taints": [
            {"key": "spot", "value": "yes", "effect": "NoExecute"}, {"key": "soft", "effect": "PreferNoSchedule"},
        ]},
        "status": {
            "capacity": {"cpu": "16"},
            "allocatable": {"cpu": "15500m", "memory": "60Gi", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "2"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
        },
    }  # fmt: skip
    found = node_spec(msgspec.convert(told, Node), {"disk", "metadata.name", "absent"})
    assert found.capacity == Resources(15_500, 60 * 2**30, 100 * 2**30)
    assert [(d.vendor, d.memory_bytes, d.capability) for d in found.devices] == [("nvidia", 81_559 * 2**20, (9, 0))] * 2
    assert (found.labels, found.zone, found.address) == ((("disk", "ssd"), ("metadata.name", "n")), "z1", "10.0.0.7")
    assert [str(t) for t in found.taints] == [
        "node.kubernetes.io/unschedulable:NoSchedule",
        "spot=yes:NoExecute",
    ]
