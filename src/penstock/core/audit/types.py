"""Findings of an audit, as values that are printed or written as JSON."""

from typing import Literal

import msgspec

from penstock.core.model.ids import AttemptNumber, JobId, NodeName


class Check(msgspec.Struct, frozen=True):
    """One rule that a decision had to keep, with the numbers of that moment."""

    rule: str
    """Stable name: `free`, `maximum`, `priority`, `reclaim`, `guarantee`, `min_runtime`, `needed`, ..."""
    holds: bool
    text: str


class NodeScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """The strategy's score of a node; the lowest goes first."""

    node: NodeName
    score: int
    alike: int = 0
    """Other nodes with the same free capacity, and so the same score."""
    chosen: bool = False
    parts: str = ""
    """What the score is made of, where the strategy gives points."""


class Ruling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an audit of one decision."""

    seq: int
    """Of the record of the decision."""
    time_ms: int
    kind: Literal["start", "resume", "batch", "stop", "close", "shut"]
    """The last two are of nodes: closed for failures, or shut to a tenant for the claims of its jobs."""
    job_id: JobId
    """0 where it is about a node."""
    attempt: AttemptNumber
    text: str
    rule: str = ""
    """The strategy that chose the nodes, or the rule that gave the right to ask for the stop."""
    beneficiary: JobId | None = None
    """The job for which this one was asked to leave."""
    planned: bool = True
    """Whether a plan decided it; an exit, a user's request, a limit or another scheduler needs none."""
    basis: int = 0
    """The last record that the plan knew; 0 where the log does not name it."""
    decided_ms: int = 0
    digest: str = ""
    """SHA-256 of the state that the plan was made on: logs with the same digest had the same state there."""
    same: bool | None = None
    """Whether the same inputs give the same decision today; None where it was not planned, or has no basis."""
    instead: str = ""
    """The decision that they give instead."""
    version: str = ""
    """Of the program that decided."""
    checks: tuple[Check, ...] = ()
    scores: tuple[NodeScore, ...] = ()
    """The node of the first replica among others that would have held it, best first."""

    @property
    def lawful(self) -> bool:
        """Whether every rule was kept, and a planned decision comes out again; False if it cannot be made again."""
        return (self.same is True or not self.planned) and all(check.holds for check in self.checks)
