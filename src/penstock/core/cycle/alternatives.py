"""Planning one cycle in several ways, and choosing the best of the plans on the Pareto front.

The ways differ in how nodes are scored: packing keeps room for big jobs, spreading leaves each job more of its node.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.cycle.energy import DevicePowers
from penstock.core.cycle.objectives import PlanFacts, choose_plan, score_plan
from penstock.core.cycle.planner import Planner
from penstock.core.model.cluster import ClusterConfig, PlacementPolicy, Settings
from penstock.core.model.objectives import Candidate, Front, Weights
from penstock.core.model.plan import Plan
from penstock.core.order.extension import Policies
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.state.snapshot import Snapshot


class PlanChooser:
    """Plans each cycle once for each placement strategy that the configuration names, and takes the best."""

    def __init__(self, policies: Policies | None = None) -> None:
        self._policies = policies
        self._plain = Planner(policies)
        self._planners: dict[PlacementPolicy, Planner] = {}
        self._configs: dict[PlacementPolicy, tuple[ClusterConfig, ClusterConfig]] = {}

    def plan(self, snapshot: Snapshot, now_ms: int) -> Plan:
        """Return the decisions of one cycle; with candidates, also the front they were chosen from."""
        names = snapshot.config.candidates
        if not names:
            return self._plain.plan(snapshot, now_ms)
        plans = [self._plan_by(name, snapshot, now_ms) for name in names]
        front = weigh(snapshot, plans, now_ms)
        return replace(plans[front.chosen], front=front)

    def _plan_by(self, name: PlacementPolicy, snapshot: Snapshot, now_ms: int) -> Plan:
        planner = self._planners.get(name)
        if planner is None:
            planner = self._planners[name] = Planner(self._policies)
        known = self._configs.get(name)
        if known is None or known[0] is not snapshot.config:
            pools = tuple(replace(pool, placement=name) for pool in snapshot.config.pools)
            known = self._configs[name] = (snapshot.config, replace(snapshot.config, pools=pools))
        return planner.plan(replace(snapshot, config=known[1]), now_ms)


def weigh(snapshot: Snapshot, plans: Sequence[Plan], now_ms: int) -> Front:
    """Return the comparison of the plans, and the best. Their index is their place in `plans`."""
    powers = DevicePowers(snapshot, plans)
    candidates = [Candidate(i, score_plan(facts_of(snapshot, one, now_ms, powers))) for i, one in enumerate(plans)]
    return replace(choose_plan(candidates, weights_of(snapshot.config.settings)), energy=powers.text)


def weights_of(settings: Settings) -> Weights:
    """Return the weight of each objective. Raises: ValueError unless the settings sum to 1000."""
    return Weights(
        utilisation=settings.objective_utilisation_milli,
        response_time=settings.objective_response_time_milli,
        fairness=settings.objective_fairness_milli,
        energy=settings.objective_energy_milli,
        cost=settings.objective_cost_milli,
    )


def facts_of(snapshot: Snapshot, plan: Plan, now_ms: int, powers: DevicePowers | None = None) -> PlanFacts:
    """Return the expected result of a plan. Prices are those of the pools' models.

    Args:
        powers: of devices, for all plans that are compared; None: for this one alone.
    """
    powers = powers or DevicePowers(snapshot, (plan,))
    drawn = powers.after(plan)
    started = {start.job_id for start in plan.starts}
    started_ms = left_ms = 0
    for _, _, jobs in snapshot.classes:
        for job in jobs:
            waited_ms = max(0, now_ms - job.submitted_ms)
            if job.id in started:
                started_ms += waited_ms
            else:
                left_ms += waited_ms
    costs = {model: cost for pool in snapshot.config.pools for model, _, cost in pool.speeds}
    total = sum(d.healthy for node in snapshot.nodes.values() for d in node.spec.devices)
    held = sum(sum(1000 - milli for milli in free.devices) for free in snapshot.free.values()) // 1000
    price = 0
    for start in plan.starts:
        for place in start.places:
            devices = snapshot.nodes[place.node].spec.devices
            price += sum(costs.get(devices[index].model, 0) for index in place.devices)
    lowest, highest = _shares(snapshot, plan)
    return PlanFacts(
        devices_used=min(total, held + sum(start.ask.device_total for start in plan.starts)),
        devices_total=total,
        started_wait_ms=started_ms,
        left_wait_ms=left_ms,
        share_min_milli=lowest,
        share_max_milli=highest,
        power_mw=drawn.power_mw,
        powered_milli=drawn.device_milli,
        device_power_max_mw=powers.most_mw,
        price_per_hour=price,
        device_price_max_per_hour=max(costs.values(), default=0),
    )


def _shares(snapshot: Snapshot, plan: Plan) -> tuple[int, int]:
    """Return the lowest and the highest use of devices by a tenant that runs or waits, after the plan."""
    held: dict[str, int] = {}
    tenant_of: dict[int, str] = {}
    for (_, tenant), share in snapshot.usage.items():
        if share.now != UsedAmounts():
            held[tenant] = held.get(tenant, 0) + share.now.device_milli
    for _, key, jobs in snapshot.classes:
        held.setdefault(key.tenant, 0)
        tenant_of.update((job.id, key.tenant) for job in jobs)
    for start in plan.starts:
        held[tenant_of[start.job_id]] += start.ask.device_milli
    return min(held.values(), default=0), max(held.values(), default=0)
