"""Programs that train as they were measured: their epochs, their pace anywhere, and what elastic jobs ask for."""

import pytest
from msgspec.structs import replace

from penstock.core.model.batching import BatchAsk, BatchChoice
from penstock.core.model.errors import InvalidInput
from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.testing.builders import job_spec, node
from penstock.traces.asking import asking
from penstock.traces.model import Work
from penstock.traces.profiles import ProfiledRun, TraceProfile
from penstock.traces.training import FULL_SPEED, Training
from tests.sim.replay.builders import job, trace

RUNS = {
    8: ProfiledRun((100.0, 200.0), (1.0, 1.0), (3.0, 1.0)),
    16: ProfiledRun((110.0, 190.0), (1.0, 1.0), (3.0, 1.0)),
}
PLACED = {(1,): [(4, 0.5, 0.0), (8, 1.0, 0.0)], (2,): [(4, 0.6, 0.1), (8, 1.2, 0.2)], (1, 1): [(4, 1.0, 0.5)]}
PROFILE = TraceProfile("tiny", RUNS, {(1, 1): PLACED[1,], (1, 2): PLACED[2,]}, PLACED)
FREE = Training(PROFILE, 1, 8)
TUNED = Training(PROFILE, 2, 16, fixed=True)


def test_epochs_end_after_their_part_of_the_work():
    assert FREE.ends_ms == [100_000, 190_000]
    # At batch 16: 100 / 1.6 and 90 / (4 / 3) steps of 1.2 s.
    assert TUNED.ends_ms == [75_000, 156_000]
    assert [FREE.epoch(done_ms) for done_ms in (0, 99_999, 100_000, 500_000)] == [0, 0, 1, 1]


def test_the_reference_has_the_speed_of_the_reference_in_every_epoch():
    for trains, placement in ((FREE, (1,)), (TUNED, (2,))):
        paces = [trains.pace(placement, trains.own_batch(sum(placement)), epoch) for epoch in (0, 1)]
        assert [pace.speed for pace in paces] == [FULL_SPEED, FULL_SPEED]


def test_progress_is_throughput_times_efficiency_which_changes_with_the_epoch():
    # 16 samples in 1.2 s, each worth 0.8 of one at batch 8 in the first epoch, against 8 in 1 s.
    assert FREE.pace((2,), BatchChoice(8), 0).speed == pytest.approx(FULL_SPEED * 16 * 0.8 / 1.2 / 8, abs=1)
    assert FREE.pace((2,), BatchChoice(8), 1).speed == pytest.approx(FULL_SPEED * 16 * (2 / 3) / 1.2 / 8, abs=1)


def test_passes_before_the_last_one_do_without_synchronising():
    pace = FREE.pace((2,), BatchChoice(4, 1), 0)
    assert (pace.step_us, pace.sync_us, pace.update_us) == (600_000, 100_000, 1_100_000)


def test_the_noise_scale_is_the_batch_at_which_a_sample_is_worth_half():
    assert FREE.pace((1,), BatchChoice(8), 0).noise == 24
    assert FREE.pace((1,), BatchChoice(8), 1).noise == 8
    # Its definition: efficiency at that batch against a batch of nothing is a half, so against batch 8 (24 + 8) / 48.
    assert PROFILE.gain(16, 1) / 2 == pytest.approx((8 + 8) / (8 + 16))


def test_a_program_left_alone_takes_its_batch_or_the_least_that_its_size_can():
    assert TUNED.own_batch(1) == BatchChoice(8, 1)
    assert FREE.own_batch(1) == BatchChoice(8)
    assert FREE.own_batch(4) == BatchChoice(4)


def test_alone_it_takes_the_best_batch_for_each_epoch():
    # On two devices: in the first epoch batch 16 (1.333 times the reference), in the last one batch 8 (1.667 times).
    assert FREE.alone_ms(2) == pytest.approx(100_000 / 1.6667 + 90_000 / 1.6667, abs=2)
    assert FREE.alone_ms(1) == 190_000
    assert TUNED.alone_ms(2) == 156_000


def elastic(trains):
    gang = GangAsk(2, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=4)
    return replace(job(spec=job_spec(gang=gang)), work=Work(trains.run_ms, trains=trains))


def test_jobs_that_ask_for_goodput_begin_with_one_replica_and_say_their_batches():
    found = asking(trace(elastic(TUNED), elastic(TUNED), job(5), nodes=(node("a", 4), node("b", 4))), "goodput").jobs
    spec, work = found[0].spec, found[0].work
    assert (spec.ask.replicas, spec.ask.replicas_max) == (1, 4)
    assert spec.batch == BatchAsk(8, 16, per_device_max=8, per_device_min=4)
    assert (work.run_ms, work.trains.fixed, work.trains.replicas) == (190_000, False, 1)
    assert found[1].work.trains is work.trains
    assert found[2] == job(5)


def test_jobs_can_be_held_to_the_size_that_they_ask_for():
    found = asking(trace(elastic(TUNED), job(5)), "off").jobs
    assert not found[0].spec.ask.elastic
    assert found[0].work.trains is TUNED
    assert found[1] == job(5)


def test_a_wrong_word_and_a_trace_without_measurements_are_refused():
    with pytest.raises(InvalidInput, match="elastic is 'godput', expected one of goodput, speedup, off"):
        asking(trace(elastic(TUNED)), "godput")
    with pytest.raises(InvalidInput, match="no job of this trace was measured"):
        asking(trace(job(5)), "goodput")
