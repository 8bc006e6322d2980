"""The log of a cluster that is worth an attack: 200 full nodes, thousands of jobs of another tenant, months of bills.

Written by the real decisions, by a controller whose clock is moved by hand; only tokens, secrets, credits and invoices
are written as the events that they are.
"""

import datetime as dt
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.control import messages as msg
from penstock.control.calendar import ZoneDates
from penstock.control.config_files import cluster_config
from penstock.control.controller import Controller
from penstock.control.joining import NODES_MAX
from penstock.core.cycle.planner import plan
from penstock.core.ledger import posting as treasury
from penstock.core.ledger.books import UsageLog
from penstock.core.lifecycle.requests import NewJob, Submit
from penstock.core.messages.reports import NodeReport, ReplicaKey, ReplicaSeen
from penstock.core.messages.requests import Refusal
from penstock.core.model import events as ev
from penstock.core.model.access import Token
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import ExitInfo, GangAsk, GroupAsk, JobSpec
from penstock.core.model.notifications import Subscription, sealed_as
from penstock.core.model.resources import Resources
from penstock.core.model.schedule_rule import ScheduleRule
from penstock.core.model.schedules import Schedule
from penstock.core.model.secrets import Secret
from penstock.engines.agent.joined import DeclaredNode
from penstock.engines.joined.records import JoinedNode
from penstock.engines.processes.paths import DataFolder
from penstock.security.vault import Vault
from penstock.store.folder_snapshots import SNAPSHOTS_MAX, FolderSnapshots, holder
from penstock.store.sqlite import SqliteStore
from penstock.testing.builders import ask, device
from tests.report.invoice.samples import CUSTOMER, ISSUER, invoice, month

DAY_MS = 86_400_000
PAST_MS = 40 * DAY_MS
NODES, DEVICES = 200, 8
FINISHED_ROUNDS = 2
WAITING, CROWD, HALF_FULL = 5_000, 100_000, 60_000
"""Jobs of the other tenant that wait; so many that looking at all of them is seen; so many that 100,000 more may."""
OWN_WAITING = 200
TOKENS, SECRETS, INVOICES, CREDITS = 400, 400, 36, 200
NOTIFICATIONS = 1_000
SCHEDULES, LATE_MS = 1_000, 4_000_000_000_000
INVOICE_LINES = 2_000
OUTPUTS = 500

OWN, OTHER, QUIET = "team", "other", "quiet"
USERS = [
    {"name": "vera", "role": "viewer"},
    {"name": "oscar", "role": "operator"},
    {"name": "adele", "role": "admin"},
    {"name": "rae", "tenants": {OWN: "viewer"}},
    {"name": "mel", "tenants": {OWN: "member"}},
    {"name": "tia", "tenants": {OWN: "tenant_admin"}},
    {"name": "olga", "tenants": {OTHER: "member"}},
    {"name": "paul", "tenants": {OTHER: "viewer"}},
    {"name": "quinn", "tenants": {QUIET: "member"}},
    *({"name": f"user{i}", "tenants": {(OWN if i % 2 else OTHER): "member"}} for i in range(300)),
]
CALLERS = {
    "reader": ("rae", "read"),
    "member": ("mel", "write"),
    "owner": ("mel", "admin"),
    "tenant_admin": ("tia", "admin"),
    "viewer": ("vera", "read"),
    "operator": ("oscar", "write"),
    "admin": ("adele", "admin"),
    "other": ("olga", "admin"),
    "other_reader": ("paul", "read"),
    "quiet": ("quinn", "write"),
}
"""Whose token, of which level. `owner` is the member with a token for everything, secrets among it."""


def secret_of(caller: str) -> str:
    """Return the secret of the token that the log holds for a caller."""
    return "pst_" + hashlib.sha256(caller.encode()).hexdigest()


LONG_LEASES = {"heartbeat": "500ms", "lease_ttl": "24h", "lease_margin": "1h"}
"""With which nodes are not lost that nobody runs."""


