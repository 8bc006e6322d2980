"""What plans are compared by: objectives, their weights, and scores."""

from typing import Literal, get_args

import msgspec

FULL_MILLI = 1000


Objective = Literal["utilisation", "response_time", "fairness", "energy", "cost"]


OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


class Weights(msgspec.Struct, frozen=True):
    """What each objective counts, in thousandths. Raises ValueError unless they are 0 or more and sum to 1000."""

    utilisation: int = 300
    response_time: int = 250
    fairness: int = 200
    energy: int = 150
    cost: int = 100

    def __post_init__(self) -> None:
        parts = _parts(self)
        for name, value in zip(OBJECTIVES, parts, strict=True):
            if value < 0:
                raise ValueError(f"the weight of {name} is {value}; expected 0 to {FULL_MILLI}")
        if sum(parts) != FULL_MILLI:
            listed = " + ".join(map(str, parts))
            off = sum(parts) - FULL_MILLI
            raise ValueError(
                f"the weights of {', '.join(OBJECTIVES)} sum to {listed} = {sum(parts)}; expected {FULL_MILLI}: "
                f"{'take away' if off > 0 else 'add'} {abs(off)}"
            )


class Scores(msgspec.Struct, frozen=True):
    """How good a plan is at each objective, 0 to 1000. Raises ValueError for a value out of range."""

    utilisation: int
    response_time: int
    fairness: int
    energy: int
    cost: int

    def __post_init__(self) -> None:
        for name, value in zip(OBJECTIVES, _parts(self), strict=True):
            if not 0 <= value <= FULL_MILLI:
                raise ValueError(f"the score of {name} is {value}; expected 0 to {FULL_MILLI}")

    def dominates(self, other: "Scores") -> bool:
        """Return whether this is at least as good as `other` at everything and better at something."""
        return self != other and all(mine >= its for mine, its in zip(_parts(self), _parts(other), strict=True))

    def weighted(self, weights: Weights) -> int:
        """Return the weighted sum, 0 to 1,000,000."""
        return sum(score * weight for score, weight in zip(_parts(self), _parts(weights), strict=True))


def _parts(values: Weights | Scores) -> tuple[int, ...]:
    return (values.utilisation, values.response_time, values.fairness, values.energy, values.cost)


class Candidate(msgspec.Struct, frozen=True):
    """One plan to choose from. `index` is its name here: unique, and equal plans fall to the lower one."""

    index: int
    scores: Scores


class Point(msgspec.Struct, frozen=True):
    """A candidate as judged."""

    index: int
    scores: Scores
    weighted: int
    """Weighted sum of its scores, 0 to 1,000,000."""
    dominated_by: int | None
    """Index of the best point of the front that dominates it; None when it is on the front itself."""


class Front(msgspec.Struct, frozen=True):
    """The judged candidates in order of their index, and which of them was chosen."""

    points: tuple[Point, ...]
    chosen: int
    weights: Weights
    energy: str = ""
    """What the power of devices is known by, or why plans were not told apart by it."""

    @property
    def kept(self) -> tuple[Point, ...]:
        """The Pareto front: the points that nothing dominates."""
        return tuple(p for p in self.points if p.dominated_by is None)

    @property
    def dominated_by(self) -> dict[int, int]:
        """Index of each dropped point, mapped to the index of a kept point that dominates it."""
        return {p.index: p.dominated_by for p in self.points if p.dominated_by is not None}
