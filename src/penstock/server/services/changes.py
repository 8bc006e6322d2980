"""The feed of changed views: what pages show of the present state, gathered for half a second and encoded once.

Its cost follows the changes and the number of different scopes, neither the number of events nor that of open pages.
While nobody follows, nothing is gathered. Lives on the event loop; views are made in a thread.
"""

import asyncio
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.api import types as api
from penstock.api.changes import STALE, Changes, Counts, JobCounts, Stale, Topic
from penstock.core.model import events as ev
from penstock.core.model.access import Scope
from penstock.core.model.ids import ClassId, JobId, NodeName, TenantName
from penstock.core.model.jobs import Job
from penstock.core.model.plan import Plan, Verdict
from penstock.core.state.live_jobs import LIVE_STATES
from penstock.core.state.pending import PendingClasses
from penstock.server.backend import Backend
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import for_all
from penstock.server.views.cluster import cluster_view, node_views
from penstock.server.views.jobs import finished_views

GATHER_S = 0.5
KEEPALIVE_S = 15.0
BATCHES_KEPT = 120
"""A follower that was away for so many batches goes on where it was."""
JOBS_MAX = 500
"""Changed jobs of one message; of more, pages ask for what they show."""
NODES_MAX = 500
ENCODED_KEPT = 64
NOT_IN_LINE = "not_in_line"
"""Jobs that no cycle looks at yet: held, waiting for others or for a time, or submitted since the last cycle."""
REASONS_EVERY_S = 3.0
"""A change of reasons alone, which no event brings, is sent at most this often."""
STARTED_STATES = tuple(state for state in LIVE_STATES if state != "waiting")
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
ViewsOf = Callable[[Iterable[Job]], Sequence[api.JobView]]


class Batch(NamedTuple):
    """What changed within one pause; None: too much to list."""

    jobs: frozenset[JobId] | None
    nodes: frozenset[NodeName] | None
    stale: frozenset[Stale]


class Sight(NamedTuple):
    """What decides which bytes a caller gets: callers of equal sight share them."""

    sees_all: bool
    tenants: frozenset[str] | None


