"""The free capacity that no typical request could use: the fragmentation of a cluster as one number."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from penstock.core.place import fragmentation
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.state_table import StateTable
from penstock.core.place.workload_mix import Typical, mix_of


def stranded_milli(frees: Iterable[NodeCapacity], typical: Typical) -> int:
    """Return the free devices (thousandths) on open nodes that the next request could not use, on average over
    `typical`; 0 where no typical requests are known.

    Source: the measure F of Weng et al., Beware of Fragmentation, ATC 2023.
    """
    counts = Counter(free for free in frees if not free.closed)
    table = StateTable()
    for free in counts:
        table.id_of(free)
    mix = mix_of(typical, table.kinds)
    if mix is None:
        return 0
    rows = len(table)
    lost = fragmentation.unusable(
        mix, table.host[:rows, 0], table.host[:rows, 1], table.devices[:rows], table.kind[:rows]
    )
    times = np.fromiter(counts.values(), np.int64, rows)
    return int((lost * times).sum() // 1000)
