"""Stops replicas that use more memory of a device than their part: warned, asked to save, stopped, in that order.

Each of these is a line in the replica's output, too: there its owner looks.
"""

import logging
from collections.abc import Mapping

from penstock.core.messages.reports import ReplicaKey
from penstock.devices.overstep import SAVE_AFTER_MS, STOP_AFTER_MS, Oversteps, Step
from penstock.engines.agent.replicas import Replicas
from penstock.engines.processes.outputs import tell

log = logging.getLogger(__name__)

GRACE_MS = 30_000
"""Between the stop signal and the kill."""
FOLLOWS = {
    "warn": f"unless it frees some, it is asked to save after {SAVE_AFTER_MS // 1000} s of this, "
    f"and stopped after {STOP_AFTER_MS // 1000} s",
    "save": f"it is asked to save, if it can, and stopped after {STOP_AFTER_MS // 1000} s of this",
    "stop": "it is stopped",
}
"""By the step, what comes of it."""


class Watchdog:
    """Does what `Oversteps` says to the replicas of a node."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas, self._oversteps = replicas, Oversteps[ReplicaKey]()
        self._stopped: dict[ReplicaKey, int | None] = {}
        """Replicas that were sent the stop signal, and when to kill them; None until the next turn says."""

    def take(self, at_ms: int, used: Mapping[tuple[ReplicaKey, int], int]) -> None:
        """Take a reading.

        Args:
            at_ms: when it was taken, by a clock of its own.
            used: memory (bytes) by replica and device; what was not measured is not in it.
        """
        running = self._replicas.running
        limits = {
            (key, index): one.memory_limit_bytes
            for key, one in running.items()
            if one.memory_limit_bytes
            for index in one.devices
        }
        for step in self._oversteps.take(at_ms, used, limits):
            self._act(step)

    def _act(self, step: Step[ReplicaKey]) -> None:
        said = {"key": str(step.key), "device": step.index, "what": step.what, "text": step.text}
        log.warning("a replica uses more than its part of a device", extra=said)
        tell(self._replicas.data.output(step.key), f"this program {step.deed}: {FOLLOWS[step.what]}")
        if step.what == "save":
            self._replicas.ask_to_save(step.key)
        elif step.what == "stop":
            self._replicas.stop_for(step.key, step.text)
            self._stopped[step.key] = None

    def turn(self, now_ms: int) -> None:
        """Kill those whose grace is over."""
        for key, kill_at_ms in list(self._stopped.items()):
            if key not in self._replicas.running:
                del self._stopped[key]
            elif kill_at_ms is None:
                self._stopped[key] = now_ms + GRACE_MS
            elif now_ms >= kill_at_ms:
                self._replicas.kill(key)
