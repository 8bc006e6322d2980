"""`penstock import` as its user meets it: what it writes works."""

import json
from pathlib import Path

import pytest
import yaml

from penstock.control.config_files import read_cluster_file
from penstock.traces import load
from tests.cli.test_simulate import penstock

SAMPLES = Path(__file__).parents[1] / "migrate" / "samples"
SLURM = SAMPLES / "slurm"
FILES = ("--conf", SLURM / "slurm.conf", "--gres", SLURM / "gres.conf", "--dump", SLURM / "lab.dump")
HISTORY = """JobID|User|Account|Partition|Submit|Start|End|State|Timelimit|AllocTRES|NNodes
1|ann|physics|batch|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T01:00:00|COMPLETED|02:00:00|cpu=8,gres/gpu=4,node=1|1
2|bob|astro|debug|2024-01-01T00:00:10|2024-01-01T00:00:20|2024-01-01T00:10:20|COMPLETED|00:30:00|cpu=8,gres/gpu=1,node=1|1
3|eve|unknown|batch|2024-01-01T00:00:20|2024-01-01T00:00:20|2024-01-01T00:10:20|COMPLETED|00:30:00|cpu=4,node=1|1
"""


def test_slurm_with_its_history_can_be_tried_at_once(tmp_path):
    (tmp_path / "sacct.txt").write_text(HISTORY)
    done = penstock("import", "slurm", *FILES, "--jobs", tmp_path / "sacct.txt", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("9 nodes with 26 devices, 1 pools, 3 tenants, 3 queues\n")
    declared = read_cluster_file(tmp_path / "out" / "cluster.yaml")
    assert [queue.name for queue in declared.config.queues] == ["chem", "physics", "astro"]
    trace = load(tmp_path / "out" / "jobs.csv")
    assert [(job.spec.queue, job.spec.tenant) for job in trace.jobs] == [
        ("physics", "physics"),
        ("astro", "astro"),
        ("batch", "unknown"),
    ]
    assert [job.spec.ask.labels_wanted for job in trace.jobs][:2] == [
        (("partition.batch", "true"),),
        (("partition.debug", "true"),),
    ]
    tried = penstock("sim", tmp_path / "out" / "jobs.csv", "-P", "as_is", "--json")
    found = json.loads(tried.stdout)["results"][0]["measures"]["whole"]
    assert (found["jobs"], found["succeeded"]) == (3, 3)


@pytest.mark.parametrize("source", ["kueue", "volcano", "yunikorn"])
def test_queues_of_kubernetes_become_a_cluster_file(source, tmp_path):
    done = penstock("import", source, SAMPLES / source / "queues.yaml", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["report"]
    assert read_cluster_file(tmp_path / "out" / "cluster.yaml").config.queues
    assert json.loads((tmp_path / "out" / "report.json").read_text())["report"]


@pytest.mark.parametrize("source", ["kueue", "volcano", "yunikorn"])
def test_objects_go_to_standard_output_and_the_report_to_standard_error(source, tmp_path):
    path = SAMPLES / source / "queues.yaml"
    done = penstock("import", source, path, "--as-objects", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    assert {(one["apiVersion"], one["kind"]) for one in objects} == {("penstock.dev/v1alpha1", "Queue")}
    assert done.stderr.startswith(f"{len(objects)} objects\n")
    assert "penstock admin set root_policy=" in done.stderr
    assert list(tmp_path.iterdir()) == []
    known = json.loads(penstock("import", source, path, "--as-objects", "--json", cwd=tmp_path).stdout)
    assert known["objects"] == objects
    usual = json.loads(penstock("import", source, path, "--json", cwd=tmp_path).stdout)
    assert known["report"][: len(usual["report"])] == usual["report"]
    assert {entry["file"] for entry in known["report"][len(usual["report"]) :]} == {"objects"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("slurm",), "at least one file of Slurm"),
        (("slurm", "--conf", "nothing.conf"), "nothing.conf"),
        (("slurm", *FILES, "--jobs", SLURM / "slurm.conf"), "slurm.conf"),
        (("kueue", "nothing.yaml"), "nothing.yaml"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(args, said, tmp_path):
    done = penstock("import", *args, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "out").exists()
