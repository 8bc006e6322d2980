"""Constraints of a claim between its devices: one attribute the same for all, or different for each. No I/O."""

from typing import Any

from penstock.engines.kubernetes.devices.pools import Placed
from penstock.engines.kubernetes.devices.requests import Wanted
from penstock.engines.kubernetes.objects.devices import ClaimSpec, DeviceConstraint

Values = frozenset[tuple[str, Any]]


class Constraint:
    """One constraint, and the devices taken so far; a device of several values matches by one that all have."""

    def __init__(self, rule: DeviceConstraint) -> None:
        self._rule = rule
        self._taken: list[Values] = []
        """After each device: what all have in common, or what none may have any more."""

    def add(self, one: Wanted, placed: Placed) -> bool:
        """Take a device, unless that breaks the constraint."""
        if not one.applies_to(self._rule.requests):
            return True
        values = placed.attribute(self._rule.match_attribute or self._rule.distinct_attribute)
        if values is None:
            return False
        if self._rule.match_attribute:
            common = self._taken[-1] & values if self._taken else values
            if not common:
                return False
            self._taken.append(common)
            return True
        before: Values = self._taken[-1] if self._taken else frozenset()
        if before & values:
            return False
        self._taken.append(before | values)
        return True

    def remove(self, one: Wanted) -> None:
        """Give back the device that was taken last."""
        if one.applies_to(self._rule.requests):
            self._taken.pop()

    def __str__(self) -> str:
        if self._rule.match_attribute:
            return f"the same {self._rule.match_attribute}"
        return f"different {self._rule.distinct_attribute}"


def constraints_of(spec: ClaimSpec) -> list[Constraint]:
    return [Constraint(rule) for rule in spec.devices.constraints]
