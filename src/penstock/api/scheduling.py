"""Answers of the API about scheduling: the last cycle, and what moving jobs would gain."""

import msgspec

from penstock.core.model.objectives import Scores, Weights


class Move(msgspec.Struct, frozen=True):
    """A job that would save and resume elsewhere, and what that costs."""

    job: int
    cost_device_ms: int


class Defrag(msgspec.Struct, frozen=True):
    """What moving jobs would gain: who would start, on which nodes, and who would move for it."""

    beneficiary: int
    nodes: list[str]
    moves: list[Move]


class DefragList(msgspec.Struct, frozen=True):
    switched_on: bool
    """Whether the scheduler does it automatically."""
    found: list[Defrag]


class CandidatePlan(msgspec.Struct, frozen=True):
    """A plan that was weighed: scores from 0 to 1000 (more is better) and their weighted sum, 0 to 1,000,000."""

    placement: str
    scores: Scores
    weighted: int
    chosen: bool
    on_front: bool
    """No other candidate is better at something and nowhere worse."""


class CycleView(msgspec.Struct, frozen=True):
    """What the last cycle decided."""

    seq: int
    """The last log record of its snapshot."""
    strategy: str
    """Its search effort, and why."""
    starts: int
    preemptions: int
    waiting: dict[str, int]
    """Waiting request classes, by reason code."""
    reserved: list[int]
    """Jobs with a reservation."""
    candidates: list[CandidatePlan]
    """The plans it chose from, if the cluster file names several placements."""
    problems: list[str]
    time_ms: int = 0
    """By which it decided."""
    weights: Weights | None = None
    """What each objective counts, where there was a choice."""
    dropped: int = 0
    """Decisions left out at the commit, as the state had moved on."""
    energy: str = ""
    """By what power the candidates were compared, or why not."""
