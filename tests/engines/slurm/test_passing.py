"""Jobs passed on to a real Slurm: each becomes one of its jobs, with its own end, also where servers die meanwhile."""

import stat
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from penstock.core.model import events as ev
from penstock.core.model.ids import JobId
from penstock.engines.slurm.commands import SlurmAway
from penstock.engines.slurm.passing import judging
from penstock.engines.slurm.passing.attempts import UNLAUNCHED
from penstock.engines.slurm.writing import NotTaken, SlurmWriter
from tests.engines.slurm.cluster import SlurmCluster, until
from tests.engines.slurm.passed import passing

SAVES = "trap 'echo saved; exit 0' TERM; echo began; while :; do sleep 0.1; done"


@pytest.fixture
def server(slurm: SlurmCluster, tmp_path: Path):
    with passing(slurm, tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("command", "ended"),
    [
        ("exit 0", ("succeeded", "")),
        ("exit 3", ("failed", "exit 3")),
        ("exit 137", ("failed", "exit 137")),
        ("kill -KILL $$", ("failed", "signal 9")),
        ("kill -SEGV $$", ("failed", "signal 11")),
    ],
)
def test_codes_and_signals_come_back_as_they_were(server, command, ended):
    (job,) = server.submit(command)
    assert server.end(job) == ended


def test_a_job_is_one_job_of_slurm_and_finds_its_variables(server):
    (job,) = server.submit("pwd; echo $PENSTOCK_JOB_ID $PENSTOCK_ATTEMPT $RANK $WORLD_SIZE $A; sleep 300",
                           env={"A": "it's"}, devices=2, cpus=2, time_limit="1h", name="one job")  # fmt: skip
    server.running(job)
    number = server.number(job)
    assert list(server.slurm.states()).count(number) == 1
    said = server.slurm.run("squeue", "-h", "-j", number, "-o", "%j|%C|%b|%l|%T")
    assert said.strip() == "one_job|2|gres:gpu:2|1:03:00|RUNNING"
    until("output", lambda: "it's" in server.output(job))
    assert server.output(job) == f"{server.data.job(job)}\n{job} 1 0 1 it's\n"
    server.cancel(job)
    assert server.end(job)[0] == "cancelled"
    until("its end in Slurm", lambda: server.slurm.states()[number] not in ("RUNNING", "COMPLETING"))


def test_an_array_stays_an_array(server):
    jobs = server.submit("echo $PENSTOCK_ARRAY_INDEX $SLURM_ARRAY_TASK_ID; exit $PENSTOCK_ARRAY_INDEX", array=3)
    assert [server.end(job) for job in jobs] == [("succeeded", ""), ("failed", "exit 1"), ("failed", "exit 2")]
    assert [server.output(job) for job in jobs] == ["0 0\n", "1 1\n", "2 2\n"]
    numbers = [number for number in server.slurm.states() if "_" in number]
    assert {number.partition("_")[2] for number in numbers} >= {"0", "1", "2"}
    assert len({number.partition("_")[0] for number in numbers}) == 1, "one sbatch"


def numbered(server) -> int:
    return sum(bool(one.number) for one in list(server.engine.attempts.values()))


@pytest.fixture
def together(server, monkeypatch):
    """Jobs go into an array of Slurm from the first on."""
    monkeypatch.setattr(server.engine, "lead", 0)


def test_of_many_jobs_the_first_go_each_by_itself_and_the_others_in_arrays_that_grow(server, monkeypatch):
    monkeypatch.setattr(server.engine, "lead", 1)
    jobs = server.submit_together(*(f"sleep 2; exit {i}" for i in range(8)))
    server.until("jobs of Slurm", lambda: numbered(server) == len(jobs))
    numbers = [server.number(job) for job in jobs]
    assert [number for number in numbers if "_" in number] == numbers[2:]
    assert sorted(Counter(number.partition("_")[0] for number in numbers).values()) == [1, 1, 2, 4]
    assert [server.end(job)[1] for job in jobs] == ["", *(f"exit {i}" for i in range(1, 8))]


