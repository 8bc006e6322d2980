"""Answers of the API. Times are unix milliseconds, 0 where something has not happened."""

from typing import Any

import msgspec

from penstock.api.nodes import DeviceAnswer as DeviceAnswer
from penstock.api.nodes import DeviceView as DeviceView
from penstock.api.nodes import NodeView as NodeView
from penstock.core.model.accounts import Lot
from penstock.core.model.answers import Alert, Bill, BudgetView, JournalEntry
from penstock.core.model.errors import Problem


class GroupCount(msgspec.Struct, frozen=True):
    """How many rows of a list have one value of what `totals_by` names."""

    name: str
    count: int
    devices: int = 0
    """Of the rows together, where they ask for or have devices."""


class PagedList(msgspec.Struct, frozen=True, kw_only=True):
    """What every list says of its rows."""

    next_cursor: str = ""
    """To ask for the rows that follow; empty at the end."""
    matching: int = 0
    """Rows that match, on all pages."""
    groups: list[GroupCount] = []
    """How many of them have each value of what `totals_by` names, the largest first."""
    groups_left_out: int = 0
    """Rows of further groups."""


class JobRef(msgspec.Struct, frozen=True):
    id: int
    name: str


class SubmitAnswer(msgspec.Struct, frozen=True):
    """The jobs that a submit made; `repeated` when the same request had made them before."""

    jobs: list[JobRef]
    repeated: bool = False
    warnings: tuple[str, ...] = ()
    """What the submitter should know, such as that checkpoints may get lost with a node."""


class EtaView(msgspec.Struct, frozen=True):
    """When one waiting job starts: 1, 5 and 9 of 10 starts should come before these times; 0: unknown."""

    id: int
    name: str
    tenant: str
    queue: str
    user: str
    submitted_ms: int
    early_ms: int
    likely_ms: int
    late_ms: int


class EtaList(PagedList, frozen=True):
    """When waiting jobs start, if no jobs are submitted that come before them."""

    made_ms: int
    """Time of the simulated state."""
    samples: int
    """Number of samples; 0 if not one finished in time."""
    untold: int
    """Waiting jobs beyond those that are listed."""
    jobs: list[EtaView]


class ReplicaView(msgspec.Struct, frozen=True):
    rank: int
    node: str
    devices: list[int]
    state: str
    exit: str = ""
    ports: dict[str, str] = {}
    """Its named ports: `HOST:PORT` by name."""


class JobView(msgspec.Struct, frozen=True):
    """A job, live or finished."""

    id: int
    name: str
    state: str
    tenant: str
    queue: str
    user: str
    priority: int
    preemptible: bool | None
    """None: not known, of jobs that ended under an older version."""
    replicas: int
    """Of all groups of its gang."""
    devices: int
    """Devices that it holds any part of; `devices_milli` counts parts as parts."""
    submitted_ms: int
    started_ms: int
    finished_ms: int
    attempt: int
    preemptions: int
    nodes: list[str]
    reason: str
    step: int
    checkpoint_step: int | None
    """Of its last checkpoint, 0: none; None: not known, of jobs that ended under an older version."""
    exit_code: int | None = None
    exit_signal: int | None = None
    array_id: int | None = None
    array_index: int = 0
    command: list[str] = []
    replica_list: list[ReplicaView] = []
    ends_ms: int = 0
    """When it is expected to end (unix ms), by its own account or that of jobs like it; 0 where neither tells."""
    devices_milli: int | None = None
    """Devices asked for, in thousandths: fractions as such, MIG instances by their compute slices; None: not known."""
    devices_text: str = ""
    """The same for people, such as `8`, `4x2`, `0.25` or `1x mig 1g.10gb`."""
    pool: str = ""
    """This and all below: of one job alone, and empty in lists."""
    asks: str = ""
    """What its replicas ask for, in words."""
    placement: str = ""
    """Where they may stand, in words; empty: anywhere in the pool."""
    time_limit_ms: int = 0
    """Of one attempt; 0: none."""
    start_likely_ms: int = 0
    """When a waiting job is expected to start (unix ms), as last estimated, in lists too; 0: not estimated."""
    energy_mj: int | None = None
    """Energy that its devices used so far (millijoules), of all attempts; null: not measured."""
    power_mean_mw: int | None = None
    """Mean power of one of its devices while its energy was measured."""
    busy_milli: int | None = None
    """Part of the measured time in which its devices computed."""
    cpu_ms: int | None = None
    """Processor time so far."""
    array_counts: dict[str, int] = {}
    """Where the job stands for its array: the array's live members that match, by state."""
    schedule: str = ""
    """The schedule of its user that submitted it; empty: none did, or it is not known."""
    due_ms: int = 0
    """The time of that schedule at which it was due (unix ms)."""


