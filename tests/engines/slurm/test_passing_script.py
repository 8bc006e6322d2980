"""The script of attempts, run by the shell as Slurm would, and which attempts go into one of its jobs."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.slurm.passing.attempts import COMMENT_MAX, ELEMENTS_MAX, Attempt, group_of, shape_of
from penstock.engines.slurm.passing.options import attempt_of, indexes_of, submission, tag_of
from penstock.engines.slurm.passing.script import CLAIMED_CODE, NEVER_RAN_CODE, script_of
from penstock.engines.slurm.passing.spool import AttemptKey, Spool
from penstock.engines.slurm.server import JobTerms
from tests.engines.slurm.test_passing_options import NODES, start

INDEX_MAX = 1000


class Shell:
    """The folders of a cluster of one machine, and jobs of Slurm that are run there one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.spool = folder, Spool(folder)
        folder.mkdir(exist_ok=True)
        self.spool.prepare("")

    def script(self, *orders: StartReplica) -> str:
        folders = {one.key.job_id: str(self.folder / "jobs" / str(one.key.job_id)) for one in orders}
        for path in folders.values():
            Path(path).mkdir(parents=True, exist_ok=True)
        known = {(o.key.job_id, o.key.rank): {**dict(o.env), "ID": str(o.key.job_id)} for o in orders}
        for order in orders:
            known[order.key.job_id, order.key.rank]["AT"] = f"{folders[order.key.job_id]}/work"
        return script_of([[one] for one in orders], str(self.spool.folder("")), folders, known)

    def run(self, script: str, index: int | None = None) -> int:
        array = {} if index is None else {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": str(index)}
        environment = {"PATH": os.defpath, "SLURM_JOB_ID": "9", "SLURMD_NODENAME": "n1", **array}
        return subprocess.run(["sh", "-c", script], env=environment, timeout=60).returncode

    def said(self) -> set[str]:
        """Return what was said of ends."""
        return {name for name in os.listdir(self.spool.folder("") / "news") if ".end." in name}

    def printed(self, job: int) -> str:
        return (self.folder / "jobs" / str(job) / "attempt-1.rank-0.log").read_text()


def sh(text: str, job: int = 17, **fields: object) -> StartReplica:
    return start(job, command=("sh", "-c", text), **fields)


def attempt(order: StartReplica, terms: JobTerms | None = None) -> Attempt:
    made = Attempt(AttemptKey(order.key.job_id, order.key.attempt), "")
    made.orders[Rank(0)] = order
    made.shape = shape_of([order], terms or JobTerms({}))
    return made


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("exit 0", 0, "0.-.-"),
        ("exit 7", 7, "7.-.-"),
        ("sleep 0.3; exit 7", 7, "7.-.-"),
        ("exit 143", 143, "143.-.-"),
        ("kill -9 $$", 137, "-.9.-"),
        ("sleep 0.2; kill -15 $$", 143, "-.15.-"),
    ],
)
def test_an_end_is_said_with_its_code_or_signal(shell, text, code, said):
    assert shell.run(shell.script(sh(text))) == code
    assert shell.said() == {f"17.1.0.end.9.{said}"}


def test_an_attempt_runs_once(shell):
    script = shell.script(sh("echo once"))
    assert (shell.run(script), shell.run(script)) == (0, CLAIMED_CODE)
    assert shell.printed(17) == "once\n"
    assert shell.spool.claimed("", AttemptKey(JobId(17), AttemptNumber(1))) == "9"


def test_an_attempt_that_was_given_up_does_not_begin(shell):
    script = shell.script(sh("echo once"))
    assert shell.spool.withdraw("", AttemptKey(JobId(17), AttemptNumber(1)))
    assert (shell.run(script), shell.said()) == (CLAIMED_CODE, set())


def test_no_variable_of_a_job_is_one_of_its_script(shell):
    names = ("spool", "number", "key", "job", "folder", "attempt", "rank", "node", "pid", "looks", "PATH")
    mine = tuple((name, f"{name}-of-the-job:/usr/bin:/bin") for name in names)
    assert shell.run(shell.script(sh('echo "$key $PATH"', env=mine))) == 0
    assert shell.said() == {"17.1.0.end.9.0.-.-"}
    assert shell.printed(17) == "key-of-the-job:/usr/bin:/bin PATH-of-the-job:/usr/bin:/bin\n"


