"""The power of devices, learned from replicas that have ended, by model."""

from penstock.core.model.cluster import Node
from penstock.core.model.ids import Incarnation
from penstock.core.model.measured import Measured
from penstock.core.state.powers import HALVED_AT_MS, MODELS_MAX, ModelPower, Powers
from penstock.core.state.state import State
from penstock.testing.builders import device, node
from penstock.testing.harness import cluster

HOUR_MS = 3_600_000
MIXED = Node(node("n", (device(0), device(1, model="H100"), device(2, model="H100"))), Incarnation("i"))


def test_the_mean_is_over_the_measured_time_of_all_replicas_on_devices_of_the_model():
    powers = Powers()
    powers.add(MIXED, (1,), Measured(powered_ms=HOUR_MS, energy_mj=400 * HOUR_MS))
    powers.add(MIXED, (1, 2), Measured(powered_ms=3 * HOUR_MS, energy_mj=3 * 200 * HOUR_MS))
    powers.add(MIXED, (0,), Measured(powered_ms=HOUR_MS, energy_mj=100 * HOUR_MS))
    assert powers.means() == {"H100": 250_000, "A100": 100_000}


def test_what_says_nothing_about_one_model_is_left_out():
    powers = Powers()
    full = Measured(powered_ms=HOUR_MS, energy_mj=HOUR_MS)
    powers.add(MIXED, (0, 1), full)
    powers.add(MIXED, (), full)
    powers.add(None, (0,), full)
    powers.add(MIXED, (0,), None)
    powers.add(MIXED, (0,), Measured(measured_ms=5, busy_ms=1))
    powers.add(MIXED, (0,), Measured(energy_mj=5))
    assert powers.means() == {}


def test_later_replicas_count_more_once_the_measured_time_is_long():
    powers = Powers([ModelPower("H100", 100 * HALVED_AT_MS, HALVED_AT_MS)])
    for _ in range(8):
        powers.add(MIXED, (1,), Measured(powered_ms=HALVED_AT_MS, energy_mj=300 * HALVED_AT_MS))
    assert powers.means()["H100"] > 295_000
    assert powers.image()[0].powered_ms <= HALVED_AT_MS


def test_no_more_models_are_kept_than_may_be():
    powers = Powers([ModelPower(f"M{number}", 1, 1) for number in range(MODELS_MAX)])
    powers.add(MIXED, (0,), Measured(powered_ms=1, energy_mj=1))
    assert len(powers.image()) == MODELS_MAX


def test_a_state_learns_from_exits_and_keeps_it_in_its_image():
    world = cluster(1, 4)
    job = world.submit(2)
    world.run(job)
    world.now += 1_000
    world.exit_replica(job, measured=Measured(powered_ms=2_000, energy_mj=700_000))
    assert list(world.state.indexes.powers.means().values()) == [350_000]
    again = State.from_image(world.state.image())
    assert again.indexes.powers.image() == world.state.indexes.powers.image()
