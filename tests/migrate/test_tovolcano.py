"""Queues for Volcano: it takes them, they come back as they were, and what it has no word for is named."""

import pytest
import yaml
from hypothesis import given
from msgspec.structs import replace

from penstock.core.config.cluster import parse_cluster
from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import InvalidInput
from penstock.migrate import kueue, volcano, yunikorn
from penstock.migrate.errors import ImportFault
from penstock.migrate.exporting import to_volcano
from penstock.migrate.report import MigrationReport
from penstock.migrate.toconfig import to_config
from tests.migrate.helpers import SAMPLES, write
from tests.migrate.test_toconfig import sources
from tests.migrate.volcanorules import admit
from tests.properties import examples

EXACT = """
queues:
- {name: default}
- {name: dept, weight: 2, guaranteed: {devices: 16, cpus: 64.5, memory: 1TiB}, max: {devices: 32, storage: 10GiB}}
- {name: online, parent: dept, weight: 3, guaranteed: {devices: 8, memory: 3KiB}, lend: {devices: 5}, max: {cpus: 4}}
- {name: offline, parent: dept, guaranteed: {devices: 8}, max: {devices: 8}}
- {name: deep, parent: offline}
"""


def config_of(text: str) -> ClusterConfig:
    parsed, problems = parse_cluster(yaml.safe_load(text))
    assert problems == []
    return parsed.config


def exported(config, *jobs, device="nvidia.com/gpu", namespace="default"):
    return to_volcano(config, "cluster.yaml", jobs, namespace=namespace, device=device)


def queues_of(config):
    return {one["metadata"]["name"]: one["spec"] for one in exported(config).objects}


def read_back(folder, objects):
    return volcano.read([write(folder, "back.yaml", yaml.safe_dump_all(objects))]).config.queues


def alike(queue):
    """Return a queue without what is Volcano's scheduler's own."""
    return replace(queue, policy="fifo", preemption="never")


def test_queues_come_back_as_they_were(tmp_path):
    config = config_of(EXACT.replace(", memory: 3KiB", ""))
    kept = {"dept": None, "online": (("devices", 5000),), "offline": None}
    found = exported(config)
    admit(found.objects)
    back = read_back(tmp_path, found.objects)
    wanted = [replace(alike(one), lend=kept.get(one.name)) for one in config.queues]
    lent = (("cpus", 64_500), ("devices", 13_000), ("memory", 2**40))  # what online keeps, dept keeps, too
    wanted[1] = replace(wanted[1], lend=lent)
    assert [alike(one) for one in back] == wanted


def test_a_guarantee_is_deserved_and_what_is_not_lent_is_kept():
    text = "queues: [{name: q, guaranteed: {devices: 8, cpus: 2.5}, lend: {devices: 5}, max: {memory: 1536MiB}}]"
    assert queues_of(config_of(text))["q"] == {
        "weight": 1,
        "reclaimable": True,
        "guarantee": {"resource": {"cpu": "2500m", "nvidia.com/gpu": "3"}},
        "deserved": {"cpu": "2500m", "nvidia.com/gpu": "8"},
        "capability": {"memory": "1536Mi"},
    }


def test_a_loan_that_is_not_limited_keeps_nothing():
    found = queues_of(config_of("queues: [{name: q, guaranteed: {devices: 8}}, {name: r, max: {devices: 0}}]"))
    assert "guarantee" not in found["q"]
    assert found["r"]["capability"] == {"nvidia.com/gpu": "0"}


def test_the_sample_of_volcano_is_the_same_after_the_way_there_and_back(tmp_path):
    config = volcano.read([SAMPLES / "volcano" / "queues.yaml"]).config
    found = exported(config)
    admit(found.objects)
    back = read_back(tmp_path, found.objects)
    assert [one.name for one in back] == [one.name for one in config.queues]
    for before, after in zip(config.queues, back, strict=True):
        assert (after.parent, after.weight, after.max) == (before.parent, before.weight, before.max)
        assert after.guaranteed == before.guaranteed
    assert back[1] == config.queues[1]


@pytest.mark.parametrize("source", [kueue, yunikorn])
def test_what_comes_from_other_schedulers_volcano_takes(source):
    config = source.read([SAMPLES / source.__name__.rpartition(".")[2] / "queues.yaml"]).config
    found = exported(config)
    admit(found.objects)
    assert len(found.objects) == len(config.queues)


@given(sources())
@examples(150)
def test_whatever_is_exported_volcano_takes_and_the_second_time_it_is_the_same(tmp_path_factory, source):
    try:
        config = to_config(source, MigrationReport()).config
    except ImportFault:
        return  # it contradicts itself
    folder, first = tmp_path_factory.mktemp("v"), exported(config)
    admit(first.objects)
    back = read_back(folder, first.objects)
    second = exported(replace(config, queues=back))
    admit(second.objects)
    assert second.objects == first.objects
    assert read_back(folder, second.objects) == back


def outcomes(found):
    return {entry.key: (entry.value, entry.outcome) for entry in found.report}


