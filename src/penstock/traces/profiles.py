"""Measured behaviour of the applications of the Pollux workloads: steps to the end of training, seconds a step.

Formulas: Qiao et al., OSDI 2021, sections 2 and 3; the published simulator's rules (adaptdl, branch osdi21-artifact).
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from penstock.core.model.batching import BatchChoice
from penstock.formats.numbers import number
from penstock.traces.errors import TraceError
from penstock.traces.loaders.table import Row, TextTable

NODE_DEVICES = 4
REPLICAS_TRIED = (*range(1, 17), 24, 32, 48, 64)
"""Sizes whose consolidated placement was measured."""
LOCAL_MAX = {"yolov3": 8}
"""Largest batch of one device where it is not the largest measured one, as in the published simulator."""
FILES_MAX = 64
AMOUNT_MAX = 1e30

Times = list[tuple[int, float, float]]
"""Batch of one device, seconds of a step, and of these the seconds of synchronising."""
Placement = tuple[int, ...]
"""Replicas on each node, in the order of ranks: neighbours in it are neighbours on the ring."""
Shape = tuple[int, int]
"""Nodes and replicas."""


class ProfiledRun(msgspec.Struct, frozen=True):
    """A measured training at one global batch size, by epoch: progress so far, gradient norm and variance."""

    progress: tuple[float, ...]
    sqr: tuple[float, ...]
    var: tuple[float, ...]


class TraceProfile:
    """One application's measurements."""

    def __init__(
        self,
        name: str,
        runs: dict[int, ProfiledRun],
        times: dict[Shape, Times],
        placed: dict[Placement, Times] | None = None,
    ) -> None:
        """Take runs by global batch size, and step times on consolidated nodes and by placement, sorted by batch."""
        self.name, self._runs, self._times = name, runs, times
        self._placed = placed or {}
        self._sizes = sorted(runs)
        every = [*times.values(), *self._placed.values()]
        self._local = (min(found[0][0] for found in every), max(found[-1][0] for found in every))
        self.shapes = _means(self._placed, times)
        self._epochs = min(len(run.progress) for run in runs.values())
        self._goals = [min(run.progress[epoch] for run in runs.values()) for epoch in range(self._epochs)]
        self.step_times = cache(self._step_times)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceProfile) and self._measured() == other._measured()

    def __hash__(self) -> int:
        return hash((self.name, *self._sizes))

    def _measured(self) -> tuple[object, ...]:
        return self.name, self._runs, self._times, self._placed

    @property
    def batches(self) -> tuple[int, int]:
        """Smallest and largest global batch size."""
        return self._sizes[0], self._sizes[-1]

    @property
    def local_batches(self) -> tuple[int, int]:
        """Smallest and largest batch of one device."""
        return self._local[0], LOCAL_MAX.get(self.name, self._local[1])

    def efforts(self, batch: int) -> list[float]:
        """Return how many steps each epoch takes at this global batch size, within `batches`.

        An epoch ends at the progress of the slowest measured run.
        """
        found, before = [], 0.0
        for epoch, goal in enumerate(self._goals):
            found.append(max(0.0, goal - before) / self.gain(batch, epoch))
            before = goal
        return found

    def steps(self, batch: int) -> float:
        """Return how many steps the whole training takes at this global batch size, within `batches`."""
        return sum(self.efforts(batch))

    def noise(self, batch: int, epoch: int) -> tuple[float, float]:
        """Return the squared norm of the gradient and its variance at the smallest batch, when trained at `batch`."""
        batch = min(max(batch, self._sizes[0]), self._sizes[-1])
        at = bisect_left(self._sizes, batch)
        high = self._sizes[at]
        low = high if high == batch else self._sizes[at - 1]
        share = 0.0 if low == high else (batch - low) / (high - low)
        one, two = self._runs[low], self._runs[high]
        return (
            (1 - share) * one.sqr[epoch] + share * two.sqr[epoch],
            (1 - share) * one.var[epoch] + share * two.var[epoch],
        )

    def gain(self, batch: int, epoch: int) -> float:
        """Return progress a step against one at the smallest batch: the statistical efficiency, times the scale."""
        sqr, var = self.noise(batch, epoch)
        return (var + sqr) / (var * self._sizes[0] / batch + sqr)

    def split(self, replicas: int, batch: int) -> BatchChoice:
        """Return a global batch size as one replica takes it, in no more passes than its device's memory asks for.

        One replica above the smallest batch takes two passes: one gradient alone shows no noise.
        """
        most = self.local_batches[1]
        times = self._times.get((-(-replicas // NODE_DEVICES), replicas))
        if times is not None:
            most = min(most, times[-1][0])
        each = -(-batch // replicas)
        extra = -(-each // most) - 1
        if replicas == 1 and batch > self._sizes[0]:
            extra = max(1, extra)
        local = min(-(-each // (extra + 1)), max(batch, self._sizes[-1]) // (replicas * (extra + 1)))
        return BatchChoice(max(1, local), extra)

    def step_s(self, replicas: int, batch: int) -> float | None:
        """Return the seconds of a step at this global batch on consolidated nodes; None where nothing was measured."""
        times = self._times.get((-(-replicas // NODE_DEVICES), replicas))
        if times is None:
            return None
        split = self.split(replicas, batch)
        if split.local < times[0][0]:
            return None
        step, sync = _between(times, split.local)
        return step + (step - sync) * split.accumulation

    def _step_times(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        """Return (step, sync) seconds of a pass with synchronisation, anywhere: measured, or between measured shapes.

        A node with more than four replicas counts as several.
        """
        parts = tuple(part for count in placement for part in _in_fours(count))
        times = self._placed.get(first_on_ring(parts))
        if times is not None:
            return _between(times, local_batch)
        return self._of_shape(len(parts), sum(parts), local_batch)

    def _of_shape(self, nodes: int, replicas: int, local_batch: int) -> tuple[float, float]:
        """Return times straight between those of the next fewer and more nodes, each as full as these are."""
        known = self.shapes
        if (nodes, replicas) in known:
            return _between(known[nodes, replicas], local_batch)
        counts = sorted({count for count, _ in known})
        below = max((count for count in counts if count <= nodes), default=counts[0])
        above = min((count for count in counts if count >= nodes), default=counts[-1])
        full = (replicas - nodes) / nodes  # beyond one a node
        one = self._on_nodes(below, below * (1 + full), local_batch)
        if below == above:
            return one
        two = self._on_nodes(above, above * (1 + full), local_batch)
        share = (nodes - below) / (above - below)
        return one[0] + share * (two[0] - one[0]), one[1] + share * (two[1] - one[1])

    def _on_nodes(self, nodes: int, replicas: float, local_batch: int) -> tuple[float, float]:
        sizes = sorted(size for count, size in self.shapes if count == nodes)
        below = max((size for size in sizes if size <= replicas), default=sizes[0])
        above = min((size for size in sizes if size >= replicas), default=sizes[-1])
        one = _between(self.shapes[nodes, below], local_batch)
        if below == above:
            return one
        two = _between(self.shapes[nodes, above], local_batch)
        share = (replicas - below) / (above - below)
        return one[0] + share * (two[0] - one[0]), one[1] + share * (two[1] - one[1])


def consolidated(replicas: int) -> Placement:
    """Return whole nodes and a remainder, as they were measured."""
    whole, rest = divmod(replicas, NODE_DEVICES)
    return ((rest,) if rest else ()) + (NODE_DEVICES,) * whole


def _in_fours(count: int) -> list[int]:
    whole, rest = divmod(count, NODE_DEVICES)
    return [NODE_DEVICES] * whole + ([rest] if rest else [])


def _means(placed: dict[Placement, Times], times: dict[Shape, Times]) -> dict[Shape, Times]:
    """Return step times by shape: means over its placements where there are any, else as on consolidated nodes."""
    gathered: dict[Shape, dict[int, list[tuple[float, float]]]] = {}
    for placement, found in sorted(placed.items()):
        by_batch = gathered.setdefault((len(placement), sum(placement)), {})
        for batch, step, sync in found:
            by_batch.setdefault(batch, []).append((step, sync))
    means = {shape: [_mean(batch, some) for batch, some in sorted(one.items())] for shape, one in gathered.items()}
    return {**times, **means}


def _mean(batch: int, some: Sequence[tuple[float, float]]) -> tuple[int, float, float]:
    return batch, sum(step for step, _ in some) / len(some), sum(sync for _, sync in some) / len(some)


def _between(times: Times, batch: int) -> tuple[float, float]:
    """Return (step, sync) seconds at a batch of one device, straight between the measured ones, and on beyond them.

    Below the smallest it takes as long as that one: a device is not used better by less.
    """
    at = bisect_left(times, batch, key=lambda one: one[0])
    if at < len(times) and (times[at][0] == batch or at == 0):
        return times[at][1], times[at][2]
    if len(times) == 1:
        return times[0][1] * batch / times[0][0], times[0][2]
    at = min(at, len(times) - 1)
    before, after = times[at - 1], times[at]
    share = (batch - before[0]) / (after[0] - before[0])
    return before[1] + share * (after[1] - before[1]), before[2] + share * (after[2] - before[2])


def read_profile(folder: Path) -> TraceProfile:
    """Return the profile in a folder: `placements.csv`, `scalability.csv`, `validation-BATCH.csv`, plain or .gz.

    Raises: TraceError.
    """
    try:
        files = sorted(folder.iterdir())[:FILES_MAX]
    except OSError as problem:
        said = problem.strerror or "no folder"
        raise TraceError(str(folder), found=said, expected="the folder of an application's profile") from None
    by_name = {file.name.removesuffix(".gz").removesuffix(".csv"): file for file in files}
    runs = {}
    for name, file in by_name.items():
        size = name.removeprefix("validation-")
        if size != name and size.isdigit() and size.isascii() and 0 < len(size) < 10 and int(size):
            runs[int(size)] = _run(file)
    if not runs or "placements" not in by_name:
        found = ", ".join(by_name) or "nothing"
        raise TraceError(str(folder), found=found, expected="placements.csv and validation-BATCH.csv")
    placed = _placements(by_name["placements"])
    times = {(len(counts), sum(counts)): found for counts, found in placed.items() if _is_consolidated(counts)}
    if "scalability" in by_name:
        for shape, found_times in _scalability(by_name["scalability"]).items():
            times.setdefault(shape, found_times)
    return TraceProfile(folder.name, runs, times, placed)


def _run(file: Path) -> ProfiledRun:
    table = TextTable(file)
    columns = table.columns("progress", "grad_sqr", "grad_var")
    found = [[_amount(table, row, at) for at in columns] for row in table.rows()]
    if not found or any(sqr + var <= 0 for _, sqr, var in found):
        raise table.fault("", "none, or only zeros", "epochs with gradient statistics above 0")
    progress, sqr, var = zip(*found, strict=True)
    return ProfiledRun(progress, sqr, var)


def _placements(file: Path) -> dict[Placement, Times]:
    """Return times by placement, such as (3,), (4, 4) or (1, 2, 2): of its rotations the least."""
    table = TextTable(file)
    placement, *columns = table.columns("placement", "local_bsz", "step_time", "sync_time")
    found: dict[Placement, Times] = {}
    for row in table.rows():
        digits = row[placement]
        if not (digits.isdigit() and digits.isascii() and len(digits) <= 64):
            raise table.wrong(row, placement, "devices of each node as digits, such as 44")
        counts = tuple(map(int, digits))
        if min(counts) > 0 and max(counts) <= NODE_DEVICES:
            found.setdefault(first_on_ring(counts), []).append(_times(table, row, columns))
    if not any(_is_consolidated(counts) for counts in found):
        raise table.fault("placement", "none", "at least one consolidated placement")
    return {counts: _sorted(times) for counts, times in found.items()}


def first_on_ring(counts: Placement) -> Placement:
    """Return the least rotation: on a ring it does not matter where a placement begins."""
    return min(counts[at:] + counts[:at] for at in range(len(counts)))


def _is_consolidated(counts: Placement) -> bool:
    """Return whether these are whole nodes and a remainder, such as (3,), (4, 4) or (2, 4, 4)."""
    return counts[1:] == (NODE_DEVICES,) * (len(counts) - 1)


def _scalability(file: Path) -> dict[tuple[int, int], Times]:
    table = TextTable(file)
    nodes, replicas, *columns = table.columns("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    found: dict[tuple[int, int], Times] = {}
    for row in table.rows():
        shape = (table.whole(row, nodes, low=1, high=10_000), table.whole(row, replicas, low=1, high=10_000))
        found.setdefault(shape, []).append(_times(table, row, columns))
    return {shape: _sorted(times) for shape, times in found.items()}


def _times(table: TextTable, row: Row, columns: Sequence[int]) -> tuple[int, float, float]:
    batch, step, sync = columns
    return (
        table.whole(row, batch, low=1, high=10**9),
        _amount(table, row, step, above=0.0),
        _amount(table, row, sync),
    )


def _sorted(times: Times) -> Times:
    """Return one entry a batch, ascending; of several with one batch the first."""
    by_batch: dict[int, tuple[int, float, float]] = {}
    for one in times:
        by_batch.setdefault(one[0], one)
    return [by_batch[batch] for batch in sorted(by_batch)]


def _amount(table: TextTable, row: Row, at: int, above: float = -1.0) -> float:
    try:
        value = number(row[at])
    except ValueError:
        value = -1.0
    if not max(above, 0.0) <= value <= AMOUNT_MAX or value <= above:
        raise table.wrong(row, at, "a number " + ("above 0" if above >= 0 else "from 0"))
    return value