@pytest.mark.usefixtures("together")
def test_jobs_that_start_together_are_one_array_and_each_is_itself(server):
    known = ("squeue", "-h", "-r", "-t", "all", "-o", "%k")
    former = {*server.slurm.run(*known).splitlines()}
    jobs = server.submit_together(*(f"echo {i} ${{SLURM_ARRAY_TASK_ID:-none}}; exit {i}" for i in range(4)))
    assert [server.end(job)[1] for job in jobs] == ["", "exit 1", "exit 2", "exit 3"]
    assert [server.output(job) for job in jobs] == [f"{i} none\n" for i in range(4)]
    comments = server.slurm.run(*known).splitlines()
    (comment,) = {*comments} - former
    assert comment.endswith(f":{jobs[0]}.1@0-3")


@pytest.mark.usefixtures("together")
def test_jobs_that_slurm_refuses_together_are_submitted_apart(server, monkeypatch):
    submit, refused = SlurmWriter.submit, []

    async def alone(writer, script, *options, **variables):
        if any(option.startswith("--array=") for option in options):
            refused.append(options)
            raise NotTaken("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy")
        return await submit(writer, script, *options, **variables)

    monkeypatch.setattr(SlurmWriter, "submit", alone)
    jobs = server.submit_together("exit 5", "exit 6")
    assert [server.end(job)[1] for job in jobs] == ["exit 5", "exit 6"]
    assert len(refused) == 1


@pytest.mark.usefixtures("together")
def test_one_of_several_that_is_cancelled_in_slurm_before_it_began_is_cancelled(server):
    slurm = server.slurm
    slurm.run("scontrol", "update", "partition=main", "state=down")
    try:
        jobs = server.submit_together("sleep 0.1", "sleep 0.2", "sleep 0.3")
        server.until("jobs of Slurm", lambda: numbered(server) == 3)
        numbers = [server.number(job) for job in jobs]
        assert [number.partition("_")[2] for number in numbers] == ["0", "1", "2"]
        slurm.run("scancel", numbers[1])
    finally:
        slurm.run("scontrol", "update", "partition=main", "state=up")
    assert [server.end(job)[0] for job in jobs] == ["succeeded", "cancelled", "succeeded"]


def test_ranks_of_a_gang_start_where_they_were_placed(server):
    (job,) = server.submit("echo $RANK $WORLD_SIZE $LOCAL_RANK $NODE_RANK $SLURMD_NODENAME; exit $RANK",
                           replicas=5, cpus=2)  # fmt: skip
    state, _ = server.end(job)
    assert state == "failed"
    (allocated,) = server.events(ev.AttemptAllocated, job)
    said = [server.output(job, rank=rank).split() for rank in range(5)]
    assert [(int(rank), node) for rank, _, _, _, node in said] == [
        (rank, place.node) for rank, place in enumerate(allocated.places)
    ]
    assert sorted(server.exits(job)) == [(1, 0, "exit 0"), *[(1, rank, f"exit {rank}") for rank in range(1, 5)]]


def test_a_stop_lets_a_program_save_and_one_that_does_not_is_killed(server):
    (saves,) = server.submit(SAVES, grace="20s")
    (stays,) = server.submit("trap '' TERM; echo began; while :; do sleep 0.1; done", grace="1s")
    for job in (saves, stays):
        server.running(job)
        until("its trap", lambda job=job: "began" in server.output(job))
        server.cancel(job)
    assert [server.end(job)[0] for job in (saves, stays)] == ["cancelled", "cancelled"]
    assert server.output(saves).endswith("saved\n")
    assert (server.exits(saves), server.exits(stays)) == ([(1, 0, "exit 0")], [(1, 0, "signal 9")])


def test_a_job_that_slurm_has_not_begun_is_withdrawn(server):
    slurm = server.slurm
    slurm.run("scontrol", "update", "partition=main", "state=down")
    try:
        (job,) = server.submit("echo ran")
        server.until("a job of Slurm", lambda: server.engine.attempts and server.number(job))
        server.cancel(job)
        assert server.end(job)[0] == "cancelled"
    finally:
        slurm.run("scontrol", "update", "partition=main", "state=up")
    assert not list(server.data.job(job).glob("*.log"))


