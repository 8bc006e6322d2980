"""A shadow beside another scheduler, in worlds with faults: its log is what was bound, and it only reads."""

from functools import cache
from unittest import mock

import pytest

from penstock.engines.kubernetes.gangs.gang import order_of
from penstock.engines.kubernetes.shadow import asked
from penstock.engines.kubernetes.shadow.gangs import WatchedGangs
from penstock.sim.pods.shadow import play

SEEDS = range(30)
KEPT = (34, 36, 51, 86, 99, 120, 143, 153, 813)
"""Seeds that found bugs once."""
REACHED = {"compared", "started", "succeeded", "cancelled", "job_started", "job_evicted", "server_crashed", "node_gone"}


@cache
def outcome(seed):
    return play(seed)


@pytest.mark.parametrize("seed", [*SEEDS, *KEPT])
def test_no_seed_finds_a_difference(seed):
    assert outcome(seed).violations == ()


def test_what_is_promised_is_reached():
    assert {name for seed in SEEDS for name in outcome(seed).probes} >= REACHED


def _lost(self, slot, pod):
    """Forget that a replica ended while nobody watched."""


def _whatever_they_ask(gang, pods, ask):
    found = sorted(pods, key=order_of)[: len(gang.slots)]
    return found if len(found) == len(gang.slots) else None


BUGS = {
    "ends_while_away_are_forgotten": mock.patch.object(WatchedGangs, "ended_before", _lost),
    "other_places_than_the_real_ones": mock.patch.object(asked, "in_slots", lambda gang, pods, ask: [*pods][::-1]),
    "asks_are_not_compared": mock.patch.object(asked, "in_slots", _whatever_they_ask),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    with BUGS[bug]:
        assert any(play(seed).violations for seed in (*KEPT, *range(150)))
