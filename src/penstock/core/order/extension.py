"""Order policies of third parties: their interface, and a registry of them that is passed around as a value.

How they are found on a machine may not live here: the core knows no packages.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from penstock.core.model.cluster import Settings
from penstock.core.model.errors import PenstockError
from penstock.core.model.jobs import Job

EXTENSION_PREFIX = "ext:"
"""A queue names such a policy as `ext:NAME`, so that no later builtin policy takes its name."""
KEY_LENGTH_MAX = 16
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@runtime_checkable
class OrderPolicy(Protocol):
    """Orders the waiting jobs of one queue: the lowest key goes first, equal keys fall to the older job.

    It must be pure: the same arguments give the same key, on every machine. No clock, no randomness, no I/O; whole
    numbers only, because sums of floats differ between machines.
    """

    @property
    def name(self) -> str:
        """1 to 63 letters, digits, '.', '_' or '-'."""

    def order_key(self, job: Job, now_ms: int, settings: Settings) -> tuple[int, ...]:
        """Return the key of a waiting job at `now_ms` (unix); at most 16 whole numbers."""


Policies = Mapping[str, OrderPolicy]


class BadPolicy(PenstockError):
    """A third-party policy does not meet its interface, or is not installed."""

    code = "bad_policy"


def registry(policies: Iterable[OrderPolicy]) -> Policies:
    """Return policies by name, sorted and read-only.

    Raises: BadPolicy for one without a plain name or an `order_key`, and for a name given twice.
    """
    found: dict[str, OrderPolicy] = {}
    for policy in policies:
        check_policy(policy)
        if policy.name in found:
            raise BadPolicy(f"two policies are named '{policy.name}'", hint="uninstall one of their packages")
        found[policy.name] = policy
    return MappingProxyType(dict(sorted(found.items())))


def check_policy(policy: object) -> None:
    """Raise BadPolicy unless `policy` meets the interface."""
    if not isinstance(policy, OrderPolicy) or not callable(policy.order_key):
        raise BadPolicy(
            f"{type(policy).__name__} is no order policy, expected `name` and `order_key(job, now_ms, settings)`"
        )
    name: object = policy.name
    if not isinstance(name, str) or not 0 < len(name) <= 63 or not set(name) <= NAME_CHARACTERS:
        raise BadPolicy(f"the name of a policy is {name!r}, expected 1 to 63 letters, digits, '.', '_' or '-'")


def extension_of(policies: Policies, policy: str) -> OrderPolicy | None:
    """Return the third-party policy that a queue names, or None for a builtin one.

    Raises: BadPolicy when it is not installed: the log may have been written where it was.
    """
    if not policy.startswith(EXTENSION_PREFIX):
        return None
    name = policy.removeprefix(EXTENSION_PREFIX)
    if name not in policies:
        known = ", ".join(sorted(policies)) or "none"
        raise BadPolicy(f"the policy '{name}' is not installed", hint=f"install its package again; installed: {known}")
    return policies[name]


def checked_key(policy: OrderPolicy, job: Job, now_ms: int, settings: Settings) -> tuple[int, ...]:
    """Return the key that `policy` gives `job`.

    Raises: BadPolicy for anything but a short tuple of whole numbers. Exceptions of the policy itself pass through.
    """
    key: object = policy.order_key(job, now_ms, settings)
    if not isinstance(key, tuple) or len(key) > KEY_LENGTH_MAX or not all(type(part) is int for part in key):
        raise BadPolicy(f"policy '{policy.name}' gave job {job.id} the key {key!r}, expected a tuple of whole numbers")
    return key
