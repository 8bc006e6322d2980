"""What follows from what Ray shows."""

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.engines.ray.deciding import View, bundles, decide, share_of
from penstock.engines.ray.records import (
    Adopt,
    Amounts,
    Forget,
    FoundAgent,
    Going,
    Hold,
    Holder,
    Join,
    KnownNode,
    Open,
    RayNode,
    Release,
    Seen,
    StopAgent,
)

ALL = Amounts(8, 2, 1000)
NAME = "ray-aaaaaaaaaaaa"
ID = "a" * 56
LATER = "b" * 56


def agent(name: str = NAME, node: str = ID, **fields: Any) -> FoundAgent:
    return FoundAgent(name, node, **{"lives": True, "amounts": ALL, "devices": (0, 1), **fields})


def ready(*agents: FoundAgent, **fields: Any) -> Holder:
    return replace(Holder("ready", 0.0, "", ALL, (0, 1), agents), **fields)


def node(holder: Holder | None = None, **fields: Any) -> RayNode:
    return replace(RayNode(ID, True, "host", "10.0.0.1", ALL, ALL, holder=holder), **fields)


def known(**fields: Any) -> dict[str, KnownNode]:
    return {NAME: KnownNode(NAME, connected=True, lost=False, idle_s=0.0, closed="")._replace(**fields)}


def decided(*nodes: RayNode, of: dict[str, KnownNode] | None = None, now_s: float = 100.0, **fields: Any) -> list[Any]:
    places = {NAME: ID} if of else {}
    view = View(Seen("c", now_s, nodes), of or {}, places, {}, share_milli=1000)
    return decide(view._replace(**fields))


def test_a_new_node_gets_a_holder_then_an_agent_and_then_nothing_more():
    fresh = node()
    assert decided(fresh) == [Hold(ID, ALL)]
    held = node(ready())
    assert decided(held) == [Join(held, NAME, ALL, (0, 1))]
    assert decided(node(ready(agent())), of=known()) == []
    assert decided(node(ready(busy=True))) == []


def test_a_holder_takes_whole_amounts_of_its_share_that_others_have_left():
    assert share_of(Amounts(7, 3, 1000), Amounts(7, 1, 400), 500) == Amounts(3, 1, 400)
    assert decided(node(free=Amounts(0, 2, 10))) == []


def test_a_holder_that_ray_cannot_place_is_taken_back_and_one_that_failed_is_made_again_after_a_pause():
    assert decided(node(Holder("asked", 80.0))) == []
    assert decided(node(Holder("asked", 60.0))) == [Release(ID)]
    assert decided(node(Holder("failed", 95.0))) == []
    assert decided(node(Holder("failed", 80.0))) == [Hold(ID, ALL)]


def test_an_agent_that_died_is_started_again_under_its_name():
    held = node(ready(agent(lives=False)))
    assert decided(held, of=known()) == [Join(held, NAME, ALL, (0, 1), again=True)]


def test_an_agent_whose_ray_node_died_is_taken_over_by_the_next_one_of_its_machine_that_holds_the_same():
    back = node(ready(agent()), id=LATER)
    assert decided(back, of=known(closed="dead")) == [Adopt(back, NAME, ALL, (0, 1))]
    beside = [node(ready(agent())), node(ready(agent()), id=LATER)]
    assert decided(*beside, of=known()) == [Join(beside[1], "ray-bbbbbbbbbbbb", ALL, (0, 1))]


def test_an_agent_is_taken_over_while_ray_still_calls_its_killed_raylet_alive():
    gone, back = node(ready(agent()), answers=False), node(ready(agent()), id=LATER)
    assert decided(gone, back, of=known(closed="the raylet is not there")) == [Adopt(back, NAME, ALL, (0, 1))]


def test_no_device_is_given_to_two_agents_of_one_machine():
    other = node(ready(agent(), devices=(1, 2)), id=LATER)
    assert decided(other, of=known(closed="dead")) == []
    assert decided(other, of=known(closed="dead", idle_s=1.0)) == [StopAgent(LATER, NAME)]
    apart = node(ready(agent(), devices=(2, 3)), id=LATER)
    assert decided(apart, of=known(closed="dead")) == [Join(apart, "ray-bbbbbbbbbbbb", ALL, (2, 3))]


def test_agents_that_the_server_does_not_know_are_ended_before_another_is_started():
    assert decided(node(ready(agent("ray-old", LATER)))) == [StopAgent(ID, "ray-old")]


@pytest.mark.parametrize(
    ("fields", "deadline", "reason"),
    [
        ({"answers": False}, None, "the raylet of Ray node aaaaaaaaaaaa is not there"),
        ({"draining_until_ms": 7}, 7, "Ray drains node aaaaaaaaaaaa"),
        ({"alive": False, "reason": "received SIGTERM"}, None, "Ray node aaaaaaaaaaaa is dead: received SIGTERM"),
    ],
)
def test_a_node_that_goes_is_closed_once_and_what_runs_there_is_left_to_its_lease(fields, deadline, reason):
    going = node(ready(agent()), **fields)
    assert decided(going, of=known()) == [Going(NAME, deadline, reason)]
    assert decided(going, of=known(closed=reason)) == []


def test_a_node_that_is_back_is_opened():
    assert decided(node(ready(agent())), of=known(closed="Ray node aaaaaaaaaaaa is dead")) == [Open(NAME)]


def test_a_cluster_that_is_another_one_closes_nodes_only_after_a_while_and_forgets_only_lost_ones():
    assert decided(of=known(), absent_s={NAME: 30.0}) == []
    assert [type(one) for one in decided(of=known(), absent_s={NAME: 61.0})] == [Going]
    assert decided(of=known(closed="x", connected=False, lost=True), absent_s={NAME: 61.0}) == [Forget(NAME)]
    assert decided(of=known(closed="x", connected=False), absent_s={NAME: 61.0}) == []


def test_idle_nodes_are_given_back_while_no_job_waits_for_capacity_and_stay_so():
    idle = known(idle_s=400.0)
    held = node(ready(agent()))
    assert decided(held, of=idle, idle_release_s=300.0) == [Release(ID)]
    assert decided(held, of=idle) == []
    assert decided(held, of=idle, idle_release_s=300.0, wanted=True) == []
    assert decided(node(), idle_release_s=300.0, released=frozenset({ID})) == []


def test_a_server_that_listens_on_loopback_uses_only_nodes_of_its_machine():
    assert decided(node(), local_only="other") == []
    assert decided(node(), local_only="host") == [Hold(ID, ALL)]


def test_the_autoscaler_is_asked_for_what_is_held_and_what_is_missing():
    assert bundles([ALL], [Amounts(1)]) == (ALL, Amounts(1))
    assert bundles([ALL], []) == ()
