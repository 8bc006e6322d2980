"""The cluster file of an import: taken by Penstock's own reader, with the same values."""

import yaml

from penstock.core.config.cluster import parse_cluster
from penstock.core.model import cluster as c
from penstock.core.model.resources import Device, DeviceLink, Resources
from penstock.migrate import Imported, to_cluster_file
from tests.migrate.helpers import SAMPLES, read_back, slurm_of

GIB = 2**30


def test_nodes_are_read_back_with_capacity_place_and_devices():
    links = [(DeviceLink(1, "nvlink"), DeviceLink(2, "pcie")), (DeviceLink(0, "nvlink"),), (DeviceLink(0, "pcie"),)]
    devices = tuple(Device(i, "nvidia", "H100", 80 * GIB, (9, 0), 0, links[i], mig=True) for i in range(3))
    node = c.NodeSpec(
        "n 1", Resources(2500, 3 * GIB + 1, 5), devices, labels=(("a", "1"), ("b", "true")), rack="7", switch="null"
    )
    parsed, problems = parse_cluster(yaml.safe_load(to_cluster_file(Imported((node,), c.ClusterConfig(), ()))))
    (found,) = parsed.nodes
    assert problems == []
    assert (found.name, found.cpu_milli, found.memory_bytes, found.storage_bytes) == ("n_1", 2500, 3 * GIB + 1, 5)
    assert (found.labels, found.rack, found.switch) == (node.labels, "7", "null")
    assert (found.simulated_count, found.simulated_model, found.simulated_memory_bytes) == (3, "H100", 80 * GIB)
    assert (found.simulated_mig, found.simulated_links) == (True, ((0, 1),))


def test_a_node_with_several_models_is_written_with_the_most_frequent_and_a_comment(tmp_path):
    text = to_cluster_file(slurm_of(tmp_path, "NodeName=n1 Gres=gpu:t4:1,gpu:a100:2\n"))
    assert "# 'n1' has devices of 2 models; all are written as 'a100'." in text.splitlines()
    assert yaml.safe_load(text)["nodes"][0]["simulated_devices"]["count"] == 3


def test_what_is_empty_is_left_out():
    text = to_cluster_file(Imported((), c.ClusterConfig(), ()))
    assert yaml.safe_load(text) == {
        "pools": [{"name": "default"}], "tenants": [{"name": "default"}], "queues": [{"name": "default"}],
    }  # fmt: skip


def test_every_field_of_a_configuration_is_read_back():
    config = c.ClusterConfig(
        pools=(c.Pool("default", "gpu", "d: #x", "worst_fit", "none", 150, (("A100", 1000, 1500),)),),
        tenants=(c.Tenant("t", "a\nb"), c.Tenant("123")),
        queues=(
            c.Queue("null", policy="fifo", guaranteed=(("jobs", 3), ("memory", 2**40 + 1)), lend=()),
            c.Queue("yes", "null", preemption="never", weight=7, max=(("cpus", 1),), min_runtime_ms=90_061_001),
            c.Queue("1e3", max_waiting=5, max=(("devices:A 1", 2**50), ("devices", 2**50 - 1))[::-1]),
        ),
        settings=c.Settings(lease_ttl_ms=40_001, admission_milli=1234, defrag=True, backfill_depth_max=9),
        root_policy="capacity",
    )
    assert read_back(Imported((), config, ())) == config


def test_a_text_cannot_break_out_of_its_place(tmp_path):
    evil = "x\nqueues: [{name: evil}]\n#"
    node = c.NodeSpec(evil, Resources(), (Device(0, "v", "A", 0), Device(1, "v", "B", 0)))
    found = Imported((node,), c.ClusterConfig(tenants=(c.Tenant("t", evil),)), ())
    assert read_back(found) == found.config


def test_the_samples_are_small_enough_to_read():
    assert all(path.stat().st_size < 10_000 for path in SAMPLES.rglob("*") if path.is_file())
