"""Shares of what all callers use together: nobody may have more than is left for the others.

A caller alone gets half of it, two get a third each, and whoever comes next still finds some (dynamic thresholds,
Choudhury and Hahne 1998). Nothing is reserved for callers who do not come.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Holding(NamedTuple):
    """A caller's part of it."""

    who: str
    """In the words of a message, such as `tenant 'vision'`."""
    own: int


class OverShare(NamedTuple):
    """Why no more is given: who has how much of it, and how much others may still take."""

    who: str
    own: int
    left: int


def over_share(claims: Iterable[Holding], *, used: int, most: int, more: int = 1, factor: int = 1) -> OverShare | None:
    """Return the first of some claims that would be larger than what is left for others, or None.

    Args:
        claims: what the caller has, and the groups that it belongs to; looked at only where it gets narrow.
        used: by everybody together; `most`: what there is; `more`: how much is asked for.
        factor: how many times what is left a claim may be: with 2, one alone gets two thirds.
    """
    left = most - used - more
    if used + more <= factor * left:
        return None  # not even a claim to all that is used would be too large
    for claim in claims:
        if claim.own + more > factor * left:
            return OverShare(claim.who, claim.own, max(0, most - used))
    return None


class SharedAmount:
    """An amount of something, and who has how much of it at this moment."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._own: Counter[str] = Counter()

    def take(self, names: tuple[str, ...], amount: int) -> OverShare | None:
        """Take an amount for a caller and the groups that it belongs to; or return why not, and take nothing."""
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
