"""Ends replicas that hold more memory of the node than they asked for, where no control group keeps them to it.

They are killed without a grace period, as the kernel would do: a program that is only asked to stop keeps allocating.
"""

import logging

from penstock.engines.agent.replicas import Replicas
from penstock.engines.processes.outputs import tell

log = logging.getLogger(__name__)

EVERY_MS = 500


class MemoryWatch:
    """Looks at the replicas of a node twice a second."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._next_ms = 0

    def turn(self, now_ms: int) -> None:
        """End those that are above their limit; their exits say why."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + EVERY_MS
        for key, running in list(self._replicas.running.items()):
            if running.exit is None and (why := running.box.exceeded()):
                log.warning("a replica holds more memory than it asked for", extra={"key": str(key), "text": why})
                tell(self._replicas.data.output(key), why)
                running.why_stopped = why
                self._replicas.kill(key)
