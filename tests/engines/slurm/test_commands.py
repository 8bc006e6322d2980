"""The one place that runs commands of Slurm: what writes is never run."""

import ast
import asyncio
from pathlib import Path

import pytest

import penstock.engines.slurm as package
from penstock.engines.slurm import commands
from penstock.engines.slurm.commands import NotARead, SlurmAway, SlurmCommands, checked, environment

READS = (
    ("squeue", "-h", "-r", "-t", "all", "-O", "JobID:20"),
    ("squeue", "-h", "-r", "-t", "all", "-O", "JobID:20", "-j", "1,2_3"),
    ("sacct", "-a", "-n", "-P", "-D", "-X", "--delimiter=~1~", "-o", "JobID", "-S", "2026-11-26T00:00:00", "-j", "7"),
    ("scontrol", "show", "config"),
    ("scontrol", "show", "node", "-o"),
)
WRITES = (
    (),
    ("scancel", "7"),
    ("sbatch", "run.sh"),
    ("srun", "true"),
    ("salloc",),
    ("sacctmgr", "-i", "delete", "account", "a"),
    ("scontrol", "update", "node=n1", "state=drain"),
    ("scontrol", "hold", "7"),
    ("scontrol", "requeue", "7"),
    ("scontrol", "reconfigure"),
    ("scontrol", "shutdown"),
    ("scontrol",),
    ("scontrol", "show"),
    ("scontrol", "show", "job", "7"),
    ("scontrol", "show", "job"),
    ("scontrol", "show", "node", "-o", "update"),
    ("scontrol", "-o", "show", "node"),
    ("/usr/bin/scontrol", "show", "config"),
    ("sh", "-c", "squeue"),
    ("squeue", "-i", "1"),
    ("squeue", "--iterate=1"),
    ("sacct", "-f", "/etc/passwd"),
    ("sacct", "--file=/etc/passwd"),
)


@pytest.mark.parametrize("command", READS)
def test_what_reads_is_run_as_it_is(command):
    assert checked(command) == command


@pytest.mark.parametrize("command", WRITES)
def test_what_may_write_is_refused_before_anything_is_run(command, monkeypatch):
    monkeypatch.setattr(commands, "Call", lambda words: pytest.fail(f"{words} was run"))
    with pytest.raises(NotARead):
        asyncio.run(SlurmCommands().run(*command))


def test_nothing_else_of_the_engine_starts_a_program():
    starters = {"subprocess", "multiprocessing", "pty"}
    for path in Path(package.__file__).parent.rglob("*.py"):
        named = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        }
        text = path.read_text(encoding="utf-8")
        starts = bool(named & starters) or any(word in text for word in ("os.system", "os.exec", "os.spawn", "_exec("))
        assert starts == (path.name == "commands.py"), path


def test_variables_that_change_the_answer_are_dropped(monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    for name in ("SQUEUE_FORMAT", "SQUEUE_SORT", "SACCT_FORMAT", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"):
        monkeypatch.setenv(name, "other")
    found = environment()
    assert {name: found.get(name) for name in ("SLURM_CONF", "TZ", "SLURM_TIME_FORMAT")} == {
        "SLURM_CONF": "/etc/other.conf",
        "TZ": "UTC",
        "SLURM_TIME_FORMAT": "%s",
    }
    assert not {"SQUEUE_FORMAT", "SQUEUE_SORT", "SACCT_FORMAT", "SLURM_CLUSTERS"} & found.keys()


def program(folder: Path, text: str) -> None:
    path = folder / "squeue"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "squeue: slurm_load_jobs"),
        ("echo 'squeue: error: Invalid job format specification: x' >&2", "squeue: squeue: error: Invalid"),
        ("exit 3", "squeue: exit 3"),
        ("kill -9 $$", "squeue: exit -9"),
        ("yes | head -c 300", "squeue printed more than 0 MiB"),
        ("exec sleep 30", "squeue did not answer within 0 s"),
    ],
)
def test_a_command_that_fails_says_why(tmp_path, monkeypatch, text, said):
    program(tmp_path, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(commands, "OUTPUT_MAX_BYTES", 200)
    monkeypatch.setattr(commands, "TIMEOUT_S", 0.2)
    with pytest.raises(SlurmAway) as error:
        asyncio.run(SlurmCommands().run("squeue", "-h"))
    assert error.value.message.startswith(said)


def test_a_machine_without_slurm_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(commands.InvalidInput) as error:
        commands.require_programs()
    assert error.value.message == "--engine slurm needs squeue, sacct, scontrol on this machine"
