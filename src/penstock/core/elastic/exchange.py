"""Jobs change places between device models, so that together they get more done: chains of moves that gain.

Comparative advantage decides: the job that loses least on the slower model goes there. A chain closes a cycle between
models, or ends where there is room. When no chain gains any more, jobs of one shape are assigned in the best possible
way (cancelling cycles, Klein 1967), which needs no solver.
Heterogeneity-aware allocation X[job, model]: Narayanan et al., Gavel, OSDI 2020.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

Shape = Hashable
"""Jobs of one shape can take each other's places."""


class Candidate(msgspec.Struct, frozen=True):
    """A job that may be on another model than it is."""

    id: int
    shape: Shape
    held: str
    """Its present model; empty where it is on several."""
    values: Mapping[str, int]
    """What the job is worth on each model that it accepts, its present one included; any unit."""


class Move(NamedTuple):
    id: int
    model: str


Room = Callable[[Shape, str], bool]
"""Whether one more job of a shape has room on a model."""


class Exchange:
    """The models of some jobs, improved chain by chain."""

    def __init__(self, jobs: Iterable[Candidate], room: Room) -> None:
        self._jobs = {job.id: job for job in jobs}
        self._values = {job.id: dict(job.values) for job in self._jobs.values()}
        self.models = {job.id: job.held for job in self._jobs.values()}
        self._room = room

    def next(self) -> list[Move]:
        """Return moves that gain together; [] when there are none left. `made` or `refused` must follow."""
        for shape in sorted({job.shape for job in self._jobs.values()}, key=str):
            best: dict[tuple[str, str], tuple[int, int]] = {}
            for number in sorted(self._jobs):
                if self._jobs[number].shape != shape:
                    continue
                here, values = self.models[number], self._values[number]
                for there, worth in values.items():
                    gain = worth - values[here]
                    if there and there != here and gain > best.get((here, there), (gain - 1, 0))[0]:
                        best[here, there] = (gain, number)
            if not any(gain > 0 for gain, _ in best.values()):
                continue
            models = {there for _, there in best}
            chain = _gaining_chain(best, sorted(model for model in models if self._room(shape, model)))
            if chain:
                return [Move(best[step][1], step[1]) for step in chain]
        return []

    def made(self, moves: Iterable[Move], *, fixed: bool = False) -> None:
        """Note that these jobs have moved; `fixed`: and stay there."""
        for number, model in moves:
            self.models[number] = model
            if fixed:
                del self._jobs[number]

    def refused(self, moves: Sequence[Move]) -> None:
        """Note that these moves are not possible: the first of them is not proposed again."""
        self._values[moves[0].id].pop(moves[0].model)


def _gaining_chain(
    moves: Mapping[tuple[str, str], tuple[int, int]], open_models: Sequence[str]
) -> list[tuple[str, str]]:
    """Return moves of positive total gain that close a cycle, or end at a model with room; [] when there are none.

    Best simple walks of growing length from each model: exact for the handful of models that a pool has (compared with
    the linear program in the tests), a local optimum for more.
    """
    models = sorted({model for move in moves for model in move})
    for start in models:
        walks: dict[str, tuple[int, list[tuple[str, str]]]] = {start: (0, [])}
        for _ in models:
            longer = dict(walks)
            for (here, there), (gain, _) in sorted(moves.items()):
                if here not in walks or any(here == move[0] for move in walks[here][1]):
                    continue
                total, path = walks[here][0] + gain, [*walks[here][1], (here, there)]
                if there == start:
                    if total > 0:
                        return path
                elif all(there not in move for move in walks[here][1]) and total > longer.get(there, (total - 1,))[0]:
                    longer[there] = (total, path)
            walks = longer
        ends = [(walks[model][0], model) for model in open_models if model in walks and walks[model][0] > 0]
        if ends:
            return walks[max(ends)[1]][1]
    return []
