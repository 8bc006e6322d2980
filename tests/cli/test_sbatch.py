"""Batch scripts as they are, on a real server: output files, variables, exit codes, tasks, arrays."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal
from tests.server.harness import Server, cluster_file


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("sbatch") / "data", cluster_file(3, 2)) as running:
        yield running


@pytest.fixture
def shell(cluster: Server, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, cluster.data.root, cluster.root)


def run(shell: Terminal, script: str, *words: str, name: str = "job.sh") -> str:
    """Submit a script, wait for it, and return its number; fails unless it succeeds."""
    (shell.folder / name).write_text(script)
    told = shell("sbatch", "--parsable", "--wait", *words, name)
    assert told.code == 0, told.err
    return told.out.strip()


def read(shell: Terminal, name: str) -> list[str]:
    return (shell.folder / name).read_text().splitlines()


SERIAL = """#!/bin/bash
#SBATCH --job-name=serial -c 2   # two
#SBATCH --time=5 --hint=nomultithread
echo "$SLURM_JOB_NAME $SLURM_CPUS_PER_TASK ${SLURM_NTASKS-none} $1|$2" "$(basename $0)" "${RANK-none}" "$MINE"
pwd; echo fault >&2
cat
exit 3
"""


def test_a_script_writes_into_the_folder_of_its_submit_and_wait_returns_its_code(shell: Terminal) -> None:
    (shell.folder / "job.sh").write_text(SERIAL)
    told = shell("sbatch", "--wait", "job.sh", "one", "two words", MINE="here")
    number = re.fullmatch(r"Submitted batch job (\d+)\n", told.out)
    assert number
    assert (told.code, told.err.count("left out")) == (3, 1), told.err
    expected = ["serial 2 none one|two words slurm_script none here", str(shell.folder), "fault"]
    assert read(shell, f"slurm-{number[1]}.out") == expected
    assert shell("logs", number[1]).out.splitlines() == expected


def test_each_member_of_an_array_has_its_index_and_its_files(shell: Terminal) -> None:
    text = "#!/bin/sh\n#SBATCH -a 4,7,22 -o %x_%3a.out -e %A.err --open-mode=append\n"
    text += "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT in $SLURM_ARRAY_JOB_ID; echo e >&2\n"
    number = run(shell, text)
    assert [read(shell, f"job.sh_{index}.out") for index in ("004", "007", "022")] == [
        [f"{index} of 3 in {number}"] for index in (4, 7, 22)]  # fmt: skip
    assert read(shell, f"{number}.err") == ["e"] * 3


TASKS = """#!/bin/bash
#SBATCH -N2 -n3 --gpus-per-task=1
srun -l bash -c 'echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURM_STEP_ID dev=$PENSTOCK_DEVICES'
srun -n2 -o step_%t.txt bash -c 'cat; exit $((SLURM_PROCID * 5))' <<< data
echo highest $?
srun -N1 -n1 -r1 bash -c 'kill -9 $$'
echo killed $?
srun --nosuch true
"""


def test_tasks_start_at_the_places_of_the_job_and_the_highest_code_counts(shell: Terminal) -> None:
    (shell.folder / "job.sh").write_text(TASKS)
    told = shell("sbatch", "--wait", "-o", "out", "-e", "err", "job.sh")
    assert told.code == 1
    assert sorted(read(shell, "out")) == [
        "0: 0 0 0 3 0 dev=0", "1: 1 1 0 3 0 dev=1", "2: 2 0 1 3 0 dev=0", "highest 5", "killed 137"]  # fmt: skip
    assert [read(shell, f"step_{task}.txt") for task in (0, 1)] == [["data"], ["data"]]
    assert [line for line in read(shell, "err") if "no option --nosuch" in line] != []


def test_what_sbatch_refuses_submits_nothing(shell: Terminal) -> None:
    (shell.folder / "dos.sh").write_bytes(b"#!/bin/sh\r\necho\r\n")
    (shell.folder / "bad.sh").write_text("#!/bin/sh\n#SBATCH --tiem=4\n")
    before = shell("ps", "--all", "--json").json()["jobs"]
    for words, said in ((["dos.sh"], "CRLF"), (["bad.sh"], "did you mean --time?"), (["nowhere.sh"], "cannot be read"),
                        (["-p", "nowhere", "--wrap", "true"], "a queue or pool of the server: default")):  # fmt: skip
        told = shell("sbatch", *words)
        assert (told.code, said in told.err) == (2, True), told.err
    assert shell("ps", "--all", "--json").json()["jobs"] == before


def test_a_missing_folder_of_outputs_fails_the_job_and_is_said(shell: Terminal) -> None:
    told = shell("sbatch", "--parsable", "--wait", "-o", "nowhere/%j.out", "--wrap", "echo ran > ran")
    assert (told.code, (shell.folder / "ran").exists()) == (1, False)
    assert "nowhere/" in shell("logs", told.out.strip()).out


def test_a_signal_before_the_end_reaches_the_script_alone(shell: Terminal) -> None:
    text = (
        "#!/bin/bash\n#SBATCH -t 1 --signal=B:USR1@58\ntrap 'echo warned; exit 7' USR1\nwhile :; do sleep 0.05; done\n"
    )
    (shell.folder / "job.sh").write_text(text)
    assert shell("sbatch", "--wait", "-o", "out", "job.sh").code == 7
    assert read(shell, "out") == ["warned"]


REQUEUED = """#!/bin/bash
echo run ${SLURM_RESTART_COUNT-first}
[ -n "$SLURM_RESTART_COUNT" ] || { scontrol requeue $SLURM_JOB_ID; while :; do sleep 0.05; done; }
"""


def test_a_script_that_requeues_itself_knows_that_it_runs_again(shell: Terminal) -> None:
    run(shell, REQUEUED, "--open-mode=append", "-o", "all")
    assert [line for line in read(shell, "all") if line.startswith("run")] == ["run first", "run 1"]
    (shell.folder / "job.sh").write_text(REQUEUED)
    assert shell("sbatch", "--wait", "--no-requeue", "-o", "once", "job.sh").code == 1
    assert [line for line in read(shell, "once") if line.startswith("run")] == ["run first"]


def test_a_job_that_waits_for_an_array_waits_for_all_of_it(shell: Terminal) -> None:
    first = run(shell, "#!/bin/sh\n#SBATCH -a 0-2\necho $SLURM_ARRAY_TASK_ID >> done\n", "-o", "/dev/null")
    told = shell("sbatch", "-d", f"afterok:{first}:{first}_1", "--wait", "-o", "then", "--wrap", "sort done")
    assert (told.code, read(shell, "then")) == (0, ["0", "1", "2"]), told.err
    assert shell("sbatch", "-d", f"afterok:{first}_9", "--wrap", "true").code == 2


def test_export_none_begins_with_a_login_and_takes_nothing_of_the_caller(shell: Terminal) -> None:
    told = shell(
        "sbatch", "--wait", "--export=NONE", "-o", "out", "--wrap", "echo ${MINE-unset} $SLURM_EXPORT_ENV", MINE="x"
    )
    assert (told.code, read(shell, "out")) == (0, ["unset NONE"]), told.err
