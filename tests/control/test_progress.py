"""What is done when a program makes no step: looked at, said, and started again where that is wanted."""

import pytest
from msgspec.structs import replace

from penstock.control import hangs
from penstock.control import progress as pulse
from penstock.control.progress import gauges_of
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.orders import InspectReplica, StopReplica
from penstock.core.messages.reports import ProgressSeen, ReplicaInspected, ReplicaKey
from penstock.core.model.batching import BatchSeen
from penstock.core.model.events import AttemptResumed, AttemptStopRequested, AttemptSuspended, ReplicaFrozen
from penstock.core.model.hangs import Frame, Sight
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.progress import Gauges
from penstock.core.state.expected_end import told_rest_ms
from tests.control.rig import Rig

STEP = Gauges(step_ms=100, total_steps=1_000)
LOADER = (
    Frame("__next__", "/x/site-packages/torch/utils/data/dataloader.py", 1),
    Frame("main", "/home/ann/train.py", 7),
)


def progress(rig, job_id, step, gauges=STEP, attempt=1, kind="progress"):
    seen = ProgressSeen(ReplicaKey(job_id, attempt, 0), kind, step, gauges=gauges)
    rig.report("a", rig.seen(job_id, attempt=attempt), progress=(seen,))


def asked_for(handled):
    return [order for _, order in handled.orders if isinstance(order, InspectReplica)]


def answer(rig, job_id, sight, attempt=1):
    key = ReplicaKey(job_id, attempt, 0)
    rig.report("a", rig.seen(job_id, attempt=attempt), inspected=(ReplicaInspected(key, sight),))
    return rig.wait(1)


def stuck(**fields):
    """Return a rig and a job whose program has made no step for six seconds and is being inspected."""
    rig = Rig("a")
    job_id = rig.running(**fields)
    for step in (1, 2, 3):
        progress(rig, job_id, step)
    for _ in range(6):
        rig.wait(1_000)
        handled = rig.handle(rig.message("a", rig.seen(job_id)))
    return rig, job_id, handled


def test_a_program_that_makes_steps_is_left_alone():
    rig = Rig("a")
    job_id = rig.running()
    for step in range(1, 30):
        progress(rig, job_id, step)
        assert asked_for(rig.wait(500)) == []


def test_a_program_that_makes_none_is_inspected_once():
    rig = Rig("a")
    job_id = rig.running()
    progress(rig, job_id, 3)
    assert asked_for(rig.wait(4_200)) == []
    assert asked_for(rig.wait(1)) == [InspectReplica(ReplicaKey(job_id, 1, 0))]
    assert asked_for(rig.wait(1)) == []


def test_steps_of_unknown_length_and_the_end_of_training_are_no_stall():
    rig = Rig("a")
    for gauges, step in ((Gauges(), 3), (STEP, 1_000)):
        job_id = rig.running()
        progress(rig, job_id, step, gauges)
        assert asked_for(rig.wait(5_000)) == []


def test_a_checkpoint_is_a_sign_of_life():
    rig = Rig("a")
    job_id = rig.running()
    progress(rig, job_id, 3)
    rig.wait(4_000)
    progress(rig, job_id, 3, None, kind="checkpoint")
    assert asked_for(rig.wait(4_000)) == []


def test_a_rank_that_is_stopped_is_told_and_started_again_at_once():
    rig, job_id, _ = stuck()
    handled = answer(rig, job_id, Sight(0, "T", stack=LOADER))
    assert rig.events()[-2:] == ["HangFound", "AttemptStopRequested"]
    stop = next(order for _, order in handled.orders if isinstance(order, StopReplica))
    assert (stop.grace_ms, stop.reason) == (0, "hung"), "the culprit itself has nothing to save"
    rig.report("a", rig.seen(job_id, "exited", exit=_killed()))
    job = rig.state.jobs[job_id]
    assert (job.state, job.retries_used, job.infrastructure_failures) == ("waiting", 0, 1)
    assert rig.fits_log()


def _killed():
    return ExitInfo(signal=9, stop_sent=True)


def test_only_told_where_the_owner_wants_no_more():
    rig, job_id, _ = stuck(on_hang="report")
    answer(rig, job_id, Sight(0, "T", stack=LOADER))
    assert rig.events()[-1] == "HangFound"
    assert rig.state.jobs[job_id].progress.hang.startswith("rank 0 is stopped")
    progress(rig, job_id, 4)
    rig.wait(1)
    assert rig.state.jobs[job_id].progress.hang == ""