class ChangeFeed:
    """Tell it of commits by `note`; followers read `follow`."""

    def __init__(self, backend: Backend, views: ViewsOf) -> None:
        self._backend, self._views = backend, views
        self._nonce = secrets.token_hex(4)
        """Numbers of another start of the server mean nothing here."""
        self._batches: deque[Batch] = deque(maxlen=BATCHES_KEPT)
        self._number = 0
        """Of the newest batch."""
        self._jobs: set[JobId] = set()
        self._nodes: set[NodeName] = set()
        self._stale: set[Stale] = set()
        self._placed: dict[JobId, frozenset[NodeName]] = {}
        """Nodes of running jobs: an event of their end does not say where they were."""
        self._dirty = False
        self._turned = asyncio.Event()
        self._followers = 0
        self._task: asyncio.Task[None] | None = None
        self._encoded: OrderedDict[tuple[int, int, Sight, frozenset[Topic]], asyncio.Future[bytes]] = OrderedDict()
        self._plan: Plan | None = None
        self._reasons_s = 0.0
        backend.on_commit.append(self.note)

    @property
    def followers(self) -> int:
        return self._followers

    def note(self, records: tuple[ev.Record, ...]) -> None:
        """Take note of what durable records change."""
        if self._task is None:
            return
        for record in records:
            self._note(record.event)

    def _note(self, event: ev.Event) -> None:
        self._dirty = True
        job_id = getattr(event, "job_id", None)
        if isinstance(job_id, int) and len(self._jobs) <= JOBS_MAX:
            self._jobs.add(JobId(job_id))
        match event:
            case ev.AttemptAllocated():
                self._placed[event.job_id] = frozenset(place.node for place in event.places)
                self._touch(self._placed[event.job_id])
            case ev.ReplicaExited() | ev.AttemptSuspended() | ev.AttemptResumed():
                self._touch(self._placed.get(event.job_id, frozenset()))
            case ev.AttemptEnded() | ev.JobFinished():
                self._touch(self._placed.pop(event.job_id, frozenset()))
            case ev.ConfigChanged():
                self._stale.add("config")
            case ev.TokenIssued() | ev.TokenRevoked():
                self._stale.add("tokens")
            case _ if isinstance(event, ev.MoneyEvent):
                self._stale.add("money")
        node = getattr(event, "node", None)
        if isinstance(node, str):
            self._touch((NodeName(node),))

    def _touch(self, nodes: Iterable[NodeName]) -> None:
        if len(self._nodes) <= NODES_MAX:
            self._nodes.update(nodes)

    async def follow(
        self, scope_now: Callable[[], Scope | None], topics: frozenset[Topic], after: str
    ) -> AsyncIterator[bytes]:
        """Yield messages of server-sent events while the caller's token is valid.

        Args:
            scope_now: returns the caller's present scope; None ends the stream.
            after: id of the last message that the caller has; empty: from now on.
        """
        self._begin()
        try:
            at = self._position(after)
            yield _message(self._id(self._number), Changes(self._backend.clock.unix_ms(), self._backend.state.seq)
                           if at is not None else self._all_anew(topics))  # fmt: skip
            at = self._number if at is None else at
            while not self._backend.closing.is_set() and (scope := scope_now()) is not None:
                if at == self._number and not await self._next(KEEPALIVE_S):
                    yield b": still here\n\n"
                elif at != self._number:
                    number = self._number
                    yield await self._message_of(at, number, scope, topics)
                    at = number
        finally:
            self._followers -= 1

    def _begin(self) -> None:
        self._followers += 1
        if self._task is None:
            jobs = self._backend.state.jobs.page(0, len(self._backend.state.jobs), None, STARTED_STATES)
            self._placed = {job.id: _nodes_of(job) for job in jobs if job.attempt is not None}
            self._plan = self._backend.service.controller.last_plan
            self._task = asyncio.create_task(self._turn())

    def _id(self, number: int) -> str:
        return f"{self._nonce}-{number}"

    def _position(self, after: str) -> int | None:
        """Return the number of the batch that a caller has; None where what followed it is not kept."""
        nonce, _, number = after.partition("-")
        if not after:
            return self._number
        if nonce != self._nonce or not number.isdigit() or len(number) > 12:
            return None
        return int(number) if self._number - len(self._batches) <= int(number) <= self._number else None

    def _all_anew(self, topics: frozenset[Topic]) -> Changes:
        now_ms, seq = self._backend.clock.unix_ms(), self._backend.state.seq
        return Changes(now_ms, seq, jobs_anew="jobs" in topics, nodes_anew="nodes" in topics, stale=list(STALE))

    async def _next(self, timeout_s: float) -> bool:
        """Return whether another batch has come within a time."""
        turned = self._turned
        try:
            async with asyncio.timeout(timeout_s):
                await turned.wait()
        except TimeoutError:
            return False
        return True

    async def _turn(self) -> None:
        """Close a batch each pause in which something has changed; end once nobody has followed for a while."""
        loop = asyncio.get_running_loop()
        alone_s = loop.time()
        try:
            while self._followers or loop.time() - alone_s < KEEPALIVE_S:
                await asyncio.sleep(GATHER_S)
                if self._followers:
                    alone_s = loop.time()
                self._note_reasons(loop.time())
                if self._dirty or self._backend.closing.is_set():
                    self._close_batch()
        finally:
            self._task = None
            self._batches.clear()
            self._number += 1  # what changes from now on is in no batch: who comes back later asks for all anew

    def _note_reasons(self, now_s: float) -> None:
        """Add the waiting jobs whose reason the last cycles have changed."""
        plan = self._backend.service.controller.last_plan
        if plan is self._plan or plan is None or now_s - self._reasons_s < REASONS_EVERY_S:
            return
        former, self._plan, self._reasons_s = self._plan, plan, now_s
        before = former.verdicts if former is not None else {}
        for class_id, verdict in plan.verdicts.items():
            known = before.get(class_id)
            if known is None or known.code != verdict.code:
                self._add_class(class_id)

    def _add_class(self, class_id: ClassId) -> None:
        pending = self._backend.state.indexes.pending.get(class_id)
        if pending is not None and len(self._jobs) <= JOBS_MAX:
            self._dirty = True
            self._jobs.update(job.id for job in pending.jobs[: JOBS_MAX + 1])

    def _close_batch(self) -> None:
        jobs = frozenset(self._jobs) if len(self._jobs) <= JOBS_MAX else None
        nodes = frozenset(self._nodes) if len(self._nodes) <= NODES_MAX else None
        self._batches.append(Batch(jobs, nodes, frozenset(self._stale)))
        self._number += 1
        self._jobs, self._nodes, self._stale, self._dirty = set(), set(), set(), False
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def _message_of(self, at: int, number: int, scope: Scope, topics: frozenset[Topic]) -> bytes:
        """Return the message from one batch to another, made once for all callers of the same sight."""
        key = at, number, Sight(scope.sees_all, scope.sight), topics
        made = self._encoded.get(key)
        if made is None:
            batches = list(self._batches)[at - number :]
            made = self._encoded[key] = asyncio.ensure_future(self._made(batches, number, scope, topics))
            while len(self._encoded) > ENCODED_KEPT:
                self._encoded.popitem(last=False)
        return await asyncio.shield(made)

    async def _made(self, batches: Sequence[Batch], number: int, scope: Scope, topics: frozenset[Topic]) -> bytes:
        for_all()
        connected = self._backend.connected()
        try:
            return await self._backend.pools.reads.run(self._encode, batches, number, scope, topics, connected)
        except ApiError:  # the threads are overloaded, or the server ends
            return _message(self._id(number), self._all_anew(topics))

    def _encode(
        self,
        batches: Sequence[Batch],
        number: int,
        scope: Scope,
        topics: frozenset[Topic],
        connected: set[NodeName],
    ) -> bytes:
        """Return a message with the present views of what changed. In a thread."""
        state, changes = self._backend.state, Changes(self._backend.clock.unix_ms(), self._backend.state.seq)
        stale: set[Stale] = set().union(*(batch.stale for batch in batches))
        changes = replace(changes, stale=sorted(stale if scope.sees_all else stale & {"config"}))
        if "jobs" in topics:
            jobs = _joined([batch.jobs for batch in batches], JOBS_MAX)
            changes = replace(changes, jobs=self._job_views(jobs or (), scope), jobs_anew=jobs is None)
        if "nodes" in topics:
            nodes = _joined([batch.nodes for batch in batches], NODES_MAX)
            views = node_views(state, sorted(nodes or ()), connected, scope)
            gone = sorted({str(name) for name in nodes or ()}.difference(view.name for view in views))
            changes = replace(changes, nodes=views, nodes_gone=gone, nodes_anew=nodes is None)
        if "counts" in topics:
            changes = replace(changes, counts=counts_of(self._backend, scope))
        return _message(self._id(number), changes)

    def _job_views(self, ids: Iterable[JobId], scope: Scope) -> list[api.JobView]:
        reads, live, ended = self._backend.reads, [], []
        for job_id in sorted(ids):
            job = reads.live_job(scope, job_id)
            if job is not None:
                live.append(job)
            elif (finished := reads.finished_job(scope, job_id)) is not None:
                ended.append(finished)
        return [*self._views(live), *finished_views(reads, ended)]


