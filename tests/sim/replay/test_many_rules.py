"""Replays under rules drawn at random: time always moves on, and every job comes to its end or can never start."""

import random

import pytest

from penstock.core.model.cluster import Pool, Queue
from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.place.gang import NoFit, place_gang
from penstock.testing.builders import config, job_spec, node
from penstock.testing.harness import World
from penstock.traces.model import Outage
from tests.sim.replay.builders import MINUTE, SECOND, job, ran, trace

POLICIES = ("priority", "fifo", "fair_share", "capacity", "least_attained", "shortest_predicted")


def drawn_job(r, at_s):
    common = {
        "priority": r.choice((100, 500, 900)),
        "queue": r.choice("ab"),
        "preemptible": r.random() < 0.8,
    }
    saves, run_s = r.random() < 0.7, r.randint(1, 400)
    if r.random() < 0.35:
        least = r.randint(1, 6)
        gang = GangAsk(least, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=least + r.randint(1, 8))
        return job(at_s, run_s, saves=saves, spec=job_spec(gang=gang, **common))
    limits = {"time_limit_ms": r.choice((0, 5 * MINUTE)), "estimated_duration_ms": r.choice((0, MINUTE))}
    return job(at_s, run_s, r.randint(0, 4), r.randint(1, 3), saves=saves, every_s=30, **common, **limits)


def drawn_rules(r):
    promised, most = r.choice(((), (("devices", 4_000),))), r.choice(((), (("devices", 9_000),)))
    preemption = r.choice(("never", "reclaim", "lower_priority"))
    return config(
        queues=(
            Queue("a", policy=r.choice(POLICIES), preemption=preemption, guaranteed=promised),
            Queue("b", policy=r.choice(POLICIES), max=most),
        ),
        pools=(Pool("default", backfill=r.choice(("easy", "conservative", "none", "strict"))),),
        root_policy=r.choice(("priority", "fifo", "fair_share", "capacity")),
        min_runtime_before_preemption_ms=r.choice((0, 20 * SECOND)),
        elastic_growth_period_ms=r.choice((SECOND, MINUTE)),
        starvation_after_ms=r.choice((MINUTE, 60 * MINUTE)),
        defrag=r.random() < 0.3,
        allow_waiting_for_nodes=True,
    )


def replayed(seed, **options):
    """Return what came out of a trace under rules, both drawn, and its nodes."""
    r = random.Random(seed)
    jobs = [drawn_job(r, at_s) for at_s in sorted(r.randint(0, 400) for _ in range(r.randint(3, 25)))]
    nodes = tuple(node(f"n{i}", 4) for i in range(r.randint(1, 4)))
    outages = (Outage("n0", 50 * SECOND, 120 * SECOND),) if r.random() < 0.2 else ()
    physics = {"start_ms": r.choice((0, 2_000)), "save_ms": r.choice((0, 3_000)), "restore_ms": r.choice((0, 1_000))}
    given = trace(*jobs, nodes=nodes, rules=drawn_rules(r), outages=outages)
    return ran(given, knows=r.choice(("declared", "true", "learned")), **physics, **options), nodes


@pytest.mark.parametrize("seed", range(60))
def test_every_job_comes_to_its_end(seed):
    found, nodes = replayed(seed)
    never = {life.job_id for life in found.lives if _never_starts(life, World(*nodes).free())}
    assert all(life.ended_ms for life in found.lives if life.job_id not in never)


def _never_starts(life, empty):
    ask = life.spec.ask
    too_much = isinstance(place_gang(ask.sized(ask.replicas), empty), NoFit)
    return too_much or (life.spec.queue == "b" and ask.device_total > 9)
