"""What the API says of the last scheduling cycle."""

from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.model.cluster import Queue
from penstock.core.order.extension import registry
from penstock.core.state.tokens import local_scope
from penstock.server.views.scheduling import cycle_view, queue_views
from penstock.testing.builders import job_spec, node
from penstock.testing.harness import World, cluster
from penstock.testing.server import InProcessServer


def test_the_last_cycle_tells_what_it_decided():
    with InProcessServer() as server:
        jobs = [server.submit({"command": "sleep 60", "devices": devices}) for devices in (4, 4, 2)]
        shown = server.client.cycle()
        assert [server.client.job(job).state for job in jobs] == ["running", "running", "waiting"]
    assert shown.strategy.split(":")[0] == "delayed"
    assert (shown.starts, shown.waiting, shown.candidates, shown.problems) == (0, {"no_fit": 1}, [], [])
    assert shown.seq > 0


def test_a_cycle_shows_the_plans_it_chose_from():
    names = ("fragmentation", "worst_fit")
    w = World(node("a", 4), node("b", 2), candidates=names)
    w.submit(2)
    shown = cycle_view(PlanChooser().plan(w.snapshot(), w.now), names)
    assert [one.placement for one in shown.candidates] == list(names)
    (chosen,) = [one for one in shown.candidates if one.chosen]
    assert chosen.on_front
    assert chosen.weighted == max(one.weighted for one in shown.candidates if one.on_front)
    assert shown.starts == 1


def test_classes_that_wait_are_counted_by_the_code_of_why():
    w = cluster(1, 2)
    w.submit(2, priority=900)
    w.submit(2)
    w.submit(1)
    shown = cycle_view(w.plan(), ())
    assert (shown.starts, shown.waiting, shown.candidates) == (1, {"no_fit": 2}, [])


class Youngest:
    """A third-party policy: the youngest job first."""

    name = "youngest"

    def order_key(self, job, now_ms, settings):
        return (-job.submitted_ms,)


def next_of(w, policies):
    return {
        queue.name: [ref.id for ref in queue.next_jobs]
        for queue in queue_views(w.state, w.now, local_scope("ann"), registry(policies))
    }


def test_the_next_jobs_of_a_queue_are_those_that_the_planner_starts():
    w = cluster(1, 1, policies=[Youngest()], queues=(Queue("a", policy="ext:youngest"),))
    for _ in range(3):
        w.submit(1, queue="a")
        w.tick(1_000)
    assert next_of(w, [Youngest()]) == {"a": [3, 2, 1]}
    assert [start.job_id for start in w.plan().starts] == [3]


def test_a_long_queue_hides_no_other_queues_next_jobs():
    w = cluster(1, 1, queues=(Queue("a"), Queue("b")))
    w.request(job_spec(1, queue="a"), array=1_200)
    last = w.submit(1, queue="b")
    assert next_of(w, ()) == {"a": list(range(1, 11)), "b": [last]}
