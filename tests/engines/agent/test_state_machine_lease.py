"""The agent's lease: it counts from when the report was sent, and everything ends with it."""

import pytest

from penstock.core.model.ids import Epoch
from penstock.core.model.jobs import ExitInfo
from penstock.engines.agent.protocol import ServerWelcome
from penstock.engines.agent.state_machine import LEASE_OVER, KillAll
from tests.engines.agent.builders import KEY, LEASE_MS, Agent


def test_the_lease_counts_from_when_the_report_was_sent():
    agent = Agent()
    sent = agent.report(2_000)
    agent.taken(sent, now_ms=9_000)
    assert agent.agent_state.lease_until_ms == 2_000 + LEASE_MS


def test_an_acknowledge_out_of_turn_never_shortens_the_lease():
    agent = Agent()
    first, second = agent.report(1_000), agent.report(2_000)
    agent.taken(second)
    agent.taken(first)
    assert agent.agent_state.lease_until_ms == 2_000 + LEASE_MS


@pytest.mark.parametrize("fields", [{"epoch": 2}, {"session": 2}, {"report_seq": 77}])
def test_an_acknowledge_of_something_else_extends_nothing(fields):
    agent = Agent()
    agent.taken(agent.report(2_000), **fields)
    assert agent.agent_state.lease_until_ms == LEASE_MS


def test_a_doubled_acknowledge_extends_nothing_more():
    agent = Agent()
    sent = agent.report(2_000)
    agent.taken(sent)
    agent.taken(sent, now_ms=9_000)
    assert agent.agent_state.lease_until_ms == 2_000 + LEASE_MS


@pytest.mark.parametrize(("now_ms", "actions"), [(LEASE_MS - 1, []), (LEASE_MS, [KillAll(KEY)])])
def test_everything_is_killed_when_the_lease_ends_and_not_before(now_ms, actions):
    agent = Agent()
    agent.run()
    agent.agent_state.lease_until_ms = LEASE_MS
    assert agent.agent_state.on_time(now_ms) == actions


def test_a_process_ended_by_the_lease_is_reported_as_the_nodes_fault():
    agent = Agent()
    agent.run()
    agent.agent_state.on_time(LEASE_MS * 2)
    agent.agent_state.on_gone(KEY, ExitInfo(signal=9))
    assert agent.agent_state.entries[KEY].exit == ExitInfo(signal=9, problem=LEASE_OVER)


def test_the_end_of_the_lease_kills_once():
    agent = Agent()
    agent.run()
    assert agent.agent_state.on_time(LEASE_MS * 2) == [KillAll(KEY)]
    assert agent.agent_state.on_time(LEASE_MS * 2 + 1) == []


def test_a_lease_that_never_began_cannot_end():
    agent = Agent(leased=False)
    assert not agent.agent_state.lease_over(10**9)


def test_the_lease_stands_still_while_surely_no_server_lives():
    agent = Agent()
    agent.agent_state.pause_lease(3_000)
    assert agent.agent_state.lease_until_ms == LEASE_MS + 3_000
    fresh = Agent(leased=False)
    fresh.agent_state.pause_lease(3_000)
    assert fresh.agent_state.lease_until_ms is None


def test_a_new_worker_keeps_the_lease_of_the_old_one():
    agent = Agent(leased=False, lease_until_ms=700)
    assert (agent.agent_state.lease_over(699), agent.agent_state.lease_over(700)) == (False, True)


def test_a_shorter_lease_holds_from_the_welcome_on_and_a_longer_one_from_the_next_report():
    state = Agent().agent_state
    state.on_welcome(ServerWelcome(Epoch(1), 9, 10 * LEASE_MS, 100), LEASE_MS - 10)
    assert state.lease_until_ms == LEASE_MS
    state.on_welcome(ServerWelcome(Epoch(1), 10, 5, 100), LEASE_MS - 10)
    assert state.lease_until_ms == LEASE_MS - 5
