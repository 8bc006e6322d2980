"""A cluster in words takes the place of the source's, for traces of every kind."""

import shutil
from pathlib import Path

import pytest

from penstock.core.model.errors import InvalidInput
from penstock.core.model.resources import DeviceAsk, Resources
from penstock.testing.builders import config, device, node
from penstock.traces import KINDS, Outage, Trace, TraceError, given_cluster, load, write_csv
from penstock.traces.edit import with_nodes
from penstock.traces.loaders.shapes import gang, processors
from penstock.traces.model import CapacityChange
from penstock.traces.nodes import NodeGroup
from tests.sim.replay.builders import job, trace

SAMPLES = Path(__file__).parent / "samples"
OF_KINDS = {
    "acme": ["acme/kalos_converted.csv", "acme/trace_seren.csv"],
    "csv": ["csv/own.csv", "csv/least.csv"],
    "gavel": ["gavel/physical_cluster_traces.csv"],
    "helios": ["helios/venus_jobs.csv", "helios/earth/cluster_log.csv"],
    "openb": ["openb/openb_pod_list_small.csv"],
    "philly": ["philly/philly_jobs.csv", "philly_log/cluster_job_log"],
    "pollux": ["pollux/workloads/workload-9.csv"],
    "sacct": ["sacct/jobs.txt"],
    "swf": ["swf/log.swf"],
    "tiresias": ["tiresias/6_job.csv"],
}
GIB = 2**30
TIB = 2**40


def given(sample: str, words: str) -> Trace:
    return load(SAMPLES / sample, None, given_cluster(words))


