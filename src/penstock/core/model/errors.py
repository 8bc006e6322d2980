"""One tree of errors and one shape of problem, used by every layer.

A refusal is a value (`Problem`), a fault is an exception (`PenstockError`), a broken promise is a `BrokenInvariant`
and stops the process.
"""

import difflib
from collections.abc import Iterable
from itertools import islice

import msgspec


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong with an input: the field, its value, and what was expected."""

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


PROBLEMS_MAX = 100
NEAREST_WORD_MAX = 64
"""Characters of a word that others are compared with."""
NEAREST_KNOWN_MAX = 1_000
"""Known words that it is compared with; with more there is no search, as one comparison takes some 10 us."""
LISTED_MAX = 12


class TooManyProblems(Exception):
    """Problems of one input after which reading stops."""


class Problems(list[Problem]):
    """Everything wrong with one input; one problem above `PROBLEMS_MAX` ends its reading (`TooManyProblems`)."""

    def append(self, problem: Problem) -> None:
        if len(self) >= PROBLEMS_MAX:
            raise TooManyProblems
        super().append(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.append(problem)

    def __iadd__(self, problems: Iterable[Problem]) -> "Problems":  # type: ignore[override,misc]
        self.extend(problems)
        return self

    def and_more(self) -> "list[Problem]":
        """Return the problems and a note that there are more."""
        return [*self, Problem("too_many_problems", "", f"only the first {PROBLEMS_MAX} problems are named")]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the closest known word, or the list of known ones when short, or ''."""
    names = list(islice(known, NEAREST_KNOWN_MAX + 1))
    if len(names) > NEAREST_KNOWN_MAX:
        return ""
    names.sort()
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6) if len(word) <= NEAREST_WORD_MAX else []
    if close:
        return f"did you mean '{close[0]}'?"
    if names and len(names) <= LISTED_MAX:
        return "known: " + ", ".join(names)
    return ""
