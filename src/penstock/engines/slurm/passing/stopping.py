"""Attempts are asked to leave, and killed after their grace: by signals through Slurm, and by files beside them.

What has not begun is withdrawn: its claim is taken, so that it never will.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from penstock.core.messages.orders import StopReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import NodeName
from penstock.engines.slurm.commands import SlurmAway
from penstock.engines.slurm.passing.attempts import NOT_BEGUN, Attempt
from penstock.engines.slurm.passing.spool import Spool
from penstock.engines.slurm.standing import StandingNodes
from penstock.engines.slurm.writing import SlurmWriter

log = logging.getLogger(__name__)

FORCE_S = 6.0
"""A script that was asked to kill its program has this long, then Slurm kills both."""
AGAIN_S = 2.0


class Stopper:
    """Stops attempts. On the engine's loop.

    Args:
        hurry: lets Slurm be asked soon.
    """

    def __init__(self, spool: Spool, writer: SlurmWriter, nodes: StandingNodes, hurry: Callable[[], None]) -> None:
        self._spool, self._writer, self._nodes, self._hurry = spool, writer, nodes, hurry

    def ask(self, attempt: Attempt, node: NodeName, order: StopReplica, now_s: float) -> None:
        """Take an order to stop a replica. One that is not known has not begun."""
        state = self._nodes.state_of(order.key)
        if state == "exited":
            return
        kill_at_s = now_s + order.grace_ms / 1000
        attempt.kill_at_s[order.key] = min(kill_at_s, attempt.kill_at_s.get(order.key, kill_at_s))
        self._nodes.stand(order.key, node if state is None else self._nodes.node_of(order.key), "stopping")

    def due(self, attempts: Iterable[Attempt], now_s: float) -> Iterator[Attempt]:
        """Yield the attempts for which something is to be done now."""
        for attempt in tuple(attempts):
            if not attempt.stopping or attempt.busy or attempt.state == "submitting":
                continue
            if self._to_ask(attempt) or self._to_kill(attempt, now_s) or self._to_force(attempt, now_s):
                yield attempt

    def _to_ask(self, attempt: Attempt) -> list[ReplicaKey]:
        return [key for key in attempt.kill_at_s if key not in attempt.asked and self._lives(key)]

    def _to_kill(self, attempt: Attempt, now_s: float) -> list[ReplicaKey]:
        at = attempt.kill_at_s.items()
        return [key for key, at_s in at if at_s <= now_s and key not in attempt.killed and self._lives(key)]

    def _to_force(self, attempt: Attempt, now_s: float) -> bool:
        if attempt.forced or not attempt.killed:
            return False
        late = all(at_s + FORCE_S <= now_s for at_s in attempt.kill_at_s.values())
        return late and any(map(self._lives, attempt.kill_at_s))

    def _lives(self, key: ReplicaKey) -> bool:
        return self._nodes.state_of(key) not in (None, "exited")

    async def stop(self, attempt: Attempt, now_s: float) -> None:
        """Do the next step of a stop."""
        try:
            if not attempt.started and not attempt.asked and await self._withdrawn(attempt):
                return
            if not attempt.number:
                attempt.number = await asyncio.to_thread(self._spool.claimed, attempt.account, attempt.key)
            await self._step(attempt, now_s)
        except (SlurmAway, OSError) as error:
            problem = error.message if isinstance(error, SlurmAway) else str(error)
            log.warning("a job cannot be stopped yet", extra={"job": str(attempt.key), "problem": problem})
            await asyncio.sleep(AGAIN_S)
        finally:
            attempt.busy = False

    async def _withdrawn(self, attempt: Attempt) -> bool:
        """Return whether an attempt never begins; then it is over."""
        if attempt.state not in ("gathering", "queued"):
            if not await asyncio.to_thread(self._spool.withdraw, attempt.account, attempt.key):
                return False
            if attempt.number and not attempt.taken:
                await self._writer.cancel([attempt.number])
        elif not attempt.orders and not await asyncio.to_thread(self._spool.withdraw, attempt.account, attempt.key):
            return False
        for key in {*attempt.kill_at_s, *(one.key for one in attempt.orders.values())}:
            if self._lives(key):
                self._nodes.end(key, NOT_BEGUN)
        return True

    async def _step(self, attempt: Attempt, now_s: float) -> None:
        kill = [key for key, at_s in attempt.kill_at_s.items() if at_s <= now_s and key not in attempt.killed]
        ask = [key for key in attempt.kill_at_s if key not in attempt.asked and key not in kill]
        whole = len(attempt.kill_at_s) >= max(len(attempt.orders), len(attempt.started))
        if self._to_force(attempt, now_s):
            attempt.forced = True
            if attempt.number and not attempt.taken:
                await self._writer.signal([attempt.number], "KILL", full=True)
                await self._writer.cancel([attempt.number])
            self._hurry()
            return
        for keys, signal, killing in ((ask, "TERM", False), (kill, "USR2", True)):
            if not keys:
                continue
            for key in keys:
                await asyncio.to_thread(self._spool.ask, attempt.account, key, kill=killing)
            attempt.asked.update(keys)
            if killing:
                attempt.killed.update(keys)
            if whole and attempt.number and not attempt.taken:
                await self._writer.signal([attempt.number], signal, batch=not attempt.gang)
