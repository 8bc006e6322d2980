"""What each loader makes of a small file of our own in its format: exact values."""

import gzip
import shutil
from pathlib import Path

import pytest

from penstock.core.model.cluster import Tenant
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.traces import Seen, Trace, TraceJob, Work, load
from penstock.traces.loaders.shapes import devices_of, gang, processors
from tests.sim.replay.builders import unmeasured

SAMPLES = Path(__file__).parent / "samples"
GIB = 2**30
DAY_2017_10_02_MS = 1_506_902_400_000
DAY_2024_MS = 1_704_067_200_000


def named(trace: Trace) -> dict[str, TraceJob]:
    return {job.name: job for job in trace.jobs}


def widths(trace: Trace) -> list[int]:
    return [len(node.devices) for node in trace.nodes]


def note(trace: Trace, part: str) -> str:
    return next((text for text in trace.notes if part in text), "")


def test_a_big_job_takes_whole_nodes_and_a_remainder_and_spreads_its_cpus_over_its_devices():
    host = Resources(30_000, 20)
    assert gang(20, 8, host) == GangAsk(
        2,
        ReplicaAsk(Resources(12_000, 8), DeviceAsk(8)),
        others=(GroupAsk(1, ReplicaAsk(Resources(6_000, 4), DeviceAsk(4))),),
    )
    assert gang(16, 8) == GangAsk(2, ReplicaAsk(Resources(), DeviceAsk(8)))
    assert gang(3, 8, host) == GangAsk(1, ReplicaAsk(host, DeviceAsk(3)))
    assert gang(0, 8, host) == GangAsk(1, ReplicaAsk(host))


def test_processors_take_whole_nodes_and_a_remainder():
    assert processors(10, 4) == GangAsk(
        2, ReplicaAsk(Resources(4_000)), others=(GroupAsk(1, ReplicaAsk(Resources(2_000))),)
    )


def test_helios_projection():
    trace = load(SAMPLES / "helios" / "venus_jobs.csv")
    jobs = named(trace)
    assert [job.name for job in trace.jobs] == ["901", "902", "904", "905"]
    assert jobs["902"].submit_ms == 1_000_000
    assert jobs["902"].spec.ask == gang(20, 8)
    assert jobs["902"].work == Work(7_200_000)
    assert widths(trace) == [8] * 133
    assert "1 jobs left out: they ran for no time" in note(trace, "no time")


def test_equal_requests_and_lengths_are_one_object():
    jobs = named(load(SAMPLES / "helios" / "venus_jobs.csv"))
    assert jobs["901"].spec is jobs["905"].spec
    assert jobs["901"].work is jobs["905"].work


def test_requests_that_are_written_differently_but_equal_are_one_object(tmp_path):
    file = tmp_path / "own.csv"
    file.write_text("submit,run,devices,limit\n0,5,8,1h\n0,5,8.0,3600\n")
    first, second = load(file).jobs
    assert first.spec is second.spec


def test_helios_original_takes_the_cluster_from_the_folder():
    trace = load(SAMPLES / "helios" / "earth" / "cluster_log.csv")
    jobs = named(trace)
    assert len(trace.nodes) == 143
    assert trace.nodes[0].capacity.cpu_milli == 48_000
    assert [job.name for job in trace.jobs] == ["72", "71", "73", "75"]
    assert jobs["71"].seen == Seen(1_591_005_630_000, 1_591_006_230_000)
    assert jobs["71"].user == "uAnn"
    assert jobs["71"].spec.queue == jobs["71"].spec.tenant == "vcOne"
    assert jobs["72"].work == Work(3_600_000, "cancelled")
    assert jobs["72"].spec.ask == gang(12, 8, Resources(72_000))
    assert jobs["73"].spec.ask == processors(100, 48)
    assert jobs["73"].spec.queue == "vc-Two"
    assert jobs["75"].spec.ask.each.host.cpu_milli == 48_000
    assert jobs["75"].work.ends == "failed"
    assert "1 jobs left out" in note(trace, "never started")
    assert "2 shapes" in note(trace, "more CPUs")


