"""The resource groups of a cluster queue or cohort of Kueue, as amounts of the queue model."""

from collections.abc import Sequence

from penstock.migrate.fields import Fields
from penstock.migrate.manifests import amount_field
from penstock.migrate.model import Amount, Flavour

FLAVOURS_MAX = 1_000
"""Different flavours that quotas of one import name."""


def read_groups(spec: Fields, flavours: dict[str, Flavour], *, own: str, may_borrow: bool) -> list[Amount]:
    """Return the quotas of `resourceGroups`; undeclared flavours are added under their own name.

    Args:
        own: owner of the quotas, for the report. may_borrow: it has a cohort above it.
    """
    found: list[Amount] = []
    seen: set[str] = set()
    for group in spec.items("resourceGroups"):
        covered = group.texts("coveredResources")
        group.mapped("coveredResources", "named by the quotas below")
        for flavor in group.items("flavors"):
            name = flavor.required("name")
            if name in seen:
                raise flavor.fault("name", "each flavour in one resource group, once")
            seen.add(name)
            _know(flavor, name, flavours)
            for resource in flavor.items("resources"):
                found += _resource(resource, name, covered, own=own, may_borrow=may_borrow)
            flavor.done()
        group.done()
    _say_sums(spec, found, own)
    return found


def _know(flavor: Fields, name: str, flavours: dict[str, Flavour]) -> None:
    if name in flavours:
        flavor.mapped("name", "its devices count by their model")
        return
    if len(flavours) >= FLAVOURS_MAX:
        raise flavor.fault("name", f"at most {FLAVOURS_MAX} flavours")
    flavours[name] = Flavour(name, name)
    flavor.approximated("name", f"no ResourceFlavor was given: its devices count as model '{name}'")


def _resource(fields: Fields, flavour: str, covered: Sequence[str], *, own: str, may_borrow: bool) -> list[Amount]:
    resource = fields.required("name")
    if resource not in covered:
        raise fields.fault("name", "a resource that coveredResources names: " + ", ".join(covered))
    fields.mapped("name", "the resource of the quota")
    nominal = amount_field(fields, resource, "nominalQuota", f"guaranteed of {own}", flavour)
    limits: dict[str, int | None] = {"borrowingLimit": None, "lendingLimit": None}
    notes = {"borrowingLimit": "max is the guarantee and this", "lendingLimit": "lend"}
    for key in limits:
        if fields.has(key):
            if not may_borrow:
                raise fields.fault(key, "no limit without a cohort: Kueue refuses it, too")
            amount = amount_field(fields, resource, key, notes[key], flavour)
            limits[key] = None if amount is None else amount.nominal
    fields.done()
    if nominal is None:
        return []
    return [nominal._replace(borrow=limits["borrowingLimit"], lend=limits["lendingLimit"])]


def _say_sums(spec: Fields, amounts: Sequence[Amount], own: str) -> None:
    """Report resources that several flavours have: Penstock tells only devices apart, by their model."""
    for resource in ("cpus", "memory"):
        count = sum(amount.resource == resource for amount in amounts)
        if count > 1:
            how = f"{resource} of {count} flavours of {own} are added up: Penstock counts them together"
            spec.approximated("resourceGroups", how)
