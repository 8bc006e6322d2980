"""Nodes that a claim, or a pod, is kept off for a while: they made no volume for it, or could hold no more of them."""

import asyncio
from collections.abc import Callable

from penstock.core.model.ids import NodeName
from penstock.core.model.selectors import LabelRule, LabelTerms
from penstock.engines.kubernetes.nodes import NAME_FIELD
from penstock.engines.kubernetes.volumes.view import ClaimKey

REFUSED_S = 60.0
"""A node is not chosen again before."""


class Beyond:
    """The nodes. Everything runs on the engine's loop.

    Args:
        look_at: hears of a claim, or a pod by its key, for which other nodes do by now.
    """

    def __init__(self, look_at: Callable[[ClaimKey | str], None]) -> None:
        self._look_at = look_at
        self._nodes: dict[ClaimKey | str, dict[NodeName, float]] = {}
        """By claim or pod, each with the time (of the loop's clock) until which that counts."""

    def forget(self, key: ClaimKey | str) -> None:
        self._nodes.pop(key, None)

    def terms(self, key: ClaimKey | str) -> LabelTerms:
        """Return all nodes but those that did not do."""
        off = self._nodes.get(key)
        return ((LabelRule(NAME_FIELD, "not_in", tuple(sorted(off))),),) if off else ()

    def refuse(self, key: ClaimKey | str, node: NodeName) -> None:
        """Keep a claim, or a pod, off a node for a while."""
        loop = asyncio.get_running_loop()
        self._nodes.setdefault(key, {})[node] = loop.time() + REFUSED_S
        loop.call_later(REFUSED_S, self._let_again, key)
        self._look_at(key)

    def _let_again(self, key: ClaimKey | str) -> None:
        now_s = asyncio.get_running_loop().time()
        left = {node: until_s for node, until_s in self._nodes.pop(key, {}).items() if until_s > now_s}
        if left:
            self._nodes[key] = left
        self._look_at(key)
