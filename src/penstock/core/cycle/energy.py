"""The power that candidate plans are compared by: of devices as measured by model, else as declared, else unknown.

Measured: the mean that devices of a model drew under jobs, as nodes reported it. Declared: the limit of the device, or
of its pool where that is lower. What is known of one model says nothing about another: where neither is known of a
device that some plan gives out, power tells none of the plans from the others.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.model.ids import PoolName
from penstock.core.model.plan import Plan
from penstock.core.model.quantities import listed
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, Device
from penstock.core.state.snapshot import Snapshot


class Drawn(NamedTuple):
    """The devices of known power that a plan leaves in use (thousandths), and their power (mW)."""

    device_milli: int
    power_mw: int


class DevicePowers:
    """What devices draw, for the plans of one cycle."""

    def __init__(self, snapshot: Snapshot, plans: Sequence[Plan]) -> None:
        self._snapshot, self._limits = snapshot, snapshot.config.device_power_limits
        sources: dict[str, set[str]] = {"measured": set(), "declared": set(), "unknown": set()}
        self.most_mw = 0
        """The most that a device which some plan gives out, or that is held, draws."""
        for plan in plans:
            for start in plan.starts:
                for place in start.places:
                    node = snapshot.nodes[place.node].spec
                    for index in place.devices:
                        device = node.devices[index]
                        sources[self._source(node.pool, device)].add(device.model)
                        self.most_mw = max(self.most_mw, self.of(node.pool, device) or 0)
        self._sources = sources
        self._held = self._held_before()

    @property
    def known(self) -> bool:
        """Whether the power of every device that some plan gives out is known."""
        return not self._sources["unknown"]

    @property
    def text(self) -> str:
        """What power is compared by, in words; empty where no plan gives out a device."""
        unknown = sorted(self._sources["unknown"])
        if unknown:
            return f"energy is not compared: power of {listed(unknown)} is neither measured nor declared"
        parts = [f"{how} for {listed(sorted(self._sources[how]))}" for how in ("measured", "declared")
                 if self._sources[how]]  # fmt: skip
        return f"energy by power {', '.join(parts)}" if parts else ""

    def _source(self, pool: PoolName, device: Device) -> str:
        if self._snapshot.powers.get(device.model):
            return "measured"
        return "declared" if self._declared(pool, device) else "unknown"

    def _declared(self, pool: PoolName, device: Device) -> int:
        limits = [mw for mw in (device.power_limit_mw, self._limits.get(pool, 0)) if mw]
        return min(limits, default=0)

    def of(self, pool: PoolName, device: Device) -> int | None:
        """Return what the device draws while it is held (mW); None: unknown."""
        return self._snapshot.powers.get(device.model) or self._declared(pool, device) or None

    def _held_before(self) -> Drawn:
        """Return what is held before the plans, as far as its power is known: the same for all of them."""
        milli = power = 0
        for name, free in self._snapshot.free.items():
            node = self._snapshot.nodes[name].spec
            for device, left in zip(node.devices, free.devices, strict=True):
                held = WHOLE_DEVICE_MILLI - left if device.healthy else 0
                mw = self.of(node.pool, device) if held else None
                if mw is not None:
                    milli, power = milli + held, power + mw * held // WHOLE_DEVICE_MILLI
                    self.most_mw = max(self.most_mw, mw)
        return Drawn(milli, power)

    def after(self, plan: Plan) -> Drawn:
        """Return what devices draw together after a plan; nothing where it is unknown of some."""
        if not self.known:
            return Drawn(0, 0)
        milli, power = self._held
        for start in plan.starts:
            share = start.ask.each.devices.share_milli if start.ask.each.devices is not None else WHOLE_DEVICE_MILLI
            for place in start.places:
                node = self._snapshot.nodes[place.node].spec
                for index in place.devices:
                    milli += share
                    power += (self.of(node.pool, node.devices[index]) or 0) * share // WHOLE_DEVICE_MILLI
        return Drawn(milli, power)
