"""Jobs as PodGroups of Volcano: how many start together, what these need, and what is left to the pods."""

import pytest

from penstock.core.config.job import parse_request
from penstock.migrate import podgroups
from penstock.migrate.errors import ImportFault
from penstock.migrate.podgroups import SourceJob
from penstock.migrate.report import SourcePlace
from tests.migrate.test_tovolcano import config_of, exported
from tests.migrate.volcanorules import admit

CONFIG = config_of("queues: [{name: default}, {name: Lab_1}, {name: top}, {name: below, parent: top}]")
TRAIN = {"name": "train", "command": "x", "devices": 4, "cpus": 8, "memory": "64GiB", "replicas": 2, "priority": 700}


def jobs_of(*raw):
    entries, problems = parse_request(list(raw))
    assert problems == []
    return [
        SourceJob(entry.field, SourcePlace("job.yaml"), entry.spec, range(entry.count), bool(entry.array))
        for entry in entries
    ]


def groups_of(*raw, device="nvidia.com/gpu"):
    """Return the objects of jobs without queues, and the report about jobs."""
    found = exported(CONFIG, *jobs_of(*raw), device=device, namespace="ml")
    admit(found.objects)
    report = {entry.key: (entry.value, entry.outcome) for entry in found.report if entry.file == "job.yaml"}
    return [one for one in found.objects if one["kind"] != "Queue"], report


def test_a_gang_is_a_pod_group_with_a_class_of_its_priority():
    found, report = groups_of({**TRAIN, "queue": "Lab_1", "preemptible": False})
    assert found == [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "penstock-700"},
            "value": 700,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "ml", "annotations": {"volcano.sh/preemptable": "false"}},
            "spec": {
                "minMember": 2,
                "minResources": {"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "8"},
                "queue": "lab-1",
                "priorityClassName": "penstock-700",
            },
        },
    ]
    assert report == {}


LEFT_TO_PODS = {"devices": ("A100", "not mapped")}


@pytest.mark.parametrize(
    ("job", "needs", "said"),
    [
        ({"devices": 0.5}, {"cpu": "1", "nvidia.com/gpu": "1"}, {"devices": ("0.5", "approximated")}),
        ({"devices": {"profile": "1g.10gb"}}, {"cpu": "1", "nvidia.com/mig-1g.10gb": "1"}, {}),
        ({"devices": {"count": 2, "vendor": "amd"}}, {"amd.com/gpu": "2", "cpu": "1"}, {}),
        ({"devices": {"count": 2, "model": "A100"}}, {"cpu": "1", "nvidia.com/gpu": "2"}, LEFT_TO_PODS),
        ({"cpus": 0}, {"cpu": "50m"}, {}),
        ({"cpus": 0.5, "storage": "10GiB"}, {"cpu": "500m", "ephemeral-storage": "10Gi"}, {}),
    ],
)  # fmt: skip
def test_what_it_needs_is_that_of_its_least_size(job, needs, said):
    (_, group), report = groups_of({"command": "x", **job})
    assert group["spec"].get("minResources") == needs
    assert report == {f"jobs[0].{key}": value for key, value in said.items()}


def test_an_elastic_gang_is_its_least_size():
    (_, group), report = groups_of({**TRAIN, "replicas": "2..8"})
    assert group["spec"]["minMember"] == 2
    assert group["spec"]["minResources"]["nvidia.com/gpu"] == "8"
    assert report == {"jobs[0].replicas": ("8", "approximated")}


def test_groups_of_other_shape_count_too():
    (_, group), report = groups_of({**TRAIN, "groups": [{"replicas": 1, "cpus": 2, "devices": 1}]})
    assert group["spec"]["minMember"] == 3
    assert group["spec"]["minResources"]["cpu"] == "18"
    assert group["spec"]["minResources"]["nvidia.com/gpu"] == "9"
    assert report == {"jobs[0].groups": ("1", "approximated")}


def test_each_member_of_an_array_is_a_group():
    found, _ = groups_of({**TRAIN, "array": 3}, {"name": "train-1", "command": "x"})
    assert [one["metadata"]["name"] for one in found if one["kind"] == "PodGroup"] == [
        "train-0", "train-1", "train-2", "train-1-2",
    ]  # fmt: skip


def test_what_a_pod_group_does_not_say_is_named():
    job = {
        **TRAIN, "queue": "top", "pool": "a100", "topology": "same_rack", "node_labels": {"wanted": {"zone": "a"}},
        "time_limit": "1h", "max_wait": "2h", "retries": 3, "after_ok": [7],
        "alternatives": [{"devices": 8, "replicas": 1}],
    }  # fmt: skip
    _, report = groups_of(job)
    assert {key.removeprefix("jobs[0]."): value for key, (value, outcome) in report.items()} == {
        "queue": "top", "pool": "a100", "topology": "rack", "node_labels": "1", "time_limit": "1h",
        "max_wait": "2h", "retries": "3", "after": "1", "alternatives": "1",
    }  # fmt: skip
    assert {outcome for _, outcome in report.values()} == {"not mapped"}


def test_a_job_that_preempts_nobody_has_a_class_that_never_does():
    (job,) = jobs_of(TRAIN)
    never = job._replace(spec=type(job.spec)((), job.spec.ask, preempts=False))
    found = exported(CONFIG, never, job)
    admit(found.objects)
    classes = {one["metadata"]["name"]: one for one in found.objects if one["kind"] == "PriorityClass"}
    assert set(classes) == {"penstock-500-never", "penstock-700"}
    assert classes["penstock-500-never"]["preemptionPolicy"] == "Never"


def test_a_queue_that_there_is_not_is_an_error():
    with pytest.raises(ImportFault, match=r"job.yaml, jobs\[0\].queue: found 'lost', expected one of Lab_1, below"):
        groups_of({**TRAIN, "queue": "lost"})


def test_groups_have_a_bound(monkeypatch):
    monkeypatch.setattr(podgroups, "GROUPS_MAX", 4)
    with pytest.raises(ImportFault, match="at most 4 PodGroups"):
        groups_of({**TRAIN, "array": 3}, {**TRAIN, "array": 2})
