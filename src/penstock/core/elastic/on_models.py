"""A round over several device models: which elastic jobs are on which, then sizes and places on each by itself.

What one more device of a model would bring is its price; jobs for which another model is worth more at these prices go
there, alone or in exchange with others (`exchange.py`), and each such chain is kept only where the summed cost falls,
restarts included, when sizes are chosen anew. A job on several models is as fast as on the slowest of them, so it
mixes only models that are one group in the round; neighbours in speed are tried as groups, and the cheapest way to
group them is taken. So a round is never worse than one that is blind, or one in which every job stays on its model.
Goodput by job, size and device type: Jayaram Subramanya et al., Sia, SOSP 2023, which solves an integer program; prices
in place of it: Lagrangian relaxation, Everett 1963.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.core.elastic.allocate import Allocation, allocate, choose_sizes, fair_share, keeps_bounds, points_of
from penstock.core.elastic.exchange import Candidate, Exchange
from penstock.core.elastic.places import RoundCapacity
from penstock.core.elastic.speedup import SpeedCurve
from penstock.core.elastic.worth import ElasticJob, ElasticSettings, Places, Worth, envelope, replicas_of

TRIES_MAX = 24
"""Chains of moves that are tried in one round."""
GROUPED_MAX = 4
"""Models of which all ways to group neighbours are tried; of more, one pair at a time, and all together."""
Group = tuple[str, ...]
"""Device models that one job may mix in a round."""
Groups = Mapping[int, Group]
"""The group that each job is on; () for one that stays on several."""


def allocate_on_models(
    jobs: Iterable[ElasticJob],
    free: Mapping[str, int],
    kinds: Mapping[str, str],
    settings: ElasticSettings | None = None,
) -> Allocation:
    """Return sizes and places for one round, as `allocate` does, by the speed of each job on each model.

    Args:
        kinds: the model of each node's devices: of all nodes in `free`, and of those that jobs hold.
    """
    settings = settings or ElasticSettings()
    ordered = sorted(jobs, key=lambda job: job.id)
    costs = _Costs(ordered, free, kinds, settings)
    stay = {job.id: job.held for job in ordered}
    plans = [plan for groups in ways_to_group(_by_speed(ordered, costs.models)) for plan in _plans(costs, groups)]
    if not plans:
        return allocate(ordered, free, settings)
    allowed = [plan for plan in (stay, *plans) if all(keeps_bounds(job, plan[job.id]) for job in ordered)]
    best = min(allowed or plans[:1], key=costs.of)
    sizes = {number: replicas_of(places) for number, places in best.items()}
    return Allocation(sizes, best, costs.of(stay) - costs.of(best))


def ways_to_group(models: Sequence[str]) -> list[tuple[Group, ...]]:
    """Return the ways to make groups of neighbours, single models first."""
    joints = len(models) - 1
    if len(models) <= GROUPED_MAX:
        ways = [{at for at in range(joints) if mask >> at & 1} for mask in range(1 << max(0, joints))]
    else:
        ways = [set(), *({at} for at in range(joints)), set(range(joints))]
    found = []
    for joined in ways:
        groups = [[models[0]]] if models else []
        for at, model in enumerate(models[1:]):
            if at in joined:
                groups[-1].append(model)
            else:
                groups.append([model])
        found.append(tuple(tuple(group) for group in groups))
    return found


def _by_speed(jobs: Sequence[ElasticJob], models: Sequence[str]) -> list[str]:
    """Return the models by how fast jobs are there in the mean."""

    def mean(model: str) -> int:
        known = [job.models[model].speed_milli(1, 1) for job in jobs if model in job.models]
        return sum(known) // max(1, len(known))

    return sorted(models, key=lambda model: (-mean(model), model))


def _plans(costs: "_Costs", groups: Sequence[Group]) -> list[dict[int, Places]]:
    """Return places with every job on its own group, and on better ones; [] where a job does not go with the groups."""
    found = _GroupedRound(costs, groups)
    if not found.holds_all():
        return []
    first = found.assigned()
    ways = [first] if (better := found.improved(first)) == first else [first, better]
    return [found.placed(on, guarded=guarded) for on in ways for guarded in (True, False)]


class SlowestCurve(msgspec.Struct, frozen=True):
    """The speed on several models: that of the slowest."""

    curves: tuple[SpeedCurve, ...]

    def speed_milli(self, replicas: int, nodes: int) -> int:
        return min(curve.speed_milli(replicas, nodes) for curve in self.curves)


class _Costs:
    """The jobs of a round, and what sizes on models cost them."""

    def __init__(
        self,
        ordered: Sequence[ElasticJob],
        free: Mapping[str, int],
        kinds: Mapping[str, str],
        settings: ElasticSettings,
    ) -> None:
        self.jobs, self.kinds, self._settings = {job.id: job for job in ordered}, kinds, settings
        self.room = dict(sorted(free.items()))
        """All devices of the round by node, those that jobs hold among them."""
        for job in ordered:
            for node, count in job.held:
                self.room[node] = self.room.get(node, 0) + count * job.devices_each
        self.models = sorted({kinds[node] for node in self.room})
        self.held = {job.id: self._models_at(job.held) for job in ordered}
        self._worths: dict[tuple[int, Group, bool], Worth] = {}

    def worth(self, number: int, group: Group, *, home: bool) -> Worth:
        """Return what sizes of a job cost on a group of models.

        Args:
            home: it is there already; else it comes with a restart, if it runs.
        """
        found = self._worths.get((number, group, home))
        if found is None:
            job = self.jobs[number]
            share = fair_share(job, len(self.jobs), self.room)
            now_milli = (
                max(1, self._curve(job, self.held[number]).speed_milli(job.size, len(job.held))) if job.held else 0
            )
            here = job if home else replace(job, held=())
            found = Worth(here, self._settings, share, there=self._curve(job, group), now_milli=now_milli)
            self._worths[number, group, home] = found
        return found

    def of(self, plan: Mapping[int, Places]) -> int:
        return sum(self.of_one(number, places) for number, places in plan.items())

    def of_one(self, number: int, places: Places) -> int:
        return self.worth(number, self._models_at(places), home=True).cost_of(places)

    def _models_at(self, places: Places) -> Group:
        return tuple(sorted({self.kinds[node] for node, _ in places}))

    def _curve(self, job: ElasticJob, group: Group) -> SpeedCurve:
        curves = tuple(job.models.get(model, job.curve) for model in group)
        return curves[0] if len(curves) == 1 else SlowestCurve(curves) if curves else job.curve


class _Filled(NamedTuple):
    """What the jobs on one group come to."""

    sizes: dict[int, int]
    cost: int
    price: int
    """By how much the cost would fall for one device more."""


class _GroupedRound:
    """A round with models in groups: jobs are assigned to groups, and do not go beyond them."""

    def __init__(self, costs: _Costs, groups: Sequence[Group]) -> None:
        self._costs, self._jobs, self._groups = costs, costs.jobs, groups
        group_of = {model: group for group in groups for model in group}
        self._node_groups = {node: group_of[costs.kinds[node]] for node in costs.room}
        self._options = {
            number: [group for group in groups if all(model in job.models for model in group)]
            for number, job in self._jobs.items()
        }
        self._home: dict[int, Group] = {}
        for number, job in self._jobs.items():
            held = {self._node_groups[node] for node, _ in job.held}
            self._home[number] = held.pop() if len(held) == 1 else ()
        self._filled: dict[tuple[Group, tuple[int, ...], tuple[int, ...]], _Filled] = {}

    def holds_all(self) -> bool:
        """Return whether each job goes with the groups: it has none of a part's models, and its minimum has room."""
        for number, job in self._jobs.items():
            accepted = sum(len(group) for group in self._options[number])
            if accepted < sum(model in job.models for group in self._groups for model in group):
                return False
            most = max((sum(self._rooms(group, ()).values()) for group in self._options[number]), default=0)
            if job.minimum * job.devices_each > most:
                return False
        return True

    # Which group.

    def assigned(self) -> dict[int, Group]:
        """Return running jobs on their groups, and each other one where it gains most and its minimum has room."""
        on = {number: home for number, home in self._home.items() if self._jobs[number].held}
        prices = {group: self._fill(group, on).price for group in self._groups}
        mixed = self._mixed(on)
        left = {group: sum(self._rooms(group, mixed).values()) for group in self._groups}
        for number, group in on.items():
            if group:
                left[group] -= self._jobs[number].minimum * self._jobs[number].devices_each
        for number, job in self._jobs.items():
            if number not in on:
                need = job.minimum * job.devices_each
                worth = {group: self._value(number, group, prices[group]) for group in self._options[number]}
                best = max(worth, key=lambda group: (left[group] >= need, worth[group]))
                on[number] = best
                left[best] -= need
        return on

    def improved(self, on: dict[int, Group]) -> dict[int, Group]:
        """Return the jobs on better groups, chain by chain."""
        refused: set[tuple[int, Group]] = set()
        cost = self._cost(on)
        for _ in range(TRIES_MAX):
            moves = self._next(on, refused)
            if not moves:
                break
            after = {**on, **moves}
            if (lower := self._cost(after)) < cost:
                on, cost = after, lower
            else:
                refused.add(next(iter(moves.items())))
        return on

    def _next(self, on: Groups, refused: set[tuple[int, Group]]) -> dict[int, Group]:
        """Return moves that gain at the present prices, in the order of their chain; {} where there are none."""
        prices = {group: self._fill(group, on).price for group in self._groups}
        names = {"+".join(group): group for group in self._groups}
        candidates, least = [], dict.fromkeys(self._groups, 0)
        for number, job in self._jobs.items():
            here = on[number]
            if here:
                least[here] += job.minimum * job.devices_each
            if job.held and not job.may_move:
                continue
            values = {
                "+".join(group): self._value(number, group, prices[group])
                for group in self._options[number]
                if group == here or (number, group) not in refused
            }
            if not here:
                taken = sum(count * job.devices_each * prices[self._node_groups[node]] for node, count in job.held)
                values[""] = -self._costs.of_one(number, job.held) - taken
            if len(values) > 1 and "+".join(here) in values:
                candidates.append(Candidate(number, (), "+".join(here), values))
        smallest = min((job.minimum * job.devices_each for job in self._jobs.values()), default=0)
        roomy = {group for group, taken in least.items() if taken + smallest <= sum(self._rooms(group, ()).values())}
        moves = Exchange(candidates, lambda _, name: names[name] in roomy).next()
        return {number: names[name] for number, name in moves}

    def _value(self, number: int, group: Group, price: int) -> int:
        """Return what a group is worth to a job at the price of its devices, at the best size there."""
        worth, each = self._worth(number, group), self._jobs[number].devices_each
        points = points_of(worth, self._per_node(group, each), rebalance=True)
        return -min((cost + price * size * each for size, cost in points if size), default=worth.cost(0, 0, moved=True))

    # How good.

    def _worth(self, number: int, group: Group) -> Worth:
        return self._costs.worth(number, group, home=bool(group) and group == self._home[number])

    def _fill(self, group: Group, on: Groups) -> _Filled:
        """Return sizes, cost and price of a group with its jobs."""
        numbers = tuple(number for number in self._jobs if on.get(number) == group)
        mixed = self._mixed(on)
        key = (group, numbers, mixed)
        found = self._filled.get(key)
        if found is None:
            room = self._rooms(group, mixed)
            worths = [self._worth(number, group) for number in numbers]
            sizes = choose_sizes(worths, room, rebalance=True)
            left = sum(room.values()) - sum(sizes[w.job.id] * w.job.devices_each for w in worths)
            cost, price = 0, 0
            for worth in worths:
                size, each = sizes[worth.job.id], worth.job.devices_each
                points = points_of(worth, self._per_node(group, each), rebalance=True)
                cost += dict(points).get(size, worth.cost(0, 0, moved=True))
                hull = envelope([point for point in points if point[0] >= size])
                if len(hull) > 1 and (hull[1][0] - hull[0][0]) * each > left:
                    price = max(price, (hull[0][1] - hull[1][1]) // ((hull[1][0] - hull[0][0]) * each))
            found = self._filled[key] = _Filled(sizes, cost, price)
        return found

    def _per_node(self, group: Group, each: int) -> int:
        return max(1, max(self._rooms(group, ()).values(), default=0) // each)

    def _mixed(self, on: Groups) -> tuple[int, ...]:
        """Return the jobs that stay on several groups."""
        return tuple(number for number, group in on.items() if not group and self._jobs[number].held)

    def _rooms(self, group: Group, mixed: Iterable[int]) -> dict[str, int]:
        """Return the devices of a group by node, without those of jobs that stay on several."""
        room = {node: count for node, count in self._costs.room.items() if self._node_groups[node] == group}
        for number in mixed:
            for node, count in self._jobs[number].held:
                if node in room:
                    room[node] -= count * self._jobs[number].devices_each
        return room

    def _cost(self, on: Groups) -> int:
        stays = sum(self._costs.of_one(number, self._jobs[number].held) for number in self._mixed(on))
        return stays + sum(self._fill(group, on).cost for group in self._groups)

    # Where.

    def placed(self, on: Groups, *, guarded: bool) -> dict[int, Places]:
        """Return places of the jobs on their groups."""
        mixed = self._mixed(on)
        found = {number: self._jobs[number].held if number in mixed else () for number in self._jobs}
        for group in self._groups:
            filled = self._fill(group, on)
            worths = {number: self._worth(number, group) for number in filled.sizes}
            found |= RoundCapacity(self._rooms(group, mixed), worths).place(filled.sizes, guarded=guarded)
        return found