def test_what_may_go_on_by_itself_has_until_its_limit():
    rig, job_id, _ = stuck(hang_limit_ms=20_000)
    answer(rig, job_id, Sight(0, "S", stack=LOADER))
    assert rig.events()[-1] == "HangFound"
    asked = []
    for _ in range(16):
        handled = rig.wait(1_000)
        rig.handle(rig.message("a", rig.seen(job_id)))
        asked += asked_for(handled)
        if asked_for(handled):
            answer(rig, job_id, Sight(0, "S", stack=LOADER))
    assert rig.events()[-1] == "AttemptStopRequested"
    assert rig.events().count("HangFound") == 1, "the same finding is said once"


def test_an_agent_that_does_not_answer_holds_up_nothing():
    rig, job_id, _ = stuck()
    for _ in range(6):
        rig.wait(1_000)
        rig.handle(rig.message("a", rig.seen(job_id)))
    assert "HangFound" not in rig.events()
    assert rig.state.jobs[job_id].state == "running"


def test_what_is_no_hang_is_inspected_less_and_less_often():
    rig, job_id, _ = stuck()
    busy = Sight(0, "R", cpu_milli=900, stack=(Frame("evaluate", "/home/ann/train.py", 9),))
    answer(rig, job_id, busy)
    times = []
    for second in range(80):
        handled = rig.wait(1_000)
        rig.handle(rig.message("a", rig.seen(job_id)))
        if asked_for(handled):
            times.append(second)
            answer(rig, job_id, busy)
    assert len(times) == 3
    assert times[1] - times[0] < times[2] - times[1]
    assert "HangFound" not in rig.events()


def test_how_a_program_does_is_noted_and_not_too_often():
    rig = Rig("a")
    job_id = rig.running()
    quick, slow = Gauges(step_ms=500, total_steps=1_000), Gauges(step_ms=800, total_steps=1_000)
    for step in range(1, 200):
        progress(rig, job_id, step, quick)
        rig.wait(500)
    assert rig.events().count("ProgressNoted") == 1
    assert rig.state.jobs[job_id].progress.gauges == quick
    for step in range(200, 240):
        progress(rig, job_id, step, slow)
        rig.wait(800)
    assert rig.events().count("ProgressNoted") == 2
    assert rig.state.jobs[job_id].progress.gauges == slow


def test_an_end_that_has_moved_is_noted_anew():
    rig = Rig("a")
    job_id = rig.running()
    for step in range(1, 400):  # it says 100 ms a step, and evaluates in between
        progress(rig, job_id, step)
        rig.wait(500)
    told = rig.state.jobs[job_id]
    assert rig.events().count("ProgressNoted") == 2
    assert abs(told_rest_ms(told, rig.clock.unix_ms()) - 600 * 500) < 5_000


def test_a_loss_that_is_no_number_any_more_is_noted_at_once():
    rig = Rig("a")
    job_id = rig.running()
    for step in range(1, 20):
        progress(rig, job_id, step)
        rig.wait(500)
    progress(rig, job_id, 20, Gauges(step_ms=100, total_steps=1_000, loss_not_finite=True))
    rig.wait(500)
    assert rig.state.jobs[job_id].progress.gauges.loss_not_finite


def test_gauges_are_added_up_once_for_each_report_that_differs(monkeypatch):
    counted = []
    monkeypatch.setattr(pulse, "gauges_of", lambda ranks: counted.append(1) or gauges_of(ranks))
    rig = Rig("a")
    job_id = rig.running()
    for step in range(1, 20):
        progress(rig, job_id, step)
        rig.wait(500)
    assert len(counted) == 1
    progress(rig, job_id, 20, Gauges(step_ms=130, total_steps=1_000))
    rig.wait(500)
    assert len(counted) == 2


def test_an_old_attempt_says_nothing_of_the_new_one():
    rig = Rig("a")
    job_id = rig.running(retries_max=3)
    progress(rig, job_id, 3)
    rig.exit(job_id, 1)
    rig.wait(2_000)
    rig.cycle()
    rig.report("a", rig.seen(job_id, attempt=2))
    progress(rig, job_id, 4, attempt=1)
    assert asked_for(rig.wait(5_000)) == []


def test_with_the_next_step_all_that_was_found_out_is_forgotten():
    rig, job_id, _ = stuck()
    answer(rig, job_id, Sight(0, "R", cpu_milli=900, stack=(Frame("evaluate", "/home/ann/train.py", 9),)))
    progress(rig, job_id, 4)
    assert asked_for(rig.wait(4_200)) == []
    assert asked_for(rig.wait(1)) == [InspectReplica(ReplicaKey(job_id, 1, 0))], "without the pause of the last time"


