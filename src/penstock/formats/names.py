"""Names as other programs allow them: each wish gets one of its own, as near to it as they allow."""

from abc import ABC, abstractmethod

NAME_CHARACTERS_MAX = 63
_OF_OBJECTS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")


class Names(ABC):
    """Gives each wish a name of its own; the same wishes in the same order get the same names."""

    def __init__(self, *taken: str) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def plain(self, wish: str) -> str:
        """Return `wish`, or the nearest name of at most 63 characters that is allowed and still free."""
        base = self.allowed(wish)
        found, number = base, self._next.get(base, 2)
        while found in self._taken:
            ending = f"-{number}"
            found, number = base[: NAME_CHARACTERS_MAX - len(ending)] + ending, number + 1
        self._next[base] = number
        self._taken.add(found)
        return found

    @abstractmethod
    def allowed(self, wish: str) -> str:
        """Return `wish`, or the nearest name that is allowed."""


class ObjectNames(Names):
    """Of objects of Kubernetes: lower case letters, digits, '-' and '.', as RFC 1123 has them."""

    def allowed(self, wish: str) -> str:
        known = (c if c in _OF_OBJECTS else "-" for c in wish.lower()[:NAME_CHARACTERS_MAX])
        labels = (label.strip("-") for label in "".join(known).split("."))
        return ".".join(filter(None, labels)) or "unnamed"
