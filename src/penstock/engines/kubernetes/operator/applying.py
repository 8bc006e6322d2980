"""Queues and ComputePools, followed: the configuration is made to say what they say, and their statuses what holds.

Queues of a ConfigMap take the same way, as long as there is no Queue object.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from penstock.core.model.cluster import ClusterConfig
from penstock.core.model.errors import Problem
from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.objects.penstock import ComputePool, ComputePoolStatus, Queue, QueueStatus
from penstock.engines.kubernetes.operator.declaring import declared
from penstock.engines.kubernetes.operator.kinds import POOLS, QUEUES
from penstock.engines.kubernetes.operator.queuefile import QueueFile
from penstock.engines.kubernetes.operator.queuemap import QueueMap
from penstock.engines.kubernetes.operator.statuses import Statuses, Told, alike, conditions
from penstock.engines.kubernetes.server import Server

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Objects and configuration are compared this often."""
TELL_S = 5.0
"""Numbers in statuses are brought up to date this often."""
REFUSED_S = 30.0
"""A configuration that the server refused is sent again after this long, if nothing has changed before."""
SOON = ("changed_since", "busy")
"""Refusals that the next try may not meet."""
Object = TypeVar("Object", Queue, ComputePool)
Objects = Callable[[], tuple[Mapping[tuple[str, str], Queue], Mapping[tuple[str, str], ComputePool]] | None]
"""The objects by namespace (empty) and name; None until all of them are known."""


