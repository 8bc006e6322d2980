"""One tree of errors and one shape of problem, used by every layer.

A refusal is a value (`Problem`), a fault is an exception (`PenstockError`), a broken promise is a `BrokenInvariant`
and stops the process.
"""

import difflib
from collections.abc import Iterable

import msgspec


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong with an input: which field, what was found, what was expected."""

    code: str
    """Stable reason code, such as `unknown_field`."""
    field: str
    """Path of the field, such as `jobs[2].devices.count`; empty for the input as a whole."""
    message: str
    """One sentence for people; names field, value and what was expected."""
    value: str = ""
    hint: str = ""
    """The next step, or the nearest right word."""


class PenstockError(Exception):
    """Base of all errors; `code` is stable, `problems` lists everything that was wrong."""

    code = "error"

    def __init__(self, message: str, *, hint: str = "", problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.problems = tuple(problems)


class BrokenInvariant(PenstockError):
    """A promise of the system does not hold. Never caught but to stop the process."""

    code = "broken_invariant"


class InvalidInput(PenstockError):
    code = "invalid_input"


class StoreError(PenstockError):
    """The log could not be written; nothing of the batch was kept."""

    code = "store_unavailable"


class StoreFull(StoreError):
    code = "store_full"


class StaleEpoch(StoreError):
    """Another controller has taken over: this one must stop at once."""

    code = "stale_epoch"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the closest known word, or the list of known ones when short, or ''."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    if names and len(names) <= 12:
        return "known: " + ", ".join(names)
    return ""
