"""Beside a real Slurm: its jobs from their submit to their end, explained; not one of its jobs or nodes is changed."""

import random
from pathlib import Path

import pytest

from penstock.core.model import events as ev
from penstock.engines.slurm.commands import SlurmAway
from tests.engines.slurm.cluster import START_WAIT_S, SlurmCluster, until
from tests.engines.slurm.watching import Watching, watching

SMALL = ("--mem=10", "-o", "/dev/null")
BOTH = "sleep 300"


@pytest.fixture
def shadow(slurm: SlurmCluster, tmp_path: Path):
    with watching(slurm, tmp_path) as made:
        yield made


def settled(shadow: Watching) -> None:
    """Refresh, and require that nothing is said that squeue does not say."""
    before = shadow.slurm.states()
    shadow.refresh()
    if shadow.slurm.states() == before:
        assert shadow.differing(before) == {}


def test_jobs_of_slurm_are_explained_and_followed_to_their_ends(shadow):
    slurm = shadow.slurm
    big = slurm.submit(BOTH, *SMALL, "-N4", "--gres=gpu:3", "-t", "60", "-J", "big")
    slurm.wait(big, "RUNNING")
    wants = slurm.submit(BOTH, *SMALL, "-N2", "--gres=gpu:a100:2", "-J", "wants")
    held = slurm.submit(BOTH, *SMALL, "--hold")
    fails, good = slurm.submit("exit 3", *SMALL), slurm.submit("true", *SMALL)
    slurm.wait(fails, "FAILED")
    slurm.wait(good, "COMPLETED")
    until("Slurm's reason", lambda: slurm.run("squeue", "-h", "-j", str(wants), "-o", "%r").strip() == "Resources")
    settled(shadow)
    jobs = shadow.jobs()
    assert {number: job.state for number, job in jobs.items()} == {
        str(big): "running", str(wants): "waiting", str(held): "waiting"
    }  # fmt: skip
    places = [(replica.place.node, len(replica.place.devices)) for replica in jobs[str(big)].attempt.replicas]
    assert places == [(f"n{number}", 3) for number in (1, 2, 3, 4)]
    assert (jobs[str(big)].spec.name, jobs[str(big)].spec.time_limit_ms) == ("big", 3_600_000)
    ends = shadow.ends()
    assert (ends[str(fails)], ends[str(good)]) == (("failed", "exit 3"), ("succeeded", ""))
    text = "needs 1 x 2 devices; 4 free in all, at most 1 on one node: 4 nodes have too few devices free"
    assert shadow.why(str(wants)) == "no_fit: " + text.replace("1 x 2", "2 x 2")
    assert shadow.why(str(held)).startswith("held: ")
    assert shadow.engine.said_of(jobs[str(wants)].id) == f"Slurm, job {wants}: Resources"
    slurm.run("scancel", str(big))
    slurm.run("scontrol", "release", str(held))
    slurm.wait(wants, "RUNNING")
    slurm.wait(held, "RUNNING")
    settled(shadow)
    assert {number: job.state for number, job in shadow.jobs().items()} == {str(wants): "running", str(held): "running"}
    assert shadow.ends()[str(big)] == ("cancelled", "cancelled in Slurm")


def test_elements_of_an_array_are_jobs_and_uneven_shares_run_where_they_are(shadow):
    slurm = shadow.slurm
    array = slurm.submit(BOTH, *SMALL, "--array=3,5,9%2")
    uneven = slurm.submit(BOTH, *SMALL, "-N2", "-n5")
    slurm.wait(f"{array}_5", "RUNNING")
    slurm.wait(uneven, "RUNNING")
    settled(shadow)
    states = {number: (job.state, job.hold is not None) for number, job in shadow.jobs().items()}
    assert states == {
        f"{array}_3": ("running", False), f"{array}_5": ("running", False), f"{array}_9": ("waiting", True),
        str(uneven): ("running", False),
    }  # fmt: skip
    slurm.run("scancel", f"{array}_3")
    slurm.wait(f"{array}_9", "RUNNING")
    settled(shadow)
    assert shadow.jobs()[f"{array}_9"].state == "running"


def test_a_job_that_slurm_puts_back_waits_again_as_the_same_job(shadow):
    for _ in range(3):
        job = put_back(shadow)
        if runs_again(shadow.slurm, job):
            break
        print(shadow.slurm.run("scontrol", "show", "job", str(job)))
    settled(shadow)
    assert shadow.jobs()[str(job)].attempt.number == 2