def test_each_of_several_jobs_is_run_as_itself(shell, tmp_path):
    text = 'echo "$ID $AT $MINE $PWD ${SLURM_ARRAY_TASK_ID:-none}"; exit $CODE'
    env = [(("MINE", f"it's {job}"), ("CODE", str(job - 17))) for job in range(17, 20)]
    orders = [sh(text, 17, env=env[0]), sh(f"{text} # 2", 18, env=env[1], workdir="/"), sh(text, 19, env=env[2])]
    script = shell.script(*orders)
    assert [shell.run(script, index) for index in (0, 1, 2, 3)] == [0, 1, 2, NEVER_RAN_CODE]
    assert shell.said() == {f"{17 + i}.1.0.end.9_{i}.{i}.-.-" for i in range(3)}
    jobs = tmp_path / "jobs"
    assert shell.printed(17) == f"17 {jobs}/17/work it's 17 {jobs}/17 none\n"
    assert shell.printed(18) == f"18 {jobs}/18/work it's 18 / none\n"


def test_the_script_of_several_jobs_has_no_folders_of_each_wherever_they_are(tmp_path):
    shell = Shell(tmp_path / "jobs-1-and-2")
    orders = [sh('echo "$ID $AT"', job) for job in (1, 2, 12)]
    script = shell.script(*orders)
    assert script.count("jobs-1-and-2") == 2, script
    assert [shell.run(script, index) for index in range(3)] == [0, 0, 0]
    assert [shell.printed(job) for job in (1, 2, 12)] == [
        f"{job} {tmp_path}/jobs-1-and-2/jobs/{job}/work\n" for job in (1, 2, 12)
    ]


def test_elements_of_an_array_keep_its_variables(shell):
    text = 'echo "$SLURM_ARRAY_TASK_ID $ID"'
    orders = [sh(text, 17 + i, array_id=JobId(17), array_index=2 * i) for i in range(2)]
    script = shell.script(*orders)
    assert [shell.run(script, index) for index in (0, 2)] == [0, 0]
    assert (shell.printed(17), shell.printed(18)) == ("0 17\n", "2 18\n")


def test_jobs_that_are_alike_go_into_one_and_are_found_again_by_its_tag():
    jobs = [attempt(start(job)) for job in (18, 17, 30, 19)]
    jobs[2].apart = True
    group = group_of(jobs[0], jobs, "ab", INDEX_MAX)
    assert [one.key.job_id for one in group] == [17, 18, 19]
    elements = [one.replicas() for one in group]
    assert "--array=0,1,2" in submission(elements, JobTerms({}), NODES, "ab").options
    tag = tag_of("ab", elements)
    assert tag == "penstock:ab:17.1@0-2"
    assert [attempt_of(tag, "ab", f"5_{index}") for index in indexes_of(elements)] == [one.key for one in group]
    assert group_of(jobs[2], jobs, "ab", INDEX_MAX) == [jobs[2]]


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "another"},
        {"node_names": ("n2",)},
        {"grace_ms": 1},
        {"account": "ann"},
        {"array_id": JobId(2)},
        {"key": ReplicaKey(JobId(18), AttemptNumber(2), Rank(0))},
    ],
    ids=str,
)
def test_jobs_that_differ_go_apart(fields):
    one, other = attempt(start(17)), attempt(replace(start(18), **fields))
    assert group_of(one, [one, other], "ab", INDEX_MAX) == [one]


@pytest.mark.parametrize("terms", [JobTerms({"slurm.qos": "low"}), JobTerms({}, 60_000)], ids=str)
def test_jobs_of_other_terms_go_apart(terms):
    one, other = attempt(start(17)), attempt(start(18), terms)
    assert group_of(one, [one, other], "ab", INDEX_MAX) == [one]


def test_a_group_is_bounded_in_number_script_and_tag():
    many = [attempt(start(job)) for job in range(1, ELEMENTS_MAX + 100)]
    assert len(group_of(many[0], many, "ab", INDEX_MAX)) == ELEMENTS_MAX
    long = [attempt(start(job, command=("x" * 100_000,))) for job in range(1, 10)]
    assert len(group_of(long[0], long, "ab", INDEX_MAX)) == 2
    array = [attempt(start(10_000 + job * 7, array_id=JobId(1), array_index=job)) for job in range(200)]
    group = group_of(array[0], array, "ab", INDEX_MAX)
    assert 5 < len(group) < 100
    assert len(tag_of("ab", [one.replicas() for one in group])) <= COMMENT_MAX


def test_where_slurm_has_no_arrays_each_job_goes_apart():
    jobs = [attempt(start(job)) for job in (17, 18)]
    assert group_of(jobs[0], jobs, "ab", 0) == [jobs[0]]
