"""The plain CSV gives every trace back as it was."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.model.cluster import ClusterConfig, NodeSpec, Queue, Tenant
from penstock.core.model.jobs import GangAsk, GroupAsk, JobSpec, Topology
from penstock.core.model.resources import Device, DeviceAsk, DeviceLink, ReplicaAsk, Resources
from penstock.traces import Outage, Seen, Trace, TraceError, TraceJob, Work, load, write_csv
from penstock.traces.model import CapacityChange
from tests.properties import examples
from tests.sim.replay.builders import unmeasured

SAMPLES = Path(__file__).parent / "samples"
TRACES = (
    "helios/venus_jobs.csv",
    "helios/earth/cluster_log.csv",
    "philly/philly_jobs.csv",
    "philly_log/cluster_job_log",
    "openb/openb_pod_list_small.csv",
    "acme/kalos_converted.csv",
    "acme/trace_seren.csv",
    "pollux/workloads/workload-9.csv",
    "gavel/physical_cluster_traces.csv",
    "tiresias/6_job.csv",
    "sacct/jobs.txt",
    "swf/log.swf",
    "csv/own.csv",
    "csv/least.csv",
)


@pytest.mark.parametrize("sample", TRACES)
@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_every_sample_comes_back_as_it_was(sample, name, tmp_path):
    trace = load(SAMPLES / sample)
    write_csv(trace, tmp_path / name)
    trace = unmeasured(trace)  # measurements have no column
    assert load(tmp_path / name) == trace
    assert load(tmp_path / name, "csv") == trace


def test_people_read_plain_columns_and_only_those_that_say_something(tmp_path):
    write_csv(load(SAMPLES / "helios" / "venus_jobs.csv"), tmp_path / "out.csv")
    lines = [line for line in (tmp_path / "out.csv").read_text().splitlines() if not line.startswith("#")]
    assert lines[:3] == ["job,submit,run,devices", "901,1000,60,1", "902,1000,7200,20"]


def test_the_same_trace_gives_the_same_bytes(tmp_path):
    trace = load(SAMPLES / "sacct" / "jobs.txt")
    write_csv(trace, tmp_path / "a.csv.gz")
    write_csv(trace, tmp_path / "b.csv.gz")
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


words = st.text("abcXYZ01-_. |;=,\"'#é{", max_size=12)
hosts = st.builds(Resources, st.integers(0, 10**6), st.integers(0, 2**50), st.sampled_from([0, 7]))
whole = st.builds(DeviceAsk, st.integers(1, 64), models=st.lists(words.filter(bool), max_size=2).map(tuple))
parts = st.builds(DeviceAsk, st.just(1), share_milli=st.integers(1, 999))
replicas = st.builds(ReplicaAsk, hosts, st.none() | whole | parts)
groups = st.lists(st.builds(GroupAsk, st.integers(1, 5), replicas), max_size=2).map(tuple)
rigid = st.builds(GangAsk, st.integers(1, 100), replicas, topology=st.none() | st.just(Topology("node")), others=groups)
elastic = st.builds(GangAsk, st.integers(1, 4), replicas, replicas_max=st.integers(5, 64))
specs = st.builds(
    JobSpec,
    st.just(("true",)),
    rigid | elastic,
    name=words,
    queue=st.sampled_from(["default", "day", "night"]),
    tenant=st.sampled_from(["default", "red"]),
    priority=st.integers(0, 10_000),
    time_limit_ms=st.integers(0, 10**10),
    retries_max=st.integers(0, 3),
    labels=st.lists(st.tuples(words, words), max_size=2).map(tuple),
    shareable=st.booleans(),
)
points = st.dictionaries(st.integers(1, 100), st.integers(0, 10**6), max_size=4).map(lambda d: tuple(sorted(d.items())))
uses = st.tuples(st.integers(0, 1000), st.integers(0, 10**6).map(lambda mib: mib * 2**20), st.integers(1, 1000))
works = st.builds(
    Work,
    st.integers(1, 10**11),
    st.sampled_from(["succeeded", "failed", "cancelled"]),
    fails_after_ms=st.lists(st.integers(0, 10**9), max_size=3).map(tuple),
    speeds=st.lists(st.tuples(st.sampled_from(["V100", "A=1", "a b"]), st.integers(0, 9999)), max_size=2).map(tuple),
    scaling=points,
    saves=st.booleans(),
)
works = st.tuples(works, st.just((None, 0, 1000)) | uses).map(
    lambda both: replace(
        both[0], **dict(zip(("busy_milli", "device_memory_bytes", "beside_milli"), both[1], strict=True))
    )
)
seen = st.none() | st.builds(Seen, st.integers(10**12, 10**13), st.integers(10**12, 10**13))
CONFIG = ClusterConfig(
    tenants=(Tenant("default"), Tenant("red", "a team")),
    queues=(Queue("default"), Queue("day", guaranteed=(("devices", 8000),)), Queue("night", lend=())),
)


@st.composite
def traces(draw):
    jobs = [
        TraceJob(f"j{at}", draw(st.integers(0, 10**12)), draw(specs), draw(words), draw(works), draw(seen))
        for at in range(draw(st.integers(1, 6)))
    ]
    nodes = tuple(
        NodeSpec(
            f"n{at}", Resources(8000), tuple(Device(i, "nvidia", "V100", 2**30) for i in range(draw(st.integers(0, 4))))
        )
        for at in range(draw(st.integers(1, 3)))
    )
    return Trace(
        draw(words),
        tuple(sorted(jobs, key=lambda job: job.submit_ms)),
        nodes,
        CONFIG,
        (Outage("n0", 5, 7),),
        (CapacityChange(3, drained="n0"), CapacityChange(9, config=CONFIG)),
        (draw(words), "a note"),
    )


@given(trace=traces())
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_trace_comes_back_as_it_was(trace, tmp_path):
    write_csv(trace, tmp_path / "out.csv")
    assert load(tmp_path / "out.csv") == trace


def test_a_node_too_large_for_a_line_goes_on_in_the_next(tmp_path):
    links = tuple(DeviceLink(peer, "nvlink") for peer in range(64))
    node = NodeSpec("n0", Resources(1), tuple(Device(i, "nvidia", "X", 1, links=links) for i in range(64)))
    trace = msgspec.structs.replace(load(SAMPLES / "csv" / "own.csv"), nodes=(node,))
    write_csv(trace, tmp_path / "out.csv")
    assert load(tmp_path / "out.csv") == trace


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "", "x" * 300])
def test_what_no_line_can_hold_is_refused_and_nothing_is_written(tmp_path, name):
    trace = load(SAMPLES / "csv" / "least.csv")
    bad = msgspec.structs.replace(trace, jobs=(msgspec.structs.replace(trace.jobs[0], name=name),))
    with pytest.raises(TraceError):
        write_csv(bad, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_a_place_that_cannot_be_written_is_a_trace_error(tmp_path):
    with pytest.raises(TraceError, match="can be written"):
        write_csv(load(SAMPLES / "csv" / "least.csv"), tmp_path / "none" / "out.csv")
    with pytest.raises(TraceError, match="can be written"):
        write_csv(msgspec.structs.replace(load(SAMPLES / "csv" / "least.csv"), name="\ud800"), tmp_path / "out.csv")


def test_what_is_no_use_of_a_device_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("job,submit,run,use\na,0,60,busy=1001\n")
    with pytest.raises(TraceError, match="busy=1001"):
        load(tmp_path / "a.csv")
