"""What a claim asks for, and which devices of a node match it. No I/O. Source: KEP-4381, KEP-4816, KEP-5075."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from penstock.engines.kubernetes.cel.evaluating import Evaluation, check
from penstock.engines.kubernetes.cel.functions import Failed
from penstock.engines.kubernetes.cel.syntax import BadExpression, Node, parsed
from penstock.engines.kubernetes.devices.pools import VERDICTS_MAX, Placed, amount
from penstock.engines.kubernetes.objects.devices import (
    Capacity,
    ClaimSpec,
    DeviceClass,
    DeviceRequest,
    ExactRequest,
    RequestPolicy,
    Selector,
)

RESULTS_MAX = 32
"""Devices of one claim, as the API server allows them."""
HARMFUL = ("NoSchedule", "NoExecute")


class Impossible(Exception):
    """A claim that cannot be allocated as it stands, whatever is free. Its text says why."""


class Wanted(NamedTuple):
    """One alternative of a request."""

    request: str
    part: str
    """The name of the alternative in a prioritized list; '' for a plain request."""
    ask: ExactRequest
    device_class: DeviceClass

    @property
    def name(self) -> str:
        return f"{self.request}/{self.part}" if self.part else self.request

    @property
    def all(self) -> bool:
        return self.ask.allocation_mode == "All"

    def selectors(self) -> Iterable[Selector]:
        yield from self.device_class.spec.selectors
        yield from self.ask.selectors

    def expressions(self) -> tuple[str, ...]:
        """Return what all have to hold of a device. Raises: Impossible."""
        found = []
        for number, one in enumerate(self.selectors()):
            if one.cel is None:
                raise Impossible(f"selector {number} of request {self.name} is no CEL expression")
            found.append(one.cel.expression)
        return tuple(found)

    def applies_to(self, names: tuple[str, ...]) -> bool:
        """Return whether a constraint or configuration for these requests is for this one, too."""
        return not names or self.request in names or self.name in names


@lru_cache(maxsize=2048)
def _compiled(expression: str) -> Node | str:
    try:
        found = parsed(expression)
        check(found)
    except BadExpression as error:
        return str(error)
    return found


def matches(placed: Placed, expression: str) -> bool:
    """Return whether a device matches an expression. Raises: Impossible where that cannot be said."""
    known = placed.verdicts.get(expression)
    if known is None:
        if len(placed.verdicts) >= VERDICTS_MAX:
            placed.verdicts.clear()
        known = placed.verdicts[expression] = _evaluated(placed, expression)
    if isinstance(known, str):
        raise Impossible(known)
    return known


def _evaluated(placed: Placed, expression: str) -> bool | str:
    tree = _compiled(expression)
    if isinstance(tree, str):
        return f"{_short(expression)}: {tree}"
    evaluation = Evaluation()
    try:
        found = evaluation.value(tree, placed.told())
    except Failed as error:
        return f"{_short(expression)} on device {placed.id}: {error}"
    finally:
        placed.pool.steps += evaluation.spent
    if not isinstance(found, bool):
        return f"{_short(expression)}: it is no bool"
    return found


def _short(expression: str) -> str:
    return f"selector {expression[:60]!r}"


def wanted(spec: ClaimSpec, classes: Mapping[str, DeviceClass]) -> list[list[Wanted]]:
    """Return the alternatives of each request, the best first. Raises: Impossible."""
    found = []
    for request in spec.devices.requests:
        found.append([_wanted(request, part, ask, classes) for part, ask in _asks(request)])
        if not found[-1]:
            raise Impossible(f"request {request.name} has neither `exactly` nor `firstAvailable`")
    for number, rule in enumerate(spec.devices.constraints):
        if bool(rule.match_attribute) == bool(rule.distinct_attribute):
            raise Impossible(f"constraint {number}: expected `matchAttribute` or `distinctAttribute`")
    least = sum(min(1 if one.all else one.ask.count for one in parts) for parts in found)
    if least > RESULTS_MAX:
        raise Impossible(f"{least} devices for one claim, at most {RESULTS_MAX} are allowed")
    return found


def devices_of(spec: ClaimSpec) -> dict[str, int]:
    """Return how many devices of each class a claim asks for: of alternatives the first, of `All` one, as far as known.

    Access by an administrator takes nothing from anybody.
    """
    found: dict[str, int] = {}
    for request in spec.devices.requests:
        one = next((ask for _, ask in _asks(request)), None)
        if one is not None and not one.admin_access:
            count = one.count if one.allocation_mode in ("", "ExactCount") else 1
            found[one.device_class_name] = found.get(one.device_class_name, 0) + count
    return found


def _asks(request: DeviceRequest) -> list[tuple[str, ExactRequest]]:
    if request.exactly is not None:
        return [("", request.exactly)]
    return [(one.name, one) for one in request.first_available]


def _wanted(request: DeviceRequest, part: str, ask: ExactRequest, classes: Mapping[str, DeviceClass]) -> Wanted:
    device_class = classes.get(ask.device_class_name)
    if device_class is None:
        raise Impossible(f"there is no DeviceClass {ask.device_class_name or '(no name)'}")
    if ask.allocation_mode not in ("ExactCount", "All", ""):
        raise Impossible(f"request {request.name}: allocationMode {ask.allocation_mode}, expected ExactCount or All")
    return Wanted(request.name, part, ask, device_class)


def matching(one: Wanted, devices: Iterable[Placed]) -> list[Placed]:
    """Return the devices that match a request, whoever has them. Raises: Impossible."""
    expressions = one.expressions()
    return [placed for placed in devices if all(matches(placed, text) for text in expressions)]


def tolerated(one: Wanted, placed: Placed) -> bool:
    """Return whether the taints of a device, if it has any, let this request have it."""
    return all(
        taint.effect not in HARMFUL or any(t.tolerates(taint) for t in one.ask.tolerations) for taint in placed.taints
    )


# Consumable capacity.


def consumption(one: Wanted, placed: Placed) -> dict[str, Fraction] | None:
    """Return how much of each capacity of a device a request takes; None where the device has not got that.

    What is not named takes its default, or all there is. What is named is rounded up to what the device gives out.
    """
    asked = one.ask.capacity.requests
    if any(name not in placed.spec.capacity for name in asked):
        return None
    found = {}
    for name, has in placed.spec.capacity.items():
        taken = _rounded(amount(asked[name]) if name in asked else None, has)
        if not _allowed(taken, has.request_policy) or taken > amount(has.value):
            return None
        found[name] = taken
    return found


def _rounded(asked: Fraction | None, has: Capacity) -> Fraction:
    policy = has.request_policy
    if asked is None:
        return amount(policy.default) if policy is not None and policy.default is not None else amount(has.value)
    if policy is None:
        return asked
    valid = policy.valid_range
    if valid is not None and valid.min is not None:
        least = amount(valid.min)
        step = amount(valid.step) if valid.step is not None else Fraction(0)
        if asked <= least or not step:
            return max(asked, least)
        return least + step * -((least - asked) // step)
    values = sorted(amount(value) for value in policy.valid_values)
    return next((value for value in values if value >= asked), asked)


def _allowed(taken: Fraction, policy: RequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and taken == amount(policy.default)):
        return True
    if policy.valid_range is not None:
        most = policy.valid_range.max
        return most is None or taken <= amount(most)
    return not policy.valid_values or any(taken == amount(value) for value in policy.valid_values)
