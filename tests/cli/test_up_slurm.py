"""`penstock up --engine slurm --shadow`: jobs of a real Slurm, and the usual commands about them."""

import json
import os

import pytest

from tests.engines.slurm import cluster
from tests.server.harness import until

SMALL = ("--mem=10", "-o", "/dev/null")


@pytest.fixture
def slurm(monkeypatch):
    with cluster.own(accounting=False) as made:
        for name, value in made.variables.items():
            monkeypatch.setenv(name, value)
        yield made


def test_jobs_of_slurm_are_explained_and_no_command_reaches_them(alone, slurm):
    before = slurm.submit("sleep 300", *SMALL, "-N4", "--gres=gpu:4", "-J", "before")
    slurm.wait(before, "RUNNING")
    wants = slurm.submit("sleep 300", *SMALL, "--gres=gpu:2", "-J", "wants")
    up = alone("up", "--engine", "slurm", "--shadow", "--refresh", "5")
    assert up.code == 0, up.err
    assert "other schedulers decide, and nothing is written" in up.out
    try:
        until(lambda: json.loads(alone("status", "--json").out)["cluster"]["nodes_ready"] == 4, 20)
        jobs = {job["name"]: job for job in alone("ps", "--json").json()["jobs"]}
        assert {name: job["state"] for name, job in jobs.items()} == {"before": "running", "wants": "waiting"}
        said = alone("explain", str(jobs["wants"]["id"])).out
        assert "needs 1 x 2 devices; 0 free in all" in said
        assert f"Slurm, job {wants}: " in said
        for words in (("cancel", "--yes", str(jobs["before"]["id"])), ("drain", "n1"), ("run", "--", "true")):
            told = alone(*words)
            assert told.code != 0
            assert "only watches what other schedulers decide" in told.err
        assert slurm.states() == {str(before): "RUNNING", str(wants): "PENDING"}
        assert alone("audit").code == 0
    finally:
        assert alone("down").code == 0
    assert slurm.states()[str(before)] == "RUNNING"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "slurm"), "--engine slurm needs --shadow, --pass-through or --pilot"),
        (("--engine", "slurm", "--shadow", "--pass-through"), "--shadow and --pass-through exclude each other"),
        (("--ray-address", "h:1"), "--ray-address needs --engine ray"),
        (("--engine", "ray", "--ray-address", "head"), "--ray-address is 'head', expected HOST:PORT"),
        (("--engine", "ray", "--shared", "/nowhere"), "--shared is '/nowhere', expected a folder that all nodes see"),
        (("--pass-through",), "--pass-through needs --engine slurm"),
        (("--shared", "/tmp"), "--shared needs --engine slurm"),
        (("--engine", "slurm", "--shadow", "--context", "lab"), "--context needs --engine kubernetes"),
        (("--engine", "slurn", "--shadow"), "--engine is 'slurn', expected local or kubernetes or ray or slurm"),
        (("--engine", "slurm", "--shadow", "--refresh", "1"), "--refresh"),
    ],
)
def test_what_does_not_go_together_is_said(alone, words, said):
    told = alone("up", *words)
    assert told.code != 0
    assert said in told.err


def test_a_cluster_that_does_not_answer_is_said(alone, tmp_path, monkeypatch):
    text = "slurm_load_ctl_conf error: Unable to contact slurm controller"
    for name in ("scontrol", "squeue", "sacct"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = alone("up", "--engine", "slurm", "--shadow")
    assert told.code != 0
    assert f"scontrol: {text}" in told.err
