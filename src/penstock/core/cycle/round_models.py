"""The device models of a pool as a round over its elastic jobs sees them: of its nodes, and each job's speed there."""

from collections.abc import Sequence

from penstock.core.cycle.sizing import Sizing
from penstock.core.cycle.workspace import Workspace
from penstock.core.elastic.model_curves import DeviceKind, OnModels, curves_on_models
from penstock.core.elastic.model_rates import rates_of
from penstock.core.elastic.restarts import next_restart_ms
from penstock.core.model.cluster import Pool
from penstock.core.model.ids import PoolName
from penstock.core.model.jobs import Job, ReplicaPlace
from penstock.core.model.resources import Device, DeviceAsk


def round_models(workspace: Workspace, sizing: Sizing, pool: PoolName) -> "RoundModels | None":
    """Return the models of a pool; None where it does not match jobs with models, or has one only."""
    rule = workspace.snapshot.config.matching.get(pool)
    found = RoundModels(workspace, sizing, rule) if rule is not None else None
    return found if found is not None and len(found.kinds) > 1 else None


class RoundModels:
    """Kinds of nodes by the models of their devices, and the speeds of jobs there."""

    def __init__(self, workspace: Workspace, sizing: Sizing, pool: Pool) -> None:
        self._snapshot, self._now_ms, self._sizing, self._pool = workspace.snapshot, workspace.now_ms, sizing, pool
        self.of_node: dict[str, str] = {}
        """The kind of each node."""
        self.kinds: dict[str, DeviceKind] = {}
        self._devices: dict[str, list[Device]] = {}
        self._accepted: dict[DeviceAsk, tuple[str, ...]] = {}
        names: dict[int, str] = {}
        for shape in {id(free.shape): free.shape for free in self._snapshot.free.values()}.values():
            models = tuple(sorted({device.model for device in shape.devices}))
            if shape.pool == pool.name and models:
                names[id(shape)] = " + ".join(models)
                self.kinds[names[id(shape)]] = DeviceKind(models, 0)
                self._devices.setdefault(names[id(shape)], []).extend(shape.devices)
        for node, free in self._snapshot.free.items():
            if (kind := names.get(id(free.shape))) is not None:
                self.of_node[node] = kind
                known = self.kinds[kind]
                self.kinds[kind] = known._replace(devices=known.devices + len(free.shape.devices))

    def of(self, job: Job, places: Sequence[ReplicaPlace]) -> OnModels:
        """Return how fast a job is on the kinds of nodes that it may have; `places`: those that it holds."""
        wanted = job.spec.ask.each.devices
        assert wanted is not None
        accepted = {name: self.kinds[name] for name in self._accepts(wanted)}
        models = sorted({model for kind in accepted.values() for model in kind.models})
        homes = tuple(sorted({self.of_node[place.node] for place in places if place.node in self.of_node}))
        known = self._snapshot.model_speeds
        found = curves_on_models(
            accepted,
            rates_of(job, known.of(job.spec, job.user), self._pool.speeds, known.usual, models),
            {model: cost for model, _, cost in self._pool.speeds},
            self._sizing.learned(job),
            lambda model: self._sizing.learned(job, model),
            homes=homes,
            starts=job.attempt is None,
        )
        return found._replace(may_move=found.may_move and (job.attempt is None or self._may_move(job)))

    def _may_move(self, job: Job) -> bool:
        """Return whether a running job may change its model now: every restart of the last hour counts as a move."""
        rule = self._pool.models
        return rule.moves and next_restart_ms(job, rule.moves_per_hour, self._now_ms) <= self._now_ms

    def _accepts(self, wanted: DeviceAsk) -> tuple[str, ...]:
        found = self._accepted.get(wanted)
        if found is None:
            kinds = (
                kind for kind, devices in self._devices.items() if any(wanted.accepts(one) is None for one in devices)
            )
            found = self._accepted[wanted] = tuple(sorted(kinds))
        return found
