"""Device models in a cycle: which of the jobs that start get which model, and which running jobs move to another one.

The walk over the queues has decided who starts: order, fairness and quotas are its. Here only places change. Jobs that
start are exchanged among each other and into free places; then running jobs that can save, where what they gain
together over their expected rest is worth more than their restarts. Nobody gets a slower model for a job of another
tenant, or of another priority. What is not known of a job's speeds changes nothing about it, but that a model of which
nothing is known counts like its best one when it starts: so every model is tried once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.core.cycle.workspace import Workspace
from penstock.core.elastic.exchange import Candidate, Exchange, Move, Shape
from penstock.core.elastic.model_rates import SCALE, rates_of
from penstock.core.elastic.restarts import next_restart_ms
from penstock.core.elastic.rounds import takes_part
from penstock.core.model.cluster import Pool
from penstock.core.model.ids import JobId, PoolName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace
from penstock.core.model.plan import Preemption
from penstock.core.model.resources import DeviceAsk
from penstock.core.place.backfill import held_places
from penstock.core.place.fit import capacity, needs_of
from penstock.core.place.gang import GangPlacer
from penstock.core.preempt.consolidate import can_move
from penstock.core.preempt.victims import shrink_cost
from penstock.core.state.expected_end import expected_rest_ms

JOBS_MAX = 256
"""Jobs of one tenant and priority in one pool that are exchanged with each other in one cycle."""
CHAINS_MAX = 64
"""Chains of moves that are tried among them in one cycle."""
HYSTERESIS_MILLI = 1_500
"""A move must gain the cost of its restart and half as much again: as growth does (`ElasticSettings`)."""

Peers = tuple[str, int]
"""Tenant and priority: jobs that may be slowed down for each other."""
Wanted = Mapping[JobId, tuple[str, ...]]
"""The models on which each of some jobs is to be."""


def match_models(workspace: Workspace, chosen: set[JobId]) -> "ModelMatch":
    """Return the exchange of a cycle, made in its workspace; in most pools there is none.

    Args:
        chosen: running jobs that this cycle decided about already; those that move are added.
    """
    matched = ModelMatch(workspace)
    if workspace.snapshot.config.matching:
        waiting = {job.id: job for _, _, jobs in workspace.snapshot.classes for job in jobs}
        matched.match(waiting, chosen)
        chosen.update(matched.rooms)
    return matched


class ModelMatch:
    """Exchanges the places of one cycle between device models."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._snapshot, self._now_ms = workspace, workspace.snapshot, workspace.now_ms
        self._cluster, self._tree, self._settings = workspace.cluster, workspace.tree, workspace.settings
        self.preemptions: list[Preemption] = []
        self.rooms: dict[JobId, tuple[ReplicaPlace, ...]] = {}
        """Where those that move are to go on."""
        self.again_ms = 0
        """When the first job may move that has run too short a time by now (unix ms); 0: none would."""
        self.moving: set[PoolName] = set()
        """Pools in which jobs move."""
        self._pools = self._mixed_pools()
        self._accepted: dict[tuple[PoolName, DeviceAsk], tuple[str, ...]] = {}

    def _mixed_pools(self) -> dict[PoolName, tuple[Pool, tuple[str, ...]]]:
        """Return the pools that match models and have several, with these."""
        found = {}
        for name, pool in self._snapshot.config.matching.items():
            shapes = self._cluster.kinds_in(name)
            models = tuple(sorted({device.model for shape in shapes for device in shape.devices}))
            if len(models) > 1:
                found[name] = (pool, models)
        return found

    def match(self, jobs: Mapping[JobId, Job], untouchable: Collection[JobId]) -> None:
        """Exchange places: of the starts of this cycle first, then of running jobs.

        Args:
            jobs: waiting jobs by id, those that start among them.
            untouchable: running jobs that this cycle decided about already.
        """
        for name, (pool, models) in self._pools.items():
            for group in self._starting(name, jobs):
                self._exchange_starts(pool, models, group)
            if pool.models.moves:
                for peers in self._movable(name, untouchable):
                    self._exchange_running(pool, models, peers)

    # Jobs that start.

    def _starting(self, pool: PoolName, jobs: Mapping[JobId, Job]) -> Iterable[dict[JobId, tuple[int, Job]]]:
        """Return jobs that start by peers, in the order in which the first of them started."""
        found: dict[Peers, dict[JobId, tuple[int, Job]]] = {}
        for at, start in enumerate(self._workspace.starts):
            job = jobs.get(start.job_id)
            if job is None or start.choice or start.ask.pool != pool or start.places == job.room:
                continue  # where it was to go on is decided
            if _by_model(start.ask):
                peers = found.setdefault((job.spec.tenant, job.spec.priority), {})
                if len(peers) < JOBS_MAX:
                    peers[job.id] = (at, job)
        return found.values()

    def _exchange_starts(self, pool: Pool, models: Sequence[str], group: Mapping[JobId, tuple[int, Job]]) -> None:
        candidates, starts = [], self._workspace.starts
        for at, job in group.values():
            values = self._values(pool, models, job, start=True)
            held = self._models_of(starts[at].places)
            if len(held) > 1:
                values = values or dict.fromkeys(self._accepts(pool, models, job.spec.ask), SCALE)
                held = self._bettered(at, job, _better({**values, "": _mixed(values, held)})) or held
                values[""] = _mixed(values, held)
            here = held[0] if len(held) == 1 else ""
            if here in values:
                candidates.append(Candidate(job.id, _shape(starts[at].ask), here, values))
        if not candidates:
            return
        asks = {one.id: starts[group[JobId(one.id)][0]].ask for one in candidates}
        exchange = Exchange(candidates, lambda shape, model: self._room(asks, candidates, shape, model))
        for _ in range(CHAINS_MAX):
            if not (moves := exchange.next()):
                break
            taken = {JobId(m.id): starts[group[JobId(m.id)][0]].places for m in moves}
            gangs = {JobId(m.id): (group[JobId(m.id)][1], starts[group[JobId(m.id)][0]].ask) for m in moves}
            found = self._placed(_wanted(moves), gangs, {i: tuple(enumerate(places)) for i, places in taken.items()})
            if found is None:
                exchange.refused(moves)
                continue
            exchange.made(moves)
            for job_id, places in found.items():
                at = group[job_id][0]
                starts[at] = replace(starts[at], places=places)
        for one in candidates:
            at, job = group[JobId(one.id)]
            if starts[at].ask.replicas > 1 and (here := exchange.models[one.id]):
                better = _better({**one.values, "": one.values[here]})
                self._bettered(at, job, [wanted for wanted in better if len(wanted) > 1])

    def _bettered(self, at: int, job: Job, better: Iterable[tuple[str, ...]]) -> list[str]:
        """Start a gang on the first of these models that have room for it; return them, [] where none have."""
        start = self._workspace.starts[at]
        for wanted in better:
            held = {job.id: tuple(enumerate(start.places))}
            found = self._placed({job.id: wanted}, {job.id: (job, start.ask)}, held)
            if found is not None:
                self._workspace.starts[at] = replace(start, places=found[job.id])
                return self._models_of(found[job.id])
        return []

    # Running jobs.

    def _movable(self, pool: PoolName, untouchable: Collection[JobId]) -> Iterable[list[Job]]:
        """Return running jobs that can go on elsewhere, by peers; highest priority first."""
        found: dict[Peers, list[Job]] = {}
        for job in self._snapshot.running.values():
            attempt = job.attempt
            if attempt is None or job.id in untouchable or job.placed.pool != pool or attempt.choice:
                continue
            if attempt.pairing is not None or job.spec.tenant in self._snapshot.held:
                continue
            if takes_part(job.spec, self._snapshot.config):
                continue  # its pool's rounds choose its model with its size
            if not can_move(job) or not _by_model(job.spec.ask):
                continue
            found.setdefault((job.spec.tenant, job.spec.priority), []).append(job)
        order = sorted(found, key=lambda peers: (-peers[1], peers[0]))
        return [sorted(found[peers], key=lambda job: job.id)[:JOBS_MAX] for peers in order]

    def _exchange_running(self, pool: Pool, models: Sequence[str], jobs: Sequence[Job]) -> None:
        candidates, by_id = [], {job.id: job for job in jobs}
        for job in jobs:
            attempt = job.attempt
            assert attempt is not None
            held = self._models_of([replica.place for replica in attempt.replicas])
            values = self._values(pool, models, job, start=False, held=held)
            here = held[0] if len(held) == 1 else ""
            if len(values) > 1 and here in values and not (not here and self._unmixed(pool, job, values)):
                candidates.append(Candidate(job.id, _shape(job.placed), here, values))
        if not candidates:
            return
        asks = {one.id: by_id[JobId(one.id)].placed for one in candidates}
        exchange = Exchange(candidates, lambda shape, model: self._room(asks, candidates, shape, model))
        for _ in range(CHAINS_MAX):
            if not (moves := exchange.next()):
                return
            if not self._all_settled(pool, [by_id[JobId(move.id)] for move in moves]) or self._move(
                _wanted(moves), by_id
            ):
                exchange.made(moves, fixed=True)
            else:
                exchange.refused(moves)

    def _unmixed(self, pool: Pool, job: Job, values: Mapping[str, int]) -> bool:
        """Move a running gang from several models to one, or to faster ones; return whether it is decided about."""
        for wanted in _better(values):
            with self._cluster.tentatively():
                self._cluster.put_back(job.ask, held_places(job))
                room = GangPlacer(job.next_ask(job.ask).on_models(wanted), self._cluster, job.spec.tenant).fits()
            if room and (not self._all_settled(pool, [job]) or self._move({job.id: wanted}, {job.id: job})):
                return True
        return False

    def _all_settled(self, pool: Pool, jobs: Sequence[Job]) -> bool:
        """Return whether all of these jobs may move now; note when they may."""
        until_ms = max(self._settled_ms(pool, job) for job in jobs)
        if until_ms > self._now_ms:
            self.again_ms = min(self.again_ms or until_ms, until_ms)
        return until_ms <= self._now_ms

    def _settled_ms(self, pool: Pool, job: Job) -> int:
        """Return from when the job may move again: it has had its guaranteed run time, and its moves of this hour.

        They are spread over the hour: who has just come is not sent on at once.
        """
        assert job.attempt is not None
        rule = self._tree.rules.get(job.spec.queue)
        own_ms = rule.min_runtime_ms if rule is not None else None
        least_ms = self._settings.min_runtime_before_preemption_ms if own_ms is None else own_ms
        settled_ms = (job.attempt.running_ms or self._now_ms) + max(least_ms, pool.models.pause_ms)
        return max(settled_ms, next_restart_ms(job, pool.models.moves_per_hour, self._now_ms))

    def _move(self, wanted: Wanted, by_id: Mapping[JobId, Job]) -> bool:
        """Ask running jobs to save and go on at places on other models; False where these cannot be had."""
        gangs = {job_id: (by_id[job_id], by_id[job_id].ask) for job_id in wanted}
        mark = self._cluster.mark()
        found = self._placed(wanted, gangs, {job_id: held_places(job) for job_id, (job, _) in gangs.items()})
        self._cluster.rollback(mark)
        if found is None:
            return False
        for job_id, places in found.items():
            job, ask = gangs[job_id]
            assert job.attempt is not None
            self.rooms[job_id] = places
            self.moving.add(ask.pool)
            cost = shrink_cost(job, self._settings)
            self.preemptions.append(Preemption(job_id, job.attempt.number, job_id, cost, "model"))
            GangPlacer(ask, self._cluster, job.spec.tenant).put_at(places)  # where they are free nothing else goes
        return True

    # Both.

    def _placed(
        self,
        wanted: Wanted,
        gangs: Mapping[JobId, tuple[Job, GangAsk]],
        held: Mapping[JobId, tuple[tuple[int, ReplicaPlace], ...]],
    ) -> dict[JobId, tuple[ReplicaPlace, ...]] | None:
        """Take places of each job on its new models in place of those held; nothing where one does not get them."""
        mark, charged = self._cluster.mark(), []
        for job_id, (job, ask) in gangs.items():
            self._cluster.put_back(ask, held[job_id])
            charged.append((job, self._demand(ask, [place for _, place in held[job_id]]), -1))
        for job, demand, sign in charged:
            self._charge(job, demand, sign)
        found: dict[JobId, tuple[ReplicaPlace, ...]] = {}
        for job_id, models in wanted.items():
            job, ask = gangs[job_id]
            gang = job.next_ask(ask).on_models(models)
            places = GangPlacer(gang, self._cluster, job.spec.tenant).put()
            demand = self._demand(ask, places) if places is not None else ()
            account = self._tree.account(job.spec.queue, job.spec.tenant)
            if places is None or account is None or not self._tree.charge_within(account, demand):
                self._cluster.rollback(mark)
                for other, amounts, sign in reversed(charged):
                    self._charge(other, amounts, -sign)
                return None
            charged.append((job, demand, 1))
            found[job.id] = places
        return found

    def _demand(self, ask: GangAsk, places: Sequence[ReplicaPlace]) -> tuple[int, ...]:
        return self._tree.demand_of(ask, places, self._snapshot.nodes)

    def _charge(self, job: Job, demand: tuple[int, ...], sign: int) -> None:
        account = self._tree.account(job.spec.queue, job.spec.tenant)
        if account is not None:
            self._tree.charge(account, demand, sign)

    def _room(self, asks: Mapping[int, GangAsk], jobs: Sequence[Candidate], shape: Shape, model: str) -> bool:
        """Return whether the devices for one more job of a shape are free on a model."""
        ask = next(asks[job.id] for job in jobs if job.shape == shape)
        need, left = needs_of(ask.on_models((model,)))[0][0], ask.replicas
        for state in self._cluster.states_in_use(rich=True):
            free = self._cluster.table.frees[state]
            if free.shape.pool == ask.pool and left > 0:
                left -= capacity(need, free, left) * self._cluster.count(state)
        return left <= 0

    def _models_of(self, places: Sequence[ReplicaPlace]) -> list[str]:
        """Return the models of these devices, each once."""
        nodes = self._snapshot.nodes
        return sorted({nodes[p.node].spec.devices[i].model for p in places for i in p.devices if p.node in nodes})

    def _values(
        self, pool: Pool, models: Sequence[str], job: Job, *, start: bool, held: Sequence[str] = ()
    ) -> dict[str, int]:
        """Return what each model that the job accepts is worth to it: speed per cost, `SCALE` for the best.

        Of a running job less its restart, and under '' what several models that it is on are worth, as far as known;
        {} where nothing is known that would tell models apart.
        """
        accepted = self._accepts(pool, models, job.spec.ask)
        known = self._snapshot.model_speeds
        rates = rates_of(job, known.of(job.spec, job.user), pool.speeds, known.usual, accepted)
        if not rates:
            return {}
        costs = {model: cost for model, _, cost in pool.speeds}
        worth = {model: 1000 * rate.rate // max(1, costs.get(model, 1000)) for model, rate in rates.items()}
        best = max(worth.values())
        values = {model: SCALE * one // best for model, one in worth.items()}
        if start:
            return {**dict.fromkeys(accepted, SCALE), **values}
        if not all(model in rates for model in held):
            return values
        here = min(rates[model].rate for model in held)
        found = {model: one if [model] == held else self._less_restart(job, here, rates[model].rate, one)
                 for model, one in values.items()}  # fmt: skip
        return {**found, "": _mixed(values, held)} if len(held) > 1 else found

    def _less_restart(self, job: Job, here: int, there: int, value: int) -> int:
        """Return the value of another model with a restart before: over the job's expected rest there.

        Who gets the slower one will want to come back: that is a second restart.
        """
        rest_ms = max(1, expected_rest_ms(job, self._now_ms) * here // there)
        times = 1 if there > here else 2
        cost_ms = times * (
            job.progress.restart_ms or self._settings.checkpoint_cost_ms + self._settings.restart_cost_ms
        )
        return value * rest_ms // (rest_ms + cost_ms * HYSTERESIS_MILLI // 1000)

    def _accepts(self, pool: Pool, models: Sequence[str], ask: GangAsk) -> tuple[str, ...]:
        """Return the models of which a device qualifies for every replica."""
        wanted = ask.each.devices
        assert wanted is not None
        known = self._accepted.get((pool.name, wanted))
        if known is None:
            shapes = self._cluster.kinds_in(pool.name)
            devices = [device for shape in shapes for device in shape.devices if wanted.accepts(device) is None]
            known = self._accepted[pool.name, wanted] = tuple(sorted({d.model for d in devices} & set(models)))
        return known


def _wanted(moves: Iterable[Move]) -> dict[JobId, tuple[str, ...]]:
    return {JobId(move.id): (move.model,) for move in moves}


def _mixed(values: Mapping[str, int], held: Iterable[str]) -> int:
    """Return what several models are worth: a little less than the slowest of them alone, which leaves others free."""
    return min(values.get(model, SCALE) for model in held) - 1


def _better(values: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Return what is worth more to a gang than the models it is on (''), best first: single models, the best several.

    A gang is as fast on several as on the slowest of them.
    """
    models = sorted((model for model in values if model), key=lambda model: (-values[model], model))
    several = [(values[models[n - 1]] - 1, tuple(models[:n])) for n in range(2, len(models))]
    single: list[tuple[int, tuple[str, ...]]] = [(values[model], (model,)) for model in models]
    return [models for worth, models in sorted(single + several, key=lambda one: -one[0]) if worth > values[""]]


def _by_model(ask: GangAsk) -> bool:
    """Whether the gang's devices are whole, and asked for by one kind of replica."""
    wanted = ask.each.devices
    return wanted is not None and wanted.whole and not ask.others


def _shape(ask: GangAsk) -> Shape:
    return (ask.replicas, ask.each.device_count)
