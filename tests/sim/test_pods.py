"""The fault simulator of a Kubernetes cluster: seeds are repeatable, none finds a bug, planted bugs are found."""

from functools import cache

import pytest

from penstock.sim.__main__ import EXPECTED_OF_PODS
from penstock.sim.pods.planted import PLANTED_BUGS, planted
from penstock.sim.pods.world import PodOutcome, PodWorld, play, play_world
from tests.sim.seeds import FOUND_BY_PODS, KEPT_OF_PODS

SEEDS = range(30)
PLANTED_SEEDS = range(600)


@cache
def outcome(seed: int) -> PodOutcome:
    return play(seed)


@pytest.mark.parametrize("seed", [*SEEDS, *KEPT_OF_PODS])
def test_no_seed_finds_a_bug(seed):
    assert outcome(seed).violations == ()


def test_the_same_seed_gives_the_same_run():
    assert play(7) == outcome(7)
    assert outcome(7) != outcome(8)


def test_what_a_big_run_should_reach_is_reached():
    reached = {name for seed in SEEDS for name in outcome(seed).probes}
    assert set(EXPECTED_OF_PODS) - reached == set()


def test_pods_are_bound():
    assert sum(outcome(seed).bound for seed in range(10)) > 100


def test_claims_get_devices():
    worlds = [PodWorld(seed) for seed in range(15)]
    assert all(play_world(world).violations == () for world in worlds)
    assert sum(world.device_checks.allocated for world in worlds) > 30


@pytest.mark.parametrize("bug", sorted(PLANTED_BUGS))
def test_a_planted_bug_is_found(bug):
    with planted(bug):
        found = next((seed for seed in (*FOUND_BY_PODS.get(bug, ()), *PLANTED_SEEDS) if play(seed).violations), None)
    assert found is not None, f"{bug} ({PLANTED_BUGS[bug].text}) was not found in {len(PLANTED_SEEDS)} seeds"


def test_an_unknown_bug_cannot_be_planted():
    with pytest.raises(ValueError, match="no planted bug named"), planted("nonsense"):
        pass