def counts_of(backend: Backend, scope: Scope) -> Counts:
    """Return the sums of the cluster and of the jobs that a caller sees."""
    state, last, sight = backend.state, backend.service.controller.last_plan, scope.sight
    cluster = cluster_view(state, backend.name)
    verdicts = last.verdicts if last is not None else {}
    reasons = waiting_by_reason(state.indexes.pending, verdicts, sight)
    by_state: dict[str, int] = {name: state.jobs.count(sight, name) for name in LIVE_STATES}
    reasons[NOT_IN_LINE] = max(0, by_state["waiting"] - reasons.total())
    return Counts(
        cluster.nodes_ready,
        cluster.nodes,
        cluster.devices,
        cluster.devices_held,
        sum(not device.healthy for node in list(state.nodes.values()) for device in node.spec.devices),
        JobCounts(by_state, {code: count for code, count in reasons.items() if count}),
        cluster.jobs_succeeded,
        cluster.jobs_not_succeeded,
    )


def waiting_by_reason(
    classes: PendingClasses, verdicts: Mapping[ClassId, Verdict], sight: Iterable[TenantName] | None
) -> Counter[str]:
    """Return how many jobs of some tenants (None: of all) wait for each reason. Its cost follows their classes."""
    reasons: Counter[str] = Counter()
    ids = verdicts if sight is None else chain.from_iterable(map(classes.of_tenant, sight))
    for class_id in ids:
        pending, verdict = classes.get(class_id), verdicts.get(class_id)
        if pending is not None and verdict is not None:
            reasons[verdict.code] += len(pending.jobs)
    return reasons


def _joined(parts: Sequence[frozenset[T] | None], most: int) -> frozenset[T] | None:
    known = [part for part in parts if part is not None]
    joined = frozenset[T]().union(*known)
    return joined if len(known) == len(parts) and len(joined) <= most else None


def _nodes_of(job: Job) -> frozenset[NodeName]:
    return frozenset(replica.place.node for replica in job.attempt.replicas) if job.attempt else frozenset()


def _message(number: str, changes: Changes) -> bytes:
    return b"id: " + number.encode() + b"\nevent: changes\ndata: " + _encode(changes) + b"\n\n"
