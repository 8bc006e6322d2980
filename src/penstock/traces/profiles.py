"""Measured behaviour of the applications of the Pollux workloads: steps to the end of training, seconds a step.

Formulas: Qiao et al., OSDI 2021, sections 2 and 3; the published simulator's rules (adaptdl, branch osdi21-artifact).
Only consolidated placements are used: whole nodes of four devices and a remainder.
"""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import msgspec

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


class ProfiledRun(msgspec.Struct, frozen=True):
    """A measured training at one global batch size, by epoch: progress so far, gradient norm and variance."""

    progress: tuple[float, ...]
    sqr: tuple[float, ...]
    var: tuple[float, ...]


class TraceProfile:
    """One application's measurements."""

    def __init__(self, name: str, runs: dict[int, ProfiledRun], times: dict[tuple[int, int], Times]) -> None:
        """Take runs by global batch size, and step times by (nodes, replicas), each sorted by batch."""
        self.name, self._runs, self._times = name, runs, times
        self._sizes = sorted(runs)
        self._local_max = LOCAL_MAX.get(name, max(times_of[-1][0] for times_of in times.values()))

    @property
    def batches(self) -> tuple[int, int]:
        """Smallest and largest global batch size."""
        return self._sizes[0], self._sizes[-1]

    def steps(self, batch: int) -> float:
        """Return how many steps the whole training takes at this global batch size, within `batches`."""
        epochs = min(len(run.progress) for run in self._runs.values())
        total = before = 0.0
        for epoch in range(epochs):
            goal = min(run.progress[epoch] for run in self._runs.values())
            total += max(0.0, goal - before) / self._gain(batch, epoch)
            before = goal
        return total

    def _gain(self, batch: int, epoch: int) -> float:
        """Return progress a step against one at the smallest batch: the statistical efficiency, times the scale."""
        at = bisect_left(self._sizes, batch)
        high = self._sizes[at]
        low = high if high == batch else self._sizes[at - 1]
        share = 0.0 if low == high else (batch - low) / (high - low)
        one, two = self._runs[low], self._runs[high]
        sqr = (1 - share) * one.sqr[epoch] + share * two.sqr[epoch]
        var = (1 - share) * one.var[epoch] + share * two.var[epoch]
        return (var + sqr) / (var * self._sizes[0] / batch + sqr)

    def step_s(self, replicas: int, batch: int) -> float | None:
        """Return the seconds of a step at this global batch on consolidated nodes; None where nothing was measured."""
        times = self._times.get((-(-replicas // NODE_DEVICES), replicas))
        if times is None:
            return None
        each = -(-batch // replicas)
        extra = -(-each // min(self._local_max, times[-1][0])) - 1
        if replicas == 1 and batch > self._sizes[0]:
            extra = max(1, extra)
        local = -(-each // (extra + 1))
        if local < times[0][0]:
            return None
        step, sync = _between(times, local)
        return step + (step - sync) * extra


def _between(times: Times, batch: int) -> tuple[float, float]:
    """Return (step, sync) seconds at a batch of one device, straight between the measured ones."""
    at = bisect_left(times, batch, key=lambda one: one[0])
    after = times[at]
    if after[0] == batch or at == 0:
        return after[1], after[2]
    before = times[at - 1]
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
    times = _placements(by_name["placements"])
    if "scalability" in by_name:
        for shape, found_times in _scalability(by_name["scalability"]).items():
            times.setdefault(shape, found_times)
    return TraceProfile(folder.name, runs, times)


def _run(file: Path) -> ProfiledRun:
    table = TextTable(file)
    columns = table.columns("progress", "grad_sqr", "grad_var")
    found = [[_amount(table, row, at) for at in columns] for row in table.rows()]
    if not found or any(sqr + var <= 0 for _, sqr, var in found):
        raise table.fault("", "none, or only zeros", "epochs with gradient statistics above 0")
    progress, sqr, var = zip(*found, strict=True)
    return ProfiledRun(progress, sqr, var)


def _placements(file: Path) -> dict[tuple[int, int], Times]:
    """Return times by (nodes, replicas) of the consolidated placements, such as 3, 44 or 244."""
    table = TextTable(file)
    placement, *columns = table.columns("placement", "local_bsz", "step_time", "sync_time")
    found: dict[tuple[int, int], Times] = {}
    for row in table.rows():
        digits = row[placement]
        if not (digits.isdigit() and digits.isascii() and len(digits) <= 64):
            raise table.wrong(row, placement, "devices of each node as digits, such as 44")
        counts = sorted(map(int, digits))
        if counts[1:] != [NODE_DEVICES] * (len(counts) - 1) or not 0 < counts[0] <= NODE_DEVICES:
            continue
        found.setdefault((len(counts), sum(counts)), []).append(_times(table, row, columns))
    if not found:
        raise table.fault("placement", "none", "at least one consolidated placement")
    return {shape: _sorted(times) for shape, times in found.items()}


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
