"""Answers that the core gives and the API sends on as they are."""

from typing import Literal

import msgspec
from msgspec.structs import replace

from penstock.core.model.accounts import Entry
from penstock.core.model.explanation import Explanation
from penstock.core.model.ids import JobId, PoolName, QueueName, TenantName, UserName
from penstock.core.model.invoices import InvoiceLine


class JournalEntry(msgspec.Struct, frozen=True):
    """One entry of the ledger: its postings add up to zero."""

    seq: int
    """Of the record in the log."""
    time_ms: int
    tenant: TenantName
    text: str
    postings: Entry
    time: str = ""
    """By the clock of the bills, with its offset."""


class Bill(msgspec.Struct, frozen=True):
    """What a tenant owes for [from_ms, until_ms)."""

    tenant: TenantName
    currency: str
    digits: int
    from_ms: int
    until_ms: int
    lines: tuple[InvoiceLine, ...]
    total: int
    """In the smallest unit of the currency: the sum of all lines."""

    def summed(self) -> "Bill":
        """Return the same bill with one line for all jobs of a user at one price, tier and factor."""
        found: dict[tuple[object, ...], InvoiceLine] = {}
        for line in self.lines:
            key = (line.queue, line.user, line.kind, line.resource, line.model, *_rates(line))
            had = found.get(key)
            found[key] = replace(
                line,
                job_id=JobId(0),
                job_name="",
                quantity_ms=line.quantity_ms + (had.quantity_ms if had else 0),
                full=line.full + (had.full if had else 0),
                amount=line.amount + (had.amount if had else 0),
            )
        return replace(self, lines=tuple(found.values()))


def _rates(line: InvoiceLine) -> tuple[int, int, int]:
    return line.micro_per_hour, line.tier_milli, line.factor_milli


class BudgetView(msgspec.Struct, frozen=True):
    """How a budget stands."""

    name: str
    amount: int
    from_ms: int
    until_ms: int
    spent: int
    forecast_low: int
    """Spending at the end of the period if the rest costs as little as the last day or week."""
    forecast_high: int
    hard: bool
    until_time: str = ""
    """The end by the clock of the bills, with its offset."""


class Quote(msgspec.Struct, frozen=True):
    """What one job would cost; amounts in the currency's smallest unit."""

    currency: str
    digits: int
    hour_low: int
    """For an hour from its start on, at the cheapest model of device that it may get."""
    hour_high: int
    length_ms: int
    """How long it is expected to run, or may at most; 0 where neither is known."""
    total_low: int
    """Duration; 0 where unknown."""
    total_high: int


