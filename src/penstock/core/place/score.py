"""Placement strategies: scores of nodes for some replicas, as integers; the lowest is best.

A score looks at the state of a node and never at its name, so that renaming or reordering nodes changes nothing.
Scores are computed for many states at once; fit is judged by columns first, and exactly when a state is chosen.
"""

from collections.abc import Sequence

import numpy as np

from penstock.core.model.cluster import PlacementPolicy
from penstock.core.model.resources import RESOURCE_FIELDS, WHOLE_DEVICE_MILLI
from penstock.core.place import fragmentation, host_load
from penstock.core.place.capacity import NodeCapacity
from penstock.core.place.fit import Need, Picked, closed_refusal, put_on
from penstock.core.place.instances import repartitions
from penstock.core.place.state_table import Ints, StateTable, whole_free

NO_FIT = int(np.iinfo(np.int64).max)
PREFERENCE_STEP = 1 << 52
"""Cost of one step down in the order of preferred models: more than any difference of scores."""
STRANDED_STEP = 1 << 50
AHEAD_STEP = 1 << 24
"""Weight of one re-partition against devices to cut up, or the other way round."""

Speeds = tuple[tuple[str, int, int], ...]


class Scorer:
    """Scores states for `count` replicas of one need, all on one node, by one strategy."""

    def __init__(
        self, need: Need, count: int, strategy: PlacementPolicy, mix: fragmentation.Mix | None, speeds: Speeds
    ) -> None:
        self._need, self._count, self._mix = need, count, mix
        by_host = strategy == "host_load" and need.each.devices is None
        self._strategy = "fragmentation" if strategy == "host_load" and not by_host else strategy
        self._speeds = speeds
        host = need.each.host
        self._host = np.array([getattr(host, field) * count for field in RESOURCE_FIELDS], np.int64)
        self._ask = need.each.devices
        self._preferences: list[int | None] = []
        """Per kind of node: how far down in the order of models it is, None when no device of it is accepted."""
        self._fragmentation_ask: fragmentation.Ask | None = None

    def batch(self, table: StateTable, ids: Sequence[int]) -> list[int]:
        """Return the score of each state, `NO_FIT` where the replicas cannot fit."""
        if self._ask is not None and self._ask.profile:
            return [self._of_profile(table, i) for i in ids]
        rows = np.fromiter(ids, np.int64, len(ids))
        self._learn_kinds(table)
        host, devices, kind = table.host[rows], table.devices[rows], table.kind[rows]
        fits = (host >= self._host).all(axis=1) & self._admitted(table, ids)
        if self._ask is not None:
            fits &= self._devices_fit(devices, kind)
        score = np.full(len(ids), NO_FIT, np.int64)
        if fits.any():
            where = np.flatnonzero(fits)
            score[where] = self._scores(table, rows[where], host[where], devices[where], kind[where])
        found: list[int] = score.tolist()
        return found

    def _admitted(self, table: StateTable, ids: Sequence[int]) -> np.ndarray:
        need, frees = self._need, table.frees
        return np.fromiter((not closed_refusal(need, frees[i]) for i in ids), np.bool_, len(ids))

    def _devices_fit(self, devices: Ints, kind: Ints) -> np.ndarray:
        assert self._ask is not None
        accepted = np.array([p is not None for p in self._preferences] + [False])  # the last for kind -1: no devices
        if self._ask.whole:
            enough = whole_free(devices) >= self._ask.count * self._count
        else:
            enough = (np.maximum(devices, 0) // self._ask.share_milli).sum(axis=1) >= self._count
        return np.asarray(accepted[kind] & enough)

    def _learn_kinds(self, table: StateTable) -> None:
        for shape in table.kinds[len(self._preferences) :]:
            ask = self._ask
            models = [d.model for d in shape.devices if ask is not None and ask.accepts(d) is None]
            self._preferences.append(min(map(self._preference, models), default=None))
            self._fragmentation_ask = None

    def _preference(self, model: str) -> int:
        """Return the place of a model in the order of throughput per cost, or in the order the job names."""
        ask = self._ask
        if ask is None or len(ask.models) < 2:
            return 0
        value = {name: speed * 1000 // max(1, cost) for name, speed, cost in self._speeds}
        if not any(name in value for name in ask.models):
            return ask.models.index(model)
        ranked = sorted(ask.models, key=lambda name: (-value.get(name, 0), ask.models.index(name)))
        return ranked.index(model)

    def _scores(self, table: StateTable, rows: Ints, host: Ints, devices: Ints, kind: Ints) -> Ints:
        if self._strategy == "fragmentation" and self._mix is not None:
            score = self._by_fragmentation(table, host, devices, kind)
        elif self._strategy == "host_load":
            score = self._by_host(table, rows, host, devices)
        elif self._strategy in ("best_fit", "fragmentation"):
            score = self._left(table, rows, host, devices)
        elif self._strategy == "worst_fit":
            score = -self._left(table, rows, host, devices)
        elif self._strategy == "dot_product":
            score = -self._aligned(table, rows, host, devices)
        else:
            score = np.zeros(len(rows), np.int64)
        if self._ask is not None and len(self._ask.models) > 1:
            score = score + PREFERENCE_STEP * np.array([p or 0 for p in self._preferences], np.int64)[kind]
        return np.asarray(score, np.int64)

    def _by_host(self, table: StateTable, rows: Ints, host: Ints, devices: Ints) -> Ints:
        """Return the points missing after placing; devices that would be stranded weigh more than all points."""
        loads = np.array([table.frees[row].load or host_load.UNKNOWN for row in rows], np.int64)
        points: Ints = host_load.points(table.capacity[rows], host - self._host, loads).sum(axis=1)
        stranded: Ints = STRANDED_STEP // WHOLE_DEVICE_MILLI * np.maximum(devices, 0).sum(axis=1)
        return host_load.MOST - points + stranded

    def _by_fragmentation(self, table: StateTable, host: Ints, devices: Ints, kind: Ints) -> Ints:
        assert self._mix is not None
        if self._fragmentation_ask is None:
            self._fragmentation_ask = self._ask_of_kinds(table)
        score, _ = fragmentation.scores(self._mix, self._fragmentation_ask, host[:, 0], host[:, 1], devices, kind)
        # It fits here by the columns; the rule may not know fractions of several replicas: then it goes last.
        return np.where(score == NO_FIT, STRANDED_STEP, score)

    def _ask_of_kinds(self, table: StateTable) -> fragmentation.Ask:
        ask, count = self._ask, self._count
        wholes = ask.count * count if ask is not None and ask.whole else (1 if ask is not None else 0)
        return fragmentation.Ask(
            cpu_milli=int(self._host[0]),
            memory_bytes=int(self._host[1]),
            count=wholes,
            share_milli=ask.share_milli if ask is not None else WHOLE_DEVICE_MILLI,
            kinds=tuple(p is not None for p in self._preferences) if ask is not None else None,
        )

    def _left(self, table: StateTable, rows: Ints, host: Ints, devices: Ints) -> Ints:
        """Return the capacity left after placing, summed over resources as thousandths of the node's capacity.

        Devices that a request without devices would strand weigh more than all of that.
        Source: best fit, Johnson et al. 1974, over several dimensions by normalised sum.
        """
        capacity = table.capacity[rows]
        share = np.where(capacity > 0, 1000 * (host - self._host) // np.maximum(capacity, 1), 0)
        left: Ints = share.sum(axis=1)
        free_milli = np.maximum(devices, 0).sum(axis=1)
        after = free_milli - (self._ask.milli * self._count if self._ask is not None else 0)
        left += after // np.maximum(table.device_count[rows], 1)
        if self._ask is None:
            left += STRANDED_STEP // WHOLE_DEVICE_MILLI * free_milli
        return left

    def _aligned(self, table: StateTable, rows: Ints, host: Ints, devices: Ints) -> Ints:
        """Return the dot product of demand and free capacity, both as thousandths of the node's capacity.

        Source: Tetris, Grandl et al., SIGCOMM'14.
        """
        capacity = np.maximum(table.capacity[rows], 1)
        aligned: Ints = ((1000 * self._host // capacity) * (1000 * host // capacity)).sum(axis=1)
        count = np.maximum(table.device_count[rows], 1)
        wanted = (self._ask.milli * self._count if self._ask is not None else 0) // count
        return np.asarray(aligned + wanted * (np.maximum(devices, 0).sum(axis=1) // count), np.int64)

    def _of_profile(self, table: StateTable, state: int) -> int:
        """A MIG profile goes where fewest devices have to be cut up, then where fewest are left whole.

        Re-partitions count last, and first where the pool divides devices ahead of demand (`place.instances`).
        """
        free = table.frees[state]
        placed = put_on(self._need, free, self._count)
        if placed is None:
            return NO_FIT
        after, picked = placed
        cut = 1_000 * (len(free.whole) - len(after.whole)) + len(after.whole)
        steps = _repartitions(self._need, free, picked) if free.present else self._count
        return steps * AHEAD_STEP + cut if free.shape.sharing.mig_strategy != "none" else cut * AHEAD_STEP + steps


def _repartitions(need: Need, free: NodeCapacity, picked: Sequence[Picked]) -> int:
    """Return how many MIG instances are destroyed or made for replicas that are put on a node one by one."""
    assert need.each.devices is not None
    profile, steps = need.each.devices.profile, 0
    for devices, slots in picked:
        steps += sum(repartitions(free, index, profile, start) for index, start in zip(devices, slots, strict=True))
        free = free.take(need.each, devices, slots)
    return steps
