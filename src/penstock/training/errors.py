"""Every error that `penstock.training` raises: one tree, each with a code that stays the same."""

from __future__ import annotations

from typing import Any, ClassVar, Self

STOPPED_BY_SIGTERM = 143
"""Exit status of a process that ended because of SIGTERM (128 + 15), as shells and schedulers write it."""


class TrainingError(Exception):
    """Root of the tree. `code` is stable and meant for programs; the message is meant for people."""

    code: ClassVar[str] = "training_error"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors are pickled between ranks, independent of the arguments of their constructors."""
        return self._copy, (self.args, dict(self.__dict__))

    @classmethod
    def _copy(cls, args: tuple[Any, ...], fields: dict[str, Any]) -> Self:
        error = cls.__new__(cls, *args)
        error.__dict__.update(fields)
        return error


class BadEnvironment(TrainingError):
    """A variable that the node agent sets holds something else than the contract says."""

    code = "bad_environment"


class BadArgument(TrainingError, ValueError):
    """An argument of the public interface is out of its range."""

    code = "bad_argument"


class NotMainThread(TrainingError):
    """Signal handlers can only be installed from the main thread of a Python process."""

    code = "not_main_thread"


class ResumeNotCalled(TrainingError):
    """The directory holds checkpoints, and training was about to start over beside them."""

    code = "resume_not_called"


class UnsavableValue(TrainingError, TypeError):
    """A value in the state has a type that no checkpoint can hold without pickle."""

    code = "unsavable_value"


class DamagedCheckpoint(TrainingError):
    """A checkpoint that must not be restored: torn, altered, incomplete or of an unknown format."""

    code = "damaged_checkpoint"

    def __init__(self, step: int, problem: str) -> None:
        super().__init__(f"checkpoint of step {step} is not valid: {problem}")
        self.step = step
        self.problem = problem


class FencedAttempt(TrainingError):
    """A newer attempt of this job owns the checkpoint directory; this process may change nothing in it."""

    code = "fenced_attempt"

    def __init__(self, *, mine: int, recorded: int) -> None:
        super().__init__(
            f"attempt {mine} may no longer write checkpoints: attempt {recorded} of this job has started "
            f"(expected no attempt above {mine}). End this process; the newer attempt carries on."
        )
        self.mine = mine
        self.recorded = recorded


class StateMoved(TrainingError):
    """Training went on while another thread saved its state; nothing was published."""

    code = "state_moved"

    def __init__(self, step: int) -> None:
        super().__init__(f"the state of step {step} changed while it was being saved; the checkpoint was given up")
        self.step = step


class DirectoryBusy(TrainingError):
    """Another process held the lock of the checkpoint directory for longer than any should."""

    code = "directory_busy"


class PartsMissing(TrainingError):
    """Not every rank delivered its part of a sharded checkpoint in time; nothing was published."""

    code = "parts_missing"


class WorldSizeMismatch(TrainingError):
    """A sharded checkpoint was written by another number of ranks than are running now."""

    code = "world_size_mismatch"


class RanksDisagree(TrainingError):
    """The ranks of one job are at different steps, so no common checkpoint exists."""

    code = "ranks_disagree"


class Preempted(SystemExit):
    """Leaves the process with status 143 after a stop was asked for and the state was saved.

    A subclass of SystemExit, so `except Exception` in a training loop cannot swallow it.
    `step` is the number of steps completed.
    """

    def __init__(self, step: int) -> None:
        super().__init__(STOPPED_BY_SIGTERM)
        self.step = step
