"""What writes to Slurm: two commands with known options, whose errors say whether another try is of use."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.engines.slurm import commands, shadow, writing
from penstock.engines.slurm.commands import SlurmAway
from penstock.engines.slurm.writing import NotAWrite, NotTaken, SlurmWriter, checked, job_environment

REAL = commands.subprocess.Popen


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("squeue",),
        ("scontrol", "update", "node=n1", "state=drain"),
        ("sacctmgr", "-i", "delete", "account", "a"),
        ("sbatch", "script.sh"),
        ("sbatch", "--wrap=true"),
        ("sbatch", "--time", "10"),
        ("sbatch", "--dependency=afterok:1"),
        ("scancel",),
        ("scancel", "--full"),
        ("scancel", "-u", "root"),
        ("scancel", "--user=root", "7"),
        ("scancel", "7", "8; reboot"),
    ],
)
def test_what_is_not_among_the_writes_is_refused(command):
    with pytest.raises(NotAWrite):
        checked(command)


def test_submits_and_ends_of_known_jobs_are_run_as_they_are():
    for command in (("sbatch", "--parsable", "--time=10"), ("scancel", "--full", "7", "8_3")):
        assert checked(command) == command


def test_a_shadow_cannot_write():
    for path in Path(str(shadow.__file__)).parent.glob("*.py"):
        assert "slurm.writing" not in path.read_text(encoding="utf-8"), path


def test_a_job_inherits_little_of_the_server(monkeypatch):
    for name in ("PENSTOCK_STORE", "SBATCH_UID", "SLURM_JOB_ID", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    found = job_environment({"SLURM_HOSTFILE": "/h"})
    assert found["SLURM_CONF"] == "/etc/slurm/slurm.conf"
    assert {"PATH", "SLURM_CONF", "SLURM_HOSTFILE"} <= set(found) <= {*writing._KEPT, "SLURM_CONF", "SLURM_HOSTFILE"}


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let commands run a program of Python in their place."""

    def started(words: Sequence[str], **settings: object) -> object:
        return REAL([sys.executable, "-c", program], **settings)  # type: ignore[call-overload]

    monkeypatch.setattr(commands, "tool", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(commands.subprocess, "Popen", started)


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", False),
        ("Batch job submission failed: Socket timed out on send/recv operation", False),
        ("Batch job submission failed: Job violates accounting/QOS policy (QOSMaxSubmitJobPerUserLimit)", False),
        ("Batch job submission failed: Unexpected missing socket error", False),
        ("Batch job submission failed: Invalid partition specified", True),
        ("Batch job submission failed: Memory specification can not be satisfied", True),
    ],
)
def test_a_refusal_that_passes_is_not_one(monkeypatch, said, refused):
    stand_in(monkeypatch, f"import sys; print('sbatch: error: {said}', file=sys.stderr); sys.exit(1)")
    with pytest.raises(NotTaken if refused else SlurmAway, match=r"Batch job submission failed"):
        asyncio.run(SlurmWriter().submit("#!/bin/sh\n"))


def test_a_killed_sbatch_may_have_made_a_job(monkeypatch):
    stand_in(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(SlurmAway):
        asyncio.run(SlurmWriter().submit("#!/bin/sh\n"))


def test_the_number_comes_without_the_cluster_and_the_script_goes_in(monkeypatch):
    stand_in(monkeypatch, "import sys; assert sys.stdin.read() == '#!/bin/sh\\ntrue\\n'; print('17;far')")
    assert asyncio.run(SlurmWriter().submit("#!/bin/sh\ntrue\n")) == "17"


def test_what_has_ended_need_not_be_cancelled(monkeypatch):
    stand_in(
        monkeypatch,
        "import sys; print('scancel: error: Kill job error on job id 7: Invalid job id specified', file=sys.stderr);"
        "sys.exit(1)",
    )
    asyncio.run(SlurmWriter().cancel(["7"]))
    stand_in(monkeypatch, "import sys; print('scancel: error: Access denied', file=sys.stderr); sys.exit(1)")
    with pytest.raises(SlurmAway, match="Access denied"):
        asyncio.run(SlurmWriter().signal(["7"], "TERM", full=True))