def put_back(shadow: Watching) -> int:
    """Have a running job requeued; return its number."""
    slurm = shadow.slurm
    job = slurm.submit(BOTH, *SMALL)
    slurm.wait(job, "RUNNING")
    settled(shadow)
    known = shadow.jobs()[str(job)].id
    slurm.run("scontrol", "requeue", str(job))
    slurm.wait(job, "PENDING")
    settled(shadow)
    assert (shadow.jobs()[str(job)].id, shadow.jobs()[str(job)].state) == (known, "waiting")
    assert [end.outcome for end in shadow.events(ev.AttemptEnded) if end.job_id == known] == ["requeued"]
    return job


def runs_again(slurm: SlurmCluster, job: int) -> bool:
    """Wait until a requeued job runs; return False where Slurm ends it instead, which it does once in many times."""
    said = ""

    def ran_or_ended() -> bool:  # Slurm puts its start off by two minutes, and may do so after it shows it as waiting
        nonlocal said
        slurm.resume()
        said = slurm.run("squeue", "-h", "-j", str(job), "-o", "%T %r").strip()
        if said == "PENDING BeginTime":
            slurm.run("scontrol", "update", f"jobid={job}", "StartTime=now")
        return not said or said.startswith("RUNNING")

    try:
        until(f"job {job} runs again", ran_or_ended, wait_s=2 * START_WAIT_S, every_s=1)
    except AssertionError as error:
        raise AssertionError(f"{error}: {said}\n{slurm.run('sinfo', '-N', '-l')}") from None
    return bool(said)


def test_a_preempted_job_makes_room_as_slurm_decides(shadow):
    slurm = shadow.slurm
    low = slurm.submit(BOTH, *SMALL, "-N4", "--gres=gpu:4")
    slurm.wait(low, "RUNNING")
    settled(shadow)
    high = slurm.submit(BOTH, *SMALL, "-N1", "--gres=gpu:1", "-p", "urgent")
    slurm.wait(high, "RUNNING")
    slurm.wait(low, "PENDING")
    settled(shadow)
    assert {number: job.state for number, job in shadow.jobs().items()} == {str(low): "waiting", str(high): "running"}


def test_nodes_that_slurm_closes_take_nothing(shadow):
    slurm = shadow.slurm
    slurm.run("scontrol", "update", "node=n1,n2,n3,n4", "state=drain", "reason=test")
    job = slurm.submit(BOTH, *SMALL)
    until("a drained node", lambda: "drained" in slurm.run("sinfo", "-h", "-o", "%T"))
    shadow.engine.forget_nodes()
    settled(shadow)
    assert {node.drain_reason.partition(" [")[0] for node in shadow.state.nodes.values()} == {"DRAIN: test"}
    assert "fits only on nodes that take no work now: n1 (draining)" in shadow.why(str(job))
    slurm.run("scontrol", "update", "node=ALL", "state=resume")
    slurm.wait(job, "RUNNING")
    shadow.engine.forget_nodes()
    settled(shadow)
    assert shadow.jobs()[str(job)].state == "running"


def test_what_ended_while_nobody_watched_is_in_the_log_with_its_times(slurm, tmp_path):
    stays = slurm.submit(BOTH, *SMALL)
    ends = slurm.submit("sleep 300", *SMALL)
    slurm.wait(ends, "RUNNING")
    with watching(slurm, tmp_path) as first:
        assert first.differing() == {}
    slurm.run("scancel", str(ends))
    slurm.wait(ends, "CANCELLED")
    short = slurm.submit("exit 7", *SMALL)
    slurm.wait(short, "FAILED")
    with watching(slurm, tmp_path) as second:
        assert second.differing() == {}
        assert set(second.jobs()) == {str(stays)}
        assert second.ends()[str(ends)][0] == "cancelled"
        assert second.ends()[str(short)] == ("failed", "exit 7")
        for number in (ends, short):
            submit_s, start_s, end_s = slurm.times(number)
            assert times_of(second, number) == [("submitted", submit_s), ("started", start_s), ("ended", end_s)]


def times_of(shadow: Watching, number: int) -> list[tuple[str, int]]:
    """Return when what happened to a job, as the log has it (seconds since 1970)."""
    found, job_id = [], None
    for record in shadow.store.tail(0):
        event, time_s = record.event, record.time_ms // 1000
        if isinstance(event, ev.JobSubmitted) and dict(event.spec.labels)["slurm.job"].startswith(f"{number}@"):
            job_id = event.job_id
            found.append(("submitted", time_s))
        elif isinstance(event, ev.AttemptAllocated) and event.job_id == job_id:
            found.append(("started", time_s))
        elif isinstance(event, ev.JobFinished) and event.job_id == job_id:
            found.append(("ended", time_s))
    return found


