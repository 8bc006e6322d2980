"""How a claim gets its volume once its pod's node is chosen: one is kept for it, or its class is told the node.

Who binds the two, and who makes volumes, are controllers of the cluster: what they do is seen in the claim. Each write
names uid and version of what was decided about. Source: the plugin volumebinding of kube-scheduler.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.errors import Busy, Conflict, KubernetesError, Missing, Unavailable
from penstock.engines.kubernetes.binding import WAIT_S, WITHDRAWN
from penstock.engines.kubernetes.objects.common import as_known
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.volumes import Volume, VolumeClaim
from penstock.engines.kubernetes.volumes.matching import (
    BY_CONTROLLER_ANNOTATION,
    SELECTED_ANNOTATION,
    is_bound,
    is_kept_for,
    reaches,
)
from penstock.engines.kubernetes.volumes.view import CLAIMS, VOLUMES, ClaimKey, VolumeView

BIND_WAIT_S = 600.0
"""A claim has its volume by then: as kube-scheduler's `bindTimeoutSeconds`."""
LOOK_S = 0.5
"""Whether a start is still wanted is looked at this often while its claims are waited for."""


class Getting:
    """Writes, and waits for what comes of it. Everything runs on the engine's loop.

    Args:
        refused: hears of each node for which a class makes no volume for a claim.
    """

    def __init__(
        self,
        client: Client,
        view: VolumeView,
        refused: Callable[[ClaimKey, NodeName], None],
        draw: random.Random | None = None,
    ) -> None:
        self._client, self._view, self._refused = client, view, refused
        self._draw = draw or random.Random()  # noqa: S311 - spreads requests in time
        self._waiting: dict[ClaimKey, set[asyncio.Event]] = {}
        self._told: dict[ClaimKey, tuple[str, int]] = {}
        """The node that each claim's class was told, and the version of the claim that says so."""

    def news(self, key: ClaimKey) -> None:
        """Note that a claim, or a volume (of namespace ''), has changed."""
        for event in self._waiting.get(key, ()):
            event.set()

    def tells(self, key: ClaimKey) -> bool:
        """Return whether a start under way has chosen the node of a claim."""
        return key in self._told

    async def get(
        self, node: NodeName, chosen: Iterable[tuple[VolumeClaim, Volume | None]], wanted: Callable[[], bool]
    ) -> str:
        """Let claims get what was chosen for them. Returns: '' once that is written, else why it never will be.

        Args:
            chosen: None stands for what the class of the claim makes.
        """
        for claim, volume in chosen:
            if volume is not None:
                problem = await self._keep(claim, volume.name, wanted)
            else:
                problem = await self._tell_once(claim, node, wanted)
            if problem:
                return problem
        return ""

    async def _keep(self, claim: VolumeClaim, name: str, wanted: Callable[[], bool]) -> str:
        """Keep a volume for a claim."""

        def body() -> dict[str, Any] | str | None:
            now = self._view.volume(name)
            if now is None or self._is_gone(claim):
                return f"volume {name} is gone" if now is None else f"claim {claim.metadata.name} is gone"
            ref = now.spec.claim_ref
            if ref is not None and is_kept_for(now, claim) and ref.uid:
                return None
            if ref is not None and not is_kept_for(now, claim):
                return f"volume {name} was given to claim {ref.namespace}/{ref.name} meanwhile"
            named = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": claim.metadata.namespace,
                     "name": claim.metadata.name, "uid": claim.metadata.uid}  # fmt: skip
            marks = {} if ref is not None else {BY_CONTROLLER_ANNOTATION: "yes"}
            return {"metadata": {**as_known(now.metadata), "annotations": marks}, "spec": {"claimRef": named}}

        async def write(body: dict[str, Any]) -> None:
            self._view.volumes.wrote(await self._client.patch(VOLUMES.path("", name), body, Volume))

        return await self._write(("", name), body, write, wanted)

    def _is_gone(self, claim: VolumeClaim) -> bool:
        now = self._view.claim(claim.key)
        return now is None or now.metadata.uid != claim.metadata.uid

    async def _tell_once(self, claim: VolumeClaim, node: NodeName, wanted: Callable[[], bool]) -> str:
        """Tell a claim's class the node, unless another pod that starts with it has done so."""
        while wanted():
            if claim.key not in self._told:
                return await self._tell(claim, node, wanted)
            if self._told[claim.key][1]:
                return ""
            await self._next(claim.key, LOOK_S)  # the other one may give up
        return WITHDRAWN

    async def _tell(self, claim: VolumeClaim, node: NodeName, wanted: Callable[[], bool]) -> str:
        """Tell a claim's class the node for which it is to make a volume."""

        def body() -> dict[str, Any] | str | None:
            now = self._view.claim(claim.key)
            if now is None or self._is_gone(claim):
                return f"claim {claim.metadata.name} is gone"
            told = now.metadata.annotations.get(SELECTED_ANNOTATION, "")
            if is_bound(now) or self._told.get(claim.key, ("", 0))[1]:
                return None
            if told == node:
                self._told[claim.key] = node, int(now.metadata.resource_version)
                return None
            if told:
                return f"claim {claim.metadata.name} was to get its volume on {told} meanwhile"
            return {"metadata": {**as_known(now.metadata), "annotations": {SELECTED_ANNOTATION: node}}}

        async def write(body: dict[str, Any]) -> None:
            found = await self._client.patch(CLAIMS.path(*claim.key), body, VolumeClaim)
            self._told[claim.key] = node, int(found.metadata.resource_version)
            self._view.claims.wrote(found)

        self._told[claim.key] = node, 0  # from now on others of its gang do not follow what stands on the claim
        problem = await self._write(claim.key, body, write, wanted)
        if problem:
            self.done((claim.key,))
        return problem

    async def _write(
        self,
        key: ClaimKey,
        body: Callable[[], dict[str, Any] | str | None],
        write: Callable[[dict[str, Any]], Any],
        wanted: Callable[[], bool],
    ) -> str:
        """Write until the copy shows what was wanted. Returns: '' once it does, else why it never will."""
        number = 0
        while wanted():
            asked = body()
            if not isinstance(asked, dict):
                return asked or ""
            wait_s = 0.0
            try:
                await write(asked)
                continue
            except Missing:
                return "what it claims is gone"
            except Busy as error:
                wait_s = error.retry_after_s
            except (Conflict, Unavailable):
                pass  # the watch shows what it is by now
            except KubernetesError as error:
                return error.message
            backoff_s = min(WAIT_S[1], WAIT_S[0] * 2**number) * self._draw.uniform(0.5, 1.0)
            await self._next(key, wait_s or backoff_s)
            number += 1
        return WITHDRAWN

    def done(self, keys: Iterable[ClaimKey]) -> None:
        """Forget what classes were told: the start that wanted it is over."""
        for key in keys:
            self._told.pop(key, None)

    async def wait(
        self, claims: Iterable[VolumeClaim], node: Callable[[], Node | None], wanted: Callable[[], bool]
    ) -> str:
        """Wait until these claims have volumes that the node reaches. Returns: '' then, else why that never will be."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + BIND_WAIT_S
        for claim in claims:
            while (outcome := self._outcome(claim, node())) is None:
                if not wanted():
                    return WITHDRAWN
                if loop.time() >= ends_s:
                    return f"claim {claim.metadata.name} has got no volume within {BIND_WAIT_S:g} s"
                await self._next(claim.key, min(LOOK_S, ends_s - loop.time()))
            if outcome:
                return outcome
        return ""

    def _outcome(self, claim: VolumeClaim, node: Node | None) -> str | None:
        """Return '' where a claim has a volume that the node reaches, None where it may still get one, else why not."""
        now, name = self._view.claim(claim.key), claim.metadata.name
        if node is None:
            return "its node is gone"
        if now is None or self._is_gone(claim) or now.leaving:
            return f"claim {name} is gone"
        if is_bound(now):
            volume = self._view.volume(now.spec.volume_name)
            if volume is None or not is_kept_for(volume, now):
                return None
            return "" if reaches(node, volume) else f"volume {volume.name} of claim {name} is not reached from there"
        told, version = self._told.get(claim.key, ("", 0))
        has = now.metadata.annotations.get(SELECTED_ANNOTATION, "")
        if version and int(now.metadata.resource_version) >= version and has != told:
            self._refused(claim.key, NodeName(told))
            return f"class {now.spec.storage_class_name} makes no volume for claim {name} on {told}"
        return None

    async def _next(self, key: ClaimKey, wait_s: float) -> None:
        """Wait until an object changes, or so long."""
        event = asyncio.Event()
        self._waiting.setdefault(key, set()).add(event)
        try:
            async with asyncio.timeout(max(0.0, wait_s)):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            waiting = self._waiting[key]
            waiting.discard(event)
            if not waiting:
                del self._waiting[key]
