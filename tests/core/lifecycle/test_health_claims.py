"""What programs claim about nodes: it leads to checks, and closes nothing for those who did not claim it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.audit import audit
from penstock.core.explain import explain
from penstock.core.lifecycle.health import CLAIM_CHECK_EVERY_MS, TENANT_CHECK_EVERY_MS
from penstock.core.lifecycle.orders import check_orders
from penstock.core.messages.orders import CheckNode
from penstock.core.messages.reports import NodeCheck
from penstock.core.model import events as ev
from penstock.core.model.access import User
from penstock.core.model.cluster import STRIKES_KEPT, Tenant
from penstock.core.model.jobs import ExitInfo
from penstock.core.place.capacity import empty
from penstock.core.place.holds import lesser
from penstock.core.state.state import fold
from penstock.testing.builders import node as spec
from penstock.testing.harness import World
from tests.properties import examples

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
TWO = (Tenant("a"), Tenant("b"))
MINUTE = 60_000


def shared(nodes=2, **fields):
    """Return a cluster of nodes with one device each, which two tenants share."""
    specs = (spec(f"n{i}", 1, labels=(("name", f"n{i}"),)) for i in range(nodes))
    return World(*specs, tenants=fields.pop("tenants", TWO), **fields)


def claims(w, times=3, tenant="a", user="ann", name="n0", note=XID, **exit_fields):
    """Let jobs on the node print that it fails, for as long as they get a place there."""
    for _ in range(times):
        job = w.submit(tenant=tenant, user=user, retries_max=0, labels_wanted=(("name", name),))
        w.cycle()
        if w.job(job).attempt is None:
            w.cancel(job)
        else:
            w.start(job)
            w.exit_replica(job, 0, 1, note=note, **exit_fields)
        w.now += 11_000


def node(w, name="n0"):
    return w.state.nodes[name]


def checked(w, name="n0", **fields):
    w.report(name, inventory=False, check=NodeCheck(**{"passed": True, **fields}))


def struck(w):
    return [record.event for record in w.records if isinstance(record.event, ev.NodeStruck)]


# Who closes what.


def test_claims_of_one_tenant_shut_the_node_to_that_tenant_alone():
    w = shared()
    claims(w, 3)
    assert (node(w).draining, node(w).shut_to) == (False, ("a",))
    theirs, others = w.submit(tenant="a"), w.submit(tenant="b")
    w.cycle()
    assert (w.where(theirs), w.where(others)) == ("n1", "n0")


def test_two_users_of_one_tenant_are_one_tenant():
    w = shared()
    claims(w, 2, user="ann")
    claims(w, 2, user="bob")
    assert (node(w).draining, node(w).shut_to) == (False, ("a",))


def test_one_user_of_two_tenants_is_one_user():
    w = shared()
    claims(w, 2, tenant="a")
    claims(w, 2, tenant="b")
    assert not node(w).draining


def test_claims_of_two_tenants_and_two_users_close_the_node_for_everybody():
    w = shared()
    claims(w, 2, tenant="a", user="ann")
    claims(w, 1, tenant="b", user="bob")
    assert node(w).draining
    assert node(w).drain_reason == f"3 failures within 22s, the last: {XID}"


def test_claims_beside_the_nodes_own_words_do_not_add_up():
    w = shared()
    claims(w, 2)
    w.lose("n0")
    w.hello(w.state.nodes["n0"].spec, "again")
    assert not node(w).draining


def test_the_nodes_own_words_close_it_for_everybody():
    w = shared()
    claims(w, 3, note=XID, observed=True)
    assert node(w).draining


@pytest.mark.parametrize(
    ("users", "claimed_by", "closed"),
    [
        ((), ("ann", "ann"), True),
        ((User("ann"),), ("ann", "ann"), True),
        ((User("ann"), User("bob")), ("ann", "ann"), False),
        ((User("ann"), User("bob")), ("ann", "bob"), True),
        ((User("bob"),), ("ann", "ann"), False),
    ],
    ids=["nobody else", "the only user", "one of two", "two of two", "who runs the server, beside a user"],
)
def test_a_lone_tenant_is_closed_to_itself_only_by_all_the_users_it_takes(users, claimed_by, closed):
    w = shared(tenants=(Tenant("default"),), users=users)
    for user in (*claimed_by, *claimed_by):
        claims(w, 1, tenant="default", user=user)
    assert (node(w).draining, node(w).shut_to) == (closed, ())


def test_one_job_alone_shuts_the_node_to_nobody():
    w = shared(1)
    job = w.submit(tenant="a", retries_max=99)
    for _ in range(6):
        w.now += 320_000
        w.run(job)
        w.exit_replica(job, 0, 1, note=XID)
    assert node(w).shut_to == ()


def test_no_more_than_every_second_node_is_shut_to_a_tenant():
    w = shared(4)
    for number in range(4):
        claims(w, 3, name=f"n{number}")
    assert [node(w, f"n{number}").shut_to for number in range(4)] == [("a",), ("a",), (), ()]


def test_claims_expire():
    w = shared()
    for _ in range(4):
        claims(w, 1)
        w.now += 3_000_000
    assert node(w).shut_to == ()


def test_a_claim_does_not_hide_what_the_node_itself_says():
    w = shared()
    claims(w, 1)
    w.now -= 11_000
    w.lose("n0")
    assert [event.own for event in struck(w)] == [False, True]


# What follows for placement.


def test_a_start_that_was_planned_before_is_dropped():
    w = shared(1)
    claims(w, 2)
    w.submit(tenant="a")
    proposed = w.plan()
    w.emit(ev.NodeShut("n0", "a", "claims"))
    assert [len(plan.starts) for plan in (proposed, w.apply(proposed))] == [1, 0]


def test_who_was_to_leave_for_a_job_that_may_not_start_there_stays():
    w = shared(1)
    low = w.submit(tenant="b", priority=1)
    w.run(low)
    high = w.submit(tenant="a", priority=900)
    proposed = w.plan()
    assert [p.beneficiary for p in proposed.preemptions] == [high]
    w.emit(ev.NodeShut("n0", "a", "claims"))
    assert w.apply(proposed).preemptions == ()


def test_the_job_is_told_why():
    w = shared(1)
    claims(w, 3)
    job = w.submit(tenant="a")
    w.cycle()
    found = explain(w.state, w.job(job), w.now)
    assert found.refused == {"node_shut_to_tenant": 1}
    assert "node_shut_to_tenant" in {c.code for c in found.constraints}
    assert ("nodes.n0.shut_to", "open node n0 again: it is shut to tenant a") in {(e.path, e.text) for e in found.edits}


def test_what_is_shut_stays_shut_whatever_is_taken_there():
    w = shared()
    claims(w, 3)
    free = w.state.indexes.free["n0"]
    w.submit(tenant="b", labels_wanted=(("name", "n0"),))
    w.cycle()
    assert (free.shut_to, w.state.indexes.free["n0"].shut_to) == (("a",), ("a",))
    assert lesser(free, empty(free.shape)).shut_to == lesser(empty(free.shape), free).shut_to == ("a",)


# Checks.


def test_a_claim_leads_to_a_check_at_once():
    w = shared()
    claims(w, 1)
    assert check_orders(w.state, w.now) == [("n0", CheckNode())]


def test_a_check_that_passes_clears_claims_and_opens_the_node_to_the_tenant():
    w = shared()
    claims(w, 3)
    checked(w)
    assert (node(w).strikes, node(w).shut_to) == ((), ())
    assert w.state.indexes.free["n0"].shut_to == ()
    assert check_orders(w.state, w.now) == []


def test_a_node_that_is_shut_is_checked_also_when_the_claims_are_forgotten_for_its_own_words():
    w = shared()
    claims(w, 3)
    checked(w, passed=False, text="it did not end within 60 s", ended=False)
    while not all(strike.own for strike in node(w).strikes):
        w.emit(ev.NodeStruck("n0", "lost"))
    w.now = node(w).checked_ms + CLAIM_CHECK_EVERY_MS - 1
    assert (node(w).shut_to, check_orders(w.state, w.now)) == (("a",), [])
    w.now += 1
    assert ("n0", CheckNode()) in check_orders(w.state, w.now)
    checked(w)
    assert node(w).shut_to == ()


def test_a_check_that_passes_clears_no_word_of_the_nodes_own():
    w = shared()
    claims(w, 1, observed=True)
    claims(w, 1)
    checked(w)
    assert [strike.own for strike in node(w).strikes] == [True]


def test_a_check_that_fails_closes_the_node_for_everybody():
    w = shared()
    claims(w, 1)
    checked(w, passed=False, text="devices: uncorrected memory errors: 0, 1")
    expected = "it failed its check: devices: uncorrected memory errors: 0, 1"
    assert (node(w).draining, node(w).closed_by, node(w).drain_reason) == (True, "penstock", expected)


def test_a_check_that_did_not_end_is_a_strike_and_closes_nothing_by_itself():
    w = shared()
    claims(w, 3)
    checked(w, passed=False, text="it did not end within 60 s", ended=False)
    assert (node(w).draining, node(w).shut_to) == (False, ("a",))
    assert node(w).strikes[-1].own


def test_an_open_node_is_checked_for_claims_only_so_often():
    w = shared()
    claims(w, 1)
    checked(w)
    began = w.now
    claims(w, 3)
    w.now = began + CLAIM_CHECK_EVERY_MS - 1
    assert check_orders(w.state, w.now) == []
    w.now += 1
    assert check_orders(w.state, w.now) == [("n0", CheckNode())]


def test_claims_of_one_tenant_have_one_node_checked_at_a_time():
    w = shared(3)
    for name in ("n0", "n1", "n2"):
        claims(w, 1, name=name)
    assert check_orders(w.state, w.now) == [("n0", CheckNode())]
    checked(w)
    assert check_orders(w.state, w.now) == []
    w.now += TENANT_CHECK_EVERY_MS
    assert check_orders(w.state, w.now) == [("n1", CheckNode())]


def test_a_check_that_nobody_asked_for_is_not_noted():
    w = shared()
    before = len(w.records)
    checked(w, passed=False, text="said by whoever has the key of the node")
    claims(w, 1)
    checked(w)
    after = len(w.records)
    checked(w, passed=False, text="once more")
    assert len(w.records) == after
    claims(w, 1)
    checked(w, passed=False, text="and once more")
    assert [type(r.event) for r in w.records[before:]].count(ev.NodeChecked) == 1


def test_a_person_opens_a_node_to_the_tenant_again():
    w = shared()
    claims(w, 3)
    w.drain("n0", on=False)
    assert (node(w).strikes, node(w).shut_to) == ((), ())


# What it costs.


def test_what_one_tenant_claims_of_a_node_is_noted_only_so_often():
    w = shared(1, node_strikes_window_ms=10**9, node_strikes_max=4)
    running = [w.submit(tenant="a", cpus=1, devices=0) for _ in range(16)]
    w.run(*running)
    for job in running:
        w.now += 11_000
        w.exit_replica(job, 0, 1, note=XID)
    assert len(struck(w)) == 4
    claims(w, 1, tenant="b", user="ann")
    assert len(struck(w)) == 5


def test_what_the_node_says_is_noted_only_so_often():
    w = shared(node_strikes_max=100)
    for _ in range(STRIKES_KEPT + 8):
        claims(w, 1, observed=True)
    assert len(struck(w)) == STRIKES_KEPT


def test_long_words_are_cut():
    w = shared()
    claims(w, 3, note="Xid " + 900 * "x")
    assert max(len(event.text) for event in struck(w)) == 200
    assert max(len(r.event.reason) for r in w.records if isinstance(r.event, ev.NodeShut)) < 300


def test_no_claims_talk_the_nodes_own_words_away():
    w = shared()
    w.emit(ev.NodeStruck("n0", "lost"))
    for number in range(2 * STRIKES_KEPT):
        w.emit(ev.NodeStruck("n0", XID, number + 1, tenant=f"t{number}", user="ann"))
    assert len(node(w).strikes) == STRIKES_KEPT
    assert node(w).strikes[0].own


# Logs.


def test_the_audit_derives_closings_again():
    w = shared()
    claims(w, 3)
    claims(w, 1, tenant="b", user="bob")
    found = [r for r in audit(w.records) if r.kind in ("shut", "close")]
    assert [(r.kind, r.lawful) for r in found] == [("shut", True), ("close", True)]


def test_the_audit_names_a_closing_that_claims_of_one_tenant_led_to():
    w = shared()
    claims(w, 3)
    w.emit(ev.NodeDrainChanged("n0", True, "penstock", "3 failures"))
    w.emit(ev.NodeShut("n0", "b", "3 failures"))
    found = [r for r in audit(w.records) if r.kind in ("shut", "close")]
    assert [(r.kind, r.lawful) for r in found] == [("shut", True), ("close", False), ("shut", False)]


def test_a_strike_of_a_former_log_is_read_and_closes_nothing():
    former = msgspec.json.decode(b'{"type":"NodeStruck","node":"n0","text":"Xid 79","job_id":7}', type=ev.AnyEvent)
    w = shared(node_strikes_max=1)
    w.emit(former)
    assert [(strike.own, strike.tenant) for strike in node(w).strikes] == [(False, "")]
    w.now += 11_000
    claims(w, 1)
    assert (len(node(w).strikes), node(w).draining) == (2, False)
    assert msgspec.msgpack.encode(fold(w.records).image()) == msgspec.msgpack.encode(w.state.image())


def test_the_words_of_a_former_agent_are_claims():
    assert not msgspec.json.decode(b'{"code":1,"note":"Xid 79"}', type=ExitInfo).observed


@examples(30)
@given(st.lists(st.tuples(st.sampled_from(["ann", "bob", "eve"]), st.sampled_from(["n0", "n1"]), st.booleans())))
def test_whatever_one_tenant_claims_no_node_is_closed_for_another(said):
    w = shared(node_strikes_max=2)
    for user, name, passed in said:
        claims(w, 1, user=user, name=name)
        if passed:
            checked(w, name)
    assert not any(one.draining or "b" in one.shut_to for one in w.state.nodes.values())