def kinds_of(found: Trace) -> list[tuple[int, str, int, int]]:
    """Return devices, their model, CPUs and memory (GiB) of each node."""
    return [
        (len(n.devices), n.devices[0].model if n.devices else "", n.capacity.cpu_milli // 1000,
         n.capacity.memory_bytes // GIB) for n in found.nodes
    ]  # fmt: skip


def test_every_kind_has_a_sample_here():
    assert sorted(OF_KINDS) == sorted(KINDS)


@pytest.mark.parametrize("sample", [sample for samples in OF_KINDS.values() for sample in samples])
def test_one_form_gives_a_cluster_for_a_trace_of_every_kind(sample):
    found = given(sample, "2x4xH100:cpus=96:memory=1TiB,1x0:cpus=8:memory=16GiB")
    assert kinds_of(found) == [(4, "H100", 96, 1024)] * 2 + [(0, "", 8, 16)]
    assert len({spec.name for spec in found.nodes}) == 3
    assert [note for note in found.notes if note.startswith("cluster: ")] == [
        "cluster: 2 nodes x 4 H100, 96 CPUs, 1 TiB each; 1 node, 8 CPUs, 16 GiB each, as given"
    ]
    own = load(SAMPLES / sample)
    assert [job.name for job in found.jobs] == [job.name for job in own.jobs]
    assert found.config == own.config


@pytest.mark.parametrize(
    ("sample", "name", "devices", "cpus"),
    [
        ("helios/venus_jobs.csv", "902", 20, 0),
        ("helios/earth/cluster_log.csv", "72", 12, 96_000),
        ("philly/philly_jobs.csv", "2", 24, 0),
        ("philly_log/cluster_job_log", "application_1_2", 9, 0),
        ("acme/kalos_converted.csv", "0", 32, 0),
        ("tiresias/6_job.csv", "1", 6, 0),
        ("csv/own.csv", "b", 12, 24_000),
    ],
)
def test_a_job_of_open_shape_takes_whole_nodes_of_the_cluster_that_is_given(sample, name, devices, cpus):
    (found,) = [job for job in given(sample, "9x2:cpus=64").jobs if job.name == name]
    ask = found.spec.ask
    assert (ask.replicas, ask.each.devices) == (devices // 2, DeviceAsk(2))
    assert ask.device_total == devices
    assert ask.host_total.cpu_milli == cpus


def test_processors_take_whole_nodes_of_the_cluster_that_is_given():
    found = given("swf/log.swf", "4x0:cpus=6")
    assert {job.name: job.spec.ask for job in found.jobs}["1"] == processors(8, 6)
    assert {job.name: job.spec.ask for job in given("helios/earth/cluster_log.csv", "9x8:cpus=64").jobs}[
        "73"
    ] == processors(100, 64)


def test_shapes_that_the_source_tells_stay():
    assert [j.spec.ask for j in given("sacct/jobs.txt", "9x8").jobs] == [
        j.spec.ask for j in load(SAMPLES / "sacct" / "jobs.txt").jobs
    ]


def test_what_a_group_leaves_open_is_as_on_the_largest_of_the_traces_own_nodes():
    assert kinds_of(given("helios/earth/cluster_log.csv", "1x4"))[0] == (4, "V100", 48, 0)
    assert kinds_of(given("acme/trace_seren.csv", "1x4xH100"))[0] == (4, "H100", 128, 1024)
    assert kinds_of(given("openb/openb_pod_list_small.csv", "1x4xT4,1x0")) == [(4, "T4", 64, 256), (0, "", 32, 256)]
    assert kinds_of(given("swf/log.swf", "3x0")) == [(0, "", 4, 0)] * 3
    assert kinds_of(given("csv/least.csv", "1x2"))[0][:2] == (2, "GPU")


def test_models_that_differ_are_asked_for():
    with pytest.raises(
        InvalidInput, match="'3x4': it leaves its model open, and the trace's nodes have T4, V100M32"
    ) as e:
        given("openb/openb_pod_list_small.csv", "3x4")
    assert e.value.problems[0].hint == "say it, such as 3x4xT4"


def test_devices_are_like_those_of_the_trace_where_it_has_such():
    own = trace(nodes=(node("a", (device(0, model="SIM", memory_bytes=7 * GIB),)),))
    made = with_nodes(own, "1x2").nodes[0]
    assert [(d.index, d.model, d.memory_bytes // GIB) for d in made.devices] == [(0, "SIM", 7), (1, "SIM", 7)]


def test_pools_that_differ_are_asked_for(tmp_path):
    own = trace(job(0, 60), nodes=(node("a", 4, pool="gold"), node("b", 4, pool="iron")))
    assert [spec.pool for spec in with_nodes(own, "2x1:pool=gold").nodes] == ["gold", "gold"]
    assert [spec.pool for spec in with_nodes(trace(nodes=(node("a", 4, pool="gold"),)), "1x1").nodes] == ["gold"]
    write_csv(own, tmp_path / "own.csv")
    for tried in (lambda: with_nodes(own, "2x1"), lambda: load(tmp_path / "own.csv", None, given_cluster("2x1"))):
        with pytest.raises(InvalidInput, match="leaves its pool open") as caught:
            tried()
        assert caught.value.problems[0].hint == "say it, such as 2x1:pool=gold"


def test_what_happened_to_the_traces_own_nodes_is_gone_with_them(tmp_path):
    changes = (CapacityChange(0, drained="n0000"), CapacityChange(1, config=config()))
    own = trace(job(0, 60), nodes=(node("n0000", 4),), outages=(Outage("n0000", 1, 2),), changes=changes)
    write_csv(own, tmp_path / "own.csv")
    for found in (with_nodes(own, "1x4"), load(tmp_path / "own.csv", None, given_cluster("1x4"))):
        assert (found.outages, found.changes) == ((), (CapacityChange(1, config=config()),))


def test_groups_are_added_to_the_traces_nodes():
    own = trace(nodes=(node("a", 4),))
    found = with_nodes(own, "+2x8xH100,1x0:cpus=3")
    assert [(spec.name, len(spec.devices), spec.capacity.cpu_milli // 1000) for spec in found.nodes] == [
        ("a", 4, 16), ("added-0001", 8, 16), ("added-0002", 8, 16), ("added-0003", 0, 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sample", "gone"),
    [("openb/openb_pod_list_small.csv", "openb_node_list_all_node.csv"), ("tiresias/6_job.csv", "n32g4.csv")],
)
def test_a_cluster_that_says_all_needs_no_list_of_nodes(tmp_path, sample, gone):
    shutil.copytree(SAMPLES / sample.partition("/")[0], tmp_path / "a")
    (tmp_path / "a" / gone).unlink()
    path = tmp_path / "a" / Path(sample).name
    assert len(load(path, None, given_cluster("3x8xT4:cpus=96:memory=1TiB")).nodes) == 3
    with pytest.raises(TraceError) as caught:
        load(path, None, given_cluster("3x8xT4:cpus=96"))
    assert "--nodes 16x8xV100:cpus=64:memory=512GiB" in caught.value.hint


def test_devices_that_no_job_asks_for_are_noted():
    assert any("no job of the source asks for devices" in note for note in given("swf/log.swf", "4x8").notes)
    assert not any("asks for devices" in note for note in given("swf/log.swf", "4x0").notes)
    assert not any("asks for devices" in note for note in given("openb/openb_pod_list_small.csv", "4x1xT4").notes)


def test_words_of_a_group():
    assert given_cluster("16x8xmi300x:cpus=96:memory=1TiB:pool=a, 4x0") == (
        NodeGroup(16, 8, "mi300x", 96, TIB, "a"),
        NodeGroup(4, 0),
    )
    assert [given_cluster(text) for text in (None, "", "90", "+4", "-2", "+4xH100", "+4x8")] == [()] * 7


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("4xH100", "expected a number such as 90", "for 4 nodes say their devices, too: 4x8xH100"),
        ("16x8gpu", "expected a number such as 90", "nodes x devices x model, such as 16x8 or 16x8xH100"),
        ("-2x8", "expected a number such as 90", ""),
        ("x8", "nodes of 'x8' is '', expected 1 to 100000", "such as 16x8xH100:cpus=96"),
        ("0x8", "nodes of '0x8' is '0'", "such as"),
        ("4x65", "devices of '4x65' is '65', expected 0 to 64", "such as"),
        ("4x8:cpus=many", "cpus of '4x8:cpus=many' is 'many', expected 0 to 100000", "such as"),
        ("4x8:memory=1XB", "memory of '4x8:memory=1XB' is '1XB', expected a size such as 512GiB", "such as"),
        ("4x8:cpu=4", "'cpu=4' is none of cpus=, memory= and pool=", "did you mean 'cpus'?"),
        ("4x8:cpus=4:cpus=4", "once each", "did you mean 'cpus'?"),
        ("4x8,", "a group of nodes is empty", "groups are divided by single commas"),
        ("99999x8,2x8", "that would be 100001 nodes, expected at most 100000", ""),
        ("٣x8", "nodes of '٣x8' is '٣'", "such as"),
        ("٣", "expected a number such as 90", ""),
        ("4x8," * 1000 + "1x1", "1001 groups, expected at most 1000", ""),
        ("4x8x" + "m" * 129, "a model has at most 128 characters", ""),
    ],
)
def test_words_that_are_wrong_are_named(words, said, hint):
    with pytest.raises(InvalidInput) as caught:
        given_cluster(words)
    assert said in str(caught.value)
    assert caught.value.problems[0].hint.startswith(hint)


def test_a_gang_on_nodes_without_devices_is_still_a_gang():
    found = given("helios/venus_jobs.csv", "4x0:cpus=8")
    assert {job.name: job.spec.ask for job in found.jobs}["902"] == gang(20, 1, Resources())
