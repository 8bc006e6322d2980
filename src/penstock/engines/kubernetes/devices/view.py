"""Copies of all that devices by claims consist of: claims, templates, slices, classes, taints.

They are followed where the API server has `resource.k8s.io/v1`: what came before has other fields.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.errors import KubernetesError, Missing
from penstock.engines.kubernetes.api.reflector import ChangeSink, Reflector
from penstock.engines.kubernetes.objects.answers import ResourceList
from penstock.engines.kubernetes.objects.devices import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)

log = logging.getLogger(__name__)

GROUP = "resource.k8s.io"
CLAIMS = Kind(GROUP, "v1", "resourceclaims")
TEMPLATES = Kind(GROUP, "v1", "resourceclaimtemplates")
SLICES = Kind(GROUP, "v1", "resourceslices", namespaced=False)
CLASSES = Kind(GROUP, "v1", "deviceclasses", namespaced=False)
TAINT_RULES = tuple(
    Kind(GROUP, version, "devicetaintrules", namespaced=False) for version in ("v1", "v1beta2", "v1alpha3")
)
"""The newest version that the server has is used: it has been the same ever since."""
LOOK_AGAIN_S = 300.0
"""Kinds that were not there are looked for again after this long."""


class Heard(NamedTuple):
    """What hears of an object as it was and as it is (None: it was not there, or is gone), on the loop."""

    claim: Callable[[ResourceClaim | None, ResourceClaim | None], None]
    template: Callable[[ResourceClaimTemplate | None, ResourceClaimTemplate | None], None]
    slice: Callable[[ResourceSlice | None, ResourceSlice | None], None]
    device_class: Callable[[DeviceClass | None, DeviceClass | None], None]
    taint_rule: Callable[[DeviceTaintRule | None, DeviceTaintRule | None], None]
    listed: Callable[[], None]


class DeviceView:
    """The copies."""

    def __init__(self, client: Client, heard: Heard, draw: random.Random | None = None) -> None:
        self._client, self._heard, self._draw = client, heard, draw
        self.claims: Reflector[ResourceClaim] = self._following(CLAIMS, ResourceClaim, heard.claim)
        self.templates: Reflector[ResourceClaimTemplate] = self._following(
            TEMPLATES, ResourceClaimTemplate, heard.template
        )
        self.slices: Reflector[ResourceSlice] = self._following(SLICES, ResourceSlice, heard.slice)
        self.classes: Reflector[DeviceClass] = self._following(CLASSES, DeviceClass, heard.device_class)
        self.taint_rules: Reflector[DeviceTaintRule] | None = None
        self.taint_rules_kind: Kind | None = None
        self.served = False
        """The server has claims, as far as that is known."""
        self._looked = False

    def _following(self, kind: Kind, into: type[Any], changed: Callable[[Any, Any], None]) -> Reflector[Any]:
        return Reflector(self._client, kind, into, ChangeSink(changed, self._heard.listed), draw=self._draw)

    @property
    def whole(self) -> bool:
        """Whether all is known, or it is known that there is nothing."""
        all_of = (self.claims, self.templates, self.slices, self.classes, self.taint_rules)
        return self._looked and (
            not self.served or all(one is None or one.whole or one.denied for one in all_of)
        )  # fmt: skip

    @property
    def denied(self) -> str:
        """Which of the kinds that are needed may not be read; '' if all may."""
        needed = (("resourceclaims", self.claims), ("resourceslices", self.slices), ("deviceclasses", self.classes))
        return ", ".join(name for name, one in needed if one.denied and not one.whole)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                names = await self._names("v1")
                if not self.served and CLAIMS.plural in names:
                    self.served = True
                    for one in (self.claims, self.templates, self.slices, self.classes):
                        group.create_task(one.run())
                if self.served and self.taint_rules is None and (kind := await self._rules_kind()) is not None:
                    rules = self.taint_rules = self._following(kind, DeviceTaintRule, self._heard.taint_rule)
                    self.taint_rules_kind = kind
                    group.create_task(rules.run())
                self._looked = True
                self._heard.listed()
                await asyncio.sleep(LOOK_AGAIN_S)

    async def _rules_kind(self) -> Kind | None:
        for kind in TAINT_RULES:
            if kind.plural in await self._names(kind.version):
                return kind
        return None

    async def _names(self, version: str) -> set[str]:
        """Return the kinds that the server has of a version of the group."""
        while True:
            try:
                found = await self._client.get(Kind(GROUP, version, "").root, ResourceList)
            except Missing:
                return set()
            except KubernetesError as error:
                log.warning("what the API server has is not known", extra={"problem": error.message})
                await asyncio.sleep(1.0)
                continue
            return {one.name for one in found.resources}