def declared(leases: Mapping[str, str] = LONG_LEASES) -> dict[str, Any]:
    """Return the cluster file: the one real node is in a pool of its own, where nothing of the past runs."""
    return {
        "settings": {"job_account": "root", **leases},
        "pools": [{"name": "default"}, {"name": "aside"}],
        "tenants": [
            {"name": OWN, "budgets": [{"name": "month", "amount": 50_000}]},
            {"name": OTHER, "budgets": [{"name": "month", "amount": 50_000}]},
            {"name": QUIET},
            *({"name": f"tenant{i}"} for i in range(100)),
        ],
        "queues": [{"name": "default"}, *({"name": f"queue{i}", "max": {"devices": 100}} for i in range(100))],
        "users": USERS,
        "billing": {
            "prices": [{"resource": "cpu", "per_hour": 0.05}, {"resource": "device", "per_hour": 2}],
            "invoices": {"issue": "manual"},
        },
        "notifications": {"webhooks": {"internal": ["127.0.0.1:9"]}},
        "oidc": {"issuer": "http://127.0.0.1:9", "client_id": "costly", "addresses": ["https://a.example"]},
        "nodes": [{"name": "aside", "cpus": 32, "memory": "4GiB", "pool": "aside"}],
    }


class PastClock:
    def __init__(self) -> None:
        self.now = time.time_ns() // 1_000_000 - PAST_MS

    def unix_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


def write(data: Path, waiting: int = WAITING, *, lost: bool = False) -> None:
    """Write the log and the outputs into a data folder where nothing is yet.

    Args:
        waiting: jobs of the other tenant that wait.
        lost: whether the nodes have left by now, so that all jobs wait, and those of the own tenant always will.
    """
    folder = DataFolder(data)
    data.mkdir(parents=True)
    store, clock = SqliteStore(folder.log), PastClock()
    config = cluster_config({name: value for name, value in declared().items() if name != "nodes"})
    vault = Vault(folder.secret_keys)
    sealed = [*_secrets(vault), *_notifications(vault), *_schedules()]
    events = [ev.ConfigChanged(config, "adele"), *_tokens(), *sealed, *_money(clock.now)]
    records = [ev.Record(seq, clock.now, event) for seq, event in enumerate(events, 1)]
    store.append(records, [], store.acquire_epoch())
    controller = Controller(store, clock, name="past")
    controller.open(None)
    found = _Past(controller, clock)
    found.pass_(waiting)
    if lost:
        found.lose_nodes()
    clock.now = time.time_ns() // 1_000_000
    _post(controller, store, clock)
    store.save_snapshot(controller.state.image())
    store.close()
    _outputs(folder)
    _joined(folder, clock.now)
    _snapshots(folder, clock.now)


def _joined(folder: DataFolder, now_ms: int) -> None:
    """Declare as many nodes of other machines as the server keeps, but one."""
    folder.joined.mkdir(0o700)
    for i in range(NODES_MAX - 1):
        record = JoinedNode(DeclaredNode(NodeName(f"away{i:04}"), at="x" * 253), ("0" * 64,), now_ms)
        (folder.joined / f"away{i:04}.json").write_bytes(msgspec.json.encode(record))


def _snapshots(folder: DataFolder, now_ms: int) -> None:
    """Keep as many snapshots of one user as the server does, with a list of the usual length each."""
    kept = FolderSnapshots(folder.folder_snapshots, lambda: now_ms)
    rows = [(f"{i:064x}", b"x" * 4_096, 4_096, now_ms - i, 20, i) for i in range(SNAPSHOTS_MAX)]
    with kept._open(holder("mel", delegated=False, only=())) as db:
        db.executemany("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", rows)


def _tokens() -> Iterator[ev.AnyEvent]:
    for caller, (user, level) in CALLERS.items():
        digest = hashlib.sha256(secret_of(caller).encode()).hexdigest()
        yield ev.TokenIssued(Token(f"id-{caller}", digest, user, level, (), 1))
    for i in range(TOKENS):
        digest = hashlib.sha256(b"%d" % i).hexdigest()
        yield ev.TokenIssued(Token(f"token{i}", digest, "mel" if i % 2 else "olga", "read", (), 1, note="n" * 100))


def _notifications(vault: Vault) -> Iterator[ev.AnyEvent]:
    """Those of many users, and some of the member."""
    for i in range(NOTIFICATIONS):
        owner, name = ("mel" if i < 5 else f"user{i // 10}"), f"notification-{i}"
        to = vault.seal(sealed_as(owner, name), '{"to": "http://127.0.0.1:9/x"}')
        shown = "http://127.0.0.1:9/..."
        yield ev.NotificationSet(Subscription(name, owner, "webhook", ("success", "failure", "cancelled"), to, shown))


