"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable
from typing import Any

from penstock.sim.apiserver.refusals import bad_request

Object = dict[str, Any]
Matches = Callable[[Object], bool]

FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.schedulerName",
    "spec.unschedulable",
    "status.phase",
    "status.nominatedNodeName",
)
_SET = re.compile(r"\s*([^\s!=()]+)\s+(in|notin)\s+\(([^()]*)\)\s*")
_EQUAL = re.compile(r"\s*([^\s!=]+)\s*(!=|==|=)\s*([^\s]*)\s*")


def matcher(labels: str, fields: str) -> Matches:
    """Return whether an object is selected. Raises: Refused (400) for selectors that cannot be read."""
    rules = [*_label_rules(labels), *_field_rules(fields)]
    return lambda one: all(rule(one) for rule in rules)


def selected(selector: Object | None, one: Object) -> bool:
    """Return whether a label selector of an object, such as that of a budget, selects another one; None: nothing."""
    if selector is None:
        return False
    labels = _labels(one)
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions") or ():
        has, values = labels.get(rule["key"]), rule.get("values") or ()
        holds = {"In": has in values, "NotIn": has not in values, "Exists": has is not None}
        if not holds.get(rule["operator"], has is None):
            return False
    return True


def value_of(one: Object, path: str) -> Any:
    """Return a field by its path; None where it is absent."""
    at: Any = one
    for part in path.split("."):
        at = at.get(part) if isinstance(at, dict) else None
    return at


def field_of(one: Object, path: str) -> str:
    """Return the text of a field by its path; '' where it is absent."""
    at = value_of(one, path)
    if isinstance(at, bool):
        return str(at).lower()
    return "" if at is None else str(at)


def _field_rules(text: str) -> list[Matches]:
    rules: list[Matches] = []
    for part in filter(None, text.split(",")):
        match = _EQUAL.fullmatch(part)
        if match is None or match[1] not in FIELDS:
            raise bad_request(f"Unable to find field selector in: {part}")
        rules.append(_field_is(match[1], match[3], equal=match[2] != "!="))
    return rules


def _field_is(path: str, value: str, *, equal: bool) -> Matches:
    return lambda one: (field_of(one, path) == value) == equal


def _label_rules(text: str) -> list[Matches]:
    rules: list[Matches] = []
    for part in filter(None, re.split(r",(?![^()]*\))", text)):
        if match := _SET.fullmatch(part):
            values = {value.strip() for value in match[3].split(",")}
            rules.append(_label_in(match[1], values, wanted=match[2] == "in"))
        elif match := _EQUAL.fullmatch(part):
            rules.append(_label_in(match[1], {match[3]}, wanted=match[2] != "!="))
        else:
            rules.append(_label_there(part.strip().removeprefix("!"), wanted=not part.strip().startswith("!")))
    return rules


def _label_in(key: str, values: set[str], *, wanted: bool) -> Matches:
    return lambda one: (_labels(one).get(key) in values) == wanted


def _label_there(key: str, *, wanted: bool) -> Matches:
    return lambda one: (key in _labels(one)) == wanted


def _labels(one: Object) -> dict[str, str]:
    return one["metadata"].get("labels") or {}
