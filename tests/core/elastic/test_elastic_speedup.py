"""Speed-up curves: what is known beats what is guessed, and no curve ever lures a job into being slower."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.elastic.goodput import (
    BatchRange,
    GoodputModel,
    GradientNoise,
    StepModel,
    StepReport,
    fit_step_model,
)
from penstock.core.elastic.speedup import (
    AmdahlCurve,
    PointsCurve,
    ThroughputReport,
    best_batch,
    curve_of,
    goodput_curve,
)

TRUTH = StepModel(compute=(20_000.0, 500.0), within=(4_000.0, 500.0), across=(30_000.0, 2_000.0), overlap=2.0)
BATCHES = BatchRange(initial=128, largest=4096, local_min=32, local_max=512)
NOISE = GradientNoise(sqr=1.0, var=9.0)


def report(nodes, replicas, local_batch, truth=TRUTH):
    own = truth.pass_us(local_batch)
    step = truth.step_us(own, truth.network_us(replicas, nodes))
    return StepReport(nodes, replicas, local_batch, round(step), round(step - own))


def reports(truth=TRUTH):
    return [report(n, r, b, truth) for n, r in ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16)) for b in (64, 128, 256)]


step_reports = st.builds(
    lambda nodes, extra, batch, own, sync: StepReport(nodes, nodes + extra, batch, own + sync, sync),
    st.integers(1, 4),
    st.integers(0, 12),
    st.integers(1, 512),
    st.integers(1, 10**7),
    st.integers(0, 10**7),
)
noises = st.builds(GradientNoise, st.floats(0, 1e12), st.floats(0, 1e15))


def test_amdahl_is_exact():
    curve = AmdahlCurve(serial_milli=50)
    assert [curve.speed_milli(r, 1) for r in (0, 1, 2, 16)] == [0, 1000, 1904, 9142]
    assert curve.speed_milli(16, 2) == 9142 * 900 // 1000


def test_points_are_exact_and_straight_between():
    curve = PointsCurve([(2, 1800), (6, 3000)])
    assert [curve.speed_milli(r, 1) for r in (1, 2, 3, 4, 6)] == [1000, 1800, 2100, 2400, 3000]
    assert 3000 < curve.speed_milli(12, 1) < 6000


def test_a_size_that_was_slower_counts_as_no_gain():
    assert [PointsCurve([(2, 1800), (4, 1500)]).speed_milli(r, 1) for r in (2, 3, 4)] == [1800, 1800, 1800]


def test_learned_beats_declared_beats_default():
    learned = [ThroughputReport(1, 50_000), ThroughputReport(2, 80_000), ThroughputReport(2, 90_000)]
    declared = [(2, 1900), (4, 3600)]
    assert curve_of(learned, declared).speed_milli(2, 1) == 1700
    assert curve_of((), declared).speed_milli(2, 1) == 1900
    assert curve_of().speed_milli(2, 1) == AmdahlCurve().speed_milli(2, 1)


def test_beyond_what_it_has_run_at_a_learned_curve_follows_the_declared_one():
    learned = [ThroughputReport(1, 50_000), ThroughputReport(2, 76_000)]
    assert curve_of(learned, [(2, 1900), (4, 3600)]).speed_milli(4, 1) == 1520 * 3600 // 1900


def test_beyond_what_it_has_run_at_amdahl_goes_through_the_largest_size():
    curve = curve_of([ThroughputReport(1, 60_000), ThroughputReport(2, 90_000)])
    assert curve.speed_milli(4, 1) == pytest.approx(2000, abs=10)


def test_a_job_that_never_ran_alone_is_measured_against_the_shape():
    assert curve_of([ThroughputReport(4, 100_000)]).speed_milli(4, 1) == pytest.approx(3478, abs=50)


@given(st.lists(st.builds(ThroughputReport, st.integers(1, 20), st.integers(1, 10**6)), max_size=6))
def test_learned_curves_never_fall(seen):
    curve = curve_of(seen)
    speeds = [curve.speed_milli(r, 1) for r in range(40)]
    assert speeds == sorted(speeds)
    assert speeds[:2] == [0, 1000]


def test_the_fit_finds_the_model_that_made_the_reports():
    fitted = fit_step_model(reports())
    for nodes, replicas, batch in ((1, 3, 100), (3, 12, 300), (8, 32, 128)):
        made = TRUTH.step_us(TRUTH.pass_us(batch), TRUTH.network_us(replicas, nodes))
        found = fitted.step_us(fitted.pass_us(batch), fitted.network_us(replicas, nodes))
        assert found == pytest.approx(made, rel=0.02)


@given(st.randoms(use_true_random=False), st.lists(step_reports, min_size=1, max_size=12))
def test_order_and_repeats_of_reports_never_matter(rnd, seen):
    shuffled = rnd.sample(seen, len(seen)) + seen[:1]
    assert fit_step_model(shuffled) == fit_step_model(seen)


def test_no_report_is_no_model():
    assert goodput_curve([], NOISE, BATCHES) is None
    with pytest.raises(ValueError, match="at least one"):
        fit_step_model([])


def test_one_batch_size_is_half_constant():
    assert fit_step_model([StepReport(1, 1, 100, 2000, 0)]).compute == (1000.0, 10.0)


def test_unseen_nodes_are_a_little_slower_than_what_was_seen():
    fitted = fit_step_model([report(1, 1, 64), report(1, 2, 64), report(1, 4, 64)])
    assert fitted.network_us(4, 2) == pytest.approx(1.1 * fitted.network_us(4, 1))


def test_efficiency_is_that_of_the_noise_scale():
    model = GoodputModel(TRUTH, NOISE, BATCHES)
    assert model.efficiency(128) == pytest.approx(1.0)
    scale = NOISE.var / NOISE.sqr * 128
    assert model.efficiency(1024) == pytest.approx((scale + 128) / (scale + 1024))


def test_pure_noise_makes_every_batch_as_good():
    assert GoodputModel(TRUTH, GradientNoise(0.0, 5.0), BATCHES).efficiency(4096) == 1.0


@pytest.mark.parametrize(("replicas", "nodes"), [(1, 1), (2, 1), (4, 1), (8, 2), (32, 8)])
def test_the_chosen_batch_is_allowed_and_the_best_rung(replicas, nodes):
    choice = best_batch(reports(), NOISE, BATCHES, replicas=replicas, nodes=nodes)
    total = replicas * choice.local_batch * (choice.accumulation_steps + 1)
    assert 32 <= choice.local_batch <= 512
    assert total <= 4096
    model = GoodputModel(fit_step_model(reports()), NOISE, BATCHES)
    for local in range(32, 513, 16):
        if 128 <= replicas * local <= 4096 and replicas > 1:
            assert model.goodput(replicas, nodes, local, 0) <= 1.01 * choice.goodput


def test_rounding_up_never_makes_the_batch_too_large():
    whole = BatchRange(initial=128, largest=4096, local_min=32, local_max=512, fixed=4096)
    choice = best_batch(reports(), NOISE, whole, replicas=3, nodes=1)
    assert (choice.accumulation_steps, choice.local_batch) == (2, 455)
    assert 3 * 3 * 455 == 4095


def test_climbing_finds_what_trying_all_finds():
    model = GoodputModel(TRUTH, NOISE, BATCHES)
    rung = model.best(1, 1)[1]
    for replicas in range(2, 33):
        full, climbed = model.best(replicas, 2)[0], model.best(replicas, 2, rung)
        assert climbed[0].goodput >= 0.99 * full.goodput
        rung = climbed[1]


def test_a_fixed_batch_is_kept_and_too_many_replicas_are_no_gain():
    fixed = BatchRange(initial=128, largest=4096, local_min=32, local_max=512, fixed=128)
    curve = goodput_curve(reports(), NOISE, fixed)
    assert curve.speed_milli(5, 1) == curve.speed_milli(4, 1) == curve.speed_milli(64, 1)
    choice = best_batch(reports(), NOISE, fixed, replicas=4, nodes=1)
    assert (choice.local_batch, choice.accumulation_steps) == (32, 0)


@given(st.lists(step_reports, min_size=1, max_size=8), noises)
def test_goodput_curves_never_fall_with_replicas_nor_rise_with_nodes(seen, noise):
    curve = goodput_curve(seen, noise, BATCHES)
    alone = [curve.speed_milli(r, 1) for r in range(20)]
    spread = [curve.speed_milli(r, 2) for r in range(20)]
    assert alone == sorted(alone)
    assert spread == sorted(spread)
    assert all(one >= two for one, two in zip(alone, spread, strict=True))
    assert alone[:2] == [0, 1000]


def test_reports_of_nothing_say_nothing():
    nothing = [ThroughputReport(0, 100), ThroughputReport(4, 0)]
    assert curve_of(nothing, [(2, 1900)]).speed_milli(2, 1) == 1900
    assert curve_of([*nothing, ThroughputReport(1, 100), ThroughputReport(4, 300)]).speed_milli(4, 1) == 3000


def test_a_size_that_no_batch_is_allowed_at_does_no_work():
    model = GoodputModel(TRUTH, NOISE, BATCHES)
    found, rung = model.best(BATCHES.largest // BATCHES.local_min + 1, 1)
    assert (found.local_batch, found.accumulation_steps, found.goodput, rung) == (0, 0, 0.0, -1)
    assert model.best(BATCHES.largest // BATCHES.local_min, 1)[0].goodput > 0
