"""Kueue's objects: quotas that borrow and lend, flavours as device models, and what has no counterpart."""

import pytest

from penstock.core.model.cluster import Queue, Settings, Tenant
from penstock.core.model.resources import Resources
from penstock.migrate import Imported, kueue
from penstock.migrate.errors import ImportFault
from tests.migrate.helpers import SAMPLES, note, outcomes, queue, read_back, write

GIB = 2**30
A100, T4 = "devices:NVIDIA-A100-SXM4-80GB", "devices:spot-t4"
FILES = [SAMPLES / "kueue" / "queues.yaml", SAMPLES / "kueue" / "rest.yaml"]
MEMORY = 512 * GIB + 10**9


@pytest.fixture(scope="module")
def sample() -> Imported:
    return kueue.read(FILES)


def kueue_of(tmp_path, text: str) -> Imported:
    return kueue.read([write(tmp_path, "k.yaml", text)])


def a_queue(spec: str, name: str = "q") -> str:
    return f"apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_a_cluster_queue_is_guaranteed_its_nominal_quota_and_may_borrow(sample):
    assert queue(sample, "vision") == Queue(
        name="vision",
        parent="research",
        policy="priority",
        preemption="lower_priority",
        weight=1,
        guaranteed=(("cpus", 65_500), ("devices", 20_000), (A100, 16_000), (T4, 4_000), ("memory", MEMORY)),
        max=(("cpus", 97_500), (A100, 24_000)),  # what has no borrowing limit has no maximum
        lend=(("cpus", 65_500), ("devices", 16_000), (A100, 12_000), (T4, 4_000), ("memory", MEMORY)),
    )


def test_a_queue_may_not_use_flavours_that_it_does_not_name(sample):
    assert queue(sample, "speech") == Queue(
        name="speech",
        parent="research",
        policy="priority",
        preemption="reclaim",
        weight=4,  # 2 : 0.5
        guaranteed=(("devices", 8_000), (A100, 8_000)),
        max=((T4, 0),),
    )


def test_a_queue_without_cohort_has_its_nominal_quota_and_no_more(sample):
    batch = queue(sample, "batch")
    assert (batch.parent, batch.preemption, batch.guaranteed) == ("root", "never", (("cpus", 100_000),))
    assert batch.max == (("cpus", 100_000), ("devices", 0), (A100, 0), (T4, 0), ("jobs", 0))  # on hold


def test_a_cohort_has_its_own_quota_on_top_of_its_queues(sample):
    research = queue(sample, "research")
    assert (research.parent, research.policy) == ("institute", "capacity")
    assert dict(research.guaranteed)[A100] == 26_000  # 16 + 8 + its own 2
    assert research.max == ((A100, 32_000),)
    assert dict(research.lend or ())[A100] == 10_000


def test_a_cohort_that_nobody_declares_is_what_is_below_it(sample):
    institute = queue(sample, "institute")
    assert institute.parent == "root"
    assert institute.guaranteed == institute.max == queue(sample, "research").guaranteed


def test_order_within_a_queue_is_priority_then_age(sample):
    assert sample.config.settings == Settings(wait_bonus_max=0, size_penalty_per_device=0)
    assert (sample.config.pools[0].backfill, sample.config.root_policy) == ("easy", "capacity")


def test_no_strict_queue_means_no_reservations(tmp_path):
    assert kueue_of(tmp_path, a_queue("{queueingStrategy: BestEffortFIFO}")).config.pools[0].backfill == "none"


def test_namespaces_of_local_queues_are_tenants(sample):
    assert sample.config.tenants == (Tenant("team-vision", "namespace team-vision"),)
    assert note(sample, "spec.clusterQueue") == "tenant 'team-vision'; its jobs name queue 'vision', not 'main'"