class Applying:
    """Applies objects. Everything runs on the engine's loop.

    Args:
        changed: hears that another configuration holds.
        queue_map: a ConfigMap that declares queues as long as no Queue object does.
    """

    def __init__(
        self,
        client: Client,
        server: Server,
        known: Objects,
        changed: Callable[[], None],
        queue_map: QueueMap | None = None,
    ) -> None:
        self._server, self._objects, self._changed, self._map = server, known, changed, queue_map
        self._problems: Mapping[str, str] = {}
        self._in_use: set[str] = set()
        """Queues and pools without an object that live jobs use still, as the server said."""
        self._asked = False
        self._in_use_until_s = 0.0
        """Then the server is asked again about these (of the loop's clock)."""
        self._applied: ClusterConfig | None = None
        self._looked: tuple[Any, ...] = ()
        """What was looked at last: as long as it is the same, so is what follows."""
        self._again_s = math.inf
        """Then it is looked at all the same, as the server refused what follows (of the loop's clock)."""
        self._told_s: dict[str, float] = {}
        """When each status was looked at last, by the object's uid (of the loop's clock)."""
        self._statuses = Statuses(client)

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                found = self._objects()
                file = await self._map.current() if self._map is not None else None
                if found is None or not (found[0] or found[1] or file or self._in_use):
                    continue
                await self._apply(tuple(found[0].values()), tuple(found[1].values()), file)
                if not self._asked:  # else what is in force is about to be known
                    self._tell(found)
        finally:
            self._statuses.close()

    async def _apply(self, queues: Sequence[Queue], pools: Sequence[ComputePool], file: QueueFile | None) -> None:
        config, now_s = self._server.config(), asyncio.get_running_loop().time()
        if config is not self._applied:
            self._applied = config
            self._changed()
        if self._in_use and now_s >= self._in_use_until_s:
            self._in_use.clear()  # their last jobs may have ended
        if queues and self._map is not None and file is not None:
            self._map.overruled()
            file = None
        both: tuple[Queue | ComputePool, ...] = (*queues, *pools)
        metas = [one.metadata for one in both]
        version = self._map.version if self._map is not None and file is not None else ""
        now = (
            id(config), version, frozenset(self._in_use), *((m.uid, m.generation, m.deletion_timestamp) for m in metas)
        )  # fmt: skip
        if self._asked or (now == self._looked and now_s < self._again_s):
            return
        counted = file.queues if file is not None else _staying(queues)
        in_use, fair_share = self._in_use if counted or pools else (), file.fair_share if file is not None else None
        wanted, self._problems = await asyncio.to_thread(declared, config, counted, _staying(pools), in_use, fair_share)
        self._looked, self._again_s = now, math.inf
        if not self._problems and wanted != config:
            self._asked = True
            self._server.declare(wanted, config, partial(self._replied, file))
        self._say(file, holds=wanted == config)

    def _say(self, file: QueueFile | None, *, holds: bool) -> None:
        """Say on the ConfigMap what became of its queues."""
        if self._map is None or file is None:
            return
        if self._problems:
            self._map.wrong(f"{name or 'configuration'}: {text}" for name, text in self._problems.items())
        elif holds:
            self._map.applied(file)

    def _replied(self, file: QueueFile | None, problems: tuple[Problem, ...]) -> None:
        self._asked, now_s = False, asyncio.get_running_loop().time()
        used = [one for one in problems if one.code == "still_used" and one.field in ("queues", "pools")]
        for one in used:
            self._in_use.add(f"{one.field.removesuffix('s')} {one.value}")
            self._in_use_until_s = now_s + TELL_S
        lasting = [one for one in problems if one not in used and one.code not in SOON]
        if lasting:
            self._again_s = self._in_use_until_s = now_s + REFUSED_S
            self._problems = {
                "": "; ".join(f"{one.message} ({one.hint})" if one.hint else one.message for one in lasting)
            }
            log.warning("the objects of queues and pools could not be applied", extra={"problem": self._problems[""]})
            self._say(file, holds=False)
        else:
            self._looked = ()

    # Statuses.

    def _tell(self, found: tuple[Mapping[tuple[str, str], Queue], Mapping[tuple[str, str], ComputePool]]) -> None:
        now_s = asyncio.get_running_loop().time()
        queues, pools = found
        both: tuple[Queue | ComputePool, ...] = (*queues.values(), *pools.values())
        for uid in self._told_s.keys() - {one.metadata.uid for one in both}:
            del self._told_s[uid]
        if any(self._is_due(one, now_s) for one in queues.values()):
            uses = self._server.queue_uses()
            for queue in queues.values():
                waiting, running, used = uses.get(queue.metadata.name, (0, 0, {}))
                told = self._ready(f"queue {queue.metadata.name}")
                status = QueueStatus(waiting, running, {**used}, queue.metadata.generation, conditions(queue, told))
                self._write(QUEUES, queue, status, now_s)
        if any(self._is_due(one, now_s) for one in pools.values()):
            shares = self._server.pool_uses()
            for pool in pools.values():
                self._write(POOLS, pool, self._pool_status(pool, *shares.get(pool.metadata.name, (0, 0))), now_s)

    def _pool_status(self, pool: ComputePool, total: int, held: int) -> ComputePoolStatus:
        told = self._ready(f"pool {pool.metadata.name}")
        short = pool.spec.capacity.total - total
        phase: Any = "Ready" if told["Ready"].status == "True" else "Invalid"
        if phase == "Ready" and short > 0:
            phase = "Degraded"
            text = f"its nodes have {total} devices, {short} fewer than spec.capacity.total"
            told = {"Ready": Told("False", "NodesMissing", text)}
        generation = pool.metadata.generation
        return ComputePoolStatus(phase, total, held, max(0, total - held), generation, conditions(pool, told))

    def _ready(self, name: str) -> dict[str, Told]:
        problem = self._problems.get(name, "")
        if problem:
            return {"Ready": Told("False", "Invalid", problem)}
        if self._problems:
            others = "; ".join(f"{other or 'configuration'}: {text}" for other, text in self._problems.items())
            return {
                "Ready": Told("False", "OthersInvalid", f"nothing is applied as long as this is so: {others}"[:1000])
            }
        return {"Ready": Told("True", "Applied", "it is part of the configuration")}

    def _is_due(self, one: Queue | ComputePool, now_s: float) -> bool:
        known = one.status.observed_generation == one.metadata.generation
        return not known or now_s - self._told_s.get(one.metadata.uid, -TELL_S) >= TELL_S

    def _write(self, kind: Kind, one: Queue | ComputePool, status: msgspec.Struct, now_s: float) -> None:
        if self._statuses.full or self._statuses.busy(one.metadata.uid):
            return
        self._told_s[one.metadata.uid] = now_s
        if not alike(status, one.status):
            self._statuses.write(kind, one, status, lambda: self._forget(one))

    def _forget(self, one: Queue | ComputePool) -> None:
        self._told_s.pop(one.metadata.uid, None)


def _staying(given: Sequence[Object]) -> list[Object]:
    """Return the objects that are not being deleted."""
    return [one for one in given if one.metadata.deletion_timestamp is None]