def test_an_empty_answer_means_nothing(shadow, monkeypatch):
    slurm = shadow.slurm
    job = slurm.submit(BOTH, *SMALL)
    slurm.wait(job, "RUNNING")
    settled(shadow)
    run = shadow.engine.reader.commands.run

    async def empty(*command: str) -> str:
        return "" if command[0] == "squeue" else await run(*command)

    with monkeypatch.context() as without:
        without.setattr(shadow.engine.reader.commands, "run", empty)
        for _ in range(3):
            shadow.refresh()
        assert shadow.jobs()[str(job)].state == "running"
    settled(shadow)


def test_not_one_request_of_the_shadow_writes(shadow):
    slurm = shadow.slurm
    job = slurm.submit("sleep 1", *SMALL)
    slurm.wait(job, "COMPLETED")
    before = requests(slurm)
    for _ in range(3):
        shadow.engine.forget_nodes()
        shadow.refresh()
    grown = {name for name, count in requests(slurm).items() if count > before.get(name, 0)}
    asked = {name for name in grown if name.startswith("REQUEST_")}
    assert asked >= {"REQUEST_JOB_INFO", "REQUEST_NODE_INFO"}
    reads = {"REQUEST_JOB_INFO", "REQUEST_JOB_INFO_SINGLE", "REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO",
             "REQUEST_BUILD_INFO", "REQUEST_STATS_INFO", "REQUEST_PING"}  # fmt: skip
    assert asked <= reads


def requests(slurm: SlurmCluster) -> dict[str, int]:
    """Return how often slurmctld was asked what."""
    found = {}
    for line in slurm.run("sdiag").splitlines():
        name, _, rest = line.strip().partition(" ")
        if "count:" in rest:
            found[name] = int(rest.partition("count:")[2].split()[0])
    return found


def test_states_agree_with_squeue_after_each_refresh(shadow):
    slurm, draw = shadow.slurm, random.Random(7)
    jobs: list[int] = []
    compared = 0
    for _ in range(8):
        for _ in range(3):
            ends = draw.choice(("sleep 300", "sleep 1", "true", "exit 4"))
            shape = draw.choice((("-N1",), ("-N2", "-n3"), ("-N1", "--gres=gpu:2"), ("--array=0-2%1",), ("--hold",)))
            jobs.append(slurm.submit(ends, *SMALL, *shape))
        one = str(draw.choice(jobs))
        slurm.code(*draw.choice((("scancel", one), ("scontrol", "requeue", one), ("scontrol", "release", one))))
        shadow.refresh()
        before = slurm.states()
        shadow.refresh()
        if slurm.states() == before:
            compared += 1
            assert shadow.differing(before) == {}
    assert compared >= 2
    slurm.empty()
    settled(shadow)
    assert shadow.jobs() == {}
    ended = {number: state for number, (state, _) in shadow.ends().items()}
    words = {"COMPLETED": "succeeded", "FAILED": "failed", "CANCELLED": "cancelled"}
    bases = {number.partition("_")[0] for number in ended if "_" in number}
    shown = {number: state for number, state in slurm.states().items() if number not in bases}  # shared lines
    there = {number: words[state] for number, state in shown.items() if number.partition("_")[0] in map(str, jobs)}
    assert {number: ended[number] for number in there} == there


def test_a_node_that_goes_down_takes_its_job_along_and_leaves(shadow):
    slurm = shadow.slurm
    job = slurm.submit(BOTH, *SMALL, "-w", "n2")
    slurm.wait(job, "RUNNING")
    settled(shadow)
    slurm.kill_part("n2")
    slurm.run("scontrol", "update", "node=n2", "state=down", "reason=test")
    slurm.wait(job, "PENDING")
    shadow.engine.forget_nodes()
    settled(shadow)
    assert shadow.jobs()[str(job)].state == "waiting"
    shadow.engine.forget_nodes()
    settled(shadow)
    until("n2 gone", lambda: shadow.state.nodes["n2"].state == "lost")
    slurm.start_part("n2")
    slurm.code("scontrol", "update", "node=n2", "state=resume")
    until("n2 back", lambda: "n2 idle\n" in slurm.run("sinfo", "-h", "-N", "-o", "%N %T"))
    shadow.engine.forget_nodes()
    settled(shadow)
    until("n2 ready", lambda: shadow.state.nodes["n2"].state == "ready")


