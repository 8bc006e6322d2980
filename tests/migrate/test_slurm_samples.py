"""The sample cluster of Slurm, value by value. Its dump and listings were written by sacctmgr of Slurm 22.05."""

from pathlib import Path

import pytest

from penstock.core.model.cluster import Settings, Tenant
from penstock.core.model.resources import Device, DeviceLink, Resources
from penstock.migrate import Imported, slurm
from tests.migrate.helpers import SAMPLES, queue, read_back

GIB = 2**30
HERE = SAMPLES / "slurm"


@pytest.fixture(scope="module")
def lab() -> Imported:
    return slurm.read(
        slurm.SlurmFiles(
            slurm=HERE / "slurm.conf",
            gres=HERE / "gres.conf",
            topology=HERE / "topology.conf",
            dump=HERE / "lab.dump",
            qos=HERE / "qos.txt",
        )
    )


def said(imported: Imported, file: str, line: int, key: str) -> tuple[str, str, str]:
    found = [e for e in imported.report if Path(e.file).name == file and (e.line, e.key) == (line, key)]
    assert len(found) == 1
    return found[0].value, found[0].outcome, found[0].note


def test_nodes_come_in_the_order_of_the_file_without_future_ones(lab):
    names = [f"gpu{i}-ib{j}" for i in ("01", "02", "03") for j in (0, 1)]
    assert [n.name for n in lab.nodes] == [*names, "gpu20", "cpu8", "cpu9"]


def test_a_gpu_node_has_what_is_left_for_jobs_its_place_and_its_labels(lab):
    node = lab.nodes[1]
    assert node.capacity == Resources(60_000, 512_000 * 2**20, 1000 * 2**20)  # 64 threads - 2 cores of two
    assert (node.switch, node.rack, node.pool, node.address) == ("leaf2", "spine1", "default", "gpu01-ib1")
    assert node.labels == (("feature.a100", "true"), ("feature.ib", "true"), ("partition.batch", "true"))
    assert ("partition.debug", "true") in lab.nodes[0].labels


def test_devices_have_model_socket_and_links(lab):
    first, second, third, _ = lab.nodes[0].devices
    assert first == Device(0, "nvidia", "a100", 40 * GIB, (8, 0), 0, (DeviceLink(1, "nvlink"),))
    assert second == Device(1, "nvidia", "a100", 40 * GIB, (8, 0), 0, (DeviceLink(0, "nvlink"),))
    assert third == Device(2, "nvidia", "a100", 40 * GIB, (8, 0), 1)