def test_a_job_without_an_end_had_not_ended_and_one_without_a_start_never_started(tmp_path):
    head = "job_id,user,gpu_num,cpu_num,vc,state,submit_time,start_time,end_time,duration\n"
    rows = ["1,u,1,1,v,COMPLETED,0,5,None,9\n", "2,u,1,1,v,CANCELLED,0,None,7,9\n", "3,u,1,1,v,COMPLETED,0,5,7,2\n"]
    (tmp_path / "cluster_log.csv").write_text(head + "".join(rows))
    trace = load(tmp_path / "cluster_log.csv")
    assert (note(trace, "had not ended")[:2], note(trace, "never started")[:2]) == ("1 ", "1 ")


def test_philly_list_with_guarantees_of_virtual_clusters():
    trace = load(SAMPLES / "philly" / "philly_jobs.csv")
    jobs = named(trace)
    assert [job.name for job in trace.jobs] == ["2", "1", "4"]
    assert jobs["2"].submit_ms == DAY_2017_10_02_MS
    assert jobs["2"].spec.ask == gang(24, 8)
    assert jobs["1"].work == Work(66_500)
    assert widths(trace) == [8] * 5
    guaranteed = {queue.name: queue.guaranteed for queue in trace.config.queues}
    assert guaranteed == {
        "aaa111": (("devices", 24_000),),
        "bbb222": (("devices", 16_000),),
        "ccc333": (),
        "default": (),
    }
    assert note(trace, "no nodes of their own").startswith("1 virtual")


