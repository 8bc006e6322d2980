"""The control loop without threads: what is answered, what is committed, what follows from it."""

import pytest

from penstock.control import messages as msg
from penstock.core.cycle.planner import plan
from penstock.core.explain import explain
from penstock.core.messages.orders import Acknowledge, SaveReplica, StartReplica, StopReplica
from penstock.core.messages.reports import ProgressSeen, ReplicaKey
from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.model.errors import BrokenInvariant, StaleEpoch
from penstock.core.model.jobs import CheckpointSpec, Dependency, ExitInfo
from penstock.testing.builders import config
from tests.control.rig import MARGIN_MS, Clock, Rig, submit

KEY = ReplicaKey(1, 1, 0)


def test_replies_come_in_the_order_of_the_requests():
    rig = Rig("a")
    replies = rig.handle(submit(), msg.Cancel(9, "ann"), rig.hello("b"), submit(queue="x"), submit()).replies
    assert [type(r) for r in replies] == [Submitted, msg.Done, msg.Welcome, Refusal, Submitted]
    assert (replies[0].job_ids, replies[1].found, replies[4].job_ids) == ((1,), False, (2,))


def test_a_group_is_one_commit():
    rig = Rig("a")
    batches, append = [], rig.store.append
    rig.store.append = lambda records, *rest: (batches.append(len(records)), append(records, *rest))
    rig.handle(submit(), submit(), submit(), msg.TimePassed())
    assert batches == [3]


def test_the_commit_is_done_before_handle_returns():
    rig = Rig("a")
    handled = rig.handle(submit())
    assert rig.store.records[-1:] == list(handled.records)


def test_a_failed_commit_fails_every_reply_and_changes_nothing():
    rig = Rig("a")
    job, before = rig.running(), len(rig.store.records)
    rig.store.full = True
    handled = rig.handle(submit(), msg.Cancel(job, "ann"), rig.hello("b"), rig.message("a"))
    assert {(type(r), r.code) for r in handled.replies} == {(msg.RequestFailed, "store_full")}
    assert (handled.orders, handled.records, len(rig.store.records)) == ((), (), before)
    assert rig.fits_log()


def test_after_a_failed_commit_the_same_request_works():
    rig = Rig("a")
    rig.store.full = True
    rig.ask(submit(key="k"))
    rig.store.full = False
    assert rig.ask(submit(key="k")) == Submitted((1,))
    assert rig.ask(submit(key="k")) == Submitted((1,), repeated=True)
    assert rig.fits_log()


def test_a_refused_submit_leaves_the_others_of_its_group_alone():
    rig = Rig("a")
    assert isinstance(rig.handle(submit(queue="nowhere"), submit()).replies[0], Refusal)
    assert list(rig.state.jobs) == [1]


def test_a_controller_whose_term_has_ended_stops_and_logs_nothing():
    old = Rig("a")
    new = Rig(store=old.store, clock=old.clock)
    before = list(old.store.records)
    with pytest.raises(StaleEpoch):
        old.handle(submit())
    assert old.store.records == before
    assert isinstance(new.ask(submit()), Submitted)


def test_an_idle_controller_notices_within_the_margin_that_its_term_has_ended():
    old = Rig("a")
    old.wait(MARGIN_MS)
    Rig(store=old.store, clock=old.clock)
    old.clock.now += MARGIN_MS // 4
    with pytest.raises(StaleEpoch):
        old.handle(msg.TimePassed())


def test_whether_it_leads_still_is_asked_of_the_log_whenever_that_is_to_be_confirmed():
    old = Rig("a")
    old.handle(msg.TimePassed())
    assert old.handle(msg.ConfirmLead()).replies == (msg.Done(),)
    Rig(store=old.store, clock=old.clock)
    old.handle(msg.TimePassed())
    with pytest.raises(StaleEpoch):
        old.handle(msg.ConfirmLead())


