"""Devices of nodes that were closed for their failures are tainted, so that other schedulers leave them, too.

The rules (DeviceTaintRule) have a label of ours, and go when their node is opened again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.errors import Conflict, KubernetesError, Missing
from penstock.engines.kubernetes.devices.pools import Inventory
from penstock.engines.kubernetes.devices.view import DeviceView
from penstock.engines.kubernetes.names import CLUSTER_LABEL, FAILING_TAINT
from penstock.engines.kubernetes.objects.answers import AnyObject
from penstock.engines.kubernetes.objects.devices import DeviceTaintRule

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""Which nodes are closed is looked at this often."""
RULES_MAX = 500
"""Rules of ours; devices beyond that are not tainted."""


class Tainting:
    """Keeps the rules.

    Args:
        closed: gives the nodes that were closed for their failures, and why.
        identity: gives the identity of the log.
    """

    def __init__(
        self,
        client: Client,
        view: DeviceView,
        inventory: Inventory,
        closed: Callable[[], Mapping[NodeName, str]],
        identity: Callable[[], str],
    ) -> None:
        self._client, self._view, self._inventory, self._closed = client, view, inventory, closed
        self._identity = identity
        self._failed: set[str] = set()
        """Rules of which the last write failed: that is said once."""

    async def run(self) -> None:
        """Write rules until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._view.taint_rules is not None and self._view.taint_rules.whole and self._view.whole:
                await self._turn(self._view.taint_rules.objects)

    async def _turn(self, known: Mapping[tuple[str, str], DeviceTaintRule]) -> None:
        wanted = self._wanted()
        ours = {
            name for (_, name), rule in known.items() if rule.metadata.labels.get(CLUSTER_LABEL) == self._identity()
        }
        for name in sorted(wanted.keys() - ours):
            await self._write("POST", name, wanted[name])
        for name in sorted(ours - wanted.keys()):
            await self._write("DELETE", name, None)

    def _wanted(self) -> dict[str, dict[str, Any]]:
        """Return the rules that there should be, by name: one for each device of a closed node."""
        found: dict[str, dict[str, Any]] = {}
        for node in sorted(self._closed()):
            for device in self._inventory.of_node(node):
                name = f"penstock-{sha256(str(device).encode()).hexdigest()[:16]}"
                taint = {"key": FAILING_TAINT, "value": node[:63], "effect": "NoSchedule"}
                selector = {"driver": device.driver, "pool": device.pool, "device": device.device}
                spec = {"deviceSelector": selector, "taint": taint}
                found[name] = {"metadata": {"name": name, "labels": {CLUSTER_LABEL: self._identity()}}, "spec": spec}
                if len(found) >= RULES_MAX:
                    return found
        return found

    async def _write(self, method: Any, name: str, body: dict[str, Any] | None) -> None:
        kind = self._view.taint_rules_kind
        assert kind is not None, "they are followed"
        try:
            if body is not None:
                body = {"apiVersion": f"{kind.group}/{kind.version}", "kind": "DeviceTaintRule", **body}
                await self._client.write(method, kind.path(), body, AnyObject)
            else:
                await self._client.write(method, kind.path(name=name), None, AnyObject)
        except (Conflict, Missing):
            pass  # it is so already: the watch is about to show it
        except KubernetesError as error:
            if name not in self._failed:
                log.warning("a taint of a device could not be written", extra={"rule": name, "problem": error.message})
            self._failed.add(name)
        else:
            self._failed.discard(name)