class JobList(PagedList, frozen=True):
    """Live jobs are counted in `matching`, `totals` and `groups`; finished ones are not."""

    jobs: list[JobView]
    next_before: int | None = None
    """What to ask with as `before` for older finished jobs, or None at the end."""
    totals: dict[str, int] = msgspec.field(default_factory=dict)
    """Live jobs that match, by state."""


class ModelTotal(msgspec.Struct, frozen=True):
    """Devices of one model on nodes that match: `total` = `free` + `used` + `unhealthy` + `closed`."""

    vendor: str
    model: str
    total: int
    free: int
    """Healthy, held by nobody, on a node that takes work."""
    used: int
    """Held by jobs, as a whole or in parts, or used by programs that Penstock did not start."""
    unhealthy: int
    closed: int
    """Healthy and held by nobody, on a node that takes no work: it drains, joins, or is lost."""


class NodeList(PagedList, frozen=True):
    """Nodes by name, unless another order was asked for."""

    nodes: list[NodeView]
    totals: dict[str, int] = msgspec.field(default_factory=dict)
    """Nodes that match, by state (`draining` is one here)."""
    devices: list[ModelTotal] = msgspec.field(default_factory=list)
    """Devices of nodes that match, by model."""


class QueueView(msgspec.Struct, frozen=True):
    name: str
    parent: str
    policy: str
    preemption: str
    waiting: int
    blocked: int
    active: int
    next_jobs: list[JobRef]
    """The first waiting jobs in the present order."""


class QueueList(PagedList, frozen=True):
    queues: list[QueueView]


class Figure(msgspec.Struct, frozen=True):
    """A counter, or measured values (durations in seconds), since the server's start."""

    name: str
    labels: dict[str, str]
    count: int
    sum: float
    most: float
    last: float


class ClusterView(msgspec.Struct, frozen=True):
    version: str
    server: str
    epoch: int
    seq: int
    nodes_ready: int
    nodes: int
    devices: int
    devices_held: int
    jobs_waiting: int
    jobs_active: int
    jobs_succeeded: int
    jobs_not_succeeded: int
    figures: list[Figure] = []
    """Of the server's own work; for callers who see the whole cluster."""


class AlertList(PagedList, frozen=True):
    """Alerts, most severe first."""

    alerts: list[Alert]


LOG_READ_MAX_BYTES = 2**20
"""Bytes of an output that one answer has at most."""


class OutputRef(msgspec.Struct, frozen=True):
    attempt: int
    rank: int
    size_bytes: int


class OutputList(msgspec.Struct, frozen=True):
    outputs: list[OutputRef]


class BillList(msgspec.Struct, frozen=True):
    """What tenants owe for [from_ms, until_ms)."""

    from_ms: int
    until_ms: int
    bills: list[Bill]
    priced: bool = True
    """Whether any price is declared."""
    time_zone: str = "UTC"
    """In which the months begin, and the times are written."""
    from_time: str = ""
    """The begin with its offset, such as `2026-11-01T00:00:00+01:00`."""
    until_time: str = ""


class Me(msgspec.Struct, frozen=True):
    """Who calls, and what they may do."""

    user: str
    role: str
    """In the whole cluster; empty: none."""
    tenants: dict[str, str]
    """Roles in tenants."""
    level: str
    """Level of the token: read, write, admin."""
    submits: list[str]
    """Tenants for which jobs may be submitted."""
    default_tenant: str = ""
    """Of jobs that name none; empty: they have to."""
    default_queue: str = ""


