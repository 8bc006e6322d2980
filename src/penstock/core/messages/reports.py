"""What agents report of their node and its replicas."""

from typing import Literal

import msgspec

from penstock.core.model.hangs import Sight
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, NodeName, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.progress import Gauges


class NodeCheck(msgspec.Struct, frozen=True):
    """What a node's check of itself came to."""

    passed: bool
    text: str = ""
    ended: bool = True
    """Whether it ended in time without being killed."""


class ReplicaKey(msgspec.Struct, frozen=True, order=True):
    """Names one replica for ever: job, attempt and rank."""

    job_id: JobId
    attempt: AttemptNumber
    rank: Rank

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.rank}"


SeenState = Literal["starting", "running", "frozen", "stopping", "exited"]


class ReplicaSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One replica as its node knows it. `exited` is said again until the server has acknowledged it."""

    key: ReplicaKey
    state: SeenState
    pid: int = 0
    exit: ExitInfo | None = None
    suspension: int = 0
    """Which suspension it is frozen for."""
    refused: str = ""
    """Why it cannot be frozen, where that was asked for."""


class ProgressSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the program of a replica wrote into its report file since the last report."""

    key: ReplicaKey
    kind: Literal["checkpoint", "resumed", "progress"]
    step: int
    size_bytes: int = 0
    why: str = ""
    gauges: Gauges | None = None
    """Of this replica alone; with `progress` only."""


class ReplicaInspected(msgspec.Struct, frozen=True):
    key: ReplicaKey
    sight: Sight


class NodeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a node's agent says in one message.

    `seq` grows with every message of one incarnation: an older one than the last seen is not listened to.
    `replicas` is complete when `inventory` is set: what is not listed is not there.
    """

    node: NodeName
    incarnation: Incarnation
    seq: int
    inventory: bool
    replicas: tuple[ReplicaSeen, ...] = ()
    progress: tuple[ProgressSeen, ...] = ()
    inspected: tuple[ReplicaInspected, ...] = ()
    """What was seen of replicas that the server asked about."""
    check: NodeCheck | None = None
    leaving: bool = False
    """The agent is shutting down: with an inventory without live replicas this is its last report."""


SHUT_DOWN = "its node was shut down"
