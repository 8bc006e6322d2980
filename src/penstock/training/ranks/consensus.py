"""What can be wanted at a border between two steps, and how several ranks come to want the same."""

from __future__ import annotations

import enum
from typing import Protocol


class BorderAction(enum.IntEnum):
    """What should happen at a border; of several, the highest."""

    NOTHING = 0
    INTERVAL = 1
    REQUEST = 2
    STOP = 3


REASONS = {
    BorderAction.NOTHING: "library",
    BorderAction.INTERVAL: "interval",
    BorderAction.REQUEST: "request",
    BorderAction.STOP: "preemption",
}
"""What reports call a save that was wished for; without a wish, the library that trains decided on it."""


class Agrees(Protocol):
    """How several ranks come to one decision; `penstock.training.torch.Agreement` is one."""

    def decide(self, action: BorderAction, step: int) -> BorderAction:
        """Return the same wish on every rank."""
        ...

    def barrier(self) -> None:
        """Return when every rank has come here."""
        ...
