"""Users who hold, release, requeue and edit jobs, in some worlds, and clear the list of lost nodes; what they hold
they release in the end."""

import random
from collections.abc import Callable

from penstock.control import messages as msg
from penstock.core.model.actions import JobAction, JobChange
from penstock.core.model.ids import JobId, NodeName, QueueName, UserName
from penstock.sim.world.ground import Ground

ACTIONS: tuple[JobAction, ...] = ("hold", "hold", "release", "requeue", "requeue_hold", "edit", "edit")
CHANGES = (
    JobChange(priority=50),
    JobChange(priority=2_000),
    JobChange(preemptible=True),
    JobChange(preemptible=False),
    JobChange(queue=QueueName("b1")),
    JobChange(queue=QueueName("d"), priority=700),
    JobChange(name="renamed", labels=(("by", "hand"),)),
    JobChange(max_wait_ms=86_400_000),
)
"""None of them changes how a job ends: that is checked against its program."""
AGAIN_MS = 3_000
CLEARINGS = 20
USER = UserName("u")


def hands_of(world: Ground, known: Callable[[], list[JobId]]) -> "Hands | None":
    """Return the users who act in a seed's world: of every fourth, and none that has found a bug before."""
    return Hands(world, known) if world.seed % 4 == 3 else None


class Hands:
    """Acts on accepted jobs, several at once."""

    def __init__(self, world: Ground, known: Callable[[], list[JobId]]) -> None:
        self._world, self._known = world, known
        self._rng = random.Random(f"{world.seed} hands")
        self._clearings = random.Random(f"{world.seed} clearings")

    def plan(self, over_ms: int) -> None:
        """Spread actions over a time; after it all that is held is released."""
        for _ in range(self._rng.randint(3, 16)):
            self._world.agenda.after(self._rng.randint(1, over_ms), self._act)
        self._world.agenda.after(over_ms + 1, self._release_all)
        for _ in range(CLEARINGS):
            self._world.agenda.after(self._clearings.randint(1, over_ms), self._clear)

    def _act(self) -> None:
        known, rng = sorted(self._known()), self._rng
        if not known or self._world.server is None:
            return
        some = tuple(sorted(rng.sample(known, min(len(known), rng.randint(1, 5)))))
        action = rng.choice(ACTIONS)
        change = rng.choice(CHANGES) if action == "edit" else JobChange()

        def on_reply(reply: msg.Reply) -> None:
            if isinstance(reply, msg.JobsChanged) and reply.changed:
                self._world.probe(f"hands_{action}")

        self._world.server.ask(msg.ChangeJobs(action, some, USER, change), on_reply)

    def _clear(self) -> None:
        """Take the nodes that are lost from the list, as if what lent them was over; those that come back are new."""

        def on_reply(reply: msg.Reply) -> None:
            if isinstance(reply, msg.Done) and reply.found:
                self._world.probe("node_removed")

        if self._world.server is not None:
            names = tuple(NodeName(name) for name in sorted(self._world.nodes))
            self._world.server.ask(msg.RemoveNodes(names, "over"), on_reply)

    def _release_all(self) -> None:
        """Release what is held, until the server says so."""
        done = False

        def on_reply(reply: msg.Reply) -> None:
            nonlocal done
            done = done or isinstance(reply, msg.JobsChanged)

        if self._world.server is not None:
            asked = tuple(sorted(self._known()))
            self._world.server.ask(msg.ChangeJobs("release", asked, USER), on_reply)
        self._world.agenda.after(AGAIN_MS, lambda: None if done else self._release_all())
