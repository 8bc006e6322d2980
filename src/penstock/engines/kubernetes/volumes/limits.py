"""How many volumes of each driver a node can hold: what can be planned is an amount, the rest is counted at the start.

A driver that says nothing of a node sets no limit there. Source: the plugin nodevolumelimits of kube-scheduler.
"""

from collections.abc import Iterable, Mapping

from penstock.engines.kubernetes.amounts import Sums
from penstock.engines.kubernetes.objects.claims import ClaimSpec
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.volumes.matching import driver_of, driver_of_class
from penstock.engines.kubernetes.volumes.users import uses_of
from penstock.engines.kubernetes.volumes.view import VolumeView

ATTACHED = "attachments:"
"""Begins the names of amounts of volumes that a node can hold, by driver."""
NO_LIMIT = 1_000_000
"""Attachments that a node offers where its driver sets no limit, but sets one on other nodes."""

Attached = tuple[str, object]
"""A driver, and what names the volume there."""


class Limits:
    """The limits of all nodes. Everything runs on the engine's loop."""

    def __init__(self, view: VolumeView) -> None:
        self._view = view
        self._of_node: dict[str, Mapping[str, int]] = {}
        self._nodes_with: dict[str, int] = {}
        """On how many nodes each driver sets a limit."""

    def node_changed(self, name: str) -> bool:
        """Note what drivers say of a node. Returns: whether a driver sets its first limit, or no limit any more."""
        before = set(self._nodes_with)
        known, limits = self._of_node.pop(name, {}), self._view.limits_of(name)
        if limits:
            self._of_node[name] = limits
        for driver in known:
            self._nodes_with[driver] -= 1
            if not self._nodes_with[driver]:
                del self._nodes_with[driver]
        for driver in limits:
            self._nodes_with[driver] = self._nodes_with.get(driver, 0) + 1
        return before != set(self._nodes_with)

    def amount_of(self, spec: ClaimSpec) -> str:
        """Return the name of the amount that a claim takes one of; '' where no node has a limit for it."""
        driver = self._driver_of(spec)[0]
        return ATTACHED + driver if driver in self._nodes_with else ""

    def offered(self, node: str) -> Sums:
        """Return how many volumes of each driver with limits a node can hold."""
        limits = self._of_node.get(node, {})
        return {ATTACHED + driver: limits.get(driver, NO_LIMIT) for driver in self._nodes_with}

    def full(self, node: str, pod: Pod, others: Iterable[Pod]) -> str:
        """Return why a node cannot hold the volumes of a pod beside those of others; '' if it can."""
        limits = self._of_node.get(node)
        own = self._attached(pod) if limits else set()
        if not limits or not own:
            return ""
        held = {one for other in others if other.key != pod.key for one in self._attached(other)}
        for driver in sorted({driver for driver, _ in own - held} & limits.keys()):
            count = sum(one == driver for one, _ in held | own)
            if count > limits[driver]:
                return f"its node would hold {count} volumes of {driver}, and can hold {limits[driver]}"
        return ""

    def _attached(self, pod: Pod) -> set[Attached]:
        """Return the volumes of a pod, each once; one that is not there yet by its claim."""
        found: set[Attached] = set()
        for use in uses_of(pod):
            claim = self._view.claim(use.key)
            driver, name = self._driver_of(claim.spec) if claim is not None else ("", "")
            if driver:
                found.add((driver, name or use.key))
        return found

    def _driver_of(self, spec: ClaimSpec) -> tuple[str, str]:
        """Return the CSI driver of a claim, and the name of its volume there as far as it has one."""
        volume = self._view.volume(spec.volume_name) if spec.volume_name else None
        if volume is not None:
            return driver_of(volume)
        found = self._view.storage_class(spec.storage_class_name or "")
        return (driver_of_class(found) if found is not None else ""), ""
