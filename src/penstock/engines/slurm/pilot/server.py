"""The server as the pilot sees it; `control/slurm_pilot.py` is what stands behind it."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.core.status.scaleout import Missing


class PilotNode(NamedTuple):
    """A node of an allocation, as the log has it."""

    ready: bool
    """It has joined, and is not lost."""
    lost: bool
    jobs: int
    """Replicas that hold places there."""
    grace_ms: int
    """The longest time that a job there has been promised to save and leave."""
    closed: bool
    """Nothing new is placed there."""

    @property
    def empty(self) -> bool:
        """Whether no job is there, and none will come."""
        return not self.jobs and (self.closed or not self.ready)


class PilotServer(Protocol):
    """What the pilot needs of the server. All of it may take a moment; it is called in threads."""

    def begin(self) -> None:
        """Let jobs wait for nodes that are not there yet."""
        ...

    def cluster(self) -> str:
        """Return the identity of the log."""
        ...

    def missing(self, after_ms: int) -> tuple[Missing, ...]:
        """Return what jobs have waited for room for at least so long."""
        ...

    def ask_of(self, job_id: JobId) -> GangAsk | None:
        """Return what a live job asks for. Any thread."""
        ...

    def nodes(self) -> Mapping[NodeName, PilotNode]:
        """Return the nodes of the pilot by name, those that are lost as not ready."""
        ...

    def connected(self) -> frozenset[NodeName]: ...

    def declared(self) -> Mapping[NodeName, str]:
        """Return the nodes that were declared for the pilot, and where each is."""
        ...

    def declare(self, name: NodeName, pool: PoolName, at: str) -> bytes:
        """Let a node join, and return the bundle with which it does: a secret."""
        ...

    def leaves(self, name: NodeName, leaves_ms: int, stays_ms: int) -> None:
        """Say by when the jobs of a node have to have left it (unix ms), and for how long it stays in all."""
        ...

    def going(self, name: NodeName, deadline_ms: int | None, reason: str) -> None:
        """Place nothing more on a node; with a deadline (unix ms) ask its jobs to save and be away by then."""
        ...

    def gone(self, name: NodeName, reason: str) -> None:
        """Take a node for lost: surely no process of it lives."""
        ...

    def remove(self, name: NodeName) -> None:
        """Let a node join no more: its name is not used again."""
        ...

    def clear(self, kept: Collection[NodeName]) -> None:
        """Take from the list the lost nodes of the pilot but `kept`: their allocations are over. May be repeated: of
        those on which an attempt still has a place the list is cleared later."""
        ...

    def note(self, missing: Sequence[Missing], text: str, *, accepted: bool) -> None:
        """Log what was asked for, and the answer."""
        ...