def test_devices_that_are_only_counted_are_spread_over_their_sockets(lab):
    node = lab.nodes[6]
    assert [(d.model, d.memory_bytes // GIB, d.numa_node) for d in node.devices] == [("h100", 80, 0), ("h100", 80, 1)]
    assert node.address == "10.0.0.20"


def test_cpu_nodes_override_the_defaults(lab):
    assert lab.nodes[7].capacity == Resources(48_000, 192_000 * 2**20)
    assert (lab.nodes[7].switch, lab.nodes[7].rack) == ("leaf3", "")


def test_partitions_with_common_nodes_are_one_pool(lab):
    (pool,) = lab.config.pools
    assert (pool.name, pool.kind, pool.placement, pool.backfill) == ("default", "mixed", "best_fit", "conservative")
    assert pool.description == "Slurm partitions batch, debug"


def test_settings_are_those_of_slurm(lab):
    assert lab.config.settings == Settings(
        wait_bonus_max=1000,
        wait_bonus_horizon_ms=2 * 86_400_000,
        size_penalty_per_device=0,
        min_runtime_before_preemption_ms=600_000,
        grace_default_ms=60_000,
        fair_share_half_life_ms=14 * 86_400_000,
        backfill_depth_max=200,
    )
    assert lab.config.root_policy == "fair_share"


def test_accounts_are_tenants_and_queues(lab):
    assert lab.config.tenants == (Tenant("chem", "chem"), Tenant("physics", 'it"s: "odd"'), Tenant("astro", "astro"))
    physics = queue(lab, "physics")
    assert physics.max == (
        ("cpus", 100_000), ("devices", 16_000), ("devices:a100", 8_000), ("jobs", 50), ("memory", 1000 * GIB),
    )  # fmt: skip
    assert (physics.parent, physics.policy, physics.preemption) == ("root", "fair_share", "lower_priority")
    assert (physics.weight, physics.max_waiting, physics.guaranteed, physics.lend) == (20, 100, (), None)
    astro = queue(lab, "astro")
    assert (astro.parent, astro.policy, astro.weight, astro.max) == ("physics", "priority", 3, ())


def test_the_report_says_of_each_key_what_became_of_it(lab):
    assert said(lab, "slurm.conf", 6, "SchedulerParameters")[1:] == (
        "approximated", "backfill_depth_max 200 (bf_max_job_test); the other parameters are Slurm's own",
    )  # fmt: skip
    assert said(lab, "slurm.conf", 20, "Prolog")[:2] == ("/opt/site/prolog # one", "not mapped")
    assert said(lab, "nodes.conf", 4, "Reason")[:2] == ("bad fan", "not mapped")
    assert said(lab, "gres.conf", 2, "Links")[:2] == ("-1,4,0,0", "mapped")
    assert said(lab, "slurm.conf", 24, "DefaultTime")[:2] == ("60", "not mapped")  # a joined line is where it begins
    assert said(lab, "topology.conf", 4, "LinkSpeed")[1] == "not mapped"
    assert said(lab, "lab.dump", 6, "Fairshare")[:2] == ("2147483647", "approximated")
    assert said(lab, "lab.dump", 7, "GrpTRES")[1:] == (
        "approximated", "max; without node=10: Penstock has quotas of devices, cpus, memory and jobs",
    )  # fmt: skip
    assert said(lab, "lab.dump", 14, "User MaxJobs")[:2] == ("4", "not mapped")
    assert said(lab, "qos.txt", 3, "QOS high Priority")[1:] == (
        "approximated", "its jobs say `priority: 2000`: PriorityWeightQOS × 100 ÷ 100",
    )  # fmt: skip


def test_every_key_of_every_line_has_an_entry(lab):
    lines = {(Path(e.file).name, e.line) for e in lab.report}
    for name in ("nodes.conf", "gres.conf", "topology.conf"):
        for number, text in enumerate((HERE / name).read_text().splitlines(), 1):
            assert (name, number) in lines
            keys = {e.key.lower() for e in lab.report if Path(e.file).name == name and e.line == number}
            written = {word.split("=")[0].lower() for word in text.split() if "=" in word}
            assert written <= keys


def test_the_report_begins_with_the_file_that_was_named_first(lab):
    files = list(dict.fromkeys(Path(e.file).name for e in lab.report))
    assert files == ["slurm.conf", "gres.conf", "topology.conf", "lab.dump", "qos.txt", "nodes.conf"]


def test_the_cluster_file_is_read_back_as_the_same_configuration(lab):
    assert read_back(lab) == lab.config


@pytest.mark.parametrize("name", ["assoc_tree.txt", "assoc_parent.txt"])
def test_listings_of_associations_give_the_tree_that_the_dump_gives(lab, name):
    found = slurm.read(slurm.SlurmFiles(associations=HERE / name))
    assert [(q.name, q.parent, q.weight) for q in found.config.queues] == [
        ("chem", "root", 1), ("physics", "root", 20), ("astro", "physics", 3),
    ]  # fmt: skip
    assert queue(found, "physics").max[:2] == queue(lab, "physics").max[:2]


def test_a_listing_without_parents_hangs_all_accounts_on_the_root():
    found = slurm.read(slurm.SlurmFiles(associations=HERE / "assoc_flat.txt"))
    assert {q.parent for q in found.config.queues} == {"root"}
    assert (queue(found, "physics").max_waiting, dict(queue(found, "physics").max)["jobs"]) == (100, 50)
