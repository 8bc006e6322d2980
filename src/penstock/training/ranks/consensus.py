"""Actions that can be due at a border between two steps, and how several ranks agree on one."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol


class BorderAction(enum.IntEnum):
    """Action at a border; of several, the highest."""

    NOTHING = 0
    BATCH = 1
    """Another batch is ordered: a session changes it by itself, and returns NOTHING."""
    INTERVAL = 2
    REQUEST = 3
    STOP = 4


REASONS = {
    BorderAction.NOTHING: "library",
    BorderAction.BATCH: "library",
    BorderAction.INTERVAL: "interval",
    BorderAction.REQUEST: "request",
    BorderAction.STOP: "preemption",
}
"""Reasons of saves in reports; without an action, the training library decided on the save."""


RELEASE_S = 0.02
"""How long a session that took part in collectives lets other threads run at its end.

A thread of Gloo needs the interpreter lock to let go of the last collective. A program that drops its model, or exits,
before that waits for this thread with the lock held, for ever, or is aborted.
"""


class Agrees(Protocol):
    """How several ranks come to one decision; `penstock.training.torch.Agreement` is one."""

    def decide(self, action: BorderAction, step: int) -> BorderAction:
        """Return the same wish on every rank."""
        ...

    def share(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the numbers of rank 0 on every rank. Without this method a batch never changes within an attempt."""
        ...

    def barrier(self) -> None:
        """Return when every rank has come here."""
        ...
