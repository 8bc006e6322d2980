"""Gangs that claim more volumes than are there, wherever these are: nobody of them gets one, and they wait.

The plan counts a volume that several nodes reach on each of them: it may count on one for several pods of a gang.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.objects.volumes import VolumeClaim
from penstock.engines.kubernetes.volumes.matching import size_of
from penstock.engines.kubernetes.volumes.stock import Stock

SHORT_S = 60.0
"""A gang is planned again after this long, though nothing of its class has changed."""


class _Short(msgspec.Struct, eq=False):
    """A gang for which there were too few volumes."""

    text: str
    name: str
    """Of the class; `state`: of its volumes then."""
    state: tuple[int, ...]
    pods: tuple[str, ...]
    ends_s: float
    """Until when that counts (of the loop's clock)."""


class Enough:
    """Looks once for all pods of a gang that start together. Everything runs on the engine's loop.

    Args:
        unbound: gives the claims of a pod that have no volume yet.
        places: gives the pods of a pod's gang that are to be bound, each with its node.
        look_at: hears of a pod, by its key, that need not wait any more.
    """

    def __init__(
        self,
        stock: Stock,
        unbound: Callable[[Pod], Iterable[VolumeClaim]],
        places: Callable[[Pod], Sequence[tuple[Pod, NodeName]]],
        look_at: Callable[[str], None],
    ) -> None:
        self._stock, self._unbound, self._places, self._look_at = stock, unbound, places, look_at
        self._enough: set[str] = set()
        """Pods that start, for all of whose gang there were volumes."""
        self._short: dict[str, _Short] = {}

    def why_not(self, pod: Pod) -> str:
        """Return why a pod still waits with its gang, or ''."""
        short = self._short.get(pod.key)
        if short is None:
            return ""
        if short.state == self._stock.state_of(short.name) and short.ends_s > asyncio.get_running_loop().time():
            return short.text
        self._end(short)
        return ""

    def look(self, pod: Pod) -> str:
        """Return why a pod cannot start with its gang, or ''; the others need not look then."""
        if pod.key in self._enough:
            self._enough.discard(pod.key)
            return ""
        pods = {one.key: one for one in (pod, *(one for one, _ in self._places(pod)))}
        by_class: dict[str, dict[tuple[str, str], VolumeClaim]] = {}
        for one in pods.values():
            for claim in self._unbound(one):
                if self._stock.amount_of(claim, claim.spec) and not self._stock.takes(claim.key):
                    by_class.setdefault(claim.spec.storage_class_name or "", {})[claim.key] = claim
        for name, claims in by_class.items():
            text = self._lacks(name, [size_of(one.spec) for one in claims.values()])
            if text:
                self._wait(_Short(text, name, self._stock.state_of(name), tuple(pods), 0.0))
                return text
        self._enough.update(pods.keys() - {pod.key})
        return ""

    def _lacks(self, name: str, sizes: list[int]) -> str:
        """Return of what there is too little for claims of these sizes, smallest first; '' if there is enough."""
        rooms = iter(self._stock.rooms_left(name))
        for got, size in enumerate(sorted(sizes)):
            if not any(room >= size for room in rooms):
                return f"its gang claims {len(sizes)} volumes of class {name}, and {got} of these are there"
        return ""

    def _wait(self, short: _Short) -> None:
        loop = asyncio.get_running_loop()
        short.ends_s = loop.time() + SHORT_S
        self._short.update(dict.fromkeys(short.pods, short))
        loop.call_later(SHORT_S, self._end, short)
        for key in short.pods:
            self._look_at(key)

    def _end(self, short: _Short) -> None:
        for key in short.pods:
            if self._short.get(key) is short:
                del self._short[key]
                self._look_at(key)

    def left(self, pod_key: str) -> None:
        """Note that a pod does not start after all."""
        self._enough.discard(pod_key)

    def gone(self, pod_key: str) -> None:
        """Forget a pod that is gone: its gang is another one by now."""
        self.left(pod_key)
        short = self._short.get(pod_key)
        if short is not None:
            self._end(short)
