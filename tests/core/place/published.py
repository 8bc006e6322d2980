"""MIG placements as NVIDIA publishes them, and the cheapest layout by plain enumeration of all layouts there are.

Imports nothing of the planner: from `nvidia-smi mig -lgipp` and the tables "Supported MIG Profiles" of the user guide.
A layout is a set of bits, one for each place (profile and start) of the model.
"""

from collections import Counter
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

SEVEN = (
    7,
    8,
    (
        (1, 1, range(7)),
        (1, 1, range(7)),
        (1, 2, (0, 2, 4, 6)),
        (2, 2, (0, 2, 4)),
        (3, 4, (0, 4)),
        (4, 4, (0,)),
        (7, 8, (0,)),
    ),
)
"""Compute slices, memory slices, and of each profile: compute slices, memory slices, starts."""
FOUR = (4, 4, ((1, 1, range(4)), (1, 1, range(4)), (2, 2, (0, 2)), (2, 2, (0, 2)), (4, 4, (0,))))
PUBLISHED = {
    "A30 24GB": (FOUR, "1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb"),
    "A100 40GB": (SEVEN, "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
    "A100 80GB": (SEVEN, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
    "H100 80GB": (SEVEN, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
    "H200 141GB": (SEVEN, "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
    "B200 180GB": (SEVEN, "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
}
NONE = (np.iinfo(np.int64).max,)


class Published:
    """All layouts of one model."""

    def __init__(self, model):
        (self.compute, self.memory, rows), names = PUBLISHED[model]
        self.profiles = names.split()
        self.rows = dict(zip(self.profiles, rows, strict=True))
        self.places = [(name, start) for name in self.profiles for start in self.rows[name][2]]
        self.bit = {place: 1 << at for at, place in enumerate(self.places)}

    def is_legal(self, layout):
        """Say the published rules: places, no slice twice, compute slices, and the one set of `+me` engines."""
        layout = list(layout)
        if any(place not in self.bit for place in layout):
            return False
        slices = Counter(start + i for name, start in layout for i in range(self.rows[name][1]))
        whole = self.rows[self.profiles[-1]]
        media = sum(name.endswith("+me") or self.rows[name] == whole for name, _ in layout)
        return (
            max(slices.values(), default=1) == 1
            and max(slices, default=0) < self.memory
            and sum(self.rows[name][0] for name, _ in layout) <= self.compute
            and media <= 1
        )

    @cached_property
    def layouts(self):
        """Return all legal layouts as bits, with how many of each profile they have."""
        seen, todo = {0}, [()]
        while todo:
            layout = todo.pop()
            bits = self.bits(layout)
            for place in self.places:
                more = bits | self.bit[place]
                if more not in seen and self.is_legal((*layout, place)):
                    seen.add(more)
                    todo.append((*layout, place))
        bits = np.array(sorted(seen), dtype=np.int64)
        return bits, self.counts(bits)

    def bits(self, layout):
        return sum(self.bit[place] for place in layout)

    def counts(self, bits):
        of = [sum(self.bit[place] for place in self.places if place[0] == name) for name in self.profiles]
        return np.stack([np.bitwise_count(bits & mask) for mask in of], axis=-1).astype(np.int64)

    @cached_property
    def kinds(self):
        """Return how many profiles can be added to each layout."""
        known = set(self.layouts[0].tolist())
        of = {name: [bit for (n, _), bit in self.bit.items() if n == name] for name in self.profiles}
        return np.array([
            sum(any(not bits & b and bits | b in known for b in of[name]) for name in self.profiles)
            for bits in self.layouts[0].tolist()
        ])  # fmt: skip

    @lru_cache(maxsize=4096)  # noqa: B019
    def sets(self, bits):
        """Return how many different sets of profiles can be added to a layout."""
        every, counts = self.layouts
        return len(np.unique(counts[(every & bits) == bits], axis=0))

    def costs(self, used, idle):
        """Return for each layout that keeps what is used its (destroyed, made), its number and what it has to give."""
        every, counts = self.layouts
        at = np.flatnonzero((every & used) == used)
        gone = np.bitwise_count(idle & ~every[at]).astype(np.int64)
        made = np.bitwise_count(every[at] & ~(idle | used)).astype(np.int64)
        return at, gone, made, counts[at] - self.counts(np.int64(used))

    def cheapest(self, used, idle, wanted):
        """Return the least (destroyed, made, -kinds, -sets) of layouts that give `wanted`, or None."""
        at, gone, made, gives = self.costs(used, idle)
        fits = (gives >= wanted).all(axis=1)
        if not fits.any():
            return None
        cost = np.stack([gone, made, -self.kinds[at]])[:, fits]
        least = cost[:, np.lexsort(cost[::-1])[0]]
        ties = at[fits][(cost == least[:, None]).all(axis=0)]
        return (*least.tolist(), -max(self.sets(int(self.layouts[0][tie])) for tie in ties))

    def cheapest_of(self, devices, wanted):
        """Return the least (destroyed, made, touched) of several devices [(used, idle)] by trying every split."""
        tables = []
        for used, idle in devices:
            _, gone, made, gives = self.costs(used, idle)
            table = {}
            for share in product(*(range(n + 1) for n in wanted)):
                fits = (gives >= np.array(share)).all(axis=1)
                costs = [(g, m, int(g + m > 0)) for g, m in zip(gone[fits].tolist(), made[fits].tolist(), strict=True)]
                if costs:
                    table[share] = min(costs)
            tables.append(table)
        best = {(0,) * len(wanted): (0, 0, 0)}
        for table in tables:
            more = {}
            for (had, cost), (share, own) in product(best.items(), table.items()):
                total = tuple(a + b for a, b in zip(had, share, strict=True))
                if all(a <= b for a, b in zip(total, wanted, strict=True)):
                    summed = tuple(a + b for a, b in zip(cost, own, strict=True))
                    more[total] = min(more.get(total, summed), summed)
            best = more
        return best.get(tuple(wanted))