def test_nodes_hang_where_the_levels_of_the_topology_say(sample):
    (node,) = sample.nodes
    assert (node.rack, node.switch, node.zone) == ("r7", "s3", "z1")
    assert node.capacity == Resources(95_500, 1000 * GIB, 2**40)
    assert [(d.index, d.model, d.memory_bytes // GIB, d.capability) for d in node.devices] == [
        (0, "NVIDIA-A100-SXM4-80GB", 80, (8, 0)), (1, "NVIDIA-A100-SXM4-80GB", 80, (8, 0)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("levels", "place"),
    [("block", ("", "b1")), ("block rack", ("b1", "r1")), ("block rack kubernetes.io/hostname", ("b1", "r1")),
    ("block kubernetes.io/hostname", ("", "b1")), ("zone block rack", ("b1", "r1")), ("", ("", ""))],
)  # fmt: skip
def test_the_lowest_level_is_the_node_only_where_it_is_its_host_name(tmp_path, levels, place):
    labels = ", ".join(f"{{nodeLabel: {label}}}" for label in levels.split())
    text = f"apiVersion: kueue.x-k8s.io/v1beta1\nkind: Topology\nmetadata: {{name: t}}\nspec: {{levels: [{labels}]}}\n"
    text += "---\napiVersion: v1\nkind: Node\nmetadata: {name: n, labels: {block: b1, rack: r1, zone: z1}}\n"
    (node,) = kueue_of(tmp_path, text).nodes
    assert (node.rack, node.switch) == place


def test_what_keeps_jobs_off_a_node_is_not_mapped(tmp_path):
    text = (
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec: {unschedulable: true, taints: [{key: a}], podCIDR: x}\n"
    )
    found = kueue_of(tmp_path, text)
    assert outcomes(found, "spec.unschedulable") == [(4, "true", "not mapped")]
    assert outcomes(found, "spec.taints") == [(4, "[1]", "not mapped")]
    assert outcomes(found, "spec.podCIDR") == []


@pytest.mark.parametrize(
    ("value", "said"),
    [(10_000, "say `priority: 10000`"), (1_000_000, "from 0 to 10000 that"), (-1, "from 0 to 10000 that")],
)
def test_a_priority_that_no_job_may_say_is_not_advised(tmp_path, value, said):
    text = f"apiVersion: kueue.x-k8s.io/v1beta1\nkind: WorkloadPriorityClass\nmetadata: {{name: c}}\nvalue: {value}\n"
    assert said in note(kueue_of(tmp_path, text), "value")


def test_the_report_gives_line_key_value_and_outcome(sample):
    quota = "spec.resourceGroups[0].flavors[0].resources[2]"
    assert outcomes(sample, f"{quota}.lendingLimit") == [(35, "12", "mapped")]
    assert outcomes(sample, "spec.preemption.borrowWithinCohort.policy") == [(45, "LowerPriority", "not mapped")]
    assert outcomes(sample, "spec.nodeTaints") == [(14, "[1]", "not mapped")]
    assert outcomes(sample, "spec.fairSharing.weight") == [(48, "0.5", "approximated"), (64, "2", "approximated")]
    assert outcomes(sample, "spec.stopPolicy") == [(72, "Hold", "mapped")]
    assert outcomes(sample, "value") == [(22, "10000", "approximated")]
    assert outcomes(sample, "kind") == [(45, "AdmissionCheck", "not mapped")]


def test_the_cluster_file_is_read_back_as_the_same_configuration(sample):
    assert read_back(sample) == sample.config


def test_the_order_of_files_changes_nothing_but_the_order(sample):
    other = kueue.read(FILES[::-1])
    assert {q.name: q for q in other.config.queues} == {q.name: q for q in sample.config.queues}


@pytest.mark.parametrize(
    ("reclaim", "within", "rule", "reclaim_is", "within_is"),
    [
        ("Never", "Never", "never", "mapped", "mapped"),
        ("Any", "Never", "reclaim", "mapped", "mapped"),
        ("LowerPriority", "Never", "reclaim", "approximated", "mapped"),
        ("Any", "LowerPriority", "lower_priority", "mapped", "approximated"),
        ("Never", "LowerOrNewerEqualPriority", "lower_priority", "approximated", "approximated"),
    ],
)
def test_preemption_rules(tmp_path, reclaim, within, rule, reclaim_is, within_is):
    found = kueue_of(
        tmp_path, a_queue(f"{{preemption: {{reclaimWithinCohort: {reclaim}, withinClusterQueue: {within}}}}}")
    )
    assert queue(found, "q").preemption == rule
    assert outcomes(found, "spec.preemption.reclaimWithinCohort")[0][2] == reclaim_is
    assert outcomes(found, "spec.preemption.withinClusterQueue")[0][2] == within_is


def test_a_cohort_and_a_queue_of_one_name_stay_apart(tmp_path):
    found = kueue_of(tmp_path, a_queue("{cohort: q}"))
    assert [(q.name, q.parent) for q in found.config.queues] == [("q", "root"), ("q-2", "q")]
    assert outcomes(found, "name") == [(1, "q", "approximated")]


def test_fields_of_newer_versions_are_reported_and_slips_are_refused(tmp_path):
    found = kueue_of(tmp_path, a_queue("{quantumAdmission: 7}"))
    assert outcomes(found, "spec.quantumAdmission") == [(4, "7", "not mapped")]
    with pytest.raises(ImportFault, match="a field that exists") as caught:
        kueue_of(tmp_path, a_queue("{queuingStrategy: StrictFIFO}"))
    assert (caught.value.line, caught.value.hint) == (4, "did you mean 'queueingStrategy'?")


GROUP = "{{resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: f, resources: [{}]}}]}}]}}"


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        (a_queue("{cohort: [a]}"), "spec.cohort", "a text or number"),
        (a_queue("{stopPolicy: hold}"), "spec.stopPolicy", "one of None, Hold, HoldAndDrain"),
        (a_queue(GROUP.format("{name: cpu, nominalQuota: many}")), "nominalQuota", "a quantity such as 8"),
        (a_queue(GROUP.format("{name: cpu, nominalQuota: -1}")), "nominalQuota", "a quantity such as 8"),
        (a_queue(GROUP.format("{name: gpu, nominalQuota: 1}")), "name", "a resource that coveredResources names"),
        (a_queue(GROUP.format("{name: cpu, nominalQuota: 1, lendingLimit: 1}")), "lendingLimit", "without a cohort"),
        (a_queue("{}") + "---\n" + a_queue("{}"), "name", "each queue once"),
        (a_queue("{}").replace("{name: q}", "{}"), "metadata.name", "a ClusterQueue with a name"),
        (a_queue("{}").replace("spec:", "specs:"), "specs", "a field that exists"),
        ("a: 1\n", "kind", "a kind, such as ClusterQueue"),
        ("- 1\n", "", "a mapping with apiVersion and kind"),
        (a_queue("{parentName: d}", "c").replace("ClusterQueue", "Cohort") + "---\n"
         + a_queue("{parentName: c}", "d").replace("ClusterQueue", "Cohort"), "parent", "this queue is above itself"),
    ],
)  # fmt: skip
def test_malformed_objects_are_refused(tmp_path, text, field, said):
    with pytest.raises(ImportFault, match=said) as caught:
        kueue_of(tmp_path, text)
    assert caught.value.field.endswith(field)
    assert caught.value.line > 0


def test_no_files_and_no_yaml_are_refused(tmp_path):
    with pytest.raises(ImportFault, match="1 to 1000 files"):
        kueue.read([])
    with pytest.raises(ImportFault, match="YAML"):
        kueue_of(tmp_path, "a: [")