def test_a_controller_that_is_away_changes_nothing_and_is_said(shadow, monkeypatch):
    slurm = shadow.slurm
    big = slurm.submit(BOTH, *SMALL, "-N4", "--gres=gpu:4")
    slurm.wait(big, "RUNNING")
    wants = slurm.submit(BOTH, *SMALL, "-N4", "--gres=gpu:4")
    settled(shadow)

    async def answer(*command: str) -> str:
        raise SlurmAway("squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)")

    with monkeypatch.context() as patched:
        patched.setattr(shadow.engine.reader.commands, "run", answer)
        shadow.follow_once()
    said = shadow.engine.said_of(shadow.jobs()[str(wants)].id)
    assert said.startswith(f"Slurm, job {wants}: ")
    assert said.endswith("; no news: " + shadow.engine.problem)
    states = {number: job.state for number, job in shadow.jobs().items()}
    assert states == {str(big): "running", str(wants): "waiting"}
    shadow.follow_once()
    assert (shadow.engine.problem, shadow.differing()) == ("", {})


def without(shadow: Watching, monkeypatch: pytest.MonkeyPatch, *, accounts: str) -> None:
    """Let squeue show no job, and sacct answer with `accounts`; '-' lets it fail."""
    run = shadow.engine.reader.commands.run

    async def answer(*command: str) -> str:
        if command[0] == "sacct" and accounts == "-":
            raise SlurmAway("sacct: error: Problem talking to the database: Connection refused")
        return {"squeue": "", "sacct": accounts}.get(command[0], "") or (
            "" if command[0] in ("squeue", "sacct") else await run(*command)
        )

    monkeypatch.setattr(shadow.engine.reader.commands, "run", answer)


def test_a_job_that_nobody_knows_any_more_has_vanished_but_not_at_once(shadow, monkeypatch):
    slurm = shadow.slurm
    job = slurm.submit(BOTH, *SMALL)
    slurm.wait(job, "RUNNING")
    settled(shadow)
    with monkeypatch.context() as patched:
        without(shadow, patched, accounts="")
        patched.setattr(shadow.engine, "config", shadow.engine.config._replace(min_job_age_s=0))
        shadow.refresh()
        assert shadow.jobs()[str(job)].state == "running", "once is not enough"
        patched.setattr(shadow.engine, "config", shadow.engine.config._replace(min_job_age_s=300))
        shadow.refresh()
        assert shadow.jobs()[str(job)].state == "running", "slurmctld may have it for longer"
        patched.setattr(shadow.engine, "config", shadow.engine.config._replace(min_job_age_s=0))
        shadow.refresh()
        shadow.settle()
        assert shadow.jobs() == {}
    assert shadow.ends()[str(job)] == ("cancelled", "it vanished: neither squeue nor sacct shows it")


def test_jobs_wait_for_accounts_that_are_away(shadow, monkeypatch):
    slurm = shadow.slurm
    job = slurm.submit(BOTH, *SMALL)
    slurm.wait(job, "RUNNING")
    settled(shadow)
    with monkeypatch.context() as patched:
        without(shadow, patched, accounts="-")
        patched.setattr(shadow.engine, "config", shadow.engine.config._replace(min_job_age_s=0))
        for _ in range(3):
            shadow.refresh()
        assert shadow.jobs()[str(job)].state == "running"
        assert shadow.engine.accounts_problem.startswith("sacct: error: Problem talking to the database")
    slurm.run("scancel", str(job))
    slurm.wait(job, "CANCELLED")
    settled(shadow)
    assert shadow.ends()[str(job)][0] == "cancelled"


def test_what_slurmctld_has_forgotten_the_accounts_know(shadow, monkeypatch):
    slurm = shadow.slurm
    gate = slurm.folder / "work" / "gate"
    job = slurm.submit(f"while [ ! -e {gate} ]; do sleep 0.1; done; exit 5", *SMALL)
    slurm.wait(job, "RUNNING")
    settled(shadow)
    gate.touch()
    slurm.wait(job, "FAILED")
    until("an end in the accounts", lambda: "FAILED" in slurm.run("sacct", "-n", "-X", "-j", str(job), "-o", "State"))
    with monkeypatch.context() as patched:
        run = shadow.engine.reader.commands.run

        async def answer(*command: str) -> str:
            return "" if command[0] == "squeue" else await run(*command)

        patched.setattr(shadow.engine.reader.commands, "run", answer)
        shadow.refresh()
    assert shadow.ends()[str(job)] == ("failed", "exit 5")
