"""Replicas that are being frozen: all processor time is taken from them, and they keep their memory."""

from collections.abc import Container, Mapping

from penstock.core.messages.reports import ReplicaKey
from penstock.engines.processes.boxes import Running

FREEZE_MAX_MS = 2_000
"""A replica not frozen by then is thawed: a process waits in the kernel, perhaps for long."""


class Freezer:
    """Freezes and thaws replicas.

    Args:
        running: the replicas that have processes.
        ending: those of them that are being killed.
        kind: what holds them, for people.
    """

    def __init__(self, running: Mapping[ReplicaKey, Running], ending: Container[ReplicaKey], kind: str) -> None:
        self._running, self._ending, self._kind = running, ending, kind
        self._freezing: dict[ReplicaKey, int] = {}  # since when (monotonic ms)

    @property
    def busy(self) -> bool:
        """Whether `newly_frozen` is to be asked soon."""
        return bool(self._freezing)

    def freeze(self, key: ReplicaKey, now_ms: int) -> str:
        """Begin to freeze a replica; return why it cannot be, or ''. `newly_frozen` tells when it is."""
        running = self._running.get(key)
        if running is None or running.exit is not None or key in self._ending or key in self._freezing:
            return ""  # its end is being reported, or that it is frozen
        if not running.box.freeze():
            return f"cannot be frozen: {self._kind}"
        self._freezing[key] = now_ms
        return ""

    def newly_frozen(self, now_ms: int) -> list[tuple[ReplicaKey, str]]:
        """Return replicas that are frozen since the last call, and those that could not be, with the reason."""
        found: list[tuple[ReplicaKey, str]] = []
        for key, since_ms in list(self._freezing.items()):
            running = self._running.get(key)
            if running is None or running.exit is not None:
                del self._freezing[key]
            elif running.box.frozen():
                del self._freezing[key]
                found.append((key, ""))
            elif now_ms - since_ms > FREEZE_MAX_MS:
                self.thaw(key)
                found.append((key, f"not frozen after {FREEZE_MAX_MS / 1000:g} s: a process waits in the kernel"))
        return found

    def thaw(self, key: ReplicaKey) -> None:
        """Resume a frozen replica."""
        self._freezing.pop(key, None)
        running = self._running.get(key)
        if running is not None:
            running.box.thaw()

    def frozen(self, key: ReplicaKey) -> bool:
        """Return whether a replica is frozen: a former worker may have done it."""
        running = self._running.get(key)
        return running is not None and running.box.frozen()