def test_a_broken_invariant_is_never_committed():
    rig = Rig("a")
    before = list(rig.store.records)
    rig.state.indexes.beneficiaries.add(77)
    with pytest.raises(BrokenInvariant, match="actives_match"):
        rig.handle(submit())
    assert rig.store.records == before


def test_a_new_term_goes_on_where_the_log_ends():
    old = Rig("a")
    job = old.running()
    new = Rig(store=old.store, clock=old.clock)
    assert (new.controller.epoch, new.state.jobs[job].state) == (2, "running")
    assert new.events()[-1] == "LeaderElected"
    assert new.fits_log()


def test_a_start_from_a_snapshot_goes_on_like_one_from_the_log():
    old = Rig("a")
    old.running()
    old.store.save_snapshot(old.state.image())
    old.submit()
    new = Rig(store=old.store, clock=old.clock)
    assert sorted(new.state.jobs) == [1, 2]
    assert new.fits_log()


def test_a_changed_configuration_is_logged_once():
    rig = Rig()
    assert rig.events() == ["LeaderElected", "ConfigChanged"]
    Rig(store=rig.store, clock=rig.clock)
    assert rig.events() == ["LeaderElected", "ConfigChanged", "LeaderElected"]
    rig = Rig()
    rig.ask(msg.Configure(config(wait_bonus_max=7), "op"))
    assert rig.state.config.settings.wait_bonus_max == 7


@pytest.mark.parametrize("happens", ["submit", "exit", "ready", "lost", "drain", "finish", "configure"])
def test_whatever_may_let_a_job_start_calls_for_a_cycle(happens):
    rig = Rig("a", "b")
    job = rig.running()
    rig.ask(rig.hello("c"))
    rig.controller.snapshot()
    {
        "submit": rig.submit,
        "exit": lambda: rig.exit(job, 1),
        "ready": lambda: rig.report("c"),
        "lost": lambda: rig.ask(rig.hello("b", "i2")),
        "drain": lambda: rig.ask(msg.Drain("b", True, "op")),
        "finish": lambda: rig.exit(job),
        "configure": lambda: rig.ask(msg.Configure(config(), "op")),
    }[happens]()
    assert rig.controller.plan_clock.wanted


def test_heartbeats_and_progress_call_for_no_cycle():
    rig = Rig("a")
    job = rig.running()
    rig.controller.snapshot()
    rig.report("a", rig.seen(job))
    rig.report("a", rig.seen(job), progress=(ProgressSeen(KEY, "checkpoint", 5),))
    rig.wait(100)
    assert not rig.controller.plan_clock.wanted


