"""Requests to the control loop, and its replies."""

import msgspec

from penstock.core.lifecycle.requests import Submit
from penstock.core.messages.access import (
    NotificationDone,
    NotificationRequest,
    SecretDone,
    SecretRequest,
    TokenDone,
    TokenRequest,
)
from penstock.core.messages.money import MoneyDone, MoneyRequest
from penstock.core.messages.orders import Order
from penstock.core.messages.reports import NodeReport
from penstock.core.messages.requests import ChangeJobs as ChangeJobs
from penstock.core.messages.requests import JobsChanged as JobsChanged
from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.messages.requests import SeenStart as SeenStart
from penstock.core.messages.requests import StartNoted as StartNoted
from penstock.core.messages.schedules import ScheduleDone, ScheduleRequest
from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.estimates import StartEstimate
from penstock.core.model.events import AccessNoted, QuotaNoted
from penstock.core.model.ids import Epoch, Incarnation, JobId, NodeName, UserName
from penstock.core.model.plan import Plan
from penstock.core.state.state import Image
from penstock.core.status.scaleout import Missing


class Cancel(msgspec.Struct, frozen=True):
    job_id: JobId
    by: UserName
    reason: str = ""
    versions: tuple[str, ...] = ()
    """Refused unless the job is one of these (`core.lifecycle.versions`); empty: whatever it is."""


class Protect(msgspec.Struct, frozen=True):
    """Keep a job's programs from being disrupted for others, for `why`; empty: they may be again."""

    job_id: JobId
    why: str = ""


class AskCheckpoint(msgspec.Struct, frozen=True):
    """Ask a running program to save and carry on. Only the checkpoint that follows is logged."""

    job_id: JobId
    versions: tuple[str, ...] = ()
    """As of `Cancel`."""


class Drain(msgspec.Struct, frozen=True):
    node: NodeName
    on: bool
    by: UserName
    reason: str = ""
    evict: bool = False
    evict_at_ms: int = 0
    versions: tuple[str, ...] = ()
    """As of `Cancel`, of the node."""


class RemoveNodes(msgspec.Struct, frozen=True):
    """Take nodes that are over from the list: those of them that are lost, and where no attempt has a place."""

    nodes: tuple[NodeName, ...]
    reason: str


class NoteNodeLeaves(msgspec.Struct, frozen=True):
    """Log when a node will go."""

    node: NodeName
    leaves_ms: int
    """By then its jobs have to have left it (unix ms); 0: it stays."""
    stays_ms: int = 0
    """How long such a node stays in all."""


class ChangeDevice(msgspec.Struct, frozen=True):
    """Open a device of a node, or close it."""

    node: NodeName
    index: int
    on: bool
    by: UserName
    reason: str = ""
    evict: bool = False
    """Its work is asked to move; with `on` nothing is."""
    versions: tuple[str, ...] = ()
    """As of `Cancel`, of the node."""


class Configure(msgspec.Struct, frozen=True):
    config: ClusterConfig
    by: UserName
    base: str = ""
    """Digest of the configuration that it changes; empty: of any."""


class Hello(msgspec.Struct, frozen=True):
    """A node's agent introduces itself, on every new connection."""

    spec: NodeSpec
    incarnation: Incarnation


class Alive(msgspec.Struct, frozen=True):
    """Nodes that still stand, and of which nothing else is new: their leases go on."""

    nodes: tuple[tuple[NodeName, Incarnation], ...]


class ConfirmLead(msgspec.Struct, frozen=True):
    """Nothing: it is answered once the log has said that this server still leads."""


class TimePassed(msgspec.Struct, frozen=True):
    """Check limits and leases."""


class CommitPlan(msgspec.Struct, frozen=True):
    plan: Plan


class TakeImage(msgspec.Struct, frozen=True):
    """Return a copy of the whole state, as it is between two commits."""


class NoteEstimates(msgspec.Struct, frozen=True):
    """Log the start estimates of waiting jobs."""

    made_ms: int
    estimates: tuple[StartEstimate, ...]


class NoteCapacity(msgspec.Struct, frozen=True):
    """Log a request to the provider of nodes, and its answer."""

    missing: tuple[Missing, ...]
    accepted: bool
    answer: str


class NoteQuotas(msgspec.Struct, frozen=True):
    """Log alerts about the use of maxima."""

    events: tuple[QuotaNoted, ...]


class NoteAccess(msgspec.Struct, frozen=True):
    """Log refused callers and replaced keys."""

    events: tuple[AccessNoted, ...]


Request = (
    NoteCapacity
    | NoteAccess
    | NoteNodeLeaves
    | RemoveNodes
    | Submit
    | SeenStart
    | Cancel
    | ChangeJobs
    | Protect
    | AskCheckpoint
    | Drain
    | ChangeDevice
    | Configure
    | Hello
    | NodeReport
    | Alive
    | ConfirmLead
    | TimePassed
    | CommitPlan
    | TakeImage
    | NoteEstimates
    | NoteQuotas
    | MoneyRequest
    | TokenRequest
    | SecretRequest
    | NotificationRequest
    | ScheduleRequest
)


OfOne = Cancel | AskCheckpoint | Drain | ChangeDevice | ChangeJobs
OF_ONE = (Cancel, AskCheckpoint, Drain, ChangeDevice, ChangeJobs)
"""Requests that can name the version of the job or node which they were decided on."""
FROM_NODES = (Hello, NodeReport, Alive, ConfirmLead)
"""Requests that go before all others: leases depend on them."""


class DeviceChanged(msgspec.Struct, frozen=True):
    """The device is closed or open; `fault` is what its node still reports of one that was opened, which closes it."""

    fault: str = ""


class Done(msgspec.Struct, frozen=True):
    """The request is in the log (or needed no change). `found` is False when its object does not exist."""

    found: bool = True


class Welcome(msgspec.Struct, frozen=True):
    """The terms of a node's lease; `epoch` fences orders of former controllers."""

    epoch: Epoch
    lease_ms: int
    """For this long after it sent an acknowledged report the node may keep its processes alive."""
    heartbeat_ms: int


class ReportTaken(msgspec.Struct, frozen=True):
    """The report is in the log: lease renewed, progress kept; `orders` are for the node."""

    seq: int
    orders: tuple[Order, ...]
    accepted: bool = True
    """False for a node that is not known (any more): it has to say hello again."""


class PlanCommitted(msgspec.Struct, frozen=True):
    plan: Plan


class ImageTaken(msgspec.Struct, frozen=True):
    image: Image


class RequestFailed(msgspec.Struct, frozen=True):
    """Nothing of the request was done; `code` is that of the error (`store_full`, ...)."""

    code: str
    message: str
    hint: str = ""
    leader: str = ""
    """Address of the server to ask instead, when `code` is `not_leader`."""


Reply = (
    Submitted
    | StartNoted
    | Refusal
    | Done
    | DeviceChanged
    | JobsChanged
    | Welcome
    | ReportTaken
    | PlanCommitted
    | ImageTaken
    | MoneyDone
    | TokenDone
    | SecretDone
    | NotificationDone
    | ScheduleDone
    | RequestFailed
)
