"""Plain names for queues, pools, nodes and tenants: cluster files allow fewer names than other schedulers."""

from penstock.core.order.extension import NAME_CHARACTERS

NAME_CHARACTERS_MAX = 63


class Names:
    """Gives each wish a name of its own; the same wishes in the same order get the same names."""

    def __init__(self, *taken: str) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def plain(self, wish: str) -> str:
        """Return `wish`, or the nearest name that is plain (1 to 63 letters, digits, '.', '_', '-') and still free."""
        base = self._allowed(wish)
        found, number = base, self._next.get(base, 2)
        while found in self._taken:
            ending = f"-{number}"
            found, number = base[: NAME_CHARACTERS_MAX - len(ending)] + ending, number + 1
        self._next[base] = number
        self._taken.add(found)
        return found

    def _allowed(self, wish: str) -> str:
        """Return `wish`, or the nearest name of the allowed ones."""
        base = "".join(c if c in NAME_CHARACTERS else "_" for c in wish)[:NAME_CHARACTERS_MAX] or "unnamed"
        return "_" + base[1:] if base.startswith(".") else base  # no node has such a name


class ObjectNames(Names):
    """The same for objects of Kubernetes: lower case letters, digits, '-' and '.', as RFC 1123 has them."""

    def _allowed(self, wish: str) -> str:
        known = (c if c in _OF_OBJECTS else "-" for c in wish.lower()[:NAME_CHARACTERS_MAX])
        labels = (label.strip("-") for label in "".join(known).split("."))
        return ".".join(filter(None, labels)) or "unnamed"


_OF_OBJECTS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
