"""What sbatch is given for an attempt, the tag that finds it again, and what cannot be passed on."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config.job import parse_request
from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, Rank
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.engines.slurm.jobs import SlurmJob
from penstock.engines.slurm.nodes import read_nodes
from penstock.engines.slurm.passing.attempts import explained, info_of_word
from penstock.engines.slurm.passing.options import (
    INDEXES_MAX,
    attempt_of,
    attempts_of,
    refused_job,
    submission,
    tag_of,
    why_not,
)
from penstock.engines.slurm.passing.spool import AttemptKey, Ended, Spool, Started, name_of
from penstock.engines.slurm.server import JobTerms
from penstock.engines.slurm.states import PHASES

NODES = {
    node.name: node
    for node in read_nodes(
        "NodeName=n1 CPUTot=4 RealMemory=4000 State=IDLE Gres=gpu:a100:2,gpu:v100:2 Partitions=main,gpu\n"
        "NodeName=n2 CPUTot=4 RealMemory=4000 State=IDLE Partitions=gpu,main\n"
    )
}


def ended(state: str) -> SlurmJob:
    phase = PHASES[state]
    return SlurmJob(
        number="9", user="root", account="", partitions=(), qos="", state=state, phase=phase, reason="", submit_s=1,
        eligible_s=1, start_s=1, end_s=2, limit_ms=0, nodes=1, tres="", hosts="n1", code=0, signal=0, restarts=0,
        features="", name="",
    )  # fmt: skip


def start(job: int = 17, rank: int = 0, **fields: object) -> StartReplica:
    order = StartReplica(
        ReplicaKey(JobId(job), AttemptNumber(1), Rank(rank)), Incarnation("slurm"), ("true",),
        ReplicaAsk(Resources(cpu_milli=1500, memory_bytes=100 * 2**20)), (), (), 1, 0, 1, 0, ("n1",), "127.0.0.1", 0,
        name="my job\n",
    )  # fmt: skip
    return replace(order, **fields)


def test_amounts_become_options():
    given = submission([[start()]], JobTerms({}), NODES, "ab")
    assert given.hosts == ()
    assert set(given.options) >= {
        "--job-name=my_job_", "--comment=penstock:ab:17.1", "--no-requeue", "--nodelist=n1", "--ntasks=1",
        "--cpus-per-task=2", "--mem=100", "--partition=main",
    }  # fmt: skip
    limited = submission([[start()]], JobTerms({"slurm.account": "lab", "slurm.qos": "low"}, 60_000), NODES, "ab")
    assert {"--account=lab", "--qos=low", "--time=4"} <= set(limited.options)


def test_memory_that_was_not_named_follows_the_cpus():
    (option,) = [
        one
        for one in submission([[start(ask=ReplicaAsk(Resources()))]], JobTerms({}), NODES, "ab").options
        if one.startswith("--mem")
    ]
    assert option == "--mem-per-cpu=1000"


def test_devices_name_their_type_where_a_node_has_several():
    ask = ReplicaAsk(Resources(), DeviceAsk(1))
    of_first = submission([[start(ask=ask, devices=(2,))]], JobTerms({}), NODES, "ab")
    assert "--gres=gpu:v100:1" in of_first.options


def test_nodes_without_a_common_partition_are_said():
    nodes = {**NODES, "n2": replace(NODES["n2"], partitions=("other",))}
    with pytest.raises(ValueError, match="no partition has all of n1, n2"):
        submission([[start(node_names=("n1", "n2"), world_size=2)]], JobTerms({}), nodes, "ab")


NUMBERED = st.tuples(st.integers(1, 50), st.integers(1, 3))


@given(st.lists(NUMBERED, min_size=1, max_size=12, unique_by=lambda one: one[0]))
def test_every_element_is_found_again_by_its_tag(attempts):
    elements = [
        [replace(start(), key=ReplicaKey(JobId(job), AttemptNumber(number), Rank(0)), array_id=JobId(1),
                 array_index=job * 2 % 101)]
        for job, number in attempts
    ]  # fmt: skip
    elements.sort(key=lambda one: one[0].array_index)
    tag = tag_of("ab", elements)
    for (one,) in elements:
        found = attempt_of(tag, "ab", f"99_{one.array_index}")
        assert found == AttemptKey(one.key.job_id, one.key.attempt)
    assert attempt_of(tag, "other", "99_0") is None
    named = [(AttemptKey(one.key.job_id, one.key.attempt), one.array_index) for (one,) in elements]
    assert list(attempts_of(tag, "ab")) == named
    assert list(attempts_of(tag, "other")) == []


def test_a_comment_that_names_any_number_of_attempts_costs_little():
    assert len(list(attempts_of("penstock:ab:17.1@0-999999999", "ab"))) <= INDEXES_MAX + 1
    assert list(attempts_of("penstock:ab:17.1", "ab")) == list(attempts_of("penstock:ab:x", "ab")) == []


@pytest.mark.parametrize("comment", ["", "penstock:ab:", "penstock:ab:x", "penstock:ab:17.1@0-", "mine", "penstock:ab"])
def test_other_comments_are_of_others(comment):
    assert attempt_of(comment, "ab", "9") is None


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({}, None),
        ({"devices": 2, "replicas": 3, "time_limit": "1h", "labels": {"slurm.qos": "low"}}, None),
        ({"devices": 0.5}, "devices"),
        ({"workdir": {"snapshot": "0" * 64}}, "workdir.snapshot"),
        ({"shareable": True, "devices": 1}, "shareable"),
        ({"labels": {"slurm.account": "-x y"}}, "labels.slurm.account"),
        ({"on_preempt": "suspend"}, "on_preempt"),
    ],
)
def test_what_slurm_cannot_keep_is_refused_by_its_field(job, field):
    jobs, problems = parse_request({"command": "true", **job})
    assert not problems
    refused = refused_job(jobs[0].spec)
    assert (refused[0] if refused is not None else None) == field


def test_fields_of_a_start_that_are_not_known_here_are_refused():
    assert why_not(start()) == ""
    assert "snapshot" in why_not(start(snapshot="alice/x"))
    assert why_not(start(refused="there is no secret A any more")) == "there is no secret A any more"


@pytest.mark.parametrize("state", sorted(word for word, phase in PHASES.items() if phase in ("ended", "again")))
def test_each_end_of_slurm_is_one_here(state):
    line = ended(state)
    silent = info_of_word(line, "/shared")
    saved = explained(Ended(start().key, "9", 0, None, "TERM"), line)
    assert (saved is None) == (state == "CANCELLED")
    assert silent is not None
    if saved is not None:
        waits = state not in ("COMPLETED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE")
        assert bool(silent.problem) == waits, silent
        assert saved.problem.endswith(", it had saved")


@pytest.mark.parametrize(
    ("fields", "started", "text"),
    [
        ({}, False, "Slurm: it could not be launched on n1"),
        ({"state": "CANCELLED by 0"}, False, "Slurm: it could not be launched on n1"),
        ({"state": "CANCELLED by 1000"}, False, None),
        ({"hosts": ""}, False, None),
        ({"signal": 15}, False, None),
        ({"code": 1}, False, None),
        ({}, True, None),
    ],
)
def test_a_job_that_slurm_could_not_launch_was_cancelled_by_nobody(fields, started, text):
    info = info_of_word(replace(ended("CANCELLED"), **fields), "/shared", started=started)
    assert (info.text() if info is not None else None) == text


@pytest.mark.parametrize(
    ("state", "ended_as", "text"),
    [
        ("FAILED", (None, 15, "TERM"), "Slurm: it was asked to stop: signal 15"),
        ("FAILED", (None, 9, ""), "signal 9"),
        ("OUT_OF_MEMORY", (None, 9, ""), "signal 9 (out of memory)"),
        ("TIMEOUT", (1, None, "TERM"), "exit 1 (time limit reached)"),
        ("PREEMPTED", (None, 15, "TERM"), "Slurm: preempted"),
        ("NODE_FAIL", (None, 15, "TERM"), "Slurm: a node failed"),
    ],
)
def test_slurm_says_why_a_program_was_ended(state, ended_as, text):
    info = explained(Ended(start().key, "9", *ended_as), ended(state))
    assert info is not None
    assert info.text() == text


def test_what_a_script_says_is_in_the_names_of_files(tmp_path):
    spool, key = Spool(tmp_path), start().key
    spool.prepare("")
    said = [Started(key, "12_3", 77, "n1.lab"), Ended(key, "12_3", 3, None, ""), Ended(key, "12_3", None, 9, "TERM")]
    for one in said:
        (tmp_path / "slurm" / "own" / "news" / name_of(one)).touch()
    for other in ("x", "1.1.0.end.5.3.9.-", "1.1.0.start.5.7.", "1.1.0.end.5.-.-.-", "01.1.0.end.5.0.-.-"):
        (tmp_path / "slurm" / "own" / "news" / other).touch()
    assert sorted(str(one) for _, one in spool.read()) == sorted(map(str, said))
    assert list(spool.read({name_of(one) for one in said})) == []


def test_an_attempt_is_claimed_once(tmp_path):
    spool, key = Spool(tmp_path), AttemptKey(JobId(17), AttemptNumber(1))
    folder = spool.prepare("")
    (folder / "claims" / "18.1").write_text("99_4")
    assert [spool.withdraw("", key), spool.withdraw("", key)] == [True, True]
    assert not spool.withdraw("", AttemptKey(JobId(18), AttemptNumber(1)))
    assert spool.claimed("", AttemptKey(JobId(18), AttemptNumber(1))) == "99_4"


@pytest.mark.parametrize("left", ["a folder", "a link", "--signal=9", "9" * 100])
def test_a_claim_that_names_no_job_is_that_of_an_unknown_one(tmp_path, left):
    spool, key = Spool(tmp_path), AttemptKey(JobId(17), AttemptNumber(1))
    claim = spool.prepare("") / "claims" / "17.1"
    if left == "a folder":
        claim.mkdir()
    elif left == "a link":
        claim.symlink_to("/etc/passwd")
    else:
        claim.write_text(left)
    assert (spool.claimed("", key), spool.withdraw("", key)) == ("", False)


def test_a_file_that_an_account_left_as_a_link_is_not_followed(tmp_path):
    spool, key = Spool(tmp_path), start().key
    target = tmp_path / "target"
    (spool.prepare("") / "stop" / f"{key}.stop").symlink_to(target)
    spool.ask("", key, kill=False)
    assert not target.exists()


def test_what_is_old_is_swept_and_what_runs_is_kept(tmp_path):
    spool, key = Spool(tmp_path), start().key
    folder = spool.prepare("")
    names = {"news": [name_of(Started(key, "9", 7, "n1")), name_of(Ended(key, "9", 0, None, ""))], "hosts": ["17.1"]}
    for part, files in names.items():
        for name in files:
            (folder / part / name).touch()
    (folder / "claims" / "17.1").touch()
    spool.sweep()
    assert len([path for part in ("news", "hosts", "claims") for path in (folder / part).iterdir()]) == 4
    for path in [path for part in ("news", "hosts", "claims") for path in (folder / part).iterdir()]:
        os.utime(path, (0, 0))
    spool.sweep()
    left = [path.name for part in ("news", "hosts", "claims") for path in (folder / part).iterdir()]
    assert left == [name_of(Started(key, "9", 7, "n1"))]
