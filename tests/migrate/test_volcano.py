"""Volcano's queues: guarantee, deserved and capability, and what the scheduler's configuration changes."""

import pytest

from penstock.core.model.cluster import Pool, Queue
from penstock.migrate import volcano
from penstock.migrate.errors import ImportFault
from tests.migrate.helpers import SAMPLES, note, outcomes, queue, read_back, write

HERE = SAMPLES / "volcano"


@pytest.fixture(scope="module")
def sample():
    return volcano.read([HERE / "queues.yaml", HERE / "scheduler.yaml"])


def volcano_of(tmp_path, text: str):
    return volcano.read([write(tmp_path, "v.yaml", text)])


def a_queue(spec: str, name: str = "q") -> str:
    return f"apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_the_larger_of_guarantee_and_deserved_is_promised_and_the_guarantee_not_lent(sample):
    assert queue(sample, "online") == Queue(
        name="online",
        parent="dept",
        policy="priority",
        preemption="reclaim",
        weight=3,
        guaranteed=(("cpus", 500), ("devices", 12_000)),
        lend=(("cpus", 0), ("devices", 8_000)),
    )


def test_capability_is_the_maximum_and_parents_are_lifted(sample):
    dept = queue(sample, "dept")
    assert dept.max == (("cpus", 128_000), ("devices", 32_000), ("memory", 2**40))
    assert dept.guaranteed == (("cpus", 500), ("devices", 21_000))
    assert note(sample, "guaranteed devices") == "lifted to 21, which the queues below 'dept' are promised together"


def test_mig_profiles_count_their_compute_slices(sample):
    assert queue(sample, "offline").guaranteed == (("devices", 9_000),)
    assert outcomes(sample, "spec.deserved.nvidia.com/mig-1g.5gb") == [(32, "7", "approximated")]
    assert outcomes(sample, "spec.deserved.rdma/hca") == [(32, "2", "not mapped")]


def test_the_root_queue_is_penstocks_own(sample):
    assert [q.name for q in sample.config.queues] == ["dept", "online", "offline"]
    assert outcomes(sample, "spec.capability") == [(4, "{cpu}", "not mapped")]


def test_the_schedulers_plugins_and_actions_give_policies(sample):
    assert sample.config.root_policy == "capacity"
    assert sample.config.pools == (Pool("default", placement="best_fit", backfill="none"),)
    assert outcomes(sample, "actions") == [(6, "enqueue, allocate, backfill, reclaim", "approximated")]
    assert outcomes(sample, "tiers[1].plugins[1].name") == [(14, "binpack", "mapped")]  # a line inside the ConfigMap


def test_without_a_configuration_the_default_one_holds(tmp_path):
    found = volcano_of(tmp_path, a_queue("{weight: 2, reclaimable: false}"))
    assert (queue(found, "q").preemption, queue(found, "q").policy) == ("never", "priority")
    assert found.config.root_policy == "fair_share"
    assert outcomes(found, "spec.reclaimable") == [(4, "false", "not mapped")]


def test_a_bare_configuration_is_read_too(tmp_path):
    conf = write(tmp_path, "c", 'actions: "allocate, preempt"\ntiers: [{plugins: [{name: proportion}]}]\n')
    found = volcano.read([write(tmp_path, "q", a_queue("{}")), conf])
    assert (queue(found, "q").preemption, queue(found, "q").policy) == ("lower_priority", "fifo")


def test_configurations_of_volcanos_other_parts_are_reported_and_not_read(tmp_path):
    conf = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  volcano-admission.conf: 'resourceGroups: []'\n"
    )
    scheduler = conf.replace("admission.conf: 'resourceGroups: []'", "scheduler.conf: 'actions: reclaim'")
    found = volcano_of(tmp_path, "---\n".join([conf, scheduler, a_queue("{}")]))
    assert queue(found, "q").preemption == "reclaim"
    assert outcomes(found, "data.volcano-admission.conf") == [(5, "resourceGroups: []", "not mapped")]


@pytest.mark.parametrize(("plugin", "guaranteed"), [("proportion", ()), ("capacity", (("devices", 4_000),))])
def test_what_is_deserved_counts_with_the_plugin_capacity_only(tmp_path, plugin, guaranteed):
    spec = a_queue("{deserved: {nvidia.com/gpu: 4}}")
    found = volcano_of(tmp_path, f"tiers: [{{plugins: [{{name: {plugin}}}]}}]\n---\n{spec}")
    assert queue(found, "q").guaranteed == guaranteed
    assert bool(outcomes(found, "spec.deserved")) == (plugin == "proportion")


def test_jobs_are_not_imported_and_priority_classes_are_numbers(sample):
    assert outcomes(sample, "kind") == [(35, "PodGroup", "not mapped")]
    assert note(sample, "value") == "jobs of class 'high' say `priority: 1000`"


def test_the_cluster_file_is_read_back_as_the_same_configuration(sample):
    assert read_back(sample) == sample.config


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        (a_queue("{wieght: 1}"), "spec.wieght", "a field that exists"),
        (a_queue("{weight: -1}"), "spec.weight", "a whole number from 0"),
        (a_queue("{reclaimable: maybe}"), "spec.reclaimable", "true or false"),
        (a_queue("{capability: {cpu: 1}, deserved: {cpu: 2}}"), "guaranteed cpus", "at most 1 of cpus"),
        (a_queue("{parent: r}", "q") + "---\n" + a_queue("{}", "rr"), "parent", "the name of a queue"),
        (a_queue("{parent: b}", "a") + "---\n" + a_queue("{parent: a}", "b"), "parent", "above itself"),
        ("actions: a\n---\nactions: b\n", "actions", "one configuration of the scheduler"),
    ],
)
def test_malformed_queues_are_refused(tmp_path, text, field, said):
    with pytest.raises(ImportFault, match=said) as caught:
        volcano_of(tmp_path, text)
    assert caught.value.field == field
