"""Shares of an amount that all callers use together: no caller may have more than is left for the others.

A caller alone gets half of it, two get a third each, and the next caller still finds some (dynamic thresholds,
Choudhury and Hahne 1998). Nothing is reserved for absent callers.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.model.errors import Problem


class Holding(NamedTuple):
    """A caller's part of it."""

    who: str
    """In the words of a message, such as `tenant 'vision'`."""
    own: int


class OverShare(NamedTuple):
    """The refusal of a claim: the claimant, its present amount, and how much others may still take."""

    who: str
    own: int
    left: int


def over_share(claims: Iterable[Holding], *, used: int, most: int, more: int = 1, factor: int = 1) -> OverShare | None:
    """Return the first of some claims that would be larger than what is left for others, or None.

    Args:
        claims: the amounts of the caller and of its groups; read only where little is left.
        used: by all callers together; `most`: the whole amount; `more`: how much is asked for.
        factor: a claim may be this many times the rest: with 2, a caller alone gets two thirds.
    """
    left = most - used - more
    if used + more <= factor * left:
        return None  # even a claim to all of the used amount would be small enough
    for claim in claims:
        if claim.own + more > factor * left:
            return OverShare(claim.who, claim.own, max(0, most - used))
    return None


class SharedAmount:
    """A shared amount, and how much of it each caller has at this moment."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._own: Counter[str] = Counter()

    def take(self, names: tuple[str, ...], amount: int) -> OverShare | None:
        """Take an amount for a caller and its groups; or return why not, and take nothing."""
        claims = (Holding(name, self._own[name]) for name in names)
        found = over_share(claims, used=self.used, most=self.most, more=amount)
        if found is None:
            self.used += amount
            self._own.update(dict.fromkeys(names, amount))
        return found

    def give_back(self, names: tuple[str, ...], amount: int) -> None:
        self.used -= amount
        for name in names:
            self._own[name] -= amount
            if not self._own[name]:
                del self._own[name]


def too_many(
    noun: str, name: str, user: str, *, own: int, own_most: int, used: int, most: int, hint: str, shares: bool
) -> Problem | None:
    """Return why a user may have no further one of something: the maximum is reached, or the rest is for others.

    Args:
        noun: what it is, in the plural and in lower case: part of the code and of the sentence.
        own, used: how many the user has, and all users together.
        shares: whether the user leaves room for others, as all but administrators do.
    """
    if own >= own_most:
        text = f"you have {own} {noun}, and no more than {own_most} may be"
        return Problem(f"too_many_{noun}", "name", text, name, hint)
    if used >= most:
        text = f"all users together have {used} {noun}, and no more may be"
        return Problem(f"too_many_{noun}", "name", text, name, "ask an administrator to remove some")
    if shares and (over := over_share([Holding(f"user {user}", own)], used=used, most=most)) is not None:
        text = f"{over.who} has {own} {noun}; the {over.left} that there may still be are for others"
        return Problem("share_used_up", "name", text, name, hint)
    return None