def _schedules() -> Iterator[ev.AnyEvent]:
    """Those of many users, seldom due; some of the member."""
    for i in range(SCHEDULES):
        owner, name = ("mel" if i < 5 else f"user{i // 10}"), f"schedule-{i}"
        rule = ScheduleRule("0 0 29 2 */7", "America/New_York", name)
        spec = JobSpec(("true",), ask(0), tenant=OWN)
        yield ev.ScheduleSet(Schedule(name, owner, rule, (NewJob(spec),), OWN, next_ms=LATE_MS))


def _secrets(vault: Vault) -> Iterator[ev.AnyEvent]:
    for i in range(SECRETS):
        holder = {"tenant": OWN} if i % 2 else {"tenant": OTHER}
        yield ev.SecretSet(vault.seal(Secret(f"SECRET_{i}_{'x' * 40}", set_ms=1, by="adele", **holder), "v" * 1_000))
    yield ev.SecretSet(vault.seal(Secret("OWN_SECRET", owner="mel", set_ms=1, by="mel"), "v"))


def _money(now_ms: int) -> Iterator[ev.AnyEvent]:
    """Yield a month with its invoice after the other, of both tenants, and then credits."""
    held = invoice(month(INVOICE_LINES).lines, issuer=ISSUER, customer=CUSTOMER)
    begins = _begins_of_months(now_ms, INVOICES // 2 + 1)
    for at, (from_ms, until_ms) in enumerate(pairwise(begins)):
        for tenant in (OWN, OTHER):
            yield ev.UsagePosted(tenant, from_ms, until_ms, held.net)
            number = f"INV-{2 * at + (1 if tenant == OWN else 2):06}"
            yield ev.InvoiceIssued(replace(held, number=number, tenant=tenant, from_ms=from_ms, until_ms=until_ms))
    for i in range(CREDITS):
        yield ev.CreditAdded(OWN if i % 2 else OTHER, f"credit {i}", 1_000, "payment", by="adele", note="n" * 200)


def _post(controller: Controller, store: SqliteStore, clock: PastClock) -> None:
    """Write all that is due into the accounts, as the treasurer of a server would do in its first minute."""
    books, due = UsageLog(), True
    while due:
        while records := store.records(books.log.seq, 10_000):
            books.take(records)
        state, dates = controller.state, ZoneDates("UTC")
        names = treasury.tenant_names(books, state.money, state.config)
        views = [treasury.view_of(n, books.held(n), state.money, state.config, dates, clock.now) for n in names]
        due = [wanted for view in views if (wanted := view.wanted()) is not None]
        controller.handle(due)


def _begins_of_months(now_ms: int, count: int) -> list[int]:
    """Return when the latest months began (unix ms, UTC), that of now last."""
    day = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    found = [day]
    while len(found) < count:
        found.append((found[-1] - dt.timedelta(days=1)).replace(day=1))
    return [round(day.timestamp() * 1000) for day in reversed(found)]


def _gang(number: int) -> GangAsk:
    each = ask(1).each
    groups = tuple(GroupAsk(10, replace(each, host=Resources(1_000, i))) for i in range(1, 65))
    return replace(ask(1, 200 + number), others=groups)


class _Past:
    """What people and nodes did."""

    def __init__(self, controller: Controller, clock: PastClock) -> None:
        self._controller, self._clock = controller, clock
        self._seq = 0

    def pass_(self, waiting: int) -> None:
        devices = tuple(device(i) for i in range(DEVICES))
        for i in range(NODES):
            name = f"node{i:03}"
            spec = NodeSpec(name, Resources(DEVICES * 1_000, 2**38), devices, rack=f"rack{i // 20}", virtual=True)
            self._ask(msg.Hello(spec, "i1"))
            self._report(name, [], inventory=True)
        for turn in range(FINISHED_ROUNDS):
            self._submit("olga" if turn % 2 == 0 else "mel", f"past-{turn}", array=NODES * DEVICES)
            self._cycle()
            self._clock.now += DAY_MS
            self._start_all()
            self._clock.now += 3_600_000
            self._end_all()
            self._clock.now += DAY_MS
        self._submit("mel", "live", array=50, request_signal=True)
        self._submit("olga", "held", array=NODES * DEVICES - 50)
        self._cycle()
        self._start_all()
        self._clock.now += DAY_MS
        self._submit("mel", "waits", array=OWN_WAITING)
        shapes = tuple(map(_gang, range(9)))
        gang = JobSpec(("true",), shapes[0], alternatives=shapes[1:], tenant=OWN)
        assert not isinstance(self._ask(Submit((NewJob(gang),), "mel", account="root", administrator=True)), Refusal)
        self._submit("olga", "waits", array=waiting)
        self._cycle()

    def lose_nodes(self) -> None:
        self._clock.now += 2 * DAY_MS
        self._ask(msg.TimePassed())
        assert all(node.state == "lost" for node in self._controller.state.nodes.values())

    def _ask(self, *requests: msg.Request) -> Any:
        handled = self._controller.handle(requests)
        assert not any(isinstance(reply, msg.RequestFailed) for reply in handled.replies)
        return handled.replies[0]

    def _report(self, name: str, seen: Sequence[ReplicaSeen], *, inventory: bool = False) -> None:
        self._seq += 1
        self._ask(NodeReport(name, "i1", self._seq, inventory, tuple(seen)))

    def _submit(self, user: str, name: str, array: int, *, request_signal: bool = False) -> None:
        tenant = OTHER if user == "olga" else OWN
        spec = JobSpec(("true",), ask(1), name=name, tenant=tenant, preemptible=False)
        if request_signal:
            spec = replace(spec, checkpoint=replace(spec.checkpoint, request_signal="SIGUSR1"))
        reply = self._ask(Submit((NewJob(spec, array),), user, account="root", administrator=True))
        assert len(reply.job_ids) == array

    def _cycle(self) -> None:
        """Plan until nothing more starts: one cycle does not start all."""
        while self._ask(msg.CommitPlan(plan(self._controller.snapshot(), self._clock.now))).plan.starts:
            pass

    def _of_node(self) -> dict[str, list[ReplicaKey]]:
        found: dict[str, list[ReplicaKey]] = {}
        for job in self._controller.state.jobs.values():
            for rank, replica in enumerate(job.attempt.replicas if job.attempt else ()):
                found.setdefault(replica.place.node, []).append(ReplicaKey(job.id, job.attempt.number, rank))
        return found

    def _start_all(self) -> None:
        for name, keys in self._of_node().items():
            self._report(name, [ReplicaSeen(key, "running", pid=7) for key in keys])

    def _end_all(self) -> None:
        for name, keys in self._of_node().items():
            self._report(name, [ReplicaSeen(key, "exited", exit=ExitInfo(0)) for key in keys])
            self._report(name, [], inventory=True)


def _outputs(folder: DataFolder) -> None:
    """Let a finished job of the own tenant have large outputs and reports, and many."""
    job_id = first_own_finished()
    for attempt in range(1, OUTPUTS + 1):
        path = folder.output(ReplicaKey(job_id, attempt, 0))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"RuntimeError: x\n" * (2**17 if attempt == 1 else 1))
    for attempt in range(OUTPUTS - 7, OUTPUTS + 1):
        folder.report(ReplicaKey(job_id, attempt, 0)).write_bytes(_worst_report(attempt))


