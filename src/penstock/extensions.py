"""Finds third-party policies among the installed packages. Nothing of theirs is imported before it is asked for."""

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from penstock.core.order.extension import BadPolicy, OrderPolicy, Policies, check_policy, registry

GROUP = "penstock.policies"


class InstalledPolicies(Mapping[str, OrderPolicy]):
    """The policies that packages offer as entry points of the group `penstock.policies`, by the entry point's name.

    Names are known at once; a package is imported when its policy is first looked up, and then kept. An entry point
    refers to a policy, or to a class that makes one without arguments.
    """

    def __init__(self, found: Mapping[str, EntryPoint]) -> None:
        self._found = dict(sorted(found.items()))
        self._loaded: dict[str, OrderPolicy] = {}

    def __getitem__(self, name: str) -> OrderPolicy:
        """Raises: KeyError for a name that no package offers; BadPolicy when it cannot be loaded or is none."""
        if name not in self._loaded:
            self._loaded[name] = _load(self._found[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found  # the inherited one would import the package

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def only(self, names: Iterator[str] | list[str] | tuple[str, ...]) -> Policies:
        """Return the registry of just these policies, loaded, as the planner takes it."""
        return registry(self[name] for name in dict.fromkeys(names))


def installed_policies() -> InstalledPolicies:
    """Return the installed policies.

    Raises: BadPolicy when two packages offer the same name: chance must not pick one.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            text = f"two packages offer a policy '{point.name}': {other.value} and {point.value}"
            raise BadPolicy(text, hint="uninstall one of them")
    return InstalledPolicies(found)


def _load(point: EntryPoint) -> OrderPolicy:
    try:
        loaded = point.load()
    except (ImportError, AttributeError) as error:
        raise BadPolicy(f"the policy '{point.name}' ({point.value}) cannot be loaded: {error}") from error
    policy: OrderPolicy = loaded() if isinstance(loaded, type) else loaded
    check_policy(policy)
    if policy.name != point.name:
        raise BadPolicy(f"the policy '{point.name}' ({point.value}) calls itself '{policy.name}'")
    return policy
