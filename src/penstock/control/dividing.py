"""Devices divided by MIG ahead of demand, by the strategies of their pools: which, and when their nodes are asked.

A node is asked to divide a device once its instances and their holders have not changed for a while: a job that
ends leaves what the next one of its kind needs. What is held stays; an idle instance stays unless it is in the way. The
node plans from what really is there, does the steps one by one, and reports the instances that it has then, by which
the server sees that nothing is left to do. A node that does not get that far is asked again, less and less often.

Volatile by design: a new controller finds the same devices.
"""

from collections.abc import Iterator

import msgspec

from penstock.core.messages.orders import Addressed, DivideDevice
from penstock.core.model.cluster import Node
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, DividingStrategy
from penstock.core.place import mig
from penstock.core.place.capacity import Instances, NodeCapacity
from penstock.core.place.mig_plan import CutDevice, PresentInstance, is_divided
from penstock.core.state.state import State

AGAIN_FIRST_MS, AGAIN_MAX_MS = 60_000, 3_600_000
"""A node that has not divided a device by then is asked again, after twice as long each time."""
LOOK_EVERY_MS = 1_000
PLANS_PER_LOOK_MAX = 32
"""Plans that one look makes, each of some milliseconds; the next look plans for other devices."""
PLANS_KEPT_MAX = 8_192

_Layout = tuple[Instances, Instances]
"""The instances on a device, and those that are held."""


class _Device(msgspec.Struct):
    """A device of a pool with a strategy."""

    layout: _Layout
    strategy: DividingStrategy
    due_ms: int | None
    """When its node is asked (next, monotonic); None: nothing is left to do."""
    pause_ms: int = AGAIN_FIRST_MS


class Divisions:
    """The devices of pools with a strategy, as they were seen last."""

    def __init__(self) -> None:
        self._nodes: dict[NodeName, tuple[Node, NodeCapacity, dict[int, _Device]]] = {}
        self._done: dict[tuple[str, int, _Layout, DividingStrategy], bool] = {}
        """Whether a strategy leaves nothing to do on a device of a model and memory, with a layout."""
        self._plans = 0
        """How many more may be made in this look."""
        self._looked_ms: int | None = None

    def orders(self, state: State, now_ms: int) -> list[Addressed]:
        """Return the orders to divide devices that are due by now (monotonic ms)."""
        if self._looked_ms is not None and now_ms - self._looked_ms < LOOK_EVERY_MS:
            return []
        self._looked_ms = now_ms
        strategies = dict(_strategies(state))
        if not strategies:
            self._nodes.clear()
            return []
        orders: list[Addressed] = []
        self._plans = PLANS_PER_LOOK_MAX
        if len(self._done) > PLANS_KEPT_MAX:
            self._done.clear()
        for name, node in state.nodes.items():
            strategy = strategies.get(node.spec.pool)
            if strategy is None or not node.instances or node.state != "ready" or node.draining:
                self._nodes.pop(name, None)
                continue
            free, known = state.indexes.free[name], self._nodes.get(name)
            devices = known[2] if known is not None else {}
            if known is None or known[0] is not node or known[1] is not free:
                devices = _seen(node, free, strategy, devices, now_ms, state.config.settings.mig_divide_after_ms)
                self._nodes[name] = (node, free, devices)
            due = (index for index, one in devices.items() if one.due_ms is not None and one.due_ms <= now_ms)
            orders += [(name, order) for index in due if (order := self._order(free, index, devices[index], now_ms))]
        return orders

    def _order(self, free: NodeCapacity, index: int, device: _Device, now_ms: int) -> DivideDevice | None:
        """Return the order for a device that is due, or None where nothing is to be done, or not yet known."""
        spec = free.shape.devices[index]
        key = (spec.model, spec.memory_bytes, device.layout, device.strategy)
        if key not in self._done:
            if not self._plans:
                return None
            self._plans -= 1
            self._done[key] = _is_divided(*key)
        if self._done[key]:
            device.due_ms = None
            return None
        device.due_ms, device.pause_ms = now_ms + device.pause_ms, min(2 * device.pause_ms, AGAIN_MAX_MS)
        return DivideDevice(index, device.strategy)


def _strategies(state: State) -> Iterator[tuple[PoolName, DividingStrategy]]:
    for pool in state.config.pools:
        if pool.mig_strategy != "none":
            yield pool.name, pool.mig_strategy


def _seen(
    node: Node,
    free: NodeCapacity,
    strategy: DividingStrategy,
    before: dict[int, _Device],
    now_ms: int,
    quiet_ms: int,
) -> dict[int, _Device]:
    """Return the devices of a node that can be divided, and that nothing but MIG instances holds."""
    found: dict[int, _Device] = {}
    for index, layout in _layouts(node, free):
        known = before.get(index)
        if known is None or (known.layout, known.strategy) != (layout, strategy):
            known = _Device(layout, strategy, now_ms + quiet_ms)
        found[index] = known
    return found


def _layouts(node: Node, free: NodeCapacity) -> Iterator[tuple[int, _Layout]]:
    for one in node.instances or ():
        held, device = free.instances(one.index), free.shape.devices[one.index]
        open_to_all = free.devices[one.index] == WHOLE_DEVICE_MILLI
        if device.mig and device.healthy and (held or open_to_all):
            yield one.index, (one.instances, held)


def _is_divided(model: str, memory_bytes: int, layout: _Layout, strategy: DividingStrategy) -> bool:
    """Return whether a strategy leaves nothing to do on a device, or the device cannot be divided."""
    geometry = mig.geometry_of(model, memory_bytes)
    present, held = layout
    if geometry is None:
        return True
    instances = [PresentInstance(profile, start, in_use=(profile, start) in held) for profile, start in present]
    instances += [PresentInstance(*one, in_use=True) for one in held if one not in present]
    if mig.illegal(geometry, [(one.profile, one.start) for one in instances]):
        return True  # a job's instance is just being made: the next report has it
    return is_divided(CutDevice(0, geometry, tuple(instances)), strategy)
