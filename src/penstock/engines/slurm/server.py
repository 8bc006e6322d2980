"""The server as the engine sees it; `control/slurm.py` is what stands behind it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.messages.requests import NewJob
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, NodeName, UserName
from penstock.ports import NodeSession


class Refused(NamedTuple):
    """Why the server did not take something."""

    text: str
    again: bool = False
    """It is only busy, or something else comes first: it may take it later."""


class Noted(NamedTuple):
    """The start of a job is in the log."""

    attempt: AttemptNumber


class LivePlace(NamedTuple):
    """A place that an attempt holds."""

    key: ReplicaKey
    node: NodeName
    name: str
    """Of the run, as it was noted with the start."""


class LiveJob(NamedTuple):
    """A job that has not ended, as the log has it."""

    job_id: JobId
    label: str
    """What it is in Slurm: its number and the time of its submit."""
    user: str
    ask: GangAsk
    places: tuple[LivePlace, ...]
    held: bool
    ran_before_ms: int = 0
    """It waits, and its runs are over, since then (unix ms); 0: it has not run, or runs."""


class NodesServer(Protocol):
    """What nodes need."""

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None: ...

    def on_report(self, report: NodeReport, session: NodeSession) -> None: ...

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None: ...

    def config(self) -> ClusterConfig:
        """Return the configuration in force."""
        ...

    def closed(self) -> Mapping[NodeName, str]:
        """Return the nodes that are closed for new work as Slurm said, and why."""
        ...

    def close(self, node: NodeName, why: str) -> None:
        """Close a node for new work; with '' open it."""
        ...


class JobTerms(NamedTuple):
    """What of a job is not in its starts."""

    labels: Mapping[str, str]
    time_limit_ms: int = 0
    """0: none."""
    account: str = ""
    """Of the machines; '' for that of the server."""


class ShadowServer(NodesServer, Protocol):
    """What a shadow needs: nodes, what waits, where it started and how it ended. Answers come on the engine's loop."""

    def live(self) -> Iterable[LiveJob]:
        """Return the jobs of Slurm that have not ended; asked once, at the start."""
        ...

    def note_waiting(self, job: NewJob, user: UserName, on_reply: Callable[[JobId | Refused], None]) -> None:
        """Note a job that waits for Slurm."""
        ...

    def note_start(
        self,
        job_id: JobId,
        nodes: Sequence[NodeName],
        names: Sequence[str],
        on_reply: Callable[[Noted | Refused], None],
    ) -> None:
        """Note where a waiting job runs by now."""
        ...

    def edit(self, job_id: JobId, ask: GangAsk, on_reply: Callable[[str], None]) -> None:
        """Let a waiting job ask for something else. The answer: '' when it does, else the code of why not."""
        ...

    def hold(self, job_id: JobId, on_reply: Callable[[str], None], *, held: bool) -> None:
        """Hold a job, or release it. The answer: '' when that is so, else the code of why not."""
        ...

    def cancel(self, job_id: JobId, reason: str, on_reply: Callable[[bool], None]) -> None:
        """End a job that waits, or say that a running one was asked to end. The answer: whether that is in the log."""
        ...

    def is_live(self, job_id: JobId) -> bool: ...


class PassingServer(NodesServer, Protocol):
    """What pass-through needs beside nodes. Answers come on the engine's loop."""

    def cluster(self) -> str:
        """Return the identity of the log: tags of jobs carry it."""
        ...

    def prepared(self, order: StartReplica) -> StartReplica:
        """Return an order as its node needs it."""
        ...

    def terms(self, job_id: JobId) -> JobTerms | None:
        """Return what of a job is not in its starts, None where it has ended."""
        ...

    def held_devices(self, node: NodeName) -> Collection[int]:
        """Return the devices of a node that jobs of ours hold."""
        ...

    def cancel(self, job_id: JobId, reason: str, on_reply: Callable[[bool], None]) -> None:
        """End a job. The answer: whether that is in the log."""
        ...

    def requeue(self, job_id: JobId, on_reply: Callable[[str], None]) -> None:
        """Let a job wait again. The answer: '' when it does, else the code of why not."""
        ...