class Alert(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem that does not resolve itself. `code` is stable (`explain/reasons.py`)."""

    code: str
    job_ids: tuple[JobId, ...]
    """The first jobs that it is about, ascending."""
    count: int
    text: str
    resolve: str


OF_RUNNING = frozenset({"hung", "no_report", "loss_not_finite", "slow_steps", "starved", "untouched", "node_closed",
                        "node_disk", "log_disk", "device_closed", "gang_in_part"})  # fmt: skip
"""Codes of `Alert` that are not about jobs that wait."""


DeviceState = Literal["available", "allocated", "reserved", "maintenance", "failed"]


class DeviceCounts(msgspec.Struct, frozen=True):
    """Devices by state; each is in one."""

    available: int = 0
    """No job holds any part of it, and any job may get it."""
    allocated: int = 0
    """Some job holds it or a part of it."""
    reserved: int = 0
    """Free, on a node that is reserved for a tenant now."""
    maintenance: int = 0
    """Free, on a node that takes no work: it is being drained, or joins."""
    failed: int = 0
    """Out of order, or on a node that is lost."""


class PoolStats(msgspec.Struct, frozen=True):
    """One pool. Devices and CPUs in thousandths; allocated, reserved, available and out add up to the total."""

    name: PoolName
    kind: str
    virtualization: str
    nodes: int
    nodes_open: int
    devices: DeviceCounts
    total_milli: int
    allocated_milli: int
    """Parts count as parts: fractions as such, MIG instances by their compute slices."""
    reserved_milli: int
    """Free, and kept: on nodes reserved for a tenant, and what the pool's `reserve` keeps for preemptible jobs."""
    available_milli: int
    out_milli: int
    """Neither allocated nor available: in maintenance or failed."""
    utilisation_milli: int
    """Allocated part of the devices that are not out, in thousandths. 0 where there are no devices."""
    cpu_milli: int
    cpu_held_milli: int
    memory_bytes: int
    memory_held_bytes: int
    power_mw: int | None = None
    """What its devices in use are expected to draw, as its `power_limit` counts them; null where it has none."""
    power_limit_mw: int | None = None


class QuotaRow(msgspec.Struct, frozen=True):
    """One resource of a queue or tenant. Amounts as quotas count them: thousandths of devices and CPUs, bytes, jobs."""

    kind: str
    """queue or tenant"""
    name: str
    parent: str
    """Of a queue: the one above it."""
    resource: str
    used: int
    guaranteed: int
    maximum: int | None
    """None: no limit of its own."""
    borrowed: int
    """Use above the guarantee, of a queue that has one."""
    lent: int
    """Guaranteed, not used, and in use by others: theirs until it is wanted back."""
    percent: int
    """Of the maximum, or else of the guarantee; 0 where there is neither."""
    level: int
    """The highest of the declared percentages (80, 95 and 100 by default) of the maximum that this reaches; 0: none."""
    alerted: int = 0
    """The last percentage noted in the log, within a day; 0: none."""
    alerted_ms: int = 0
    """When that was (unix ms)."""


class Holder(msgspec.Struct, frozen=True):
    """What one user holds of a resource for a tenant in a queue."""

    tenant: TenantName
    user: UserName
    queue: QueueName
    resource: str
    used: int
    jobs: int


class Bucket(msgspec.Struct, frozen=True):
    """Estimates of a start within a time."""

    within_ms: int
    """0: any time later than the bucket before."""
    count: int
    parts: tuple[int, int, int, int]
    """Starts before the early time, between early and likely, between likely and late, after the late one."""
    error_ms: int
    """Median distance of the likely time from the start."""


class Score(msgspec.Struct, frozen=True):
    """How right estimates were. 1, 4, 4 and 1 of 10 starts should be in the four parts."""

    overall: Bucket
    buckets: tuple[Bucket, ...]
    open: int
    """Estimates of jobs that still wait."""

    @property
    def held_permille(self) -> int:
        """Return how many of a thousand starts were in their interval; 800 should be."""
        count, parts = self.overall.count, self.overall.parts
        return 1000 * (parts[1] + parts[2]) // count if count else 0


class ModelUsage(msgspec.Struct):
    """The part of a `UsageRow` held with devices of one model. CPUs and memory go with the replica's devices."""

    model: str = ""
    """Empty: held without a device."""
    device_milli_ms: int = 0
    cpu_milli_ms: int = 0
    memory_byte_ms: int = 0
    measured_milli_ms: int = 0
    used_milli_ms: int = 0
    jobs: int = 0
    """Jobs that held this model: one that held two models counts in both."""
    attempts: int = 0
    energy_mj: int = 0
    powered_milli_ms: int = 0


class UsageRow(msgspec.Struct):
    """Sums of held capacity over a span. Device time in thousandths of device-milliseconds."""

    tenant: str = ""
    user: str = ""
    queue: str = ""
    pool: str = ""
    job: int = 0
    node: str = ""
    device_milli_ms: int = 0
    by_model: dict[str, int] = {}
    """Device time of each model, from `models`: set where the row is answered."""
    cpu_milli_ms: int = 0
    memory_byte_ms: int = 0
    measured_milli_ms: int = 0
    """Device time whose use programs reported, or nodes measured."""
    used_milli_ms: int = 0
    """Of that, the time in which they did not wait for data, and did not hang; measured: in which devices computed."""
    jobs: int = 0
    attempts: int = 0
    energy_mj: int = 0
    """Used by devices of replicas that have ended (millijoules), as far as nodes measured it."""
    powered_milli_ms: int = 0
    """Device time over which it was measured."""
    models: list[ModelUsage] = []
    """The same by model of device, in their order: the times add up to those of the row."""


class WasteRow(msgspec.Struct):
    """Sums over a span. Device time in thousandths of device-milliseconds, money in the currency's smallest unit."""

    tenant: str = ""
    user: str = ""
    queue: str = ""
    pool: str = ""
    job: int = 0
    node: str = ""
    device_milli_ms: int = 0
    used_milli_ms: int = 0
    data_milli_ms: int = 0
    """Idle: programs waited for data."""
    hang_milli_ms: int = 0
    """Idle: programs made no step, and the hang was found."""
    unused_milli_ms: int = 0
    """Idle: programs reported nothing, and nodes measured that devices did not compute."""
    unknown_milli_ms: int = 0
    """Its use was neither reported nor measured."""
    cost: int = 0
    used_cost: int = 0
    data_cost: int = 0
    hang_cost: int = 0
    unused_cost: int = 0
    unknown_cost: int = 0
    not_held_cost: int = 0
    """Cost of memory while suspended, and of minimum periods."""

    @property
    def idle_milli_ms(self) -> int:
        return self.data_milli_ms + self.hang_milli_ms + self.unused_milli_ms

    @property
    def idle_cost(self) -> int:
        return self.data_cost + self.hang_cost + self.unused_cost


class PlannedPlace(msgspec.Struct, frozen=True):
    """Where one replica would go."""

    rank: int
    node: str
    devices: tuple[int, ...]


class PlannedVictim(msgspec.Struct, frozen=True):
    """A running job that would be asked to save and leave."""

    job_id: int
    name: str
    rule: str


class PlannedJob(msgspec.Struct, frozen=True):
    """The expected course of one job of a request, if no other jobs are submitted."""

    name: str
    count: int
    """Jobs alike in the request; all values are of the last of them to start."""
    starts_now: bool
    places: tuple[PlannedPlace, ...]
    preempts: tuple[PlannedVictim, ...]
    start_p10_ms: int
    start_p50_ms: int
    """Likely start (unix ms), corrected as `EtaView` is; 0 where unknown, or never."""
    start_p90_ms: int
    samples: int
    started: int
    """Samples in which it started at all, within 30 days."""
    text: str
    explanation: Explanation | None = None
    price: Quote | None = None
    """Cost of one of them; None where no prices are declared."""
    device_milli_ms_max: int | None = None
    """The most device time (thousandths of a device times milliseconds) that one of them holds in its attempts and
    retries, by its time limit; attempts after a preemption are not counted. None: it has no time limit."""


class PlanAnswer(msgspec.Struct, frozen=True):
    """What a request would lead to. Nothing was submitted."""

    now_ms: int
    jobs: list[PlannedJob]
