"""A simulated network between nodes and servers: messages are lost, doubled, late and out of order."""

import random
from collections.abc import Callable

from penstock.sim.world.clockwork import Agenda


class Network:
    """Delivers by calling; knows which nodes are cut off."""

    def __init__(self, agenda: Agenda, rng: random.Random) -> None:
        self._agenda, self._rng = agenda, rng
        self.loss = self.doubling = self.lateness = 0.0
        self.cut_off: set[str] = set()
        self.sent = self.lost = 0

    def heal(self) -> None:
        self.loss = self.doubling = self.lateness = 0.0
        self.cut_off.clear()

    def send(self, node: str, deliver: Callable[[], None]) -> None:
        """Carry one message between `node` and the server, one way or the other."""
        self.sent += 1
        if node in self.cut_off or self._rng.random() < self.loss:
            self.lost += 1
            return
        copies = 2 if self._rng.random() < self.doubling else 1
        for _ in range(copies):
            delay_ms = self._rng.randint(1, 30)
            if self._rng.random() < self.lateness:
                delay_ms = self._rng.randint(100, 9_000)
            self._agenda.after(delay_ms, lambda: self._arrive(node, deliver))

    def _arrive(self, node: str, deliver: Callable[[], None]) -> None:
        if node not in self.cut_off:
            deliver()
