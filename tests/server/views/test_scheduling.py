"""What the API says of the last scheduling cycle."""

from penstock.core.cycle.alternatives import PlanChooser
from penstock.server.views.scheduling import cycle_view
from penstock.testing.builders import node
from penstock.testing.harness import World, cluster


def test_the_last_cycle_tells_what_it_decided(jobs):
    for _ in range(2):
        jobs.state(jobs.submit("sleep 60", devices=4), "running")
    waits = jobs.submit("true", devices=2)
    jobs.state(waits, "waiting")
    shown = jobs.client.cycle()
    assert shown.strategy.split(":")[0] in ("immediate", "delayed", "predictive", "preemptive")
    assert (shown.candidates, shown.problems) == ([], [])
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
