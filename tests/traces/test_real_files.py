"""The published traces, against the figures that their README.txt gives; PENSTOCK_TRACES names the folder."""

import os
from collections import Counter
from pathlib import Path

import pytest

from penstock.core.config.queues import tree_problems
from penstock.traces import Trace, load, write_csv
from tests.sim.replay.builders import unmeasured

ROOT = os.environ.get("PENSTOCK_TRACES", "")
pytestmark = pytest.mark.skipif(not ROOT, reason="PENSTOCK_TRACES is not set: the folder that holds the real traces")


def loaded(name: str) -> Trace:
    return load(Path(ROOT) / name)


def device_count(trace: Trace) -> int:
    return sum(len(node.devices) for node in trace.nodes)


def test_philly_has_all_its_rows_gpu_time_and_virtual_clusters():
    trace = loaded("philly/philly_jobs.csv.gz")
    assert len(trace.jobs) == 82_247
    gpu_ms = sum(job.spec.ask.device_total * job.work.run_ms for job in trace.jobs)
    assert gpu_ms == 3_521_082_502_000
    assert round(sum(job.spec.ask.device_total for job in trace.jobs) / 82_247, 2) == 1.30
    assert (len(trace.nodes), device_count(trace)) == (352, 2_816)
    assert len({job.spec.queue for job in trace.jobs}) == 15
    assert sum(1 for queue in trace.config.queues if queue.guaranteed) == 11
    assert len({id(job.spec) for job in trace.jobs}) == len({job.spec for job in trace.jobs})


def test_helios_has_the_september_of_venus():
    trace = loaded("helios/venus_2020-09_gpu_jobs.csv.gz")
    assert len(trace.jobs) == 24_172
    assert device_count(trace) == 1_064
    assert max(job.work.run_ms for job in trace.jobs) == 172_800_000
    assert trace.jobs[0].submit_ms == 14_414_412_000
    assert len({id(job.spec) for job in trace.jobs}) == 28


@pytest.mark.parametrize("variant", ["default", "gpuspec33"])
def test_openb_has_its_cluster_and_the_pods_that_ran(variant):
    trace = loaded(f"openb/openb_pod_list_{variant}.csv.gz")
    models = Counter(device.model for node in trace.nodes for device in node.devices)
    assert dict(models) == {"G2": 4392, "T4": 842, "G3": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2}
    assert len(trace.nodes) == 1_523
    assert len(trace.jobs) == 8_152 - 897
    assert "897 jobs left out: they never started" in trace.notes
    asked = sum(1 for job in trace.jobs if job.spec.ask.each.devices and job.spec.ask.each.devices.models)
    assert (asked > 0) == (variant == "gpuspec33")


def test_acme_has_the_converted_jobs_up_to_a_thousand_gpus():
    trace = loaded("acme/kalos_converted_319jobs.csv.gz")
    assert len(trace.jobs) == 319
    assert max(job.spec.ask.device_total for job in trace.jobs) == 1_024
    assert device_count(trace) == 2_416


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_pollux_workloads_have_their_jobs_within_eight_hours(number):
    trace = loaded(f"pollux/workloads/workload-{number}.csv.gz")
    assert len(trace.jobs) == 160
    assert device_count(trace) == 64
    assert trace.jobs[-1].submit_ms <= 8 * 3_600_000
    assert all(job.work.scaling or job.spec.name == "ncf" for job in trace.jobs)


def test_pollux_run_times_are_those_of_the_simulated_cluster():
    jobs = loaded("pollux/workloads/workload-1.csv.gz").jobs
    run_s = {(j.spec.name, j.spec.ask.replicas, j.spec.labels[0][1]): j.work.run_ms / 1000 for j in jobs}
    # From the published simulator, which rounds each epoch to whole seconds.
    assert run_s["cifar10", 6, "2048"] == pytest.approx(910, rel=0.02)
    assert run_s["imagenet", 32, "6400"] == pytest.approx(27_431, rel=0.02)
    assert run_s["yolov3", 4, "64"] == pytest.approx(14_102, rel=0.02)


def test_gavel_has_both_traces_and_clusters():
    physical, simulated = (
        loaded("gavel/physical_cluster_traces.csv.gz"),
        loaded("gavel/msr/philly_vc_traces_seed0.csv.gz"),
    )
    assert len(physical.jobs) == 287
    assert device_count(physical) == 48
    assert len(simulated.jobs) == 15_264
    assert device_count(simulated) == 900
    assert any(note.startswith("1548 jobs have a number of devices that was not measured") for note in simulated.notes)


def test_tiresias_has_its_sixty_jobs():
    trace = loaded("tiresias/60_job.csv.gz")
    assert len(trace.jobs) == 60
    assert device_count(trace) == 128


@pytest.mark.parametrize(
    "name",
    [
        "philly/philly_jobs.csv.gz",
        "helios/venus_2020-09_gpu_jobs.csv.gz",
        "openb/openb_pod_list_gpuspec33.csv.gz",
        "acme/kalos_converted_319jobs.csv.gz",
        "pollux/workloads/workload-1.csv.gz",
        "gavel/msr/philly_vc_traces_seed0.csv.gz",
        "tiresias/60_job.csv.gz",
    ],
)
def test_every_real_trace_has_sound_queues_and_comes_back_from_plain_csv(name, tmp_path):
    trace = loaded(name)
    assert tree_problems(trace.config.queues, [queue.name for queue in trace.config.queues]) == []
    write_csv(trace, tmp_path / "out.csv.gz")
    assert load(tmp_path / "out.csv.gz") == unmeasured(trace)
