"""Nodes that a gang is planned off for a while: they turned out not to have what it claims."""

import asyncio
import logging
from collections.abc import Collection
from functools import partial

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.gangs.gang import Gang
from penstock.engines.kubernetes.gangs.registry import Gangs
from penstock.engines.kubernetes.judging import Judging
from penstock.engines.kubernetes.nodes import NAME_FIELD
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.sessions import Nodes

log = logging.getLogger(__name__)

AVOID_S = 60.0
"""A gang is planned somewhere else for so long."""


class Avoiding:
    """Lets gangs be planned elsewhere. Everything runs on the engine's loop."""

    def __init__(self, gangs: Gangs, judging: Judging, standing: Nodes) -> None:
        self._gangs, self._judging, self._standing = gangs, judging, standing

    def places_of(self, pod: Pod) -> list[tuple[Pod, NodeName]]:
        """Return the pods of a pod's gang that have places, and are not bound."""
        gang = self._gangs.of_pod(pod.key)
        places = [(gang.members.get(slot.pod), slot.node) for slot in gang.slots if slot.key] if gang else []
        return [(one, node) for one, node in places if one is not None and not one.spec.node_name and not one.leaving]

    def avoid(self, pod: Pod, node: NodeName, why: str) -> None:
        """Plan the gang of a pod somewhere else for a while."""
        gang = self._gangs.of_pod(pod.key)
        if gang is None:
            return
        log.info("a node does not have what a gang claims", extra={"gang": gang.label, "node": node, "problem": why})
        self._standing.ask_about({NAME_FIELD})
        self._judging.avoid(gang, node, asyncio.get_running_loop().time() + AVOID_S)
        gang.edited = True
        self._gangs.mark(gang)
        self._standing.later(AVOID_S + 0.01, partial(self._no_more, gang))

    def changed(self, nodes: Collection[NodeName]) -> None:
        """Let gangs be planned again on nodes of which other devices are free by now."""
        for gang_id in self._judging.avoid_nowhere_in(nodes) if nodes else ():
            self._plan_anew(self._gangs.get(gang_id))

    def _no_more(self, gang: Gang) -> None:
        self._judging.avoid_no_more(gang.id, asyncio.get_running_loop().time())
        if self._gangs.get(gang.id) is gang:
            self._plan_anew(gang)

    def _plan_anew(self, gang: Gang | None) -> None:
        if gang is not None and not gang.placed:
            gang.edited = True
            self._gangs.mark(gang)
