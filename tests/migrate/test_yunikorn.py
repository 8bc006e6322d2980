"""YuniKorn's queues: paths as names, inherited properties, partitions as pools."""

import pytest

from penstock.core.model.cluster import Pool, Queue
from penstock.migrate import yunikorn
from penstock.migrate.errors import ImportFault
from tests.migrate.helpers import SAMPLES, outcomes, queue, read_back, write

GIB = 2**30
HERE = SAMPLES / "yunikorn"


@pytest.fixture(scope="module")
def sample():
    return yunikorn.read([HERE / "queues.yaml", HERE / "configmap.yaml"])


def yunikorn_of(tmp_path, queues: str):
    text = "partitions:\n  - name: default\n    queues:\n      - name: root\n        queues:\n" + queues
    return yunikorn.read([write(tmp_path, "y.yaml", text)])


def test_a_queue_is_called_by_its_path_and_keeps_its_quotas(sample):
    assert queue(sample, "research.vision") == Queue(
        name="research.vision",
        parent="research",
        policy="fair_share",  # inherited
        preemption="reclaim",
        guaranteed=(("cpus", 15_500), ("devices", 4_000), ("memory", 32 * GIB)),
        max=(("cpus", 40_000), ("jobs", 5), ("memory", 10**11)),
    )


def test_a_parent_goes_by_use_of_guarantee_and_is_lifted(sample):
    research = queue(sample, "research")
    assert (research.policy, research.parent) == ("capacity", "root")
    assert research.guaranteed == (("cpus", 25_500), ("devices", 4_000), ("memory", 64 * GIB))
    assert research.max == (("cpus", 100_000), ("devices", 16_000), ("memory", 500 * 10**9))


def test_fifo_looks_at_priorities_unless_that_is_disabled(sample):
    assert queue(sample, "research.speech").policy == "fifo"
    assert queue(sample, "free").policy == "priority"


def test_disabled_preemption_is_inherited(tmp_path, sample):
    assert queue(sample, "free").preemption == "never"
    text = "          - {name: a, properties: {preemption.policy: disabled}, queues: [{name: b}]}\n"
    assert queue(yunikorn_of(tmp_path, text), "a.b").preemption == "never"


def test_partitions_are_pools_with_the_placement_of_their_sort_policy(sample):
    assert sample.config.pools == (
        Pool("default", placement="best_fit", backfill="none"), Pool("gpu", placement="worst_fit", backfill="none"),
    )  # fmt: skip
    assert queue(sample, "gpu.Team").max == (("cpus", 8_000),)


def test_the_report_gives_lines_inside_the_config_map(sample):
    assert outcomes(sample, "partitions[0].queues[0].queues[0].resources.max.vcore")[0] == (13, "8", "mapped")
    root = "partitions[0].queues[0].queues[0]"
    assert outcomes(sample, f"{root}.queues[1].properties.priority.offset") == [(27, "100", "not mapped")]
    assert outcomes(sample, f"{root}.queues[0].resources.max.pods") == [(21, "100", "not mapped")]
    assert outcomes(sample, "partitions[0].placementrules") == [(4, "[1]", "not mapped")]
    assert outcomes(sample, "data.service.schedulingInterval") == [(5, "1s", "not mapped")]


def test_every_property_has_an_entry(tmp_path):
    queues = "          - {name: a, properties: {quota.preemption.delay: 30s, my.own: x}}\n"
    found = yunikorn_of(tmp_path, queues)
    assert [e.outcome for e in found.report if ".properties." in e.key] == ["not mapped", "not mapped"]
    with pytest.raises(ImportFault, match="a field that exists"):
        yunikorn_of(tmp_path, "          - {name: a, properties: {application.sort.polcy: fair}}\n")


def test_partition_wide_preemption_can_be_switched_off(tmp_path):
    text = "partitions: [{name: default, preemption: {enabled: false}, queues: [{name: a}]}]"
    assert queue(yunikorn.read([write(tmp_path, "y", text)]), "a").preemption == "never"


def test_the_cluster_file_is_read_back_as_the_same_configuration(sample):
    assert read_back(sample) == sample.config


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ("          - {name: a}\n          - {name: A}\n", "each queue once"),
        ("          - {nam: a}\n", "a text that is not empty"),
        ("          - {name: a, maxapplication: 3}\n", "a field that exists"),
        ("          - {name: a, resources: {max: {vcore: 1.5}}}\n", "a quantity such as 10, 500m"),
        ("          - {name: a, resources: {max: {memory: 5m}}}\n", "a quantity such as 10, 500m"),
        ("          - {name: a, resources: {guaranteed: {vcore: 3}, max: {vcore: 2}}}\n", "at most 2 of cpus"),
        ("          - {name: a, properties: {application.sort.policy: lifo}}\n", "one of fifo, fair, stateaware"),
        ("          " + "[{name: q, queues: " * 21 + "[]" + "}]" * 21, "at most 20 levels of queues"),
    ],
)
def test_malformed_queues_are_refused(tmp_path, queues, said):
    with pytest.raises(ImportFault, match=said):
        yunikorn_of(tmp_path, queues)


def test_a_partition_given_twice_is_refused(tmp_path):
    text = "partitions: [{name: a, queues: []}, {name: a, queues: []}]"
    with pytest.raises(ImportFault, match="each partition once"):
        yunikorn.read([write(tmp_path, "y", text)])
