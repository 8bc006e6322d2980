"""The writes that give a pod its claims, and take them back: each until its outcome is known.

The order is that of Kubernetes' own scheduler: the finalizer, then the allocation with the reservation, in one write
that names the version of the claim; then what the drivers have to say. Source: KEP-4381, KEP-5007.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from penstock.engines.kubernetes.api.client import Client
from penstock.engines.kubernetes.api.errors import Busy, Conflict, KubernetesError, Missing, Unavailable
from penstock.engines.kubernetes.binding import PODS, always
from penstock.engines.kubernetes.devices.claimed import CONSUMERS_MAX
from penstock.engines.kubernetes.devices.view import CLAIMS
from penstock.engines.kubernetes.names import TERM_ANNOTATION
from penstock.engines.kubernetes.objects.common import as_known
from penstock.engines.kubernetes.objects.devices import Allocation, Consumer, ResourceClaim, Result
from penstock.engines.kubernetes.objects.pods import Pod

FINALIZER = "resource.kubernetes.io/delete-protection"
WAIT_S = (0.1, 5.0)
"""After the first try, doubled with each; and the longest."""
BINDING_TIMEOUT_S = 600.0
"""A device that has to be made ready is given up after this long."""
LOOK_S = 1.0
"""What drivers say is looked at this often."""
WITHDRAWN = "its start was withdrawn"


class ClaimWriter:
    """Writes claims.

    Args:
        latest: gives the newest known version of a claim, by its key.
        wrote: gets each claim that was read, or changed.
        term: gives what this life of the server is called.
    """

    def __init__(
        self,
        client: Client,
        latest: Callable[[str], ResourceClaim | None],
        wrote: Callable[[ResourceClaim], None],
        term: Callable[[], str],
        draw: random.Random | None = None,
    ) -> None:
        self._client, self._latest, self._wrote, self._term = client, latest, wrote, term
        self._draw = draw or random.Random()  # noqa: S311 - spreads requests in time

    async def give(
        self,
        key: str,
        allocation: Callable[[], Allocation | None],
        consumer: Consumer,
        usable: Callable[[Allocation], bool],
        wanted: Callable[[], bool],
    ) -> str:
        """Allocate a claim where it has no devices, and reserve it. Returns: '' once that is so, else why it never is.

        Args:
            allocation: gives what it is to get; None: it is to keep what it has.
            usable: whether what it has will do.
        """
        number = 0
        claim = self._latest(key)
        while wanted():
            try:
                if claim is None or number:
                    claim = await self._read(key)
                what = _to_do(claim, allocation(), consumer, usable, self._term())
                if isinstance(what, str):
                    return what
                body, part = what
                claim = await self._patch(claim, body, part)
                if _has(claim, consumer) and part:
                    return ""
                continue
            except Conflict:
                pass  # read it
            except Missing:
                return f"ResourceClaim {key} is gone"
            except (Busy, Unavailable) as error:
                await self._pause(number, error)
            except KubernetesError as error:
                return error.message
            number += 1
        return WITHDRAWN

    async def make(self, body: dict[str, Any], pod: Pod, status: dict[str, Any], wanted: Callable[[], bool]) -> str:
        """Create a claim for a pod, unless it is there, and say so in the pod's status. Returns: '', or why not.

        Args:
            body: the claim; its name is the pod's alone.
        """
        number, meta, now = 0, pod.metadata, pod
        path = PODS.path(meta.namespace, meta.name)
        while wanted():
            try:
                try:
                    self._wrote(await self._client.write("POST", CLAIMS.path(meta.namespace), body, ResourceClaim))
                except Conflict:
                    await self._read(f"{meta.namespace}/{body['metadata']['name']}")  # it was made before
                with suppress(Conflict):
                    await self._client.patch(
                        f"{path}/status", {"metadata": as_known(now.metadata), "status": status}, Pod
                    )
                    return ""
                now = await self._client.get(path, Pod)
                if now.metadata.uid != meta.uid or now.spec.node_name:
                    return "it is gone"
            except Missing:
                return "it is gone"
            except (Busy, Unavailable) as error:
                await self._pause(number, error)
                number += 1
            except KubernetesError as error:
                return error.message
        return WITHDRAWN

    async def is_bound(self, pod: Pod) -> bool:
        """Return whether a pod has been bound by now, whatever the copy says; True also where that cannot be said."""
        try:
            found = await self._client.get(PODS.path(pod.metadata.namespace, pod.metadata.name), Pod)
        except Missing:
            return False
        except KubernetesError:
            return True
        return found.metadata.uid == pod.metadata.uid and bool(found.spec.node_name)

    async def take_back(
        self, key: str, consumer: Consumer, *, devices: bool, wanted: Callable[[], bool] = always
    ) -> None:
        """Take the reservation back, and the devices where nobody else has the claim: until that is done.

        Args:
            devices: whether the devices may be taken away.
            wanted: whether that is still to be done.
        """
        number, claim = 0, self._latest(key)
        while wanted():
            try:
                if claim is None or number:
                    claim = await self._read(key)
                left = tuple(one for one in claim.status.reserved_for if one.uid != consumer.uid)
                clears = devices and not left and claim.status.allocation is not None
                if len(left) == len(claim.status.reserved_for) and not clears:
                    return
                status: dict[str, Any] = {"reservedFor": msgspec.to_builtins(left) or None}
                if clears:
                    status |= {"allocation": None, "devices": None}
                claim = await self._patch(claim, {"status": status}, "status")
                if clears and FINALIZER in claim.metadata.finalizers:
                    kept = [one for one in claim.metadata.finalizers if one != FINALIZER]
                    await self._patch(claim, {"metadata": {"finalizers": kept}}, "")
                return
            except Missing:
                return
            except Conflict:
                await asyncio.sleep(0)
            except KubernetesError as error:
                await self._pause(number, error)
            number += 1

    async def ready(self, keys: Sequence[str], wanted: Callable[[], bool]) -> str:
        """Wait until all devices of these claims are ready. Returns: '' once they are, else why they never will be."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + BINDING_TIMEOUT_S
        while wanted():
            looked = [_readiness(key, self._latest(key)) for key in keys]
            problem = next((one.problem for one in looked if one.problem), "")
            if problem:
                return problem
            late = next((f"{key} has waited {BINDING_TIMEOUT_S:g} s for {one.waits}"
                         for key, one in zip(keys, looked, strict=True) if one.waits), "")  # fmt: skip
            if not late:
                return ""
            if loop.time() >= ends_s:
                return f"BindingTimeout: ResourceClaim {late}"
            await asyncio.sleep(LOOK_S)
        return WITHDRAWN

    async def _read(self, key: str) -> ResourceClaim:
        found = await self._client.get(CLAIMS.path(*key.split("/")), ResourceClaim)
        self._wrote(found)
        return found

    async def _patch(self, claim: ResourceClaim, body: dict[str, Any], part: str) -> ResourceClaim:
        """Change a claim as it was read."""
        meta = claim.metadata
        body = {**body, "metadata": {**as_known(meta), **body.get("metadata", {})}}
        found = await self._client.patch(CLAIMS.path(meta.namespace, meta.name, part), body, ResourceClaim)
        self._wrote(found)
        return found

    async def _pause(self, number: int, error: KubernetesError) -> None:
        asked_s = error.retry_after_s if isinstance(error, Busy) else 0.0
        wait_s = min(WAIT_S[1], WAIT_S[0] * 2**number) * self._draw.uniform(0.5, 1.0)
        await asyncio.sleep(asked_s or wait_s)