def frozen(rig, job_id, *, back=False):
    """Let an attempt be suspended, or go on."""
    tx = Transaction(rig.state, rig.clock.unix_ms())
    if back:
        tx.emit(AttemptResumed(job_id, 1))
    else:
        tx.emit(AttemptStopRequested(job_id, 1, "suspended", 0))
        tx.emit(ReplicaFrozen(job_id, 1, 0))
        tx.emit(AttemptSuspended(job_id, 1))
    rig.store.append(tx.records, [], rig.controller.epoch)


def test_one_that_is_suspended_makes_no_step_and_that_is_no_hang():
    rig = Rig("a")
    job_id = rig.running(devices=0)
    progress(rig, job_id, 3)
    frozen(rig, job_id)
    for _ in range(10):
        assert asked_for(rig.wait(500)) == []
        rig.handle(rig.message("a", rig.seen(job_id, "frozen")))
    frozen(rig, job_id, back=True)
    assert asked_for(rig.wait(4_200)) == []
    assert asked_for(rig.wait(1)) == [InspectReplica(ReplicaKey(job_id, 1, 0))]


# Before the first report.


def restarted():
    """Return a rig and a job whose first attempt reported steps and failed; the second has just begun."""
    rig = Rig("a")
    job_id = rig.running(retries_max=1)
    for step in range(1, 5):
        rig.wait(2_000)
        progress(rig, job_id, step)
    rig.wait(1)
    rig.exit(job_id, 1)
    rig.wait(2_000)
    rig.cycle()
    rig.report("a", rig.seen(job_id, attempt=2))
    return rig, job_id


def asked_after(rig, job_id, seconds, attempt=2):
    """Let time pass without a report; return after how many seconds its rank is inspected, None if it is not."""
    for second in range(1, seconds + 1):
        handled = rig.wait(1_000)
        rig.handle(rig.message("a", rig.seen(job_id, attempt=attempt)))
        if asked_for(handled):
            assert asked_for(handled) == [InspectReplica(ReplicaKey(job_id, attempt, 0))]
            return second
    return None


def test_an_attempt_that_should_have_reported_by_now_is_inspected():
    rig, job_id = restarted()
    assert 900 <= asked_after(rig, job_id, 910) <= 906


def test_a_hang_before_the_first_report_is_said_and_ends_nothing():
    rig, job_id = restarted()
    for _ in range(5):
        assert asked_after(rig, job_id, 910)
        answer(rig, job_id, Sight(0, "S", stack=LOADER), attempt=2)
    assert rig.events().count("HangFound") == 1
    job = rig.state.jobs[job_id]
    assert (job.state, job.attempt.stop) == ("running", None)
    assert job.progress.hang.startswith("no step is reported yet; rank 0")
    progress(rig, job_id, 4, attempt=2)
    rig.wait(1)
    assert rig.state.jobs[job_id].progress.hang == ""
    assert rig.fits_log()


def test_a_rank_stopped_before_the_first_report_starts_again():
    rig, job_id = restarted()
    assert asked_after(rig, job_id, 910)
    answer(rig, job_id, Sight(0, "T"), attempt=2)
    assert rig.events()[-2:] == ["HangFound", "AttemptStopRequested"]


@pytest.mark.parametrize("seconds", [0, 10, 899, 900, 901])
def test_a_limit_that_is_declared_says_that_steps_are_reported(seconds):
    rig = Rig("a")
    job_id = rig.running(hang_limit_ms=seconds * 1_000)
    assert seconds <= asked_after(rig, job_id, seconds + 10, attempt=1) <= seconds + 6


def test_a_program_that_never_reported_is_left_alone():
    rig = Rig("a")
    job_id = rig.running()
    assert asked_after(rig, job_id, 1_000, attempt=1) is None


def test_a_few_jobs_are_looked_at_in_a_turn_and_all_in_some(monkeypatch):
    monkeypatch.setattr(hangs, "EXPECT_AT_ONCE", 1)
    rig = Rig("a")
    jobs = [rig.running(hang_limit_ms=10_000) for _ in range(2)]
    found: list[list[int]] = []
    for _ in range(20):
        found.append([order.key.job_id for order in asked_for(rig.wait(1_000))])
        rig.report("a", *(rig.seen(job_id) for job_id in jobs))
    assert sorted(job_id for turn in found for job_id in turn) == jobs
    assert max(map(len, found)) == 1


def test_one_that_has_reported_once_is_left_alone_while_its_steps_are_of_unknown_length():
    rig = Rig("a")
    job_id = rig.running(hang_limit_ms=10_000)
    progress(rig, job_id, 1, Gauges())
    assert asked_after(rig, job_id, 60, attempt=1) is None


def listens(rig, job_id, name, attempt=1):
    seen = ProgressSeen(ReplicaKey(job_id, attempt, 0), "listens", 0, why=name)
    rig.report("a", rig.seen(job_id, attempt=attempt), progress=(seen,))


