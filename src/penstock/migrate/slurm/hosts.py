"""Host lists of one import: expanded within a budget, so that many short lines cannot mean billions of names."""

from penstock.formats.hostlist import expand
from penstock.migrate.report import SourcePlace

HOSTS_TOTAL_MAX = 1_000_000
"""Names that the host lists of one import may mean, all together."""


class Hosts:
    """Expands host lists and remembers them by their text."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}
        self._total = 0

    def expand(self, place: SourcePlace, key: str, text: str) -> tuple[str, ...]:
        """Return the names of a list. Raises: ImportFault for a malformed list and above the budget."""
        found = self._known.get(text)
        if found is None:
            try:
                found = self._known[text] = tuple(expand(text))
            except ValueError as error:
                raise place.fault(key, text, str(error)) from None
        self._total += len(found)
        if self._total > HOSTS_TOTAL_MAX:
            raise place.fault(key, text, f"at most {HOSTS_TOTAL_MAX} names in all host lists together")
        return found
