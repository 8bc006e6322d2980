"""What is shown of a job that runs."""

from penstock.cli.cluster import _node_row
from penstock.cli.ps import _row
from penstock.core.model.access import Scope
from penstock.core.model.cluster import Tenant
from penstock.core.model.events import NodeShut
from penstock.core.state.snapshot import take_snapshot
from penstock.core.state.tokens import local_scope
from penstock.server.views.cluster import node_view
from penstock.server.views.jobs import live_job
from penstock.server.views.scheduling import queue_views
from penstock.testing.harness import cluster, note

MINUTE = 60_000


def shown(w, job_id):
    return live_job(w.job(job_id))


def test_when_a_running_job_ends_is_shown_as_its_program_tells_it():
    w = cluster(1, 4)
    job, other, silent = w.submit(1, time_limit_ms=90 * MINUTE), w.submit(1, estimated_duration_ms=MINUTE), w.submit(1)
    w.run(job, other, silent)
    assert shown(w, job).ends_ms == 0, "a limit alone tells no end"
    assert (shown(w, other).ends_ms, shown(w, silent).ends_ms) == (w.now + MINUTE, 0)
    note(w, job, 100, total_steps=1_000, step_ms=100)
    assert shown(w, job).ends_ms == w.now + 90_000
    assert "~1m 30s" in _row(shown(w, job), w.now)
    assert "soon" in _row(shown(w, job), w.now + 10 * MINUTE)
    assert not [cell for cell in _row(shown(w, silent), w.now) if str(cell).startswith(("~", "soon"))]


# The control thread goes on folding while views are made: what they find may be half of a change.


def test_a_device_that_is_just_given_back_is_free():
    w = cluster(1)
    (name,) = w.state.nodes
    w.submit(1)
    w.run(1)
    w.state.indexes.loads[name].devices[0] = []
    assert [d.job for d in node_view(w.state, name, connected=True, scope=local_scope("ann")).devices] == [None] * 4


def test_a_job_that_has_just_left_is_in_no_snapshot():
    w = cluster(1)
    w.state.indexes.beneficiaries.add(77)
    assert take_snapshot(w.state).beneficiaries == ()


def test_a_class_of_which_the_last_job_is_just_leaving_is_in_no_view():
    w = cluster(1)
    w.submit(1)
    (pending,) = w.state.indexes.pending.values()
    pending.jobs = []
    (queue,) = queue_views(w.state, 0, local_scope("ann"), {})
    assert queue.next_jobs == []


def test_to_whom_a_node_is_shut_is_shown_to_those_who_see_the_tenant():
    w = cluster(1, tenants=(Tenant("a"), Tenant("b")))
    w.emit(NodeShut("n0", "a", "claims"), NodeShut("n0", "b", "claims"))
    (seen_by_all, seen_by_a) = (
        node_view(w.state, "n0", connected=True, scope=scope)
        for scope in (local_scope("ann"), Scope("eve", tenants={"a": "viewer"}))
    )
    assert (seen_by_all.shut_to, seen_by_a.shut_to) == (["a", "b"], ["a"])
    assert _node_row(seen_by_a)[1] == "ready, shut to a"
