"""The power that devices of each model draw while jobs hold them, as measured: sums over replicas that have ended.

Later replicas count more: once a model's time is long, its sums are halved. A replica on devices of several models says
nothing about one of them.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.core.model.cluster import ClusterConfig, Node
from penstock.core.model.ids import NodeName
from penstock.core.model.measured import Measured
from penstock.core.order.expected_power import PoolPowers, declared_powers, pool_powers

HALVED_AT_MS = 30 * 86_400_000
"""Measured device time of a model after which its sums are halved: a month of one device."""
MODELS_MAX = 256


class ModelPower(msgspec.Struct, frozen=True):
    """The energy (mJ) of devices of a model, and the device time over which it was measured."""

    model: str
    energy_mj: int
    powered_ms: int

    @property
    def mean_mw(self) -> int:
        """Mean power of one device (mW)."""
        return self.energy_mj * 1000 // self.powered_ms


class Powers:
    """Measured power by model. One thread adds; others read `means`."""

    def __init__(self, known: Iterable[ModelPower] = ()) -> None:
        self._known = {one.model: one for one in known}
        self._declared: tuple[object, object, PoolPowers] = (None, None, {})
        """The last answer of `declared_powers`, and what it was made from."""

    def add(self, node: Node | None, devices: Sequence[int], measured: Measured | None) -> None:
        """Add what a replica used that has ended; nothing where its energy was not measured, or its models differ."""
        if measured is None or measured.energy_mj is None or measured.powered_ms <= 0 or node is None:
            return
        models = {node.spec.devices[index].model for index in devices if index < len(node.spec.devices)}
        if len(models) != 1:
            return
        (model,) = models
        before = self._known.get(model, ModelPower(model, 0, 0))
        if not before.powered_ms and len(self._known) >= MODELS_MAX:
            return
        energy_mj, powered_ms = before.energy_mj + measured.energy_mj, before.powered_ms + measured.powered_ms
        while powered_ms > HALVED_AT_MS:
            energy_mj, powered_ms = energy_mj // 2, powered_ms // 2
        self._known = {**self._known, model: ModelPower(model, energy_mj, powered_ms)}

    def means(self) -> dict[str, int]:
        """Return the mean power (mW) of one device by model; of the models that were measured."""
        return {one.model: one.mean_mw for one in self._known.values()}

    def expected(self, config: ClusterConfig, nodes: Mapping[NodeName, Node]) -> PoolPowers:
        """Return what devices are expected to draw in pools with a limit of power."""
        if not config.power_limits:
            return {}
        known = self._declared
        if known[0] is not config or known[1] is not nodes:
            known = self._declared = (config, nodes, declared_powers(config, nodes.values()))
        return pool_powers(known[2], self.means())

    def image(self) -> tuple[ModelPower, ...]:
        """Return what a snapshot keeps, by model."""
        return tuple(one for _, one in sorted(self._known.items()))
