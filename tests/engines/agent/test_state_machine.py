"""The agent's rules for orders and reports: nothing is started twice, no exit is ever forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.messages.orders import (
    Acknowledge,
    DivideDevice,
    FreezeReplica,
    LimitPower,
    SaveReplica,
    StopReplica,
    ThawReplica,
)
from penstock.core.messages.reports import NodeCheck, ProgressSeen, ReplicaKey, ReplicaSeen
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.nodes import DeviceFault, DeviceInstances, OthersLoad
from penstock.engines.agent import state_machine as br
from penstock.engines.agent.state_machine import (
    AskToSave,
    AskToStop,
    Forget,
    Freeze,
    KillAll,
    ReplicaEntry,
    Spawn,
    Thaw,
)
from tests.engines.agent.builders import HEARTBEAT_MS, KEY, Agent, start

OTHER = ReplicaKey(2, 1, 0)


def test_a_start_is_carried_out_once():
    agent = Agent()
    assert agent.order(start()) == [Spawn(start())]
    assert agent.order(start()) == []


@pytest.mark.parametrize("number", [1, 2, 3])
def test_orders_that_are_late_or_doubled_change_nothing(number):
    agent = Agent()
    agent.order(seq=3)
    assert agent.order(start(), seq=number) == []
    assert agent.states() == {}


@pytest.mark.parametrize(("epoch", "session"), [(1, 2), (2, 1), (3, 3), (2, 3)])
def test_orders_of_any_session_but_the_present_one_change_nothing(epoch, session):
    agent = Agent()
    agent.welcome(2, 2)
    agent.taken(agent.report(0))
    assert agent.order(start(), epoch=epoch, session=session, seq=9) == []
    assert agent.order(start(), epoch=2, session=2, seq=1) == [Spawn(start())]


def test_a_welcome_of_an_older_session_is_not_listened_to():
    agent = Agent()
    agent.welcome(2, 1)
    agent.welcome(1, 7)
    assert agent.report(0).epoch == 2


def test_a_start_for_another_life_of_the_node_is_not_carried_out():
    assert Agent().order(start(incarnation="i0")) == []


def test_nothing_starts_before_the_first_report_was_acknowledged():
    agent = Agent(leased=False)
    assert agent.order(start()) == []
    agent.taken(agent.report(0))
    assert agent.order(start()) == [Spawn(start())]


def test_nothing_starts_once_the_lease_is_over():
    agent = Agent()
    assert agent.order(start(), now_ms=10_000) == []


def test_a_stop_before_the_start_makes_the_start_impossible():
    agent = Agent()
    assert agent.order(StopReplica(KEY, 5_000), start()) == []
    (seen,) = agent.report().report.replicas
    assert seen == ReplicaSeen(KEY, "exited", exit=ExitInfo(stop_sent=True, problem="stopped before it started"))


def test_a_stop_asks_first_and_kills_after_the_grace():
    agent = Agent()
    agent.run()
    assert agent.order(StopReplica(KEY, 500), now_ms=100) == [AskToStop(KEY)]
    assert (agent.agent_state.on_time(599), agent.agent_state.on_time(600)) == ([], [KillAll(KEY)])
    assert agent.agent_state.on_time(700) == []


def test_a_stop_without_grace_kills_at_once():
    agent = Agent()
    agent.run()
    assert agent.order(StopReplica(KEY, 0)) == [KillAll(KEY)]


def test_a_repeated_stop_asks_once_and_can_only_shorten_the_grace():
    agent = Agent()
    agent.run()
    agent.order(StopReplica(KEY, 500), now_ms=0)
    assert agent.order(StopReplica(KEY, 900), now_ms=1) == []
    assert agent.agent_state.entries[KEY].kill_at_ms == 500
    agent.order(StopReplica(KEY, 100), now_ms=2)
    assert agent.agent_state.entries[KEY].kill_at_ms == 102


def test_a_stop_while_it_starts_is_not_undone_by_the_start():
    agent = Agent()
    agent.order(start(), StopReplica(KEY, 500))
    agent.agent_state.on_started(KEY, 7)
    assert agent.states() == {KEY: "stopping"}


def test_a_stop_of_what_has_ended_says_the_exit_again():
    agent = Agent()
    agent.run()
    agent.agent_state.on_gone(KEY, ExitInfo(3))
    agent.report()
    agent.order(StopReplica(KEY, 500))
    assert agent.report().report.replicas == (ReplicaSeen(KEY, "exited", 100, ExitInfo(3)),)


def test_only_a_running_program_is_asked_to_save():
    agent = Agent()
    assert agent.order(SaveReplica(KEY)) == []
    agent.run()
    assert agent.order(SaveReplica(KEY)) == [AskToSave(KEY)]
    agent.order(StopReplica(KEY, 500))
    assert agent.order(SaveReplica(KEY)) == []


def test_only_a_running_program_is_frozen_and_that_is_told_once_it_is():
    agent = Agent()
    assert agent.order(FreezeReplica(KEY)) == []
    agent.run()
    assert agent.order(FreezeReplica(KEY, 1), FreezeReplica(KEY, 1)) == [Freeze(KEY), Freeze(KEY)]
    assert agent.states() == {KEY: "running"}
    agent.agent_state.on_frozen(KEY)
    (seen,) = agent.report().report.replicas
    assert (seen.state, seen.suspension) == ("frozen", 1)
    assert agent.order(FreezeReplica(KEY, 2)) == []
    (seen,) = agent.report().report.replicas
    assert (seen.state, seen.suspension) == ("frozen", 2)
    assert agent.order(SaveReplica(KEY)) == []


def test_a_thaw_also_ends_a_freeze_that_is_under_way():
    agent = Agent()
    agent.run()
    for frozen in (False, True):
        agent.order(FreezeReplica(KEY))
        if frozen:
            agent.agent_state.on_frozen(KEY)
        assert agent.order(ThawReplica(KEY)) == [Thaw(KEY)]
        assert agent.states() == {KEY: "running"}


def test_what_cannot_be_frozen_says_so_once_and_runs_on():
    agent = Agent()
    agent.run()
    agent.agent_state.on_refused(KEY, "no groups")
    (seen,) = agent.report().report.replicas
    assert (seen.state, seen.refused) == ("running", "no groups")
    assert [s.refused for s in agent.report(HEARTBEAT_MS).report.replicas] == [""]


def test_a_stop_of_what_is_frozen_asks_first_and_kills_after_the_grace():
    agent = Agent()
    agent.run()
    agent.agent_state.on_frozen(KEY)
    assert agent.order(StopReplica(KEY, 500), now_ms=100) == [AskToStop(KEY)]
    assert agent.order(ThawReplica(KEY), FreezeReplica(KEY)) == []
    agent.agent_state.on_frozen(KEY)
    assert agent.states() == {KEY: "stopping"}
    assert agent.agent_state.on_time(600) == [KillAll(KEY)]


def test_an_exit_is_said_at_every_heartbeat_until_it_is_acknowledged():
    agent = Agent()
    agent.run()
    agent.agent_state.on_gone(KEY, ExitInfo(0))
    said = [agent.report(now).report.replicas for now in (1, HEARTBEAT_MS, 2 * HEARTBEAT_MS)]
    assert [[s.state for s in seen] for seen in said] == [["exited"]] * 3
    assert agent.order(Acknowledge(KEY)) == [Forget(KEY)]
    assert agent.report(3 * HEARTBEAT_MS).report.replicas == ()


def test_an_acknowledge_never_forgets_what_lives():
    agent = Agent()
    agent.run()
    assert agent.order(Acknowledge(KEY), Acknowledge(OTHER)) == []
    assert agent.states() == {KEY: "running"}


def test_the_first_exit_counts():
    agent = Agent()
    agent.run()
    agent.agent_state.on_gone(KEY, ExitInfo(0))
    agent.agent_state.on_gone(KEY, ExitInfo(signal=9))
    agent.agent_state.on_gone(OTHER, ExitInfo(0))
    assert agent.agent_state.entries[KEY].exit == ExitInfo(0)


def test_an_exit_after_a_stop_says_that_it_was_asked():
    agent = Agent()
    agent.run()
    agent.order(StopReplica(KEY, 500))
    agent.agent_state.on_gone(KEY, ExitInfo(143))
    assert agent.agent_state.entries[KEY].exit == ExitInfo(143, stop_sent=True)


def test_changes_are_said_at_once_and_alone():
    agent = Agent()
    agent.run()
    agent.run(OTHER)
    assert agent.agent_state.next_report(2) is None
    agent.agent_state.on_gone(OTHER, ExitInfo(0))
    report = agent.report(2).report
    assert (report.inventory, [s.key for s in report.replicas]) == (False, [OTHER])


def test_everything_is_said_at_each_heartbeat():
    agent = Agent()
    agent.run()
    report = agent.report(HEARTBEAT_MS).report
    assert (report.inventory, [s.state for s in report.replicas]) == (True, ["running"])


def test_a_new_session_begins_with_a_full_report():
    agent = Agent()
    agent.run()
    agent.welcome(1, 2, now_ms=5)
    sent = agent.report(5)
    assert (sent.session, sent.report.inventory, len(sent.report.replicas)) == (2, True, 1)


def test_nothing_is_said_without_a_session():
    assert br.AgentState("n1", "i1").next_report(0) is None


def test_reports_of_a_new_worker_have_higher_numbers_than_the_old_ones():
    agent = Agent(first_report=5_000, leased=False)
    assert agent.report(0).report.seq == 5_001


def test_what_a_former_worker_left_is_reported_and_not_started_again():
    agent = Agent(entries=[ReplicaEntry(KEY, "running", 7), ReplicaEntry(OTHER, "exited", exit=ExitInfo(1))])
    assert agent.order(start(), start(OTHER)) == []
    assert [s.state for s in agent.report(HEARTBEAT_MS).report.replicas] == ["running", "exited"]


def test_progress_is_said_again_until_a_report_with_it_was_acknowledged():
    agent = Agent()
    seen = ProgressSeen(KEY, "checkpoint", 5)
    agent.agent_state.on_progress(seen)
    assert agent.report(1).report.progress == (seen,)
    again = agent.report(HEARTBEAT_MS)
    assert again.report.progress == (seen,)
    agent.taken(again, HEARTBEAT_MS)
    assert agent.report(2 * HEARTBEAT_MS).report.progress == ()


def test_progress_of_a_report_whose_commit_failed_is_said_again():
    agent = Agent()
    lost, later = ProgressSeen(KEY, "checkpoint", 5), ProgressSeen(OTHER, "checkpoint", 6)
    agent.agent_state.on_progress(lost)
    agent.report(1)
    agent.agent_state.on_progress(later)
    agent.taken(agent.report(2))
    assert agent.report(HEARTBEAT_MS).report.progress == (lost,)


def test_of_too_much_progress_the_newest_is_kept(monkeypatch):
    monkeypatch.setattr(br, "PROGRESS_KEPT_MAX", 3)
    agent = Agent()
    for step in range(5):
        agent.agent_state.on_progress(ProgressSeen(KEY, "checkpoint", step))
    assert [p.step for p in agent.report().report.progress] == [2, 3, 4]


def test_a_report_that_is_not_accepted_calls_for_a_new_hello():
    agent = Agent()
    agent.taken(agent.report(HEARTBEAT_MS), accepted=False)
    assert agent.agent_state.must_say_hello
    agent.welcome(1, 2)
    assert not agent.agent_state.must_say_hello


def test_silence_of_the_server_calls_for_a_new_hello():
    agent = Agent()
    agent.taken(agent.report(HEARTBEAT_MS), now_ms=HEARTBEAT_MS)
    agent.agent_state.on_time(HEARTBEAT_MS * (1 + br.SILENT_HEARTBEATS))
    assert not agent.agent_state.must_say_hello
    agent.agent_state.on_time(HEARTBEAT_MS * (1 + br.SILENT_HEARTBEATS) + 1)
    assert agent.agent_state.must_say_hello


def test_the_next_thing_to_do_is_never_in_the_past_for_long():
    agent = Agent()
    assert (agent.agent_state.due_ms(connected=False), agent.agent_state.due_ms(connected=True)) == (None, HEARTBEAT_MS)
    agent.run()
    assert agent.agent_state.due_ms(connected=False) == 10_001
    agent.order(StopReplica(KEY, 500), now_ms=0)
    assert agent.agent_state.due_ms(connected=False) == 500
    agent.agent_state.on_time(500)
    assert agent.agent_state.due_ms(connected=False) == 10_001


def test_a_limit_of_power_is_passed_on_and_inventories_say_what_is_kept():
    agent = Agent()
    assert agent.order(LimitPower(300_000)) == [LimitPower(300_000)]
    assert agent.report(HEARTBEAT_MS).report.power_limit_mw is None
    agent.agent_state.power_limit_mw = 300_000
    assert agent.report(2 * HEARTBEAT_MS).report.power_limit_mw == 300_000
    agent.agent_state.on_checked(NodeCheck(passed=True))
    assert agent.report(2 * HEARTBEAT_MS).report.power_limit_mw is None, "not in what is said between them"


@given(
    orders=st.permutations([start(), start(), StopReplica(KEY, 500), StopReplica(KEY, 0), SaveReplica(KEY)]),
    doubled=st.booleans(),
)
def test_in_any_order_a_replica_is_spawned_at_most_once(orders, doubled):
    agent = Agent()
    actions = [a for order in orders for _ in range(1 + doubled) for a in agent.order(order)]
    assert sum(isinstance(a, Spawn) for a in actions) <= 1
    assert len(agent.agent_state.entries) == 1


def test_a_device_is_divided_as_ordered_unless_the_agent_is_leaving():
    agent = Agent()
    assert agent.order(DivideDevice(0, "training")) == [DivideDevice(0, "training")]
    agent.agent_state.leaving = True
    assert agent.order(DivideDevice(0, "training")) == []


def test_instances_are_reported_when_they_change_and_with_each_inventory():
    agent = Agent()
    halves = (DeviceInstances(0, (("3g.20gb", 0), ("3g.20gb", 4))),)
    agent.agent_state.on_instances(halves)
    assert agent.report().report.instances == halves
    agent.agent_state.on_instances(halves)
    assert agent.agent_state.next_report(1) is None
    agent.agent_state.on_checked(NodeCheck(passed=True))
    assert agent.report().report.instances is None
    assert agent.report(HEARTBEAT_MS).report.instances == halves


def test_each_report_of_an_exit_names_the_faults_that_it_may_be_due_to():
    agent, fault = Agent(), DeviceFault(0, "hardware_fault")
    agent.run(KEY)
    agent.run(OTHER)
    agent.agent_state.on_devices(br.DeviceNews((fault,), OthersLoad()))
    for key in (KEY, OTHER):
        agent.agent_state.on_gone(key, ExitInfo(134))
        told = agent.report().report
        assert ([seen.key for seen in told.replicas], told.faults) == ([key], (fault,))
    agent.agent_state.on_checked(NodeCheck(True))
    assert agent.report().report.faults is None
