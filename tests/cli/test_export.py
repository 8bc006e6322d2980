"""`penstock export` as its user meets it: objects on standard output, the report on standard error."""

import json

import pytest
import yaml

from penstock.migrate import volcano
from penstock.testing.builders import cluster_file
from tests.cli.test_simulate import penstock
from tests.migrate.test_tovolcano import EXACT, config_of
from tests.migrate.volcanorules import admit
from tests.server.harness import Server, until

JOBS = """
jobs:
- {name: train, command: x, devices: 4, replicas: 2, queue: online}
- {name: sweep, command: x, array: 2-8:3, after_ok: train}
"""


def files(folder):
    (folder / "cluster.yaml").write_text(EXACT)
    (folder / "job.yaml").write_text(JOBS)


def test_a_cluster_file_and_job_files_become_objects_and_a_report(tmp_path):
    files(tmp_path)
    done = penstock("export", "--cluster", "cluster.yaml", "job.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = list(yaml.safe_load_all(done.stdout))
    admit(found)
    names = [one["metadata"]["name"] for one in found if one["kind"] == "PodGroup"]
    assert names == ["train", "sweep-2", "sweep-5", "sweep-8"]
    assert done.stderr.startswith("5 queues, 4 PodGroups\n")
    assert "jobs[1].after" in done.stderr
    (tmp_path / "back.yaml").write_text(done.stdout)
    back = volcano.read([tmp_path / "back.yaml"]).config
    assert [one.name for one in back.queues] == [one.name for one in config_of(EXACT).queues]


def test_json_has_objects_and_all_of_the_report(tmp_path):
    files(tmp_path)
    done = penstock("export", "--cluster", "cluster.yaml", "job.yaml", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    admit(found["objects"])
    assert {entry["outcome"] for entry in found["report"]} == {"mapped", "approximated", "not mapped"}
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--cluster", "absent.yaml"), "absent.yaml cannot be read"),
        (("--cluster", "cluster.yaml", "absent.yaml"), "the job file absent.yaml cannot be read"),
        (("--cluster", "cluster.yaml", "bad.yaml"), "devises is not a field"),
        (("--cluster", "cluster.yaml", "lost.yaml"), "found 'lost', expected one of deep, default"),
        (("--cluster", "cluster.yaml", "--format", "volcanoes"), "did you mean 'volcano'?"),
        (("--cluster", "cluster.yaml", "--device", "nvidia.com/gpux"), "did you mean 'nvidia.com/gpu'?"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_printed(tmp_path, args, said):
    files(tmp_path)
    (tmp_path / "bad.yaml").write_text("{command: x, devises: 4}")
    (tmp_path / "lost.yaml").write_text("{command: x, queue: lost}")
    done = penstock("export", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_queues_and_waiting_jobs_of_a_server_are_exported_as_they_stand(tmp_path):
    declared = cluster_file(1, 8) | {"queues": [{"name": "default"}, {"name": "night", "weight": 3}]}
    with Server(tmp_path / "data", declared) as server:
        client = server.client
        waits = {"name": "big", "command": "true", "devices": 2, "replicas": 3}
        job_id = client.submit({"name": "runs", "command": "sleep 600", "queue": "night"}).jobs[0].id
        until(lambda: client.job(job_id).state == "running", "the first one runs")
        client.submit({**waits, "after_ok": [job_id]})
        client.act("edit", {"name": "big"}, change={"queue": "night", "priority": 400})
        until(lambda: client.jobs(state="waiting").jobs[-1].priority == 400, "it is edited")
        done = penstock("--data", server.data.root, "export", "--waiting", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["objects"]
    admit(found)
    assert {one["metadata"]["name"]: one["spec"]["weight"] for one in found if one["kind"] == "Queue"} == {
        "default": 1, "night": 3,
    }  # fmt: skip
    groups = {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "PodGroup"}
    assert set(groups) == {"big"}
    assert groups["big"] == {
        "minMember": 3,
        "minResources": {"cpu": "3", "nvidia.com/gpu": "6"},
        "queue": "night",
        "priorityClassName": "penstock-400",
    }
