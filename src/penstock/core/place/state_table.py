"""Node states by number, and as columns: equal states are judged once, and many states are scored together."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.core.model.ids import PoolName
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, Resources
from penstock.core.place.capacity import NodeCapacity, NodeShape

Ints = NDArray[np.int64]

_HOST_COLUMNS = 4
_ROWS_FIRST = 256


class StateTable:
    """Numbers node states in the order in which they are first seen. Numbers never leave the process.

    Columns by state: host resources free (4), host capacity (4), devices free (thousandths, -1 where the node has no
    such device), kind (number of its set of devices), device count.
    """

    def __init__(self) -> None:
        self.frees: list[NodeCapacity] = []
        self.open: list[bool] = []
        """Whether the state takes work at all."""
        self.rich: list[bool] = []
        """Whether any part of a device is free."""
        self.free_milli: list[int] = []
        self.pools: list[PoolName] = []
        self.kinds: list[NodeShape] = []
        """One shape for each kind; shapes of one kind have devices that no filter can distinguish."""
        self.host: Ints = np.zeros((_ROWS_FIRST, _HOST_COLUMNS), np.int64)
        self.capacity: Ints = np.zeros((_ROWS_FIRST, _HOST_COLUMNS), np.int64)
        self.devices: Ints = np.full((_ROWS_FIRST, 1), -1, np.int64)
        self.kind: Ints = np.full(_ROWS_FIRST, -1, np.int64)
        self.device_count: Ints = np.zeros(_ROWS_FIRST, np.int64)
        self.repelling: set[int] = set()
        """States with a replica that keeps others off a domain of several nodes."""
        self._ids: dict[NodeCapacity, int] = {}
        self._kind_ids: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.frees)

    def id_of(self, free: NodeCapacity) -> int:
        """Return the number of a state, giving it one when it is new."""
        found = self._ids.get(free)
        if found is None:
            found = self._ids[free] = len(self.frees)
            self._add(free, found)
        return found

    def without_host(self, state: int, host: Resources, times: int) -> int:
        """Return the state after `times` replicas without devices took this host share (below 0: put it back)."""
        return self.id_of(self.frees[state].without_host(host, times))

    def _add(self, free: NodeCapacity, row: int) -> None:
        self.frees.append(free)
        self.open.append(not free.closed)
        total = sum(free.devices)
        self.rich.append(total > 0 or bool(free.mig))
        self.free_milli.append(total)
        self.pools.append(free.shape.pool)
        if any(domain for (domain, _), _ in free.repels):
            self.repelling.add(row)
        slots = len(free.devices)
        if row >= len(self.kind):
            self._grow(2 * len(self.kind))
        if slots > self.devices.shape[1]:
            wider = np.full((len(self.kind), slots), -1, np.int64)
            wider[:, : self.devices.shape[1]] = self.devices
            self.devices = wider
        has = free.shape.capacity
        self.host[row] = (free.cpu_milli, free.memory_bytes, free.storage_bytes, free.bandwidth_bps)
        self.capacity[row] = (has.cpu_milli, has.memory_bytes, has.storage_bytes, has.bandwidth_bps)
        if slots:
            self.devices[row, :slots] = free.devices
        self.kind[row] = self._kind_of(free.shape)
        self.device_count[row] = slots

    def _grow(self, rows: int) -> None:
        more = rows - len(self.kind)
        self.host = np.vstack((self.host, np.zeros((more, _HOST_COLUMNS), np.int64)))
        self.capacity = np.vstack((self.capacity, np.zeros((more, _HOST_COLUMNS), np.int64)))
        self.devices = np.vstack((self.devices, np.full((more, self.devices.shape[1]), -1, np.int64)))
        self.kind = np.concatenate((self.kind, np.full(more, -1, np.int64)))
        self.device_count = np.concatenate((self.device_count, np.zeros(more, np.int64)))

    def _kind_of(self, shape: NodeShape) -> int:
        if not shape.devices:
            return -1
        key = frozenset(
            (d.vendor, d.model, d.memory_bytes, d.capability, d.healthy, d.mig_mode, d.isolation) for d in shape.devices
        )
        found = self._kind_ids.get(key)
        if found is None:
            found = self._kind_ids[key] = len(self.kinds)
            self.kinds.append(shape)
        return found


def whole_free(devices: Ints) -> Ints:
    """Return per row how many devices are wholly free."""
    counted: Ints = (devices == WHOLE_DEVICE_MILLI).sum(axis=1)
    return counted