def _to_do(
    claim: ResourceClaim,
    allocation: Allocation | None,
    consumer: Consumer,
    usable: Callable[[Allocation], bool],
    term: str,
) -> tuple[dict[str, Any], str] | str:
    """Return the next write and its subresource; '' where nothing is left to do, else why it cannot be done.

    A claim that has all it needs is written, too, once in each term: a former leader may be about to take it back.
    """
    has, reserved = claim.status.allocation, claim.status.reserved_for
    if claim.metadata.deletion_timestamp is not None:
        return f"ResourceClaim {claim.key} is being deleted"
    others = [one for one in reserved if one.uid != consumer.uid]
    if has is not None and not usable(has):
        if allocation is None or others:
            return f"ResourceClaim {claim.key} has devices of other nodes by now"
        return {"status": {"allocation": None, "reservedFor": None, "devices": None}}, "status"
    if has is None and allocation is None:
        return f"ResourceClaim {claim.key} has lost its devices"
    if len(others) >= CONSUMERS_MAX:
        return f"ResourceClaim {claim.key} is reserved for {len(others)} pods, at most {CONSUMERS_MAX} may use it"
    if FINALIZER not in claim.metadata.finalizers or claim.metadata.annotations.get(TERM_ANNOTATION) != term:
        finalizers = [one for one in claim.metadata.finalizers if one != FINALIZER]
        return {"metadata": {"finalizers": [*finalizers, FINALIZER], "annotations": {TERM_ANNOTATION: term}}}, ""
    if has is not None and _has(claim, consumer):
        return ""
    status: dict[str, Any] = {"reservedFor": [*map(msgspec.to_builtins, (*others, consumer))]}
    if has is None:
        status["allocation"] = {**msgspec.to_builtins(allocation), "allocationTimestamp": now()}
    return {"status": status}, "status"


def _has(claim: ResourceClaim, consumer: Consumer) -> bool:
    return claim.status.allocation is not None and any(one.uid == consumer.uid for one in claim.status.reserved_for)


class _Readiness(NamedTuple):
    problem: str = ""
    """Why the devices of a claim never get ready."""
    waits: str = ""
    """The condition that one of them has yet to meet."""


def _readiness(key: str, claim: ResourceClaim | None) -> _Readiness:
    if claim is None or claim.status.allocation is None:
        return _Readiness(problem=f"ResourceClaim {key} has lost its devices")
    waits = ""
    for one in claim.status.allocation.devices.results:
        met = _conditions(claim, one)
        failed = next((name for name in one.binding_failure_conditions if name in met), "")
        if failed:
            return _Readiness(problem=f"device {one.pool}/{one.device} of ResourceClaim {key} says {failed}")
        waits = waits or next((name for name in one.binding_conditions if name not in met), "")
    return _Readiness(waits=waits)


def _conditions(claim: ResourceClaim, one: Result) -> set[str]:
    """Return the conditions that a driver says hold of an allocated device."""
    return {
        condition.type
        for told in claim.status.devices
        if (told.driver, told.pool, told.device) == (one.driver, one.pool, one.device)
        for condition in told.conditions or ()
        if condition.status == "True"
    }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
