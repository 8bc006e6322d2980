"""Stops replicas that use more memory of a device than their part: warned, asked to save, stopped, in that order."""

import logging
from collections.abc import Mapping

from penstock.core.messages.reports import ReplicaKey
from penstock.devices.overstep import Oversteps, Step
from penstock.engines.agent.replicas import Replicas

log = logging.getLogger(__name__)

GRACE_MS = 30_000
"""Between the stop signal and the kill."""


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
