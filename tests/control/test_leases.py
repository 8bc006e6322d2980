"""A node counts as lost later than it has ended its own processes, whatever the messages do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.control import messages as msg
from penstock.core.model.events import NodeLost
from penstock.engines.agent.protocol import ServerTaken, ServerWelcome
from penstock.engines.agent.state_machine import AgentState
from tests.control.rig import MARGIN_MS, TTL_MS, Rig


def test_the_node_is_told_a_shorter_lease_than_the_server_keeps():
    welcome = Rig().ask(Rig().hello())
    assert (welcome.lease_ms, welcome.heartbeat_ms) == (TTL_MS - MARGIN_MS, 500)


@pytest.mark.parametrize(("silent_ms", "state"), [(TTL_MS - 1, "ready"), (TTL_MS, "lost")])
def test_a_silent_node_is_lost_when_its_lease_ends_and_not_before(silent_ms, state):
    rig = Rig("a")
    rig.wait(silent_ms)
    assert rig.state.nodes["a"].state == state


def test_a_lost_node_failed_not_before_it_was_last_heard():
    rig = Rig("a")
    rig.clock.now += 700
    rig.report("a")
    rig.wait(TTL_MS)
    (lost,) = (r for r in rig.store.records if isinstance(r.event, NodeLost))
    assert lost.time_ms - lost.event.heard_ms == TTL_MS


def test_a_report_renews_the_lease():
    rig = Rig("a")
    rig.wait(TTL_MS - 1)
    rig.report("a")
    assert rig.controller.leases.left_ms("a", rig.clock.now) == TTL_MS
    rig.wait(TTL_MS - 1)
    assert rig.state.nodes["a"].state == "ready"


@pytest.mark.parametrize(("incarnation", "state"), [("i1", "ready"), ("i2", "lost")])
def test_a_node_that_is_said_to_stand_keeps_its_lease_in_its_incarnation_alone(incarnation, state):
    rig = Rig("a")
    rig.wait(TTL_MS - 1)
    rig.ask(msg.Alive((("a", incarnation), ("unknown", "i1"))))
    rig.wait(TTL_MS - 1)
    assert rig.state.nodes["a"].state == state
    assert len(rig.state.nodes) == 1


def test_a_doubled_report_renews_nothing():
    rig = Rig("a")
    again = rig.message("a")
    rig.ask(again)
    rig.clock.now += 1_000
    assert rig.ask(again).accepted
    assert rig.controller.leases.left_ms("a", rig.clock.now) == TTL_MS - 1_000


@pytest.mark.parametrize("case", ["never seen", "lost", "former life"])
def test_a_node_without_a_lease_has_to_say_hello(case):
    rig = Rig("a")
    if case == "lost":
        rig.wait(TTL_MS)
    name = "b" if case == "never seen" else "a"
    reply = rig.report(name, incarnation="i0" if case == "former life" else "i1")
    assert (reply.accepted, reply.orders) == (False, ())


def test_a_hello_of_the_same_life_does_not_extend_the_lease():
    rig = Rig("a")
    rig.clock.now += 1_000
    rig.ask(rig.hello("a"))
    assert rig.controller.leases.left_ms("a", rig.clock.now) == TTL_MS - 1_000


def test_the_work_of_a_lost_node_waits_again():
    rig = Rig("a")
    job = rig.running()
    rig.wait(TTL_MS)
    assert (rig.state.jobs[job].state, rig.state.jobs[job].attempt) == ("waiting", None)


def test_a_new_term_gives_every_node_its_whole_lease():
    old = Rig("a")
    old.clock.now += TTL_MS - 1
    new = Rig(store=old.store, clock=old.clock)
    assert new.controller.leases.left_ms("a", new.clock.now) == TTL_MS


def test_a_failed_commit_does_not_forget_leases():
    rig = Rig("a")
    rig.clock.now += 1_000
    rig.store.full = True
    rig.ask(msg.Drain("a", True, "op"))
    assert rig.controller.leases.left_ms("a", rig.clock.now) == TTL_MS - 1_000


def test_a_loss_that_could_not_be_logged_is_logged_later():
    rig = Rig("a")
    rig.store.full = True
    rig.wait(TTL_MS)
    assert rig.state.nodes["a"].state == "ready"
    rig.store.full = False
    rig.wait(TTL_MS)
    assert rig.state.nodes["a"].state == "lost"


@given(there=st.lists(st.integers(0, 3_000), min_size=1, max_size=6), back=st.integers(0, 3_000))
def test_the_node_ends_its_processes_before_the_server_gives_them_away(there, back):
    """Reports take any time there, acknowledgements any time back."""
    rig, brain = Rig("a"), AgentState("a", "i1")
    brain.on_welcome(ServerWelcome(1, 1, TTL_MS - MARGIN_MS, 500), rig.clock.now)
    for delay_ms in there:
        sent = brain.next_report(rig.clock.now)
        rig.wait(delay_ms)
        if sent is not None and (taken := rig.report("a", seq=sent.report.seq + 100)).accepted:
            rig.clock.now += back
            brain.on_taken(ServerTaken(1, 1, sent.report.seq, taken.accepted), rig.clock.now)
    while rig.state.nodes["a"].state != "lost":
        rig.wait(50)
    assert brain.lease_over(rig.clock.now - MARGIN_MS + 50)


def test_a_shortened_lease_holds_for_an_agent_from_its_next_hello_on():
    rig = Rig("a")
    settings = replace(rig.state.config.settings, lease_ttl_ms=TTL_MS // 2)
    rig.ask(msg.Configure(replace(rig.state.config, settings=settings), "ann"))
    rig.report("a")
    assert rig.controller.leases.left_ms("a", rig.clock.now) == TTL_MS
    rig.ask(rig.hello("a"))
    assert rig.controller.leases.left_ms("a", rig.clock.now) == TTL_MS
    rig.report("a")
    assert rig.controller.leases.left_ms("a", rig.clock.now) == TTL_MS // 2
