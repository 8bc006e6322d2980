"""Task files of SkyPilot and dstack: examples in the shape of their public documentation, as jobs."""

import pytest

from penstock.client.requests import file_request
from penstock.client.taskfiles import task_of
from penstock.core.config.job import parse_request
from penstock.core.model.errors import InvalidInput

SKY = {
    "name": "finetune",
    "resources": {"accelerators": "A100-80GB:8", "cpus": "32+", "memory": 256, "use_spot": True, "cloud": "aws"},
    "num_nodes": 2,
    "workdir": ".",
    "envs": {"SEED": 7},
    "file_mounts": {"/data": "s3://bucket/data"},
    "setup": "pip install -r requirements.txt",
    "run": "torchrun --nnodes $SKYPILOT_NUM_NODES --node_rank $SKYPILOT_NODE_RANK train.py",
}
DSTACK = {
    "type": "task",
    "name": "train-distrib",
    "nodes": 2,
    "python": "3.12",
    "env": ["SEED=7"],
    "commands": ["pip install -r requirements.txt", "torchrun --nnodes $DSTACK_NODES_NUM train.py"],
    "resources": {"gpu": "80GB..:8", "cpu": "16..", "memory": "128GB..", "shm_size": "24GB"},
    "max_duration": "8h",
    "retry": True,
    "backends": ["aws"],
}


def read(request):
    entries, problems = parse_request({**request, "workdir": "/"})
    assert problems == []
    return entries[0].spec


def test_a_task_of_skypilot_is_run_as_it_is():
    made = task_of(SKY)
    assert made.request["devices"] == {"count": 8, "model": "A100", "memory": "80GB"}
    assert made.request["workdir"] == {"snapshot": "."}
    assert made.request["command"].startswith(
        'export SKYPILOT_NODE_RANK="$RANK" SKYPILOT_NUM_NODES="$WORLD_SIZE"\ntorchrun'
    )
    spec = read(made.request)
    assert (spec.name, spec.ask.replicas, spec.ask.device_total, spec.env) == ("finetune", 2, 16, (("SEED", "7"),))
    assert spec.ask.each.host.cpu_milli == 32_000


def test_each_field_of_skypilot_without_a_meaning_is_named_once():
    named = [note.split(" of SkyPilot")[0] for note in task_of(SKY).notes]
    assert named == ["resources.use_spot", "resources.cloud", "file_mounts"]


def test_a_task_of_dstack_is_run_as_it_is():
    made = task_of(DSTACK)
    assert made.request["devices"] == {"count": 8, "memory": "80GB"}
    assert made.request["python"] == {"version": "3.12"}
    assert made.request["command"].splitlines()[:2] == ['export DSTACK_NODES_NUM="$WORLD_SIZE"', "set -e"]
    spec = read({name: value for name, value in made.request.items() if name != "python"})
    assert (spec.ask.replicas, spec.time_limit_ms, spec.env) == (2, 8 * 3_600_000, (("SEED", "7"),))
    assert [note.split(" of dstack")[0] for note in made.notes] == ["resources.shm_size", "retry", "backends"]


@pytest.mark.parametrize(
    ("accelerators", "devices"),
    [
        ("H100", {"count": 1, "model": "H100"}),
        ({"H100": 4}, {"count": 4, "model": "H100"}),
        (["H100:2", "A100:2"], {"count": 2, "model": ["H100", "A100"]}),
    ],
)
def test_the_ways_to_ask_skypilot_for_devices(accelerators, devices):
    assert task_of({"run": "true", "resources": {"accelerators": accelerators}}).request["devices"] == devices


@pytest.mark.parametrize(
    ("gpu", "devices"),
    [
        (2, {"count": 2}),
        ("24GB", {"count": 1, "memory": "24GB"}),
        ("A100:80GB:8", {"count": 8, "model": "A100", "memory": "80GB"}),
        ("A10,L4:1..2", {"count": 1, "model": ["A10", "L4"]}),
        (
            {"name": ["A10", "L4"], "memory": "24GB..", "count": 2},
            {"count": 2, "model": ["A10", "L4"], "memory": "24GB"},
        ),
    ],
)
def test_the_ways_to_ask_dstack_for_devices(gpu, devices):
    found = task_of({"type": "task", "commands": ["true"], "resources": {"gpu": gpu}}).request["devices"]
    assert found == devices


def test_a_schedule_of_dstack_is_a_schedule():
    made = task_of({"type": "task", "commands": ["true"], "schedule": {"cron": "0 8 * * mon-fri"}})
    assert made.request["schedule"] == {"cron": "0 8 * * mon-fri"}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"type": "service", "commands": ["true"]}, "type of dstack is 'service', expected task"),
        ({"type": "task", "commands": "true"}, "commands of dstack is 'true', expected a list of commands"),
        ({"type": "task", "commands": [], "resources": {"gpu": "a b"}}, "resources.gpu of dstack is 'a b'"),
        ({"run": "x", "resources": {"accelerators": ["H100:2", "A100:4"]}}, "resources.accelerators of SkyPilot"),
        ({"run": "x", "resources": {"cpus": "many"}}, "resources.cpus of SkyPilot is 'many', expected an amount"),
        ({"run": "x", "resources": 3}, "resources of SkyPilot is '3', expected a mapping"),
        ({"run": "x", "envs": {"NOT_SET_ANYWHERE": None}}, "envs.NOT_SET_ANYWHERE of SkyPilot"),
    ],
)
def test_a_value_that_cannot_be_read_is_named(raw, said):
    with pytest.raises(InvalidInput, match="^" + said.replace("[", "\\[")):
        task_of(raw)


@pytest.mark.parametrize("raw", [{"command": "x", "resources": {}}, {"jobs": []}, [], "x", {"name": "x"}])
def test_a_job_file_is_none(raw):
    assert task_of(raw) is None


def test_a_file_is_read_and_what_it_lacks_is_said(tmp_path):
    path, said = tmp_path / "task.yaml", []
    path.write_text("run: python train.py\nresources: {accelerators: H100:2, region: eu}\n")
    request = file_request(str(path), {"queue": "batch"}, {}, said.append)
    assert (request["command"], request["queue"], request["devices"]["count"]) == ("python train.py", "batch", 2)
    assert said == ["resources.region of SkyPilot has no meaning here"]