def test_time_alone_calls_for_a_cycle_once_it_may_change_something():
    starving_ms = 600_000
    rig = Rig("a", starvation_after_ms=starving_ms)
    rig.running(devices=4, preemptible=False)
    rig.submit(devices=4)
    rig.cycle()
    for ms, expected in ((starving_ms - 1_000, False), (1_000, True)):
        for _ in range(ms // 1_000):
            rig.clock.now += 1_000
            rig.report("a", rig.seen(1))
        rig.handle(msg.TimePassed())
        assert rig.controller.plan_clock.wanted == expected


def test_a_plan_that_partly_came_too_late_calls_for_another():
    rig = Rig("a")
    rig.submit()
    proposed = plan(rig.controller.snapshot(), 0)
    rig.ask(msg.Drain("a", True, "op"))
    rig.controller.snapshot()
    assert rig.ask(msg.CommitPlan(proposed)).plan.dropped
    assert rig.controller.plan_clock.wanted


def test_a_start_is_ordered_only_after_it_is_in_the_log():
    rig = Rig("a")
    rig.submit()
    rig.store.full = True
    assert rig.cycle().orders == ()
    rig.store.full = False
    ((where, order),) = rig.cycle().orders
    assert (where, type(order), order.key) == ("a", StartReplica, KEY)


def test_a_cancel_orders_a_stop_with_the_jobs_grace():
    rig = Rig("a")
    job = rig.running(grace_ms=700)
    assert rig.handle(msg.Cancel(job, "ann")).orders == (("a", StopReplica(KEY, 700, "cancelled")),)


def test_an_exit_is_acknowledged_once_it_is_in_the_log():
    rig = Rig("a")
    job = rig.running()
    rig.store.full = True
    assert isinstance(rig.exit(job), msg.RequestFailed)
    rig.store.full = False
    assert rig.exit(job).orders == (Acknowledge(KEY),)


def test_a_checkpoint_can_be_asked_only_of_a_program_that_declared_how():
    rig = Rig("a")
    plain = rig.running()
    saving = rig.running(checkpoint=CheckpointSpec(request_signal="SIGUSR1"))
    assert rig.ask(msg.AskCheckpoint(plain)).problems[0].code == "cannot_checkpoint"
    assert rig.ask(msg.AskCheckpoint(99)).problems[0].code == "not_running"
    assert rig.handle(msg.AskCheckpoint(saving)).orders == (("a", SaveReplica(ReplicaKey(saving, 1, 0))),)


def test_a_checkpoint_can_be_asked_of_a_program_that_says_how_while_it_says_so():
    rig = Rig("a")
    job = rig.running()
    refused = rig.ask(msg.AskCheckpoint(job)).problems[0]
    assert refused.hint.startswith("a session of penstock.training says it once it has begun")
    for _ in range(2):
        rig.report("a", rig.seen(job), progress=(ProgressSeen(KEY, "listens", 0, why="SIGUSR1"),))
        assert rig.state.jobs[job].saves
        assert rig.handle(msg.AskCheckpoint(job)).orders == (("a", SaveReplica(KEY)),)
    rig.report("a", rig.seen(job), progress=(ProgressSeen(KEY, "listens", 0, why=""),))
    assert rig.ask(msg.AskCheckpoint(job)).problems[0].code == "cannot_checkpoint"
    assert rig.events().count("SaveSignalNoted") == 2


@pytest.mark.parametrize(
    "said", [ProgressSeen(KEY, "listens", 0, why="SIGKILL"), ProgressSeen(KEY, "listens", 0, why="x")], ids=str
)
def test_what_is_no_signal_to_save_is_not_heard(said):
    rig = Rig("a")
    job = rig.running()
    rig.report("a", rig.seen(job), progress=(said,))
    assert (rig.state.jobs[job].save_signal, rig.events().count("SaveSignalNoted")) == ("", 0)


def test_what_an_earlier_attempt_said_does_not_count_for_the_next():
    rig = Rig("a")
    job = rig.running(retries_max=1)
    rig.report("a", rig.seen(job), progress=(ProgressSeen(KEY, "listens", 0, why="SIGUSR1"),))
    assert rig.state.jobs[job].save_signal == "SIGUSR1"
    rig.exit(job, 1)
    rig.wait(1_000_000)
    rig.ask(rig.hello())
    rig.report("a")
    rig.cycle()
    rig.report("a", rig.seen(job, attempt=2))
    assert (rig.state.jobs[job].state, rig.state.jobs[job].save_signal) == ("running", "")


def test_a_resumption_said_again_after_a_checkpoint_changes_nothing():
    rig = Rig("a")
    job = rig.running()
    said = ProgressSeen(KEY, "resumed", 0), ProgressSeen(KEY, "checkpoint", 10)
    for progress in (said[:1], said[1:], said):
        rig.report("a", rig.seen(job), progress=progress)
    assert (rig.events().count("JobResumed"), rig.state.jobs[job].progress.step) == (1, 10)


def test_a_finished_job_leaves_a_row_with_all_that_stays_queryable():
    rig = Rig("a")
    job = rig.running(name="train", priority=7)
    rig.clock.now += 400
    rig.report("a", rig.seen(job), progress=(ProgressSeen(KEY, "checkpoint", 42),))
    rig.exit(job, 3)
    row = rig.store.finished[job]
    assert (row.name, row.state, row.reason, row.exit) == ("train", "failed", "exit 3", ExitInfo(3))
    assert (row.attempts, row.devices, row.priority, row.step, row.nodes) == (1, 1, 7, 42, ("a",))
    assert (row.started_ms, row.finished_ms) == (1_000_000, 1_000_400)


def test_steps_between_events_are_known_while_the_job_lives():
    rig = Rig("a")
    job = rig.running()
    rig.report("a", rig.seen(job), progress=(ProgressSeen(KEY, "progress", 9),))
    assert rig.controller.reached == {job: 9}
    rig.exit(job, 1)
    assert (rig.controller.reached, rig.store.finished[job].step) == ({}, 9)


def test_a_new_job_may_depend_on_one_that_has_left_the_state():
    rig = Rig("a")
    rig.exit(rig.running())
    rig.exit(rig.running(), 1)
    well, badly = Dependency(1, "after_ok"), Dependency(2, "after_ok")
    assert rig.state.jobs[rig.submit(after=(well,))].unmet == ()
    last = rig.submit(after=(badly,))
    assert rig.store.outcomes([last]) == {last: "cancelled"}


def test_a_job_whose_end_is_being_committed_can_be_explained():
    rig, found = Rig("a"), []
    job, append = rig.running(), rig.store.append
    say = lambda: [explain(rig.state, ending, 0).state for ending, _ in rig.controller.ending]
    rig.store.append = lambda *given: (found.extend(say()), append(*given))
    rig.exit(job)
    assert found == ["running"]


def test_the_clock_of_the_log_never_goes_back():
    rig = Rig("a", clock=Clock())
    rig.clock.now = 5_000
    rig.submit()
    rig.clock.now = 1_000
    rig.submit()
    assert [r.time_ms for r in rig.store.records[-2:]] == [1_005_000, 1_005_000]


# Expected run times.


def learning(store=None, clock=None):
    """Return a rig whose controller has seen nine runs of 10 s."""
    rig = Rig("a", store=store, clock=clock)
    rig.ask(msg.Configure(config(lease_ttl_ms=10**9, lease_margin_ms=MARGIN_MS, predict_run_times=True), "op"))
    for _ in range(9):
        job = rig.running()
        rig.wait(10_000)
        rig.exit(job)
        rig.wait(600_000)
    return rig


def test_a_job_is_expected_to_run_as_long_as_those_before_it_from_its_submit_on():
    rig = learning()
    job = rig.submit()
    assert rig.state.jobs[job].predicted_ms == 10_000
    assert rig.events()[-2:] == ["JobSubmitted", "RunTimesPredicted"]
    assert rig.fits_log()


def test_nothing_is_expected_where_it_is_switched_off():
    rig = learning()
    rig.ask(msg.Configure(config(lease_ttl_ms=10**9, lease_margin_ms=MARGIN_MS, predict_run_times=False), "op"))
    assert rig.state.jobs[rig.submit()].predicted_ms == 0


def test_what_was_learned_survives_a_restart():
    rig = learning()
    heir = Rig("a", store=rig.store, clock=rig.clock)
    heir.ask(msg.Configure(config(lease_ttl_ms=10**9, lease_margin_ms=MARGIN_MS, predict_run_times=True), "op"))
    assert heir.state.jobs[heir.submit()].predicted_ms == 10_000


def test_a_group_that_was_not_committed_teaches_nothing():
    rig = learning()
    job = rig.running()
    rig.wait(20_000)
    rig.store.full = True
    rig.exit(job)
    rig.store.full = False
    after_20_s = rig.state.jobs[rig.submit()].predicted_ms
    assert after_20_s > 20_000, "its sibling still runs: had it ended, it would count with its 20 s"
    assert rig.fits_log()