def test_a_job_that_slurm_lets_wait_for_long_waits_here_again(server, monkeypatch):
    slurm = server.slurm
    slurm.run("scontrol", "update", "partition=main", "state=down")
    try:
        (job,) = server.submit("exit 6")
        server.until("a job of Slurm", lambda: server.engine.attempts and server.number(job))
        server.engine.hurry()
        server.until("its reason", lambda: "PartitionDown" in server.engine.said_of(job))
        monkeypatch.setattr(judging, "WAITS_S", 0.0)
        server.engine.hurry()
        server.until("another attempt", lambda: server.events(ev.AttemptEnded, job))
        monkeypatch.setattr(judging, "WAITS_S", 300.0)
    finally:
        slurm.run("scontrol", "update", "partition=main", "state=up")
    assert server.end(job) == ("failed", "exit 6")
    assert {end.outcome for end in server.events(ev.AttemptEnded, job)} == {"requeued", "failed"}


def test_what_slurm_refuses_fails_with_its_words(server):
    (job,) = server.submit("true", labels={"slurm.partition": "nowhere"})
    state, reason = server.end(job)
    assert state == "failed"
    assert "nvalid partition" in reason


def test_a_job_cancelled_in_slurm_is_cancelled_here(server):
    (job,) = server.submit(SAVES)
    server.running(job)
    until("its trap", lambda: "began" in server.output(job))
    server.slurm.run("scancel", server.number(job))
    assert server.end(job)[0] == "cancelled"


def test_a_job_that_slurm_cannot_launch_waits_again_and_is_not_cancelled(server):
    following = server.slurm.submit("true") + 1
    spools = [server.slurm.folder / "spool" / name / f"job{following:05d}" for name in server.slurm.nodes]
    for path in spools:
        path.touch()  # slurmd wants a folder of this name
    try:
        (job,) = server.submit("exit 3")
        assert server.end(job)[0] == "failed"
    finally:
        for path in spools:
            path.unlink()
    first = server.events(ev.AttemptAllocated, job)[0].places[0].node
    assert server.exits(job) == [(1, 0, f"{UNLAUNCHED} on {first}"), (2, 0, "exit 3")]


def test_a_job_that_slurm_preempts_saves_waits_and_goes_on(server):
    slurm = server.slurm
    (job,) = server.submit(f"[ $PENSTOCK_ATTEMPT = 1 ] || exit 0; {SAVES}", cpus=4, grace="20s", replicas=4)
    server.running(job)
    until("its traps", lambda: all("began" in server.output(job, rank=rank) for rank in range(4)))
    other = slurm.submit("sleep 2", "-p", "urgent", "-N4", "--ntasks-per-node=4", "--mem-per-cpu=10")
    assert server.end(job) == ("succeeded", "")
    slurm.wait(other, "COMPLETED")
    assert "saved\n" in server.output(job)
    (first, _) = server.events(ev.AttemptEnded, job)
    assert first.outcome == "lost"
    assert first.detail.startswith("Slurm: preempted")


def test_a_server_that_dies_finds_its_jobs_again(slurm, tmp_path):
    with passing(slurm, tmp_path) as first:
        (ends,) = first.submit("while [ ! -e gate ]; do sleep 0.1; done; exit 5")
        (gang,) = first.submit("while [ ! -e gate ]; do sleep 0.1; done; exit $RANK", replicas=3)
        (over,) = first.submit("exit 4")
        elements = first.submit(SAVES, array=2)
        for job in (ends, gang, *elements):
            first.running(job)
        assert first.end(over) == ("failed", "exit 4")
        first.die()
        (first.data.job(ends) / "gate").touch()
        (first.data.job(gang) / "gate").touch()
        until("an end that nobody hears", lambda: list((first.data.root / "slurm" / "own" / "news").glob("*.end.*")))
    with passing(slurm, tmp_path) as second:
        assert second.end(ends) == ("failed", "exit 5")
        assert second.end(gang)[0] == "failed"
        assert sorted(text for _, _, text in second.exits(gang)) == ["exit 0", "exit 1", "exit 2"]
        for job in elements:
            second.cancel(job)
        assert [second.end(job)[0] for job in elements] == ["cancelled", "cancelled"]
        assert [len(second.events(ev.AttemptAllocated, job)) for job in (ends, gang, over, *elements)] == [1] * 5
        assert second.output(elements[1]).endswith("saved\n")


