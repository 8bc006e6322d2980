"""Alerts: jobs that can never start under the present configuration, and other faults, each with its remedy.

Only total capacity counts here, not free capacity: a job that fits an empty cluster is merely waiting.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from penstock.core.health.anomaly import anomalies
from penstock.core.model.answers import Alert
from penstock.core.model.cluster import AGENT, CHECKED_BY, ClusterConfig, Node, Reservation
from penstock.core.model.dependencies import JobRun
from penstock.core.model.ids import JobId, NodeName, TenantName
from penstock.core.model.jobs import GangAsk, Job, RequestClass
from penstock.core.model.plan import Plan, QuotaExceeded
from penstock.core.model.quantities import format_duration, format_milli, format_resource, listed, resource_text
from penstock.core.model.refused import refused_text
from penstock.core.order.admission import over_reserve, reserved_milli
from penstock.core.order.expected_power import PoolPowers, over_power, power_pool
from penstock.core.order.queues import QueueNode, QueueTree, holder_text
from penstock.core.order.ranks import request_class
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.place.capacity import NodeCapacity, empty, opened_shape
from penstock.core.place.emptied import emptied
from penstock.core.place.fit import count_refusals, needs_of
from penstock.core.place.gang import fits
from penstock.core.place.index import ClusterIndex
from penstock.core.state.state import State
from penstock.core.state.usage import pool_totals, whole_total
from penstock.core.status.devices import closed_devices

ALERTS_MAX = 1_000
ALERT_JOBS_MAX = 20
"""Jobs that an alert names; `count` says how many there are."""
CLASSES_MAX = 2_000
"""Kinds of waiting jobs that are tried on the idle cluster."""
NEXT_TO_NEVER_MS = 365 * 86_400_000


class Never(msgspec.Struct, frozen=True):
    """Why a request cannot start even when nothing runs."""

    code: str
    text: str
    resolve: str


def alerts(
    state: State, now_ms: int, last: Plan | None = None, tenants: Collection[TenantName] | None = None
) -> tuple[Alert, ...]:
    """Return alerts about `state`, most severe first; `last` is the last cycle's plan.

    May be called while another thread folds: concurrent changes may be seen or not.

    Args:
        tenants: only jobs of these; None: of all tenants.
    """
    jobs = {job.id: job for job in state.jobs.page(0, len(state.jobs), tenants)}
    behind = {job_id: job for job_id, job in jobs.items() if job.unmet}
    """A job that waits for others in one place: few do."""
    found = [*_cycles(behind), *_gangs_in_part(state, jobs)]
    stuck: set[JobId] = set()
    idle = empty_cluster(state, now_ms)
    for job_ids, never in never_start(jobs, state.config, idle):
        stuck.update(job_ids)
        found.append(_alert(never.code, job_ids, never.text, never.resolve))
    found += _behind(behind, stuck)
    found += _held(state, jobs)
    found += _hung(jobs)
    found += _strange(jobs, now_ms)
    found += _closed(state)
    found += closed_devices(state)
    found += _kept_without_end(jobs, last)
    return tuple(found[:ALERTS_MAX])


def _alert(code: str, job_ids: Iterable[JobId], text: str, resolve: str) -> Alert:
    listed = sorted(job_ids)
    return Alert(code, tuple(listed[:ALERT_JOBS_MAX]), len(listed), text, resolve)


# Requests that never start.


class EmptyCluster:
    """The cluster without running jobs, to see what could ever start."""

    def __init__(
        self,
        config: ClusterConfig,
        nodes: Mapping[NodeName, Node],
        free: Mapping[NodeName, NodeCapacity],
        now_ms: int,
        powers: PoolPowers,
    ) -> None:
        self.config, self._nodes, self._now_ms, self._powers = config, nodes, now_ms, powers
        self._free = {name: one for name, one in free.items() if name in nodes}
        self.tree = QueueTree(config).load({}, whole_total(free), now_ms, powers)
        self._totals = pool_totals(free)
        self._clusters: dict[str, ClusterIndex] = {}
        self._pools = {pool.name: pool for pool in config.pools}

    def holds(self, config: ClusterConfig, nodes: Mapping[NodeName, Node], now_ms: int, powers: PoolPowers) -> bool:
        """Return whether this is still the empty state of these nodes; as long as it is, it may be used again."""
        windows, self._now_ms = self._windows(), now_ms
        same = config is self.config and nodes is self._nodes and powers == self._powers
        return same and windows == self._windows()

    def never(self, key: RequestClass) -> list[Never]:
        """Return all reasons why requests of this class cannot start even when nothing runs."""
        account = self.tree.account(key.queue, key.tenant)
        if account is None:
            text = f"queue {key.queue} is not in the tree of queues"
            return [Never("no_queue", text, f"declare queue {key.queue} and the queues above it")]
        found = [self._over(key, block) for block in quota_blocks(self.tree, account, self.tree.demand(key))]
        reserve = self._reserve(key)
        return [*found, *reserve, *self._nodes_short(key)]

    def _over(self, key: RequestClass, block: QuotaExceeded) -> Never:
        pool = power_pool(block.resource)
        if pool:
            text, _, resolve = over_power(block, pool)
            return Never("power_never", text, resolve)
        amounts = (block.asked, block.limit - block.used, block.short)
        asked, limit, more = (format_resource(block.resource, amount) for amount in amounts)
        name = resource_text(block.resource)
        text = f"asks for {asked} {name}; for it {holder_text(block.queue)} has {limit} at most"
        resolve = f"give {holder_text(block.queue)} {more} {name} more, or ask for less"
        return Never("quota_never", text, resolve)

    def _reserve(self, key: RequestClass) -> Iterator[Never]:
        pool = self._pools.get(key.ask.pool)
        total, milli = self._totals.get(key.ask.pool, UsedAmounts()).device_milli, key.ask.device_milli
        if pool is not None and total and over_reserve(pool, milli, total, total, preemptible=key.preemptible):
            kept = reserved_milli(pool, total)
            asked, of = format_milli(key.ask.device_milli), format_milli(total)
            text = f"asks for {asked} of {of} devices of pool {pool.name}, which keeps {format_milli(kept)} "
            text += "for preemptible jobs"
            yield Never("reserve_never", text, f"make it preemptible, or lower the reserve of pool {pool.name}")

    def _nodes_short(self, key: RequestClass) -> Iterator[Never]:
        asks = (key.ask, *key.alternatives)
        if self._fit(asks, "unreserved", key.tenant):
            return
        if self._fit(asks, "open", key.tenant):
            yield self._reserved(key)
        elif self._fit(asks, "known", key.tenant):
            closed = {n: f.closed.removeprefix("node_") for n, f in self._free.items() if f.closed}
            closed |= {n: "shut to its tenant" for n, f in self._free.items() if key.tenant in f.shut_to}
            names = listed(f"{name} ({why})" for name, why in closed.items())
            text = f"fits only on nodes that take no work now: {names}"
            yield Never("nodes_away", text, "bring these nodes back, or ask for less")
        else:
            cluster = self._cluster("known")
            refused = count_refusals(needs_of(key.ask, key.tenant), map(cluster.free_of, range(len(cluster.names))))
            own = [(code, nodes) for code, nodes in refused if code != "pool"]
            counted = refused_text(own, emptied=True) or "it has none"
            text = f"no nodes of pool {key.ask.pool} could hold it, even when empty: {counted}"
            yield Never("never_fits", text, "ask for less, or add nodes that hold it")

    def _reserved(self, key: RequestClass) -> Never:
        windows = [w for w in self._windows() if w.tenant != key.tenant]
        last_ms = max(w.end_ms for w in windows)
        left_ms = last_ms - self._now_ms
        until = f"for another {format_duration(left_ms)}" if left_ms < NEXT_TO_NEVER_MS else "for more than a year"
        names = listed(dict.fromkeys(w.name for w in windows))
        text = f"fits only on nodes that are reserved for other tenants {until}"
        resolve = f"shorten reservation {names}, or ask for less"  # only here: the names are not for all tenants
        return Never("nodes_reserved", text, resolve)

    def _windows(self) -> list[Reservation]:
        return [w for w in self.config.reservations if w.start_ms <= self._now_ms < w.end_ms]

    def _fit(self, asks: Iterable[GangAsk], which: str, tenant: TenantName) -> bool:
        cluster = self._cluster(which)
        return any(fits(ask, cluster, tenant) for ask in asks)

    def _cluster(self, which: str) -> ClusterIndex:
        """Return all nodes, empty: as known, the open ones, or the open ones with reservations in force."""
        found = self._clusters.get(which)
        if found is None:
            free = self._free
            if which == "known":
                free = {n: empty(opened_shape(self._nodes[n], f.shape)) for n, f in free.items()}
            found = emptied(self._nodes, free, self._windows() if which == "unreserved" else ())
            self._clusters[which] = found
        return found


def quota_blocks(tree: QueueTree, account: QueueNode, demand: Sequence[int]) -> list[QuotaExceeded]:
    """Return every maximum of the account that `demand` would exceed, lowest queue first."""
    found: dict[QuotaExceeded, None] = {}
    for at in account.path():
        for i, amount in enumerate(demand):
            if amount:
                block = tree.exceeded(at, [amount if j == i else 0 for j in range(len(demand))])
                if block is not None:
                    found[block] = None
    return list(found)


def empty_cluster(state: State, now_ms: int) -> EmptyCluster:
    """Return the cluster as it is declared now, without running jobs. Any thread."""
    nodes = state.indexes.nodes
    powers = state.indexes.powers.expected(state.config, nodes)
    return EmptyCluster(state.config, nodes, dict(state.indexes.free), now_ms, powers)


def never_start(
    jobs: Mapping[JobId, Job], config: ClusterConfig, idle: EmptyCluster
) -> Iterator[tuple[list[JobId], Never]]:
    """Yield each reason with all waiting jobs that it holds for; each class is judged once."""
    classes: dict[RequestClass, list[JobId]] = {}
    keys: dict[int, RequestClass] = {}
    for job in jobs.values():
        if job.state == "waiting":
            key = keys.get(job.class_id)
            if key is None:
                key = keys[job.class_id] = request_class(job, config)
            classes.setdefault(key, []).append(job.id)
    found: dict[Never, list[JobId]] = {}
    for key, job_ids in islice(classes.items(), CLASSES_MAX):  # the first submitted
        for never in idle.never(key):
            found.setdefault(never, []).extend(job_ids)
    for never, job_ids in sorted(found.items(), key=lambda item: min(item[1])):
        yield job_ids, never


# Other standstills.


def _cycles(jobs: Mapping[JobId, Job]) -> Iterator[Alert]:
    """Yield cycles of dependencies. There should be none: a job can only name earlier ones. A defensive check."""
    seen: set[JobId] = set()
    for start in sorted(i for i, job in jobs.items() if any(one.jobs.stop > i for one in job.awaited)):
        path = _way_back(jobs, start)
        if path and not seen.intersection(path):
            seen.update(path)
            text = "jobs wait for each other: " + " -> ".join(map(str, [*path, path[0]]))
            yield _alert("dependency_cycle", path, text, f"cancel one of them: penstock cancel {max(path)}")


def _way_back(jobs: Mapping[JobId, Job], start: JobId) -> list[JobId]:
    """Return a way along dependencies from `start` back to it, or nothing."""
    came_from: dict[JobId, JobId] = {}
    runs: set[JobRun] = set()
    todo = [start]
    while todo:
        at = todo.pop()
        fresh = [one for one in jobs[at].awaited if one.run not in runs]
        runs.update(one.run for one in fresh)
        for following in (JobId(job_id) for one in fresh for job_id in one.jobs):
            if following == start:
                way = [at]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if following in jobs and following not in came_from:
                came_from[following] = at
                todo.append(following)
    return []


def _behind(jobs: Mapping[JobId, Job], stuck: set[JobId]) -> Iterator[Alert]:
    """Yield jobs that wait, directly or not, for a job that can never start."""
    waits_for: dict[JobId, list[JobId]] = {}
    reached = set(stuck)
    first: dict[JobRun, JobId | None] = {}
    """The first stuck job of each run: all of a run come before those that wait for it."""
    for job_id in sorted(jobs):
        for one in jobs[job_id].awaited:
            if one.run not in first:
                first[one.run] = next((JobId(i) for i in one.jobs if i in reached), None)
        found = [blocker for one in jobs[job_id].awaited if (blocker := first[one.run]) is not None]
        if found:
            reached.add(job_id)
            waits_for.setdefault(min(found), []).append(job_id)
    for blocker, job_ids in sorted(waits_for.items()):
        text = f"wait for job {blocker}, which can never start"
        yield _alert("behind_stuck", job_ids, text, f"change or cancel job {blocker}: penstock explain {blocker}")


def _held(state: State, jobs: Mapping[JobId, Job]) -> Iterator[Alert]:
    """Yield the tenants of which nothing starts, with their jobs that wait."""
    holds = state.money.holds()
    waiting: dict[TenantName, list[JobId]] = {}
    for job in jobs.values() if holds else ():
        if job.state == "waiting" and job.spec.tenant in holds:
            waiting.setdefault(job.spec.tenant, []).append(job.id)
    for tenant, job_ids in sorted(waiting.items()):
        yield _alert("tenant_held", job_ids, holds[tenant].text, _released_by(tenant, holds[tenant].reason))


def _released_by(tenant: TenantName, reason: str) -> str:
    kind, _, name = reason.partition(":")
    if kind == "budget":
        return f"raise budget {name} of tenant {tenant}, or wait until its period ends"
    if kind == "device_hours":
        return f"raise device_hours of tenant {tenant}, or wait until the month ends"
    return f"add credit: penstock money credit {tenant} AMOUNT --reference REFERENCE"


def _hung(jobs: Mapping[JobId, Job]) -> Iterator[Alert]:
    for job in jobs.values():
        if job.progress.hang:
            yield _alert(
                "hung",
                [job.id],
                f"makes no step: {job.progress.hang}",
                f"it restarts automatically unless it sets on_hang: report; or cancel it: penstock cancel {job.id}",
            )


def _strange(jobs: Mapping[JobId, Job], now_ms: int) -> Iterator[Alert]:
    """Yield the anomalies of running programs, job by job."""
    known = (job for job in jobs.values() if job.progress.noted_attempt or job.use.attempt)  # of others nothing is
    for job in known:
        for code, text, resolve in anomalies(job, now_ms):
            yield _alert(code, [job.id], text, resolve)


def _closed(state: State) -> Iterator[Alert]:
    for name, node in list(state.nodes.items()):
        if node.draining and node.closed_by == CHECKED_BY:
            text = f"node {name} takes no work: {node.drain_reason}"
            yield _alert("node_closed", [], text, f"it opens when it passes its check; or: penstock drain {name} --off")
        elif node.draining and node.closed_by == AGENT:
            text = f"node {name} takes no work: {node.drain_reason}"
            resolve = f"free room where {name} has its data folder; it then opens automatically"
            yield _alert("node_disk", [], text, resolve)


def _kept_without_end(jobs: Mapping[JobId, Job], last: Plan | None) -> Iterator[Alert]:
    for kept in last.reserved if last is not None else ():
        job = jobs.get(kept.job_id)
        if kept.start_ms or job is None or job.state != "waiting":
            continue
        nodes = listed(dict.fromkeys(place.node for place in kept.places))
        text = f"job {job.id} has waited too long, so what becomes free on {nodes} is kept for it; "
        text += "the jobs there have no known end"
        yield _alert("reserved_without_end", [job.id], text, "declare a time limit for what runs there, or end it")


def _gangs_in_part(state: State, jobs: Mapping[JobId, Job]) -> Iterator[Alert]:
    """Yield gangs that hold part of their allocation. There should be none: a gang is allocated in one event."""
    holding: Sequence[JobId] = [i for load in list(state.indexes.loads.values()) for i, _ in list(load.replicas)]
    wrong = {}
    for job_id in jobs.keys() & holding:
        job = jobs[job_id]
        held = len(job.attempt.replicas) if job.attempt is not None else 0
        if held != job.ask.replica_total:
            wrong[job_id] = held
    for job_id, held in sorted(wrong.items()):
        text = f"holds places, but its attempt has {held} of {jobs[job_id].ask.replica_total} replicas"
        yield _alert("gang_in_part", [job_id], text, f"cancel it (penstock cancel {job_id}) and report this")
