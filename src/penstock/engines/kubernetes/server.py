"""The server as the engine sees it; `control/pods.py` is what stands behind it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.core.messages.reports import NodeReport
from penstock.core.messages.requests import NewJob
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import Incarnation, JobId, NodeName
from penstock.engines.kubernetes.gangs import Refused
from penstock.ports import NodeSession


class Server(Protocol):
    """What the engine needs of the server: the node's half of the engine port, and jobs for gangs.

    Answers come on the engine's loop.
    """

    def on_hello(self, spec: NodeSpec, incarnation: Incarnation, session: NodeSession) -> None: ...

    def on_report(self, report: NodeReport, session: NodeSession) -> None: ...

    def on_alive(self, nodes: Sequence[tuple[NodeName, Incarnation]]) -> None:
        """Receive nodes that still stand, and of which nothing else is new."""
        ...

    def knows_tenant(self, name: str) -> bool: ...

    def submit(self, job: NewJob, key: str, on_reply: Callable[[JobId | Refused], None]) -> None:
        """Submit a gang; under a key that was used before the same job is the answer."""
        ...

    def hold(self, job_id: JobId, on_reply: Callable[[str], None], *, held: bool) -> None:
        """Hold a job, or release it. The answer: '' when that is so, else the code of why not."""
        ...

    def cancel(self, job_id: JobId, reason: str) -> None: ...

    def gang_name(self, job_id: JobId) -> str:
        """Return the gang that a live job is of, as its label has it; '' for any other job."""
        ...
