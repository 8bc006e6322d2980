"""Work done again: what an attempt repeats of work that an earlier one did and did not save, worked out by hand."""

import pytest
from hypothesis import given

from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.sim.replay.measures import measure
from penstock.sim.replay.replay import Ran
from penstock.testing.builders import config, device, job_spec, node
from penstock.traces.model import Outage, Seen
from tests.properties import examples
from tests.sim.replay.builders import MINUTE, SECOND, job, ran, times, trace
from tests.sim.replay.test_engine import PREEMPT, lent, traces


def again_s(found: Ran, place: int = 0) -> float:
    """Return the device-seconds that a job did again."""
    return found.lives[place].redone_device_ms / SECOND


def test_a_preempted_job_that_cannot_save_repeats_what_it_had_done():
    found = ran(trace(job(0, 60, 4), job(20, 30, 4, **PREEMPT)))
    assert times(found) == [(0, 110), (20, 50)]
    assert again_s(found) == 4 * 20
    assert measure(found).whole.redone_device_hours == 80 / 3600


def test_saving_starting_and_restoring_are_no_work_done_again():
    physics = {"save_ms": 5 * SECOND, "restore_ms": 7 * SECOND, "start_ms": 2 * SECOND}
    assert again_s(ran(trace(job(0, 60, 4), job(20, 30, 4, **PREEMPT)), **physics)) == 4 * 18
    assert again_s(ran(trace(job(0, 60, 4, saves=True), job(20, 30, 4, **PREEMPT)), **physics)) == 0


def test_work_that_is_repeated_twice_counts_twice():
    """20 s of work, then all of it and 10 s more; the last attempt repeats these 30 s."""
    found = ran(trace(job(0, 60), job(20, 10, 4, **PREEMPT), job(60, 10, 4, **PREEMPT)))
    assert times(found)[0] == (0, 130)
    assert again_s(found) == 20 + 30


def test_an_attempt_that_gets_less_far_than_an_earlier_one_repeats_only_what_it_does():
    found = ran(trace(job(0, 60), job(20, 10, 4, **PREEMPT), job(35, 10, 4, **PREEMPT)))
    assert again_s(found) == 5 + 20


@pytest.mark.parametrize("ends", ["cancelled", "failed", "succeeded"])
def test_an_undisturbed_job_does_nothing_again_however_it_ends(ends):
    assert again_s(ran(trace(job(0, 60, 4, ends=ends)))) == 0


def test_who_is_cancelled_before_it_runs_again_does_nothing_again():
    gone = job(0, 60, 4, ends="cancelled", seen=Seen(0, 30 * SECOND))
    found = ran(trace(gone, job(20, 30, 4, **PREEMPT)))
    assert (found.lives[0].preemptions, found.lives[0].state, times(found)[0]) == (1, "cancelled", (0, 30))
    assert again_s(found) == 0


def test_who_is_cancelled_while_it_repeats_has_repeated_so_much():
    gone = job(0, 60, 4, ends="cancelled", seen=Seen(0, 57 * SECOND))
    assert again_s(ran(trace(gone, job(20, 30, 4, **PREEMPT)))) == 4 * 7


def test_a_job_that_its_time_limit_ends_does_nothing_again():
    assert again_s(ran(trace(job(0, 60, time_limit_ms=20 * SECOND)))) == 0


def test_after_a_failure_of_its_own_a_program_that_cannot_save_starts_over():
    rules = config(backoff_first_ms=1)
    found = ran(trace(job(0, 60, 2, fails_after_ms=(10 * SECOND, 5 * SECOND), retries_max=2), rules=rules))
    assert found.lives[0].held_device_ms == 2 * 75 * SECOND
    assert again_s(found) == 2 * (5 + 10)


def test_a_failure_after_more_work_than_the_last_attempt_does_is_repeated_in_part():
    rules = config(backoff_first_ms=1)
    assert again_s(ran(trace(job(0, 60, fails_after_ms=(90 * SECOND,), retries_max=1), rules=rules))) == 60


def test_after_a_failure_of_its_own_a_program_that_saves_repeats_what_came_after_the_last_save():
    rules = config(backoff_first_ms=1)
    failing = job(0, 60, saves=True, every_s=8, fails_after_ms=(20 * SECOND,), retries_max=1)
    found = ran(trace(failing, rules=rules))
    assert found.lives[0].held_device_ms == 80 * SECOND
    assert again_s(found) == 4


def test_a_lost_node_costs_what_was_done_since_the_last_save():
    outages = (Outage("a", 25 * MINUTE, 40 * MINUTE),)
    assert again_s(ran(trace(job(0, 3600, saves=True, every_s=600), outages=outages))) == 5 * 60
    assert again_s(ran(trace(job(0, 3600), outages=outages))) == 25 * 60


def test_a_job_whose_node_never_comes_back_does_nothing_again():
    found = ran(trace(job(0, 3600), outages=(Outage("a", 25 * MINUTE, 0),)))
    assert (found.lives[0].losses, again_s(found)) == (1, 0)


def test_a_faster_device_repeats_in_less_time():
    """40 s on a T4 are 10 s of work, which the other node does again in 10 s."""
    nodes = (node("a", (device(0, model="T4"),)), node("b", 1))
    outages = (Outage("b", 0, 30 * SECOND), Outage("a", 40 * SECOND, 0))
    found = ran(trace(job(0, 60, speeds=(("T4", 250),)), nodes=nodes, outages=outages))
    assert times(found) == [(0, 100)]
    assert again_s(found) == 10


def test_an_elastic_job_repeats_with_the_devices_that_it_has_then():
    """40 s of work on one device; four do it again in 40 s / 3.2, as 4 * 12.5 device-seconds."""
    gang = GangAsk(1, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=4)
    nodes = (node("a", 1), node("b", 4))
    outages = (Outage("b", 0, 41 * SECOND), Outage("a", 40 * SECOND, 0))
    elastic = job(0, 80, spec=job_spec(gang=gang), scaling=((1, 1000), (4, 3200)))
    found = ran(trace(elastic, nodes=nodes, outages=outages))
    assert times(found) == [(0, 41 + 25)]
    assert found.lives[0].redone_device_ms == 4 * 12_500


def test_a_node_that_dies_during_a_save_leaves_the_save_before():
    """Asked at 15 s, it had saved at 10 s; the node dies at 18 s, and is back at 60 s."""
    outages = (Outage("a", 18 * SECOND, MINUTE),)
    given_jobs = (job(0, 60, 4, saves=True, every_s=10), job(15, 30, 4, **PREEMPT))
    found = ran(trace(*given_jobs, outages=outages), save_ms=9 * SECOND)
    assert times(found) == [(0, 140), (60, 90)]
    assert again_s(found) == 4 * 5


def test_who_is_suspended_loses_with_its_node_what_it_did_since_its_last_save():
    """10 s of work until it is suspended, the last save at 8 s."""
    low = lent(saves=True, every_s=8)
    found = ran(trace(*low.jobs, nodes=low.nodes, outages=(Outage("a", 30 * SECOND, 40 * SECOND),)))
    assert times(found) == [(0, 90 + 92), (10, 90)]


def test_who_is_suspended_does_nothing_again():
    assert again_s(ran(lent())) == 0


@given(traces())
@examples(40)
def test_devices_are_held_for_work_and_for_work_done_again(given_trace):
    for life in ran(given_trace).lives:
        width = life.spec.ask.device_total
        if life.state == "succeeded":
            assert life.held_device_ms == width * life.work.run_ms + life.redone_device_ms
        assert life.redone_device_ms <= life.held_device_ms
        assert life.attempts > 1 or life.redone_device_ms == 0
