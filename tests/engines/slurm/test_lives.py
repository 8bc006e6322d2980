"""Which lines of squeue and sacct are the same job, and what happened when."""

from msgspec.structs import replace

from penstock.engines.slurm.jobs import SlurmJob
from penstock.engines.slurm.lives import happenings, lives_of
from penstock.engines.slurm.states import phase_of

PLAIN = SlurmJob(
    number="7", user="ann", account="team", partitions=("main",), qos="normal", state="PENDING", phase="waiting",
    reason="Resources", submit_s=100, eligible_s=100, start_s=0, end_s=0, limit_ms=0, nodes=1,
    tres="cpu=1,mem=1M,node=1", hosts="", code=0, signal=0, restarts=0, features="", name="train",
)  # fmt: skip


def line(state: str, submit_s: int = 100, start_s: int = 0, end_s: int = 0, **more: object) -> SlurmJob:
    hosts = "n1" if start_s else ""
    times = {"submit_s": submit_s, "start_s": start_s, "end_s": end_s, "hosts": hosts}
    return replace(PLAIN, state=state, phase=phase_of(state), **times, **more)


def told(accounts: list[SlurmJob], queue: list[SlurmJob]) -> list[tuple[int, str, str]]:
    return [(one.time_s, one.what, one.life.label) for one in happenings(lives_of(accounts, queue))]


def test_a_job_that_ran():
    run = line("COMPLETED", 100, 110, 120)
    expected = [(100, "submitted", "7@100"), (110, "started", "7@100"), (120, "ended", "7@100")]
    assert told([run], []) == told([run], [run]) == told([], [run]) == expected


def test_what_slurmctld_says_of_a_run_counts_more():
    (life,) = lives_of([line("FAILED", 100, 110, 120, code=9)], [line("FAILED", 100, 110, 120, code=137)])
    assert [one.code for one in life.lines] == [137]


def test_a_job_that_was_put_back_is_the_same_job():
    first, again = line("REQUEUED", 100, 110, 120), line("PENDING", 120, restarts=1)
    assert told([first], [again]) == [
        (100, "submitted", "7@100"), (110, "started", "7@100"), (120, "ended", "7@100")
    ]  # fmt: skip
    third = line("RUNNING", 120, 300, restarts=1)
    assert told([first, line("RUNNING", 120, 300)], [third])[3:] == [(300, "started", "7@100")]


def test_a_number_that_comes_back_is_another_job():
    old, new = line("COMPLETED", 100, 110, 120), line("PENDING", 900)
    assert [life.label for life in lives_of([old], [new])] == ["7@100", "7@900"]
    other = line("RUNNING", 900, 910, user="bob")
    assert [life.label for life in lives_of([line("REQUEUED", 100, 110, 120)], [other])] == ["7@100", "7@900"]


def test_a_job_that_never_ran():
    assert told([], [line("CANCELLED", 100, 0, 130)]) == [(100, "submitted", "7@100"), (130, "ended", "7@100")]


def test_within_one_second_ends_come_before_starts_and_a_short_run_keeps_its_order():
    long, short = line("COMPLETED", 50, 60, 100), line("FAILED", 100, 100, 100, number="8")
    next_one = line("RUNNING", 100, 100, number="9")
    assert told([long, short, next_one], [])[2:] == [
        (100, "ended", "7@50"),
        (100, "submitted", "8@100"),
        (100, "submitted", "9@100"),
        (100, "started", "8@100"),
        (100, "started", "9@100"),
        (100, "ended_at_once", "8@100"),
    ]
