"""squeue, sacct, scancel, sinfo, scontrol, srun and salloc on a real server, by the names of Slurm."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal
from tests.server.harness import Server, cluster_file, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("programs") / "data", cluster_file(2, 2)) as running:
        yield running


@pytest.fixture
def shell(cluster: Server, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, cluster.data.root, cluster.root)


def submit(shell: Terminal, *words: str) -> str:
    told = shell("sbatch", "--parsable", "-o", "out", *words)
    assert told.code == 0, told.err
    return told.out.strip()


def squeue(shell: Terminal, *words: str) -> list[str]:
    told = shell("slurm", "squeue", *words)
    assert told.code == 0, told.err
    return told.out.splitlines()


def test_a_job_is_held_released_shown_and_cancelled(shell: Terminal) -> None:
    number = submit(shell, "--hold", "-J", "kept", "-t", "2:00:00", "--wrap", "touch started; sleep 600")
    assert squeue(shell, "-h", "-j", number, "-o", "%i|%j|%T|%r|%l") == [f"{number}|kept|PENDING|JobHeldUser|2:00:00"]
    assert not (shell.folder / "started").exists()
    assert shell("slurm", "scontrol", "release", number).code == 0
    until((shell.folder / "started").exists, "it has started")
    until(lambda: squeue(shell, "-h", "-j", number, "-o", "%t %N") in (["R n1"], ["R n2"]), "it runs")
    shown = shell("slurm", "scontrol", "-o", "show", "job", number).out
    assert f"JobId={number} JobName=kept" in shown
    assert f"StdOut={shell.folder}/out" in shown
    assert shell("slurm", "scancel", number).code == 0
    until(lambda: squeue(shell, "-h", "-j", number) == [], "it has left the queue")
    ended = shell("slurm", "sacct", "-X", "-n", "-P", "-j", number, "-o", "JobID,JobName,State").out
    assert ended.startswith(f"{number}|kept|CANCELLED")


def test_accounting_has_the_job_and_its_batch_step(shell: Terminal) -> None:
    assert shell("sbatch", "--wait", "-o", "out", "--wrap", "exit 3").code == 3
    whole = shell("slurm", "sacct").out.splitlines()
    assert whole[0].split() == ["JobID", "JobName", "Partition", "Account", "AllocCPUS", "State", "ExitCode"]
    job, step = (line.split()[1:] for line in whole[-2:])
    assert job == ["wrap", "default", "default", "1", "FAILED", "3:0"]
    assert step == ["batch", "default", "1", "FAILED", "3:0"]
    assert shell("slurm", "sacct", "-j", "999999").code == 5


def test_members_of_an_array_are_named_by_their_index(shell: Terminal) -> None:
    number = submit(shell, "--array=4,7,22%1", "--hold", "--wrap", "sleep 600")
    assert squeue(shell, "-h", "-j", number, "-o", "%i %T") == [f"{number}_[4,7,22%1] PENDING"]
    assert squeue(shell, "-h", "-r", "-j", f"{number}_[7,22]", "-o", "%i") == [f"{number}_7", f"{number}_22"]
    assert shell("slurm", "scancel", f"{number}_7").code == 0
    assert squeue(shell, "-h", "-j", number, "-o", "%i") == [f"{number}_[4,22%1]"]
    assert shell("slurm", "scancel", "-n", "wrap").code == 0
    assert squeue(shell, "-h", "-j", number) == []


def test_pools_and_nodes_are_listed(shell: Terminal) -> None:
    assert shell("slurm", "sinfo").out.splitlines()[0].split() == [
        "PARTITION",
        "AVAIL",
        "TIMELIMIT",
        "NODES",
        "STATE",
        "NODELIST",
    ]
    assert shell("slurm", "sinfo", "-h", "-N", "-o", "%n %P %c").out.splitlines() == [
        "n1 default* 32",
        "n2 default* 32",
    ]
    assert shell("slurm", "scontrol", "show", "hostnames", "n[1-3]").out.split() == ["n1", "n2", "n3"]


def test_tasks_and_allocations_begin_from_a_shell(shell: Terminal) -> None:
    told = shell("slurm", "srun", "-n2", "-l", "sh", "-c", "echo rank $SLURM_PROCID; exit $SLURM_PROCID")
    assert (told.code, sorted(told.out.splitlines()[:3])[:2]) == (1, ["0: rank 0", "1: rank 1"]), told.err
    told = shell.anew("slurm", "salloc", "-c2", "-t", "10", "sh", "-c", "echo inside $PENSTOCK_JOB_ID; exit 4")
    assert (told.code, "inside " in told.out, "Relinquishing" in told.err) == (4, True, True), told.err
    assert shell("slurm", "salloc", "true").code == 2


def test_programs_of_slurms_names_call_ours(shell: Terminal) -> None:
    told = shell("slurm-shims", "bin")
    assert [Path(line).name for line in told.out.split()] == [
        "sbatch", "squeue", "scancel", "sinfo", "sacct", "srun", "salloc", "scontrol"]  # fmt: skip
    script = (
        "set -e; id=$(sbatch --parsable --hold --wrap true); squeue -h -j $id -o '%i %T'; scancel $id; squeue -h -j $id"
    )
    path = f"{shell.folder}/bin:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", script], env=shell._environment({"PATH": path}), cwd=shell.folder,
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert (done.returncode, done.stdout.split()[1:]) == (0, ["PENDING"]), done.stderr


def test_a_program_or_option_that_is_not_known_is_named(shell: Terminal) -> None:
    for words, said in ((["sprio"], "'sprio' is not supported here"), (["squeue", "--usr=x"], "did you mean --user?"),
                        (["scontrol", "reconfigure"], "'reconfigure' is not supported here"),
                        (["scancel"], "no job is named"),
                        (["scancel", "-s", "USR1", "1"], "not sent USR1")):  # fmt: skip
        told = shell("slurm", *words)
        assert (told.code, said in told.err) == (2, True), told.err
