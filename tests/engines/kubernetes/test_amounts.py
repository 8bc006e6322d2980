"""What pods take, as the kubelet counts it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.kubernetes.amounts import BadAmount, amount, pod_sums, sum_of
from penstock.engines.kubernetes.objects.pods import Pod
from tests.properties import examples

GI = 2**30


def box(cpu=None, memory=None, sidecar=False, **more):
    """A container that asks for this; `sidecar` as an init container that stays."""
    asked = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {}), **more}
    return {"resources": {"requests": asked}, **({"restartPolicy": "Always"} if sidecar else {})}


def sums(*containers, init=(), status=None, **spec):
    boxes = [{"name": f"c{i}", **one} for i, one in enumerate(containers)]
    first = [{"name": f"i{i}", **one} for i, one in enumerate(init)]
    told = {"metadata": {"name": "p"}, "spec": {"containers": boxes, "initContainers": first, **spec}}
    return pod_sums(msgspec.convert({**told, "status": status or {}}, Pod))


@pytest.mark.parametrize(
    ("resource", "text", "number"),
    [
        ("cpu", "1", 1000), ("cpu", "250m", 250), ("cpu", "0.1", 100), ("cpu", "1n", 1), ("cpu", "1.0001", 1001),
        ("memory", "1Gi", GI), ("memory", "1500m", 2), ("memory", "1e3", 1000), ("nvidia.com/gpu", "8", 8),
        ("memory", "9223372036854775807", 2**60), ("memory", "1e400", 2**60), ("cpu", "8E", 2**60),
        ("memory", "1e-400", 1), ("cpu", "0", 0),
    ],
)  # fmt: skip
def test_quantities_are_whole_and_never_too_small(resource, text, number):
    assert amount(resource, text) == number


@pytest.mark.parametrize("text", ["-1", "", "one", "1 Gi", "0x10", "1e99999999999"])
def test_what_is_no_quantity_is_named(text):
    with pytest.raises(BadAmount, match="memory: "):
        amount("memory", text)


def test_containers_add_up():
    assert sums(box("1", "1Gi"), box("500m", "1Gi", **{"nvidia.com/gpu": "2"})) == {
        "cpu": 1500, "memory": 2 * GI, "nvidia.com/gpu": 2, "pods": 1,
    }  # fmt: skip


def test_init_containers_count_where_they_need_more_than_the_rest():
    assert sums(box("1", "4Gi"), init=[box("3", "1Gi"), box("2", "2Gi")]) == {"cpu": 3000, "memory": 4 * GI, "pods": 1}


def test_a_sidecar_stays_beside_the_containers():
    assert sums(box("1"), init=[box("500m", sidecar=True)])["cpu"] == 1500


def test_an_init_container_runs_beside_the_sidecars_that_began_before_it():
    late = sums(box("1"), init=[box("3"), box("1", sidecar=True)])
    early = sums(box("1"), init=[box("1", sidecar=True), box("3")])
    assert (late["cpu"], early["cpu"]) == (3000, 4000)


def test_the_resources_of_the_whole_pod_replace_the_sum_of_cpu_and_memory():
    whole = {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "9"}}
    found = sums(box("5", "1Gi", **{"nvidia.com/gpu": "1"}), resources=whole)
    assert found == {"cpu": 2000, "memory": GI, "hugepages-2Mi": 4 * 2**20, "nvidia.com/gpu": 1, "pods": 1}


def test_a_limit_of_the_whole_pod_counts_where_no_container_asks():
    whole = {"limits": {"cpu": "4", "memory": "8Gi"}}
    assert sums(box("1"), resources=whole) == {"cpu": 1000, "memory": 8 * GI, "pods": 1}


def test_a_limit_without_a_request_is_the_request():
    assert sums({"resources": {"limits": {"cpu": "2"}}})["cpu"] == 2000


def test_overhead_comes_on_top():
    assert sums(box("1"), overhead={"cpu": "250m", "memory": "120Mi"}, init=[box("2")]) == {
        "cpu": 2250, "memory": 120 * 2**20, "pods": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "allocated", "in_use", "counts"),
    [
        ("4", "2", "2", 4000),  # grows: what it will have
        ("1", "2", "2", 2000),  # shrinks: what it has until the kubelet has taken it
        ("1", "1", "2", 2000),  # allocated, and not yet in force
        ("2", "2", "2", 2000),
    ],
)
def test_a_resize_under_way_counts_with_its_larger_end(asked, allocated, in_use, counts):
    one = {"name": "c0", "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": in_use}}}
    assert sums(box(asked), status={"containerStatuses": [one]})["cpu"] == counts


def test_a_resize_that_the_kubelet_gave_up_does_not_count():
    one = {"name": "c0", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}}}
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    told = {"containerStatuses": [one], "conditions": [pending]}
    assert sums(box("64", "1Gi"), status=told) == {"cpu": 2000, "memory": GI, "pods": 1}


def test_sums_of_many_stay_within_what_can_be_counted():
    huge = sums(box(memory="1e30"), box(memory="1e30"))
    assert huge["memory"] == sum_of([huge, huge])["memory"] == 2**60


quantities = st.integers(0, 8000).map(lambda n: f"{n}m")
boxes = st.lists(st.builds(box, quantities, sidecar=st.booleans()), max_size=4)


@given(boxes, boxes)
@examples(200)
def test_a_pod_takes_what_its_hungriest_moment_does(containers, init):
    """Play the pod's start step by step: each init container beside the sidecars before it, then all together."""
    running, moments = 0, []
    for one in init:
        asked = int(one["resources"]["requests"].get("cpu", "0m")[:-1])
        moments.append(running + asked)
        running += asked if "restartPolicy" in one else 0
    plain = [int(one["resources"]["requests"].get("cpu", "0m")[:-1]) for one in containers]
    moments.append(running + sum(plain))
    assert sums(*containers, init=init).get("cpu", 0) == max(moments)
