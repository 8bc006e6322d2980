"""Which nodes a gang accepts, beyond amounts: rules about labels, and the taints that it tolerates.

The meanings are those of Kubernetes (`nodeAffinity`, `taints`, `tolerations`), whose users write them.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

LabelOperator = Literal["in", "not_in", "exists", "not_exists", "gt", "lt"]
TaintEffect = Literal["NoSchedule", "NoExecute"]

_SIGNS: dict[LabelOperator, str] = {"in": "in", "not_in": "not in", "gt": ">", "lt": "<"}


class LabelRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule about the label `key` of a node; a label that is absent is in no set, and not a number."""

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()
    """For `gt` and `lt` one whole number."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "not_in":
                return value not in self.values
            case "exists":
                return value is not None
            case "not_exists":
                return value is None
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        try:
            has, than = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return has > than if self.operator == "gt" else has < than

    def __str__(self) -> str:
        if self.operator in ("exists", "not_exists"):
            return self.key if self.operator == "exists" else f"no {self.key}"
        values = self.values[0] if self.operator in ("gt", "lt") and self.values else f"({', '.join(self.values)})"
        return f"{self.key} {_SIGNS[self.operator]} {values}"


LabelTerms = tuple[tuple[LabelRule, ...], ...]
"""Alternatives, each of rules that must all hold; none: every node is accepted."""


class Taint(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """Keeps replicas off a node that do not tolerate it."""

    key: str
    value: str = ""
    effect: TaintEffect = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Taints that a gang may stand on."""

    key: str = ""
    """Empty: of any key."""
    value: str | None = None
    """None: of any value."""
    effect: str = ""
    """Empty: of any effect."""

    def tolerates(self, taint: Taint) -> bool:
        return (
            self.key in ("", taint.key)
            and (self.value is None or self.value == taint.value)
            and self.effect in ("", taint.effect)
        )


def accepted(terms: LabelTerms, labels: Mapping[str, str]) -> bool:
    """Return whether the labels of a node satisfy one of the alternatives."""
    return not terms or any(all(rule.holds(labels) for rule in term) for term in terms)


def not_tolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """Return the first taint that nothing tolerates, or None."""
    return next((t for t in taints if not any(one.tolerates(t) for one in tolerations)), None)


def terms_text(terms: LabelTerms) -> str:
    """Return the alternatives in words, such as `zone in (a, b), gpu; or disk > 100`."""
    return "; or ".join(", ".join(map(str, term)) for term in terms)
