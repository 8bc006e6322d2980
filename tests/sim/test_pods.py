"""The fault simulator of a Kubernetes cluster: seeds are repeatable, none finds a bug, every planted bug is found."""

import pytest

from penstock.sim.__main__ import EXPECTED_OF_PODS
from penstock.sim.pods.planted import PLANTED_BUGS, planted
from penstock.sim.pods.world import play

SEEDS = range(30)
KEPT = (11, 128, 197, 380, 1235, 2361)
"""Seeds that found bugs once."""
FIRST = {
    "bound_by_name": 247, "budgets_ignored": 54, "cordon_ignored": 29,
    "failed_bind_keeps_room": 0, "forgotten_in_a_restart": 59, "gangs_in_part": 0,
    "gone_while_binding": 149, "leaving_pods_not_counted": 18, "list_not_compared": 71,
    "lost_answer_is_a_refusal": 510, "node_gone_unsaid": 40, "others_not_counted": 7,
    "others_rules_ignored": 0, "sidecars_not_counted": 2, "suspended_at_once": 95,
}  # fmt: skip
"""The first seed that finds each planted bug: `make sim-planted` looks from 0 on."""


@pytest.mark.parametrize("seed", [*SEEDS, *KEPT])
def test_no_seed_finds_a_bug(seed):
    assert play(seed).violations == ()


def test_the_same_seed_gives_the_same_run():
    assert play(7) == play(7)
    assert play(7) != play(8)


def test_what_a_big_run_should_reach_is_reached():
    reached = {name for seed in SEEDS for name in play(seed).probes}
    assert set(EXPECTED_OF_PODS) - reached == set()


def test_pods_are_bound():
    assert sum(play(seed).bound for seed in range(10)) > 100


@pytest.mark.parametrize("bug", sorted(PLANTED_BUGS))
def test_a_planted_bug_is_found(bug):
    with planted(bug):
        assert any(play(seed).violations for seed in range(FIRST[bug], FIRST[bug] + 1))


def test_an_unknown_bug_cannot_be_planted():
    with pytest.raises(ValueError, match="no planted bug named"), planted("nonsense"):
        pass