def test_philly_log_keeps_failed_attempts_apart():
    trace = load(SAMPLES / "philly_log" / "cluster_job_log")
    jobs = named(trace)
    assert sorted(jobs) == ["application_1_1", "application_1_2"]
    first = jobs["application_1_1"]
    assert first.work == Work(3_600_000, fails_after_ms=(60_000,))
    assert first.spec.retries_max == 1
    assert first.seen == Seen(first.submit_ms + 30_000, first.submit_ms + 62 * 60_000)
    assert jobs["application_1_2"].spec.ask == gang(9, 8)
    assert jobs["application_1_2"].work.ends == "cancelled"
    assert [(n.name, len(n.devices), n.devices[0].memory_bytes // GIB) for n in trace.nodes] == [
        ("m1", 8, 24),
        ("m2", 2, 12),
    ]


def test_openb_pods_have_fractions_models_and_host_resources():
    trace = load(SAMPLES / "openb" / "openb_pod_list_small.csv")
    jobs = named(trace)
    assert [job.name for job in trace.jobs] == ["pod-a", "pod-c", "pod-b", "pod-f"]
    host = Resources(6_000, 12_288 * 2**20)
    assert jobs["pod-b"].spec.ask.each == ReplicaAsk(host, DeviceAsk(1, models=("T4", "P100"), share_milli=460))
    assert jobs["pod-b"].spec.priority == 100
    assert jobs["pod-b"].work == Work(600_000)
    assert jobs["pod-a"].work == Work(4_990_000, "cancelled")
    assert jobs["pod-a"].seen == Seen(10_000, 5_000_000)
    assert jobs["pod-c"].spec.ask.each.devices is None
    assert widths(trace) == [0, 8, 2]
    assert trace.nodes[1].devices[0].model == "V100M32"
    assert jobs["pod-b"].spec is jobs["pod-f"].spec


POD_COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"


def pods(tmp_path: Path, columns: str, *rows: str) -> Trace:
    """Return the trace of a pod list on the nodes of the sample."""
    shutil.copy(SAMPLES / "openb" / "openb_node_list_all_node.csv", tmp_path)
    file = tmp_path / "openb_pod_list_multigpu20.csv"
    file.write_text("\n".join([columns, *rows]) + "\n")
    return load(file)


@pytest.mark.parametrize(
    ("columns", "rest"),
    [(POD_COLUMNS, ""), (f"{POD_COLUMNS},gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time", "," * 6)],
)
def test_openb_pods_without_times_come_in_turn_and_none_leaves_before_the_last_has_come(tmp_path, columns, rest):
    rest = rest.replace(",,,", ",,LS,Running", 1)
    trace = pods(
        tmp_path, columns, *(f"{row}{rest}" for row in ("b,8000,4096,8,1000", "a,100,0,1,460", "c,4000,8,0,0"))
    )
    assert [(job.name, job.submit_ms, job.work) for job in trace.jobs] == [
        ("b", 0, Work(3_000)),
        ("a", 1_000, Work(3_000)),
        ("c", 2_000, Work(3_000)),
    ]
    assert named(trace)["a"].spec.ask.each.devices == DeviceAsk(1, share_milli=460)
    assert all(job.seen is None for job in trace.jobs)
    assert "its 3 pods come 1 s apart" in note(trace, "the list has no times")


def test_openb_pods_without_times_of_a_list_that_has_them_are_left_out(tmp_path):
    columns = f"{POD_COLUMNS},creation_time,deletion_time,scheduled_time"
    rows = ("a,1,0,0,0,,,", "b,1,0,0,0,5,,6", "c,1,0,0,0,5,9,", "d,1,0,0,0,5,9,6")
    trace = pods(tmp_path, columns, *rows)
    assert [job.name for job in trace.jobs] == ["d"]
    assert [note(trace, part)[:2] for part in ("no times of them", "had not ended", "never started")] == ["1 "] * 3


def test_openb_lists_without_memory_or_scheduling_times_say_what_is_assumed(tmp_path):
    trace = pods(tmp_path, "name,cpu_milli,num_gpu,gpu_milli,creation_time,deletion_time", "a,1000,0,0,5,9")
    assert (trace.jobs[0].seen, trace.jobs[0].spec.ask.each.host) == (Seen(5_000, 9_000), Resources(1_000))
    assert note(trace, "no memory_mib")
    assert note(trace, "started when they were created")


def test_acme_converted_counts_workers_as_nodes():
    trace = load(SAMPLES / "acme" / "kalos_converted.csv")
    jobs = named(trace)
    assert jobs["0"].spec.ask == gang(32, 8)
    assert jobs["0"].work == Work(60_000)
    assert jobs["1"].submit_ms == 31_500
    assert jobs["1"].spec.ask.device_total == 2
    assert len(jobs) == 2
    assert len(trace.nodes) == 302


def test_acme_original_reads_zones_and_types():
    trace = load(SAMPLES / "acme" / "trace_seren.csv")
    jobs = named(trace)
    assert jobs["11"].submit_ms == 1_677_628_800_000
    assert jobs["11"].spec.labels == (("type", "Pretrain"),)
    assert jobs["11"].spec.ask == gang(8, 8, Resources(128_000))
    assert jobs["12"].spec.ask.device_total == 0
    assert len(trace.nodes) == 286
    assert trace.nodes[0].capacity.memory_bytes == 1024 * GIB


def test_pollux_run_time_and_scaling_follow_from_the_profile():
    trace = load(SAMPLES / "pollux" / "workloads" / "workload-9.csv")
    jobs, bare = named(trace), named(unmeasured(trace))
    alone, tuned = bare["tiny-1"], bare["tiny-0"]
    assert alone.work == Work(200_000, scaling=((1, 1000), (2, 1667)), saves=True)
    # At batch 16 an epoch is 100 / 1.6 and 100 / (4/3) steps of 1.2 s.
    assert tuned.work == Work(165_000, scaling=((1, 1000), (2, 1667), (4, 2667)), saves=True)
    trains = jobs["tiny-0"].work.trains
    assert (trains.replicas, trains.batch, trains.fixed, trains.run_ms) == (2, 16, True, 165_000)
    assert tuned.spec.ask == GangAsk(2, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=4)
    assert tuned.spec.labels == (("batch_size", "16"),)
    assert not jobs["ncf-3"].spec.ask.elastic


def test_gavel_run_time_is_that_of_the_fastest_type():
    trace = load(SAMPLES / "gavel" / "physical_cluster_traces.csv")
    jobs = named(trace)
    assert jobs["1"].work == Work(100_000, speeds=(("k80", 250), ("p100", 500), ("v100", 1000)), saves=True)
    assert jobs["2"].work == Work(100_000, speeds=(("k80", 100), ("p100", 1000), ("v100", 500)), saves=True)
    assert jobs["3"].spec.ask.each.devices == DeviceAsk(1, models=("p100", "v100"))
    assert jobs["5"].work.run_ms == 200_000
    assert jobs["1"].spec.name == "Model A (batch size 4)"
    assert jobs["3"].spec.queue == "second"
    counts = [sum(1 for node in trace.nodes for d in node.devices if d.model == m) for m in ("v100", "p100", "k80")]
    assert counts == [8, 16, 24]
    assert note(trace, "not measured").startswith("1 jobs")


def test_tiresias_takes_the_cluster_beside_it():
    trace = load(SAMPLES / "tiresias" / "6_job.csv")
    jobs = named(trace)
    assert jobs["1"].spec.ask == gang(6, 4)
    assert jobs["0"].work == Work(164_000)
    assert jobs["0"].spec.name == "vgg19"
    assert [node.switch for node in trace.nodes] == ["s000"] * 3 + ["s001"] * 3
    assert trace.nodes[0].capacity == Resources(40_000, 256 * GIB)


def test_sacct_jobs_arrays_and_states():
    trace = load(SAMPLES / "sacct" / "jobs.txt")
    jobs = named(trace)
    assert [job.name for job in trace.jobs] == ["100", "101_4", "104", "105"]
    first, array, over = jobs["100"], jobs["101_4"], jobs["104"]
    assert first.submit_ms == DAY_2024_MS
    assert first.spec.time_limit_ms == 93_784_000
    assert first.spec.ask.each == ReplicaAsk(Resources(8_000, 64 * GIB), DeviceAsk(2, models=("a100",)))
    assert (first.spec.tenant, first.spec.queue, first.spec.priority) == ("vision", "gpu", 400)
    assert first.seen == Seen(DAY_2024_MS + 60_000, DAY_2024_MS + 3_660_000)
    assert array.spec.ask == GangAsk(2, ReplicaAsk(Resources(8_000, 64 * GIB), DeviceAsk(4, models=("a100",))))
    assert (array.work.ends, array.spec.time_limit_ms, array.spec.tenant) == ("cancelled", 0, "nlp-team")
    assert over.work == Work(10_000, "failed")
    assert over.spec.ask.each.host == Resources(4_000, 3 * GIB // 2)
    assert over.spec.labels == (("qos", "normal"),)


def test_sacct_components_are_groups_of_one_gang():
    job = named(load(SAMPLES / "sacct" / "jobs.txt"))["105"]
    assert job.spec.ask == GangAsk(
        1,
        ReplicaAsk(Resources(1_000, GIB)),
        others=(GroupAsk(1, ReplicaAsk(Resources(2_000, 2 * GIB), DeviceAsk(1, models=("a100",)))),),
    )
    assert job.spec.time_limit_ms == 600_000


def test_sacct_counts_what_it_leaves_out_and_makes_a_cluster_of_the_peak():
    trace = load(SAMPLES / "sacct" / "jobs.txt")
    said = "\n".join(trace.notes)
    assert "1 rows left out: they are steps" in said
    assert "1 rows left out: the job was put back" in said
    assert "1 jobs left out: they never started" in said
    assert "1 jobs left out: they had not ended" in said
    assert "1 jobs left out: they ran for no time" in said
    assert widths(trace) == [0, 4, 4, 4]
    assert trace.nodes[1].devices[0].model == "a100"


def test_swf_reads_header_unknowns_and_status():
    trace = load(SAMPLES / "swf" / "log.swf")
    jobs = named(trace)
    assert [job.name for job in trace.jobs] == ["1", "2", "4"]
    assert jobs["1"].submit_ms == 800_000_000_000
    assert jobs["1"].seen == Seen(800_000_010_000, 800_000_110_000)
    assert jobs["1"].spec.ask == processors(8, 4)
    assert (jobs["1"].user, jobs["1"].spec.tenant, jobs["1"].spec.queue) == ("user-3", "group-2", "queue-0")
    assert jobs["1"].spec.time_limit_ms == 200_000
    assert jobs["2"].seen is None
    assert jobs["2"].work == Work(50_000, "failed")
    assert jobs["4"].spec.time_limit_ms == 30_000
    assert jobs["4"].spec.tenant == "default"
    assert jobs["4"].work.ends == "cancelled"
    assert [node.capacity.cpu_milli for node in trace.nodes] == [4_000] * 16
    assert note(trace, "their limit is raised").startswith("1 jobs")


def swf(tmp_path: Path, *header: str, processors: int = 336) -> Trace:
    """Return a log with one job."""
    file = tmp_path / "log.swf"
    file.write_text("\n".join([*header, f"1 0 0 60 {processors} -1 -1 -1 -1 -1 1 1 1 1 1 -1 -1 -1"]) + "\n")
    return load(file)


def cpus(trace: Trace) -> list[int]:
    return [node.capacity.cpu_milli // 1000 for node in trace.nodes]


def test_a_node_of_a_log_without_maxprocs_is_one_processor(tmp_path):
    trace = swf(tmp_path, "; Version: 2", "; MaxNodes: 430")
    assert cpus(trace) == [1] * 430
    assert "430 nodes x 1 processors, from MaxNodes; the header has no MaxProcs" in note(trace, "cluster:")


def test_nodes_of_a_log_without_maxprocs_are_as_wide_as_its_largest_job_shows(tmp_path):
    trace = swf(tmp_path, "; MaxNodes: 100")
    assert cpus(trace) == [4] * 100
    assert "the largest job takes 4 of each node" in note(trace, "cluster:")


@pytest.mark.parametrize(
    "header", ["; MAXNODES: 430", ";maxnodes :430", " ;\tMaxNodes:\t430", "; Max Nodes: 430 (in two partitions)"]
)
def test_a_header_is_read_whatever_its_letter_case_and_blanks(tmp_path, header):
    assert cpus(swf(tmp_path, header)) == [1] * 430
    assert cpus(swf(tmp_path, header, "; maxprocs: 860")) == [2] * 430


def test_plain_csv_takes_every_column():
    trace = load(SAMPLES / "csv" / "own.csv")
    jobs = named(trace)
    assert [job.name for job in trace.jobs] == ["a", "c", "e", "b"]
    share = DeviceAsk(1, models=("V100", "T4"), share_milli=250)
    assert jobs["a"].spec.ask == GangAsk(1, ReplicaAsk(Resources(2_000, 4 * GIB), share))
    assert (jobs["a"].spec.priority, jobs["a"].spec.time_limit_ms) == (1000, 5_400_000)
    assert jobs["b"].spec.ask == gang(12, 8, Resources(24_000, 64 * GIB))
    assert (jobs["b"].submit_ms, jobs["b"].work) == (DAY_2024_MS, Work(3_600_000, "failed"))
    assert jobs["c"].spec.ask == GangAsk(2, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=6)
    assert jobs["c"].work == Work(90_000, scaling=((1, 1000), (2, 1900), (6, 4000)))
    assert jobs["e"].spec.ask == GangAsk(1, ReplicaAsk(Resources(16_000)))
    assert widths(trace) == [8, 8, 0]
    assert trace.config.tenants == (Tenant("blue"), Tenant("default"), Tenant("red"))


def test_a_plain_csv_that_names_no_cluster_gets_one_that_holds_the_peak(tmp_path):
    file = tmp_path / "least.csv"
    file.write_text("submit,run,devices\n0,10,4\n5,10,4\n10,10,4\n")
    trace = load(file)
    assert widths(trace) == [4, 4]
    assert "# nodes=" in note(trace, "cluster: 2 nodes")


@pytest.mark.parametrize("sample", sorted(p for p in SAMPLES.rglob("*") if p.name in ("venus_jobs.csv", "jobs.txt")))
def test_the_same_bytes_give_the_same_trace_packed_or_not(sample, tmp_path):
    packed = tmp_path / f"{sample.name}.gz"
    packed.write_bytes(gzip.compress(sample.read_bytes()))
    plain, unpacked = load(sample), load(packed)
    assert unpacked.jobs == plain.jobs
    assert unpacked.config == plain.config
    assert load(sample) == plain


def test_devices_have_the_sizes_of_the_clusters_of_the_traces():
    sizes = {"V100": 32, "v100": 16, "V100M16": 16, "P100": 16, "A100": 80, "G2": 16, "T4": 16}
    assert {name: devices_of(name, 1)[0].memory_bytes // 2**30 for name in sizes} == sizes
    assert devices_of("mi300x", 1)[0].vendor == "amd"
