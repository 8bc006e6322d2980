"""A dry run of consolidation: the moves it would make, their beneficiaries and costs, if the setting were on."""

from msgspec.structs import replace

from penstock.core.cycle.planner import Planner
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.model.plan import Plan
from penstock.core.order.extension import Policies
from penstock.core.state.snapshot import Snapshot

Moves = dict[JobId, tuple[tuple[JobId, int], ...]]
"""By beneficiary, the jobs that would move and the cost of each move (device-milliseconds)."""


def dry_run(
    snapshot: Snapshot, now_ms: int, policies: Policies | None = None
) -> tuple[Moves, dict[JobId, tuple[ReplicaPlace, ...]]]:
    """Return which moves the next cycle would ask for with `defrag` on, and where each beneficiary would start."""
    settings = replace(snapshot.config.settings, defrag=True)
    config = replace(snapshot.config, settings=settings)
    found: Plan = Planner(policies).plan(replace(snapshot, config=config), now_ms)
    moves: Moves = {}
    for one in found.preemptions:
        if one.rule == "defrag":
            moves[one.beneficiary] = (*moves.get(one.beneficiary, ()), (one.victim, one.cost))
    return moves, {job_id: places for job_id, places in found.held.items() if job_id in moves}
