"""Points of a node for work without devices: utilisation, free memory, free bandwidth, past performance.

The use is what was measured and noted last, and what was given out and left since then at what it asked for. Integers
alone, in thousandths of a point.
"""

import numpy as np

from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.state_table import Ints

MOST = 100_000
"""The most points that a node can have."""
BAND = (300, 700)
"""Utilisation (thousandths) at which a node has most of these points: it is in use, and nobody waits for a CPU."""
IN_BAND, BELOW, ABOVE = 40_000, 30_000, 10_000
MEMORY_WEIGHT, BANDWIDTH_WEIGHT, PERFORMANCE_WEIGHT = 30, 20, 1_000
UNKNOWN = (0, 0, 0, 10)
"""The load of a node of which nothing was noted."""
_CPU, _MEMORY, _BANDWIDTH = 0, 1, 3


def points(capacity: Ints, left: Ints, loads: Ints) -> Ints:
    """Return the points of nodes (n × 4): utilisation, free memory, free bandwidth, past performance.

    Args:
        capacity: CPUs, memory, storage and bandwidth of each node (n × 4).
        left: what is not given out of them, the replicas to be placed included (n × 4).
        loads: `HostLoad.key` of each node, or `UNKNOWN` (n × 4).
    """
    out = np.where(capacity > 0, 1000 * (capacity - left) // np.maximum(capacity, 1), 0)
    used = np.clip(out[:, _CPU] + loads[:, 0], 0, 1000)
    utilisation = np.where(used < BAND[0], BELOW, np.where(used <= BAND[1], IN_BAND, ABOVE))
    memory = MEMORY_WEIGHT * np.clip(1000 - out[:, _MEMORY] - loads[:, 1], 0, 1000)
    bandwidth = BANDWIDTH_WEIGHT * np.clip(1000 - out[:, _BANDWIDTH] - loads[:, 2], 0, 1000)
    return np.stack((utilisation, memory, bandwidth, PERFORMANCE_WEIGHT * loads[:, 3]), axis=1).astype(np.int64)


def points_text(after: NodeCapacity) -> str:
    """Return the points of a node in words, given as it is once the replicas are there."""
    has = after.shape.capacity
    rows = (
        (has.cpu_milli, has.memory_bytes, has.storage_bytes, has.bandwidth_bps),
        (after.cpu_milli, after.memory_bytes, after.storage_bytes, after.bandwidth_bps),
        after.load or UNKNOWN,
    )
    utilisation, memory, bandwidth, past = points(*(np.array([row], np.int64) for row in rows))[0].tolist()
    parts = (
        f"utilisation {_of(utilisation, 40)}",
        f"free memory {_of(memory, 30)}",
        f"free bandwidth {_of(bandwidth, 20)}",
        f"past performance {_of(past, 10)}",
    )
    return f"{_of(utilisation + memory + bandwidth + past, 100)} points: {', '.join(parts)}"


def _of(amount: int, most: int) -> str:
    text = f"{amount // 1000}.{amount % 1000 // 100}".removesuffix(".0")
    return f"{text}/{most}"