def test_what_began_and_ended_between_two_servers_is_found_by_its_files(slurm, tmp_path):
    slurm.run("scontrol", "update", "partition=main", "state=down")
    try:
        with passing(slurm, tmp_path) as first:
            (job,) = first.submit("echo ran; exit 7")
            (waits,) = first.submit("echo ran; sleep 300")
            first.until(
                "jobs of Slurm", lambda: sum(bool(one.number) for one in list(first.engine.attempts.values())) == 2
            )
            number = first.number(job)
            slurm.run("scancel", first.number(waits))
            first.die()
    finally:
        slurm.run("scontrol", "update", "partition=main", "state=up")
    slurm.wait(number, "FAILED")
    with passing(slurm, tmp_path) as second:
        assert second.end(job) == ("failed", "exit 7")
        assert second.output(job) == "ran\n"
        assert second.end(waits) == ("cancelled", "cancelled on request")


def test_a_lost_answer_of_sbatch_is_found_by_the_tag(server, monkeypatch):
    writer, submit = server.engine._submitter._writer, SlurmWriter.submit
    lost: list[str] = []

    async def unheard(*given, **variables):
        number = await submit(writer, *given, **variables)
        if not lost:
            lost.append(number)
            raise SlurmAway("sbatch did not answer within 20 s")
        return number

    monkeypatch.setattr(writer, "submit", unheard)
    (job,) = server.submit("echo ran; sleep 1; exit 2")
    assert server.end(job) == ("failed", "exit 2")
    comments = server.slurm.run("squeue", "-h", "-t", "all", "-O", "Comment:80").split()
    assert comments.count(f"penstock:{server.state.identity.cluster}:{job}.1") == len(lost) == 1


def test_jobs_of_an_account_run_as_it_and_keep_their_files_to_themselves(slurm):
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with passing(slurm, Path(name) / "server", account="nobody") as server:
            (Path(name) / "server").chmod(0o755)
            (job,) = server.submit("id -un; echo $HOME; touch $PENSTOCK_CHECKPOINT_DIR/saved; exit 3")
            (gang,) = server.submit("id -un", replicas=2)
            assert server.end(job) == ("failed", "exit 3")
            assert server.end(gang) == ("succeeded", "")
            assert server.output(job).split("\n")[0] == "nobody"
            assert [server.output(gang, rank=rank) for rank in range(2)] == ["nobody\n"] * 2
            assert (server.data.checkpoints(JobId(job)) / "saved").owner() == "nobody"
            for part in ("claims", "news", "stop"):
                assert stat.S_IMODE((server.data.root / "slurm" / "account-nobody" / part).stat().st_mode) == 0o700
            forged = server.data.root / "slurm" / "account-nobody" / "news"
            (own,) = server.ask_as("", "sleep 1; exit 4")
            server.running(own)
            (forged / f"{own}.1.0.end.1.0.-.-").touch()
            assert server.end(own) == ("failed", "exit 4"), "another account cannot say how it ended"


def test_load_of_others_is_seen(server):
    slurm = server.slurm
    others = slurm.submit("sleep 300", "--mem=1000", "-w", "n2", "-c3", "--gres=gpu:3")
    slurm.wait(others, "RUNNING")
    server.engine.hurry()
    until("load", lambda: len(server.state.nodes["n2"].others.devices) == 3)
    assert server.state.nodes["n2"].others.host.cpu_milli == 3000
    (job,) = server.submit("echo $SLURMD_NODENAME", replicas=3, devices=3)
    assert server.end(job) == ("succeeded", "")
    assert sorted(server.output(job, rank=rank).strip() for rank in range(3)) == ["n1", "n3", "n4"]


def test_a_script_submitted_twice_runs_once(server):
    slurm = server.slurm
    (job,) = server.submit("echo ran; sleep 1")
    server.running(job)
    number = server.number(job)
    script = slurm.run("scontrol", "write", "batch_script", number, "-")
    again = slurm.submit(script.partition("\n")[2], "--mem=10", "-o", "/dev/null")
    slurm.wait(again, "FAILED")
    assert "75:0" in slurm.run("scontrol", "show", "job", str(again))
    assert server.end(job) == ("succeeded", "")
    assert server.output(job) == "ran\n"
