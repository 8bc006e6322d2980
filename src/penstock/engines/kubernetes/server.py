"""The server as the engine sees it; `control/pods.py` is what stands behind it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.messages.requests import NewJob
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.errors import Problem
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import AttemptNumber, Incarnation, JobId, NodeName
from penstock.core.model.resources import ReplicaAsk
from penstock.engines.kubernetes.gangs.gang import Refused, Terms
from penstock.ports import NodeSession


class LivePlace(NamedTuple):
    """A place that an attempt holds."""

    key: ReplicaKey
    node: NodeName
    devices: tuple[int, ...]
    started: bool
    name: str = ""
    """What it is called outside, where another scheduler placed it."""


class LiveJob(NamedTuple):
    """A job of a gang that has not ended, as the log has it."""

    job_id: JobId
    gang: str
    asks: tuple[ReplicaAsk, ...]
    """By rank."""
    places: tuple[LivePlace, ...]
    held: bool
    terms: Terms
    ask: GangAsk
    protected: str = ""
    """Why it must not be disrupted for others."""


class Outlook(NamedTuple):
    """Why a job waits, in words with numbers."""

    code: str
    """As of explanations; '' where it does not wait."""
    text: str


Phase = Literal["waiting", "starting", "running", "stopping", "succeeded", "failed", "cancelled"]


class Seen(NamedTuple):
    """Where a job is in its life."""

    phase: Phase
    attempt: int
    """The present one, or the last."""
    replicas: int = 0
    """That hold places."""
    running: int = 0
    text: str = ""
    """How its last attempt ended."""


class NodeServer(Protocol):
    """The node's half of the engine port."""

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None: ...

    def on_report(self, report: NodeReport, session: NodeSession) -> None: ...

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None:
        """Receive nodes that still stand, and of which nothing else is new."""
        ...


class Server(NodeServer, Protocol):
    """What the engine needs of the server: nodes, and jobs for gangs. Answers come on the engine's loop."""

    def identity(self) -> str:
        """Return the identity of the log."""
        ...

    def term(self) -> str:
        """Return what no other life of a server is called that has led with the log."""
        ...

    def live(self) -> Iterable[LiveJob]:
        """Return the jobs of all gangs; asked once, at the start."""
        ...

    def knows_tenant(self, name: str) -> bool: ...

    def submit(self, job: NewJob, on_reply: Callable[[JobId | Refused], None]) -> None: ...

    def hold(self, job_id: JobId, on_reply: Callable[[str], None], *, held: bool) -> None:
        """Hold a job, or release it. The answer: '' when that is so, else the code of why not."""
        ...

    def requeue(self, job_id: JobId, on_reply: Callable[[str], None]) -> None:
        """Let a job save, leave and wait again, held. The answer: '' when it will, else the code of why not."""
        ...

    def protect(self, job_id: JobId, why: str) -> None:
        """Keep a job from being disrupted for others, for `why`; '' lifts that."""
        ...

    def edit(self, job_id: JobId, ask: GangAsk, on_reply: Callable[[str], None]) -> None:
        """Let a waiting job ask for something else. The answer: '' when it does, else the code of why not."""
        ...

    def cancel(self, job_id: JobId, reason: str) -> None: ...

    def gang_name(self, job_id: JobId) -> str:
        """Return the gang that a live job is of, as its label has it; '' for any other job."""
        ...

    def seen(self, job_id: JobId) -> Seen | None:
        """Return where a live job is; None for any other one."""
        ...

    def ended(self, job_id: JobId, on_reply: Callable[[Seen | None], None]) -> None:
        """Say how a job ended; None where that is not known, or not yet on disk."""
        ...

    def config(self) -> ClusterConfig:
        """Return the configuration in force."""
        ...

    def declare(
        self, config: ClusterConfig, base: ClusterConfig, on_reply: Callable[[tuple[Problem, ...]], None]
    ) -> None:
        """Put a configuration in force where `base` is. The answer: the problems that keep it from being."""
        ...

    def queue_uses(self) -> Mapping[str, tuple[int, int, dict[str, str]]]:
        """Return how many jobs wait in each queue, how many hold places, and what these hold, by resource."""
        ...

    def pool_uses(self) -> Mapping[str, tuple[int, int]]:
        """Return how many devices each pool has, and how many of them jobs hold."""
        ...

    def closed_nodes(self) -> Mapping[NodeName, str]:
        """Return the nodes that were closed for their failures, and why."""
        ...

    def stop_text(self, job_id: JobId) -> str:
        """Return why a job's attempt is being stopped, with numbers."""
        ...

    def rooms(self) -> Mapping[JobId, tuple[NodeName, ...]]:
        """Return the waiting jobs for which others are leaving, each with the nodes that it starts on then, by rank."""
        ...

    def outlooks(self, job_ids: Sequence[JobId], on_reply: Callable[[dict[JobId, Outlook]], None]) -> None:
        """Say why these jobs wait; those that wait no more are left out."""
        ...


class Noted(NamedTuple):
    """The start of a job that another scheduler placed is in the log."""

    attempt: AttemptNumber
    devices: tuple[tuple[int, ...], ...]
    """By rank: those that it was counted with."""


class ShadowServer(NodeServer, Protocol):
    """What a shadow needs of the server: to say what waits for another scheduler, and what that one decided."""

    def live(self) -> Iterable[LiveJob]:
        """Return the jobs of all gangs; asked once, at the start."""
        ...

    def knows_tenant(self, name: str) -> bool: ...

    def config(self) -> ClusterConfig:
        """Return the configuration in force."""
        ...

    def note_waiting(self, job: NewJob, on_reply: Callable[[JobId | Refused], None]) -> None:
        """Note a job that waits for another scheduler."""
        ...

    def note_start(
        self,
        job_id: JobId,
        scheduler: str,
        nodes: Sequence[NodeName],
        names: Sequence[str],
        on_reply: Callable[[Noted | Refused], None],
    ) -> None:
        """Note where a waiting job runs by now, and what its replicas are called there."""
        ...

    def cancel(self, job_id: JobId, reason: str) -> None: ...

    def gang_name(self, job_id: JobId) -> str:
        """Return the gang that a live job is of, as its label has it; '' for any other job."""
        ...
