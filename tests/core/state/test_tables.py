"""Lifecycles as tables: every state has a way out, and what is not listed is refused."""

import pytest

from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.jobs import FINAL_STATES
from penstock.core.state import tables

FINAL = {"job": FINAL_STATES, "replica": {"exited", "lost"}, "node": set()}
FIRST = {"job": "waiting", "replica": "allocated", "node": "unknown"}


def states(kind):
    table = tables.TABLES[kind]
    return {before for before, _ in table} | set(table.values())


def reached(kind, start):
    met, todo = {start}, [start]
    while todo:
        state = todo.pop()
        for (before, _), after in tables.TABLES[kind].items():
            if before == state and after not in met:
                met.add(after)
                todo.append(after)
    return met


@pytest.mark.parametrize("kind", tables.TABLES)
def test_every_state_can_be_reached(kind):
    assert reached(kind, FIRST[kind]) == states(kind)


@pytest.mark.parametrize("kind", ["job", "replica"])
def test_every_state_has_a_way_to_an_end(kind):
    for state in states(kind) - set(FINAL[kind]):
        assert reached(kind, state) & set(FINAL[kind]), state


@pytest.mark.parametrize("kind", ["job", "replica"])
def test_an_end_is_an_end(kind):
    assert {before for before, _ in tables.TABLES[kind]} & set(FINAL[kind]) == set()


def test_every_node_state_leads_back_to_ready():
    assert all("ready" in reached("node", state) for state in states("node"))


def test_every_job_state_that_holds_places_can_be_cancelled_fail_and_go_back():
    for state in ("starting", "running", "stopping"):
        assert tables.job_step(state, "cancelled") == "cancelled"
        assert tables.job_step(state, "failed") == "failed"
        assert tables.job_step(state, "requeued") == "waiting"
        assert tables.job_step(state, "stop_requested") == "stopping"


@pytest.mark.parametrize(
    ("step", "state", "event"),
    [
        (tables.job_step, "succeeded", "requeued"),
        (tables.job_step, "waiting", "requeued"),
        (tables.job_step, "waiting", "succeeded"),
        (tables.job_step, "running", "allocated"),
        (tables.job_step, "stopping", "allocated"),
        (tables.replica_step, "exited", "started"),
        (tables.replica_step, "lost", "started"),
        (tables.replica_step, "started", "started"),
        (tables.node_step, None, "ready"),
        (tables.node_step, "lost", "ready"),
        (tables.node_step, "ready", "ready"),
    ],
)
def test_what_is_not_listed_breaks_a_promise(step, state, event):
    with pytest.raises(BrokenInvariant, match=f"in state '{state or 'unknown'}' cannot take '{event}'"):
        step(state, event)


@pytest.mark.parametrize("kind", tables.TABLES)
def test_the_drawing_shows_every_transition_once(kind):
    lines = tables.mermaid(kind).splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert lines[1:] == [f"    {b} --> {a}: {e}" for (b, e), a in tables.TABLES[kind].items()]


def test_a_node_that_is_lost_can_only_register():
    assert {e for (b, e) in tables.NODE if b == "lost"} == {"registered"}