def test_what_volcano_has_no_word_for_is_named():
    config = config_of("""
root_policy: capacity
pools: [{name: default}, {name: a100}]
tenants: [{name: default}, {name: vision}]
settings: {starvation_after: 2h}
queues:
- {name: Lab_1, guaranteed: {'devices:A100': 2.5, jobs: 2}, policy: fifo, preemption: never, min_runtime: 1h}
- name: q
  max: {cpus: 0, a100/devices: 4, 'devices:A100': 4, devices: 1.5}
  max_waiting: 5
  alerts: [50]
  idle: {after: 1h}
""")
    found = exported(config)
    assert outcomes(found) == {
        "root_policy": ("capacity", "approximated"),
        "pools": ("[2]", "not mapped"),
        "tenants": ("[2]", "not mapped"),
        "settings": ("{starvation_after}", "not mapped"),
        "queues.Lab_1.name": ("Lab_1", "approximated"),
        "queues.Lab_1.weight": ("1", "mapped"),
        "queues.Lab_1.guaranteed.devices:A100": ("2.5", "approximated"),
        "queues.Lab_1.guaranteed.jobs": ("2", "not mapped"),
        "queues.Lab_1.policy": ("fifo", "not mapped"),
        "queues.Lab_1.preemption": ("never", "not mapped"),
        "queues.Lab_1.min_runtime": ("1h", "not mapped"),
        "queues.q.weight": ("1", "mapped"),
        "queues.q.max.cpus": ("0", "not mapped"),
        "queues.q.max.a100/devices": ("4", "not mapped"),
        "queues.q.max.devices:A100": ("4", "not mapped"),
        "queues.q.max.devices": ("1.5", "approximated"),
        "queues.q.max_waiting": ("5", "not mapped"),
        "queues.q.alerts": ("[1]", "not mapped"),
        "queues.q.idle": ("{after}", "not mapped"),
    }
    specs = queues_of(config)
    assert specs["lab-1"]["deserved"] == {"nvidia.com/gpu": "2"}
    assert specs["q"]["capability"] == {"nvidia.com/gpu": "1"}


def test_what_volcanos_admission_asks_for_is_lifted_or_clipped_and_said():
    found = exported(config_of(EXACT.replace("max: {devices: 8}", "max: {devices: 40}")))
    admit(found.objects)
    said = {entry.key: (entry.value, entry.note.partition(":")[0]) for entry in found.report}
    assert said["queues.dept.guarantee of nvidia.com/gpu"] == ("0", "guarantee 3")
    assert said["queues.dept.guarantee of memory"] == ("0", "guarantee 3Ki")
    assert said["queues.offline.capability of nvidia.com/gpu"] == ("40", "capability 32")


def test_a_maximum_counts_for_all_queues_below():
    text = "queues: [{name: a, max: {devices: 4}}, {name: b, parent: a}, {name: c, parent: b, max: {devices: 9}}]"
    assert queues_of(config_of(text))["c"]["capability"] == {"nvidia.com/gpu": "4"}


def test_weights_above_volcanos_are_divided_among_siblings():
    found = exported(config_of("queues: [{name: a, weight: 1000000}, {name: b, weight: 10}, {name: c, parent: a}]"))
    assert [one["spec"]["weight"] for one in found.objects] == [65_535, 1, 1]
    assert outcomes(found)["queues.b.weight"] == ("10", "approximated")
    assert outcomes(found)["queues.c.weight"] == ("1", "mapped")


def test_names_are_those_of_objects_and_stay_apart():
    names = ["a_b", "A-b", "x" * 63, "-.-", "9", "a..b", "Root"]
    found = exported(config_of(yaml.safe_dump({"queues": names})))
    admit(found.objects)
    made = [one["metadata"]["name"] for one in found.objects]
    assert made == ["a-b", "a-b-2", "x" * 63, "unnamed", "9", "a.b", "root-2"]


def test_a_queue_is_below_its_parents_new_name():
    found = exported(config_of("queues: [{name: Lab_1}, {name: q, parent: Lab_1}]"))
    admit(found.objects)
    assert found.objects[1]["spec"]["parent"] == "lab-1"


def test_a_tree_that_is_too_deep_for_volcano_is_said():
    queues = [{"name": f"q{i}", **({"parent": f"q{i - 1}"} if i else {})} for i in range(6)]
    found = exported(config_of(yaml.safe_dump({"queues": queues})))
    deep = [entry.key for entry in found.report if "--max-queue-depth" in entry.note]
    assert deep == ["queues.q5.parent"]


def test_what_is_as_by_default_is_no_loss():
    assert outcomes(exported(ClusterConfig())) == {
        "root_policy": ("priority", "approximated"),
        "queues.default.weight": ("1", "mapped"),
    }


def test_parents_come_before_the_queues_below_them():
    found = exported(config_of("queues: [{name: c, parent: b}, {name: b, parent: a}, {name: a}]"))
    assert [one["metadata"]["name"] for one in found.objects] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device": "nvidia.com/gpus"}, "device: 'nvidia.com/gpus', expected a resource of devices"),
        ({"namespace": "Team A"}, "namespace: 'Team A', expected a name"),
        ({"namespace": "a.b"}, "namespace: 'a.b', expected a name"),
    ],
)
def test_what_cannot_be_is_named(given, said):
    with pytest.raises(InvalidInput, match=said):
        exported(ClusterConfig(), **given)


def test_devices_are_counted_as_the_resource_that_is_asked_for():
    found = exported(config_of("queues: [{name: q, max: {devices: 2}}]"), device="amd.com/gpu")
    assert found.objects[0]["spec"]["capability"] == {"amd.com/gpu": "2"}
