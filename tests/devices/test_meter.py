"""What replicas used of their devices adds up to what the devices had; gaps and wrong counters add nothing."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.messages.reports import DeviceFigures, ReplicaKey
from penstock.core.model.measured import POWER_MAX_MW, Measured
from penstock.devices.meter import GAP_MAX_MS, MEMORY_TOUCHED_BYTES, Held, Meter
from tests.properties import examples

ONE, TWO, THREE = (ReplicaKey(number, 1, 0) for number in (1, 2, 3))
SECOND_MS = 1000


def run(meter, readings, *held, memory=None, begin_ms=SECOND_MS, step_ms=SECOND_MS):
    for at, figures in enumerate(readings):
        meter.take(begin_ms + at * step_ms, figures, held, memory or {})
    return meter


def whole(key, index=0, since_ms=0):
    return Held(key, index, 1000, since_ms)


def on(index=0, **figures):
    return [DeviceFigures(index, **figures)]


def test_busy_time_and_energy_are_those_of_the_intervals_between_readings():
    readings = [on(use_milli=900, power_mw=10**6), on(use_milli=500, power_mw=200_000), on(use_milli=0, power_mw=0)]
    found = run(Meter(), readings, whole(ONE)).measured(ONE)
    assert (found.measured_ms, found.busy_ms, found.powered_ms, found.energy_mj) == (2000, 500, 2000, 200_000)
    assert found.mean_power_mw == 100_000


def test_the_counter_of_the_device_goes_before_its_power():
    readings = [on(power_mw=9_000, energy_mj=energy) for energy in (1_000, 1_700, 2_900)]
    assert run(Meter(), readings, whole(ONE)).measured(ONE).energy_mj == 1_900


def test_a_counter_that_goes_back_or_jumps_counts_as_none():
    jump = POWER_MAX_MW * SECOND_MS
    readings = [on(power_mw=7, energy_mj=energy) for energy in (5_000, 10, jump)]
    assert run(Meter(), readings, whole(ONE)).measured(ONE).energy_mj == 14
    without = run(Meter(), [on(energy_mj=energy) for energy in (5_000, 10, jump)], whole(ONE)).measured(ONE)
    assert (without.energy_mj, without.powered_ms) == (None, 0)


def test_a_gap_is_not_measured():
    meter = run(Meter(), [on(use_milli=1000, energy_mj=1)], whole(ONE))
    meter.take(SECOND_MS + GAP_MAX_MS + 1, on(use_milli=1000, energy_mj=9_000), [whole(ONE)], {})
    assert meter.measured(ONE).measured_ms == 0
    assert meter.measured(ONE).energy_mj is None


def test_a_device_that_does_not_say_its_use_is_not_measured_idle():
    assert run(Meter(), [on(power_mw=1)] * 3, whole(ONE)).measured(ONE).busy_ms is None


def test_what_a_device_used_before_a_replica_began_is_not_its_own():
    readings = [on(power_mw=1000)] * 4
    found = run(Meter(), readings, whole(ONE, since_ms=2 * SECOND_MS + 1)).measured(ONE)
    assert found.energy_mj == 1000


def test_parts_of_a_shared_device_get_their_promised_share_and_the_rest_is_nobodys():
    held = (Held(ONE, 0, 500, 0), Held(TWO, 0, 250, 0))
    meter = run(Meter(), [on(use_milli=800, power_mw=4_000)] * 2, *held)
    assert [(m.measured_ms, m.busy_ms, m.energy_mj) for m in map(meter.measured, (ONE, TWO))] == [
        (500, 400, 2_000),
        (250, 200, 1_000),
    ]


def test_a_shared_device_is_kept_busy_by_those_who_have_processes_on_it():
    held = (Held(ONE, 0, 500, 0), Held(TWO, 0, 500, 0))
    meter = run(Meter(), [on(use_milli=800, power_mw=4_000)] * 2, *held, memory={(ONE, 0): 5})
    assert [m.busy_ms for m in map(meter.measured, (ONE, TWO))] == [400, 0]
    assert [m.energy_mj for m in map(meter.measured, (ONE, TWO))] == [2_000, 2_000]


def test_memory_has_its_peak_over_all_devices_of_a_replica():
    meter, held = Meter(), (whole(ONE), whole(ONE, 1))
    for at, sizes in enumerate([(1, 5), (4, 4), (6, 0)], start=1):
        figures = [DeviceFigures(index) for index in (0, 1)]
        meter.take(at * SECOND_MS, figures, held, {(ONE, index): size for index, size in enumerate(sizes)})
    assert meter.measured(ONE).device_memory_peak_bytes == 8


def test_devices_are_touched_by_processes_by_use_and_by_memory():
    meter, held = Meter(), [whole(ONE, index) for index in range(4)]
    for at in (1, 2, 3):
        grown = 10**9 + (MEMORY_TOUCHED_BYTES if at == 3 else 0)
        figures = [DeviceFigures(i, use_milli=7 if i == 1 else 0, memory_used_bytes=10**9) for i in (0, 1, 3)]
        meter.take(at * SECOND_MS, [*figures, DeviceFigures(2, memory_used_bytes=grown)], held, {(ONE, 0): 5})
    assert meter.measured(ONE).devices_touched == 3


def test_a_next_worker_goes_on_and_the_time_between_is_not_measured():
    readings = [on(use_milli=1000, power_mw=1_000)] * 3
    former = run(Meter(), readings, whole(ONE)).image()
    found = run(Meter(former), readings, whole(ONE), begin_ms=60 * SECOND_MS).measured(ONE)
    assert (found.measured_ms, found.busy_ms, found.energy_mj) == (4_000, 4_000, 4_000)
    assert Meter(former).measured(ONE) == former[ONE]
    assert Meter(former).image() == former


def test_what_has_ended_is_forgotten():
    meter = run(Meter({ONE: Measured(5)}), [on(power_mw=1)] * 2, whole(ONE))
    meter.forget(ONE)
    assert meter.measured(ONE) is None
    assert meter.image() == {}


@st.composite
def histories(draw):
    """Readings of two devices (ms, figures), and who holds them."""
    at_ms, readings = 0, []
    energy = 10**6
    for _ in range(draw(st.integers(2, 12))):
        at_ms += draw(st.integers(1, 7_000))
        energy = max(0, energy + draw(st.integers(-10, 5_000)))
        numbers = st.none() | st.integers(0, 1200)
        shown = [DeviceFigures(0, use_milli=draw(numbers), power_mw=draw(numbers), energy_mj=energy)]
        if draw(st.booleans()):
            shown.append(DeviceFigures(1, use_milli=draw(numbers), power_mw=draw(numbers)))
        readings.append((at_ms, shown))
    shares = [draw(st.integers(1, 1000)) for _ in range(3)]
    held = [Held(key, draw(st.integers(0, 1)), share, draw(st.integers(0, 9_000))) for key, share in
            zip((ONE, TWO, THREE), shares, strict=True)]  # fmt: skip
    memory = {(one.key, one.device): 9 for one in held if draw(st.booleans())}
    return readings, held, memory


def metered(readings, held, memory):
    meter = Meter()
    for at_ms, figures in readings:
        meter.take(at_ms, figures, held, memory)
    return meter


@given(histories())
@examples(200)
def test_replicas_add_up_to_at_most_what_their_devices_had(history):
    readings, *_ = history
    found = [one for key in (ONE, TWO, THREE) if (one := metered(*history).measured(key)) is not None]
    alone = metered(readings, [whole(TWO, 0), whole(THREE, 1)], {})  # the devices, each held as a whole throughout
    devices = [one for key in (TWO, THREE) if (one := alone.measured(key)) is not None]
    for name in ("measured_ms", "busy_ms", "powered_ms", "energy_mj"):
        assert sum(getattr(one, name) or 0 for one in found) <= sum(getattr(one, name) or 0 for one in devices)
    assert all((one.busy_ms or 0) <= one.measured_ms for one in found)
    assert all(value is None or value >= 0 for one in found for value in (one.busy_ms, one.energy_mj))


@given(histories(), st.randoms())
@examples(200)
def test_the_order_of_devices_and_doubled_and_late_readings_change_nothing(history, draw):
    readings, held, memory = history
    meter, sent = Meter(), []
    for at_ms, figures in readings:
        for late_ms, late in draw.sample(sent, min(2, len(sent))):
            meter.take(late_ms, late, held, memory)
        meter.take(at_ms, draw.sample(figures, len(figures)) + figures, draw.sample(held, len(held)), memory)
        sent.append((at_ms, figures))
    assert meter.image() == metered(readings, held, memory).image()


def test_a_day_of_seconds_adds_up_to_the_counter():
    draw, energy, meter = random.Random(5), 17, Meter()
    first = energy
    for at in range(2_000):
        meter.take(at * SECOND_MS, on(energy_mj=energy), [whole(ONE)], {})
        last, energy = energy, energy + draw.randrange(700_000)
    assert meter.measured(ONE).energy_mj == last - first