class AccountView(msgspec.Struct, frozen=True):
    """How a tenant's money stands; amounts in the currency's smallest unit."""

    tenant: str
    balance: int
    """Credit less all that was used and is not paid."""
    credit: int
    owed: int
    """On invoices that are not paid."""
    unbilled: int
    """Used, not paid from credit, and on no invoice yet."""
    month_spent: int
    day_cost: int
    """Cost of a day, at the rate since yesterday began."""
    credit_limit: int
    at_zero: str
    left: int
    """Remaining credit and credit limit."""
    held: str
    """Why nothing of the tenant starts; empty: it may."""
    credits: list[Lot]
    budgets: list[BudgetView]


class AccountList(PagedList, frozen=True):
    currency: str
    digits: int
    priced: bool
    """Whether any price is declared."""
    accounts: list[AccountView]
    time_zone: str = "UTC"
    """In which the periods of budgets begin, and the times are written."""


class MoneyAnswer(msgspec.Struct, frozen=True):
    """It is done, or was done before. `number` is that of what was issued."""

    number: str = ""
    repeated: bool = False


class Journal(PagedList, frozen=True):
    """Entries of the ledger, and the balance of each account by now; debits are positive."""

    currency: str
    digits: int
    entries: list[JournalEntry]
    balances: dict[str, int]
    time_zone: str = "UTC"
    """In which the times are written."""


class ConfigView(msgspec.Struct, frozen=True):
    digest: str
    config: dict[str, Any]
    """As in a cluster file; defaults are left out."""


class ConfigChange(msgspec.Struct, frozen=True):
    path: str
    old: str
    new: str
    text: str


class ConfigPlan(msgspec.Struct, frozen=True):
    """What a change comes to."""

    base: str
    """Digest of the configuration before."""
    digest: str
    """Of the configuration after."""
    changes: list[ConfigChange]
    applied: bool
    whatif: str = ""
    """The what-if of the change that was begun, with `simulate`: ask for it at `/whatif/{id}`."""


class TokenMade(msgspec.Struct, frozen=True):
    id: str
    token: str
    """The secret; it is shown this once."""
    expires_ms: int


class TokenView(msgspec.Struct, frozen=True):
    id: str
    user: str
    level: str
    tenants: list[str]
    created_ms: int
    expires_ms: int
    by: str
    note: str
    delegated: bool = False
    """Issued for the user by another one: it reaches neither their own secrets nor their account."""


class TokenList(PagedList, frozen=True):
    tokens: list[TokenView]


class SecretView(msgspec.Struct, frozen=True):
    """A secret without its value, which only programs of jobs that ask for it get."""

    name: str
    tenant: str
    """Its jobs share it; empty: it is a user's own."""
    owner: str
    set_ms: int
    by: str


class SecretList(PagedList, frozen=True):
    secrets: list[SecretView]


class KeyRotated(msgspec.Struct, frozen=True):
    sealed: int
    """Secrets that are sealed with the new key now."""
    dropped: int
    """Former keys that were thrown away: what only they open is lost."""


class Health(msgspec.Struct, frozen=True):
    status: str
    """`ok`; `log_disk` while the server answers, and its log cannot be written."""
    version: str
    role: str = "leader"
    """`standby` for a server that follows the leader's log."""


class DoneAnswer(msgspec.Struct, frozen=True):
    ok: bool


class ProblemDetails(msgspec.Struct, frozen=True):
    """An error answer. Source: RFC 9457, with `code`, `problems` and `leader` as extensions."""

    title: str
    status: int
    code: str
    detail: str = ""
    hint: str = ""
    type: str = "about:blank"
    problems: list[Problem] = []
    leader: str = ""
    """Where to ask instead (a URL), when the code is `not_leader`."""
    now: Any = None
    """What it is by now, when the code is `precondition_failed`."""