def test_a_program_that_has_only_said_how_it_is_made_to_save_is_inspected():
    rig = Rig("a")
    job_id = rig.running(hang_limit_ms=10_000)
    listens(rig, job_id, "SIGUSR1")
    assert 10 <= asked_after(rig, job_id, 20, attempt=1) <= 16


def test_the_end_of_a_session_changes_no_step():
    rig, job_id, _ = stuck()
    answer(rig, job_id, Sight(0, "S", stack=LOADER))
    listens(rig, job_id, "")
    rig.wait(1)
    assert rig.controller._pulses.of(job_id).step == 3
    assert rig.state.jobs[job_id].progress.hang, "no step has followed"


def test_a_program_that_has_only_said_where_it_resumes_is_inspected():
    rig, job_id = restarted()
    progress(rig, job_id, 3, None, attempt=2, kind="resumed")
    assert 900 <= asked_after(rig, job_id, 910) <= 906


def test_where_a_program_resumes_is_no_step_of_an_attempt_that_is_awaited():
    rig, job_id = restarted()
    assert asked_after(rig, job_id, 910)
    answer(rig, job_id, Sight(0, "S", stack=LOADER), attempt=2)
    progress(rig, job_id, 3, None, attempt=2, kind="resumed")
    rig.wait(1)
    assert rig.state.jobs[job_id].progress.hang.startswith("no step is reported yet")


def test_an_attempt_that_has_made_steps_resumes_with_a_sign_of_life():
    rig = Rig("a")
    job_id = rig.running()
    progress(rig, job_id, 3)
    rig.wait(4_000)
    progress(rig, job_id, 2, None, kind="resumed")
    assert asked_for(rig.wait(4_200)) == []
    assert len(asked_for(rig.wait(1))) == 1


def test_a_first_report_of_step_0_is_one():
    rig, job_id = restarted()
    assert asked_after(rig, job_id, 910)
    progress(rig, job_id, 0, Gauges(), attempt=2)
    answer(rig, job_id, Sight(0, "T"), attempt=2)
    assert "HangFound" not in rig.events()


def test_of_batches_the_slowest_rank_counts_and_whichever_noise_is_known():
    slow, fast = BatchSeen(8, step_us=900, sync_us=10), BatchSeen(8, step_us=800, sync_us=200, noise=300)
    assert gauges_of([Gauges(batch=fast), Gauges(), Gauges(batch=slow)]).batch == BatchSeen(8, 0, 900, 10, 300)
    assert gauges_of([Gauges()]).batch is None


@pytest.mark.parametrize(
    ("after", "notes"),
    [
        (BatchSeen(8, step_us=900, noise=300), 1),
        (BatchSeen(8, step_us=950, noise=320), 1),
        (BatchSeen(16, step_us=900, noise=300), 2),
        (BatchSeen(8, 1, step_us=900, noise=300), 2),
        (BatchSeen(8, step_us=1_400, noise=300), 2),
        (BatchSeen(8, step_us=900, noise=500), 2),
        (None, 1),
    ],
)
def test_a_batch_that_has_changed_is_noted_anew(after, notes):
    rig = Rig("a")
    job_id = rig.running()
    steady = Gauges(step_ms=100, batch=BatchSeen(8, step_us=900, noise=300))
    for step in range(1, 100):
        progress(rig, job_id, step, steady if step < 20 else replace(steady, batch=after))
        rig.wait(1_000)
    assert rig.events().count("ProgressNoted") == notes


def test_ranks_that_are_changing_their_batch_say_nothing_of_it():
    before, after = BatchSeen(8, step_us=900), BatchSeen(16, step_us=1_500)
    assert gauges_of([Gauges(batch=before), Gauges(batch=after)]).batch is None


@pytest.mark.parametrize(
    ("after", "notes"),
    [
        (BatchSeen(16, step_us=900, noise=300), 2),
        (BatchSeen(8, step_us=900, noise=400), 2),
        (BatchSeen(8, step_us=900, noise=330), 1),
        (BatchSeen(8, step_us=2_000, noise=300), 1),
        (BatchSeen(8, step_us=900), 1),
    ],
)
def test_what_is_learned_of_a_batch_is_noted_within_seconds(after, notes):
    rig = Rig("a")
    job_id = rig.running()
    steady = Gauges(step_ms=100, batch=BatchSeen(8, step_us=900, noise=300))
    for step in range(1, 25):
        progress(rig, job_id, step, steady if step < 15 else replace(steady, batch=after))
        rig.wait(1_000)
    assert rig.events().count("ProgressNoted") == notes