def _worst_report(attempt: int) -> bytes:
    """Return a report that is costly to draw: short lines of one number, of all that are shown, and of many more."""
    numbers = (1, 31, 2_000)[attempt % 3]
    line = '{"kind":"progress","step":1,' + ",".join(f'"{i}":1.5' for i in range(numbers)) + "}\n"
    return line.encode() * (2**22 // len(line))


def first_record_of_controller() -> int:
    """Return the number of the record that follows those written as events."""
    return 1 + len(CALLERS) + TOKENS + SECRETS + 1 + NOTIFICATIONS + SCHEDULES + 2 * INVOICES + CREDITS + 1


def days_ago(days: int) -> str:
    """Return a time for a query."""
    return dt.datetime.fromtimestamp(time.time() - days * DAY_MS / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%MZ")


def first_own_finished() -> int:
    return NODES * DEVICES + 1


def first_own_live() -> int:
    return FINISHED_ROUNDS * NODES * DEVICES + 1


def first_own_waiting() -> int:
    return (FINISHED_ROUNDS + 1) * NODES * DEVICES + 1


def own_gang() -> int:
    """Return the job of 64 groups and 8 other shapes of as many, which waits."""
    return first_own_waiting() + OWN_WAITING


def crowd_array() -> int:
    """Return the number of the other tenant's array that waits."""
    return own_gang() + 1
