"""What is written of devices that were found: the allocation of a claim. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from penstock.engines.kubernetes.devices.pools import Placed
from penstock.engines.kubernetes.devices.requests import Wanted
from penstock.engines.kubernetes.nodes import NAME_FIELD
from penstock.engines.kubernetes.objects.common import Requirement
from penstock.engines.kubernetes.objects.devices import Allocation, ClaimSpec, Result, Results
from penstock.engines.kubernetes.objects.pods import NodeSelector, NodeSelectorTerm

_UNITS = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


class Given(NamedTuple):
    """A device for a request."""

    wanted: Wanted
    placed: Placed
    consumed: Mapping[str, Fraction] | None
    """How much of it, where several may have it."""


def allocation_of(spec: ClaimSpec, given: Sequence[Given], node: str, new_share: Callable[[], str]) -> Allocation:
    """Return the allocation of a claim, as the API server wants it."""
    results = tuple(_result(one, new_share) for one in given)
    return Allocation(Results(results, tuple(_config(spec, given))), _nodes(given, node))


def _result(one: Given, new_share: Callable[[], str]) -> Result:
    device, spec = one.placed.id, one.placed.spec
    return Result(
        one.wanted.name,
        device.driver,
        device.pool,
        device.device,
        admin_access=one.wanted.ask.admin_access,
        tolerations=one.wanted.ask.tolerations,
        binding_conditions=spec.binding_conditions,
        binding_failure_conditions=spec.binding_failure_conditions,
        share_id=new_share() if one.consumed is not None else "",
        consumed_capacity={name: quantity_text(number) for name, number in (one.consumed or {}).items()},
    )


def _config(spec: ClaimSpec, given: Sequence[Given]) -> Iterable[dict[str, Any]]:
    """Yield the settings of the classes, each once, and those of the claim; no names of requests means all."""
    chosen = {one.wanted.request: one.wanted for one in given}
    by_class: dict[str, list[Wanted]] = {}
    for one in chosen.values():
        by_class.setdefault(one.device_class.metadata.name, []).append(one)
    for users in by_class.values():
        for setting in users[0].device_class.spec.config:
            yield _setting("FromClass", setting, [one.name for one in users], chosen)
    for setting in spec.devices.config:
        names = list(setting.get("requests") or ())
        if not names or any(one.applies_to(tuple(names)) for one in chosen.values()):
            yield _setting("FromClaim", setting, names, chosen)


def _setting(source: str, setting: dict[str, Any], names: list[str], chosen: Mapping[str, Wanted]) -> dict[str, Any]:
    found = {"source": source, **{key: value for key, value in setting.items() if key != "requests"}}
    if names and not all(one.applies_to(tuple(names)) for one in chosen.values()):
        found["requests"] = names
    return found


def _nodes(given: Sequence[Given], node: str) -> NodeSelector | None:
    """Return where the devices can be used; None: everywhere."""
    if any(one.placed.local or one.placed.spec.binds_to_node for one in given):
        named = Requirement(NAME_FIELD, "In", (node,))
        return NodeSelector((NodeSelectorTerm(match_fields=(named,)),))
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for one in given:
        for term in one.placed.selector.node_selector_terms if one.placed.selector is not None else ():
            expressions += [rule for rule in term.match_expressions if rule not in expressions]
            fields += [rule for rule in term.match_fields if rule not in fields]
    if not expressions and not fields:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions), tuple(fields)),))


def quantity_text(number: Fraction) -> str:
    """Return a number as a quantity of Kubernetes, exactly."""
    if number.denominator != 1:
        return f"{-(-number * 1000 // 1)}m" if (number * 1000).denominator == 1 else f"{-(-number * 10**9 // 1)}n"
    whole = int(number)
    unit, size = next(((unit, size) for unit, size in _UNITS if whole and whole % size == 0), ("", 1))
    return f"{whole // size}{unit}"
