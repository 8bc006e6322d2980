"""Edits of the cluster: a higher maximum, an open node, more nodes, the end of a job, a smaller reserve."""

from collections.abc import Callable, Iterator
from itertools import islice

from msgspec.structs import replace

from penstock.core.explain.limits import blocks, is_maximum
from penstock.core.explain.search import Edits, Search, cluster
from penstock.core.model.cluster import ClusterConfig, Node, Quota, Reservation
from penstock.core.model.ids import Incarnation, JobId, NodeName
from penstock.core.model.jobs import Job
from penstock.core.model.plan import QuotaExceeded
from penstock.core.model.quantities import format_milli, format_resource, resource_text
from penstock.core.model.words import counted
from penstock.core.order.admission import reserved_milli
from penstock.core.order.expected_power import power_pool, power_resource
from penstock.core.order.queues import TENANT_PREFIX, QueueTree, holder_text
from penstock.core.place.backfill import held_places
from penstock.core.place.capacity import NodeCapacity, NodeShape, empty
from penstock.core.place.fit import capacity, shape_refusal
from penstock.core.place.gang import fits
from penstock.core.state.usage import whole_total
from penstock.core.status.alerts import quota_blocks

ENDINGS_SEEN_MAX = 64
ENDINGS_PLANNED_MAX = 3
NODES_TRIED_MAX = 4
NODES_ADDED_MAX = 64
KINDS_TRIED_MAX = 2


def quota(search: Search) -> Edits:
    """Higher maxima: all that block the job, each by its shortage."""
    scene = search.scene
    found = blocks(scene)
    if not found or not all(is_maximum(scene, block) for block in found) or not scene.fits(scene.gang):
        return
    if not search.trials.with_config(_raised(scene.config, found, 0)).started:
        return
    if not all(_still_blocked(search, _raised(scene.config, [block], 1)) for block in found):
        return
    path = ", ".join(_path(b) for b in found)
    old = ", ".join(_amount(b, b.limit) for b in found)
    new = ", ".join(_amount(b, b.limit + b.short) for b in found)
    parts = [_raise(b) for b in found if not power_pool(b.resource)]
    texts = [f"the maximum {' and '.join(parts)}"] if parts else []
    texts += [f"the power limit of pool {_raise(b)}" for b in found if power_pool(b.resource)]
    yield cluster(path, old, new, f"raise {' and '.join(texts)}")


def _amount(block: QuotaExceeded, amount: int) -> str:
    """Return an amount as it is written in a cluster file."""
    return format_milli(amount) if power_pool(block.resource) else format_resource(block.resource, amount)


def _raise(block: QuotaExceeded) -> str:
    pool, short = power_pool(block.resource), format_resource(block.resource, block.short)
    return f"{pool} by {short}" if pool else f"of {holder_text(block.queue)} by {short} {resource_text(block.resource)}"


def _raised(config: ClusterConfig, found: list[QuotaExceeded], less: int) -> ClusterConfig:
    """Return the configuration in which each of these maxima is as high as needed, minus `less`."""

    def higher(quota: Quota, name: str) -> Quota:
        amounts = dict(quota)
        amounts.update({b.resource: b.limit + b.short - less for b in found if b.queue == name})
        return tuple(sorted(amounts.items()))

    queues = tuple(replace(queue, max=higher(queue.max, queue.name)) for queue in config.queues)
    tenants = tuple(replace(one, max=higher(one.max, TENANT_PREFIX + one.name)) for one in config.tenants)
    watts = {b.resource: b.limit + b.short - less for b in found}
    pools = tuple(replace(pool, power_limit_mw=watts.get(power_resource(pool.name), pool.power_limit_mw))
                  for pool in config.pools)  # fmt: skip
    return replace(config, queues=queues, tenants=tenants, pools=pools)


def _path(block: QuotaExceeded) -> str:
    pool, name = power_pool(block.resource), block.queue
    if pool:
        return f"pools.{pool}.power_limit"
    of = f"tenants.{name[len(TENANT_PREFIX) :]}" if name.startswith(TENANT_PREFIX) else f"queues.{name}"
    return f"{of}.max.{block.resource}"


def _still_blocked(search: Search, config: ClusterConfig) -> bool:
    scene = search.scene
    whole = whole_total(scene.snapshot.free)
    tree = QueueTree(config).load(scene.snapshot.usage, whole, scene.now_ms, scene.snapshot.pool_powers)
    account = tree.account(scene.spec.queue, scene.tenant)
    return account is None or bool(quota_blocks(tree, account, tree.demand(scene.key)))


def reserve(search: Search) -> Edits:
    """A smaller reserve of the pool."""
    scene, pool = search.scene, search.scene.pool
    short = scene.reserve_short(scene.gang, scene.spec.preemptible)
    if pool is None or not short or not scene.fits(scene.gang):
        return
    total = scene.pool_milli(pool.name)
    left = reserved_milli(pool, total) - short
    milli = ((left + 1) * 1000 - 1) // total
    pools = tuple(replace(p, reserve_milli=milli) if p.name == pool.name else p for p in scene.config.pools)
    if search.trials.with_config(replace(scene.config, pools=pools)).started:
        old, new = format_milli(pool.reserve_milli), format_milli(milli)
        text = f"lower the reserve of pool {pool.name} from {old} to {new}"
        yield cluster(f"pools.{pool.name}.reserve", pool.reserve_milli / 1000, milli / 1000, text)


def reservation(search: Search) -> Edits:
    """A reservation lifted."""
    scene = search.scene
    for window in scene.config.reservations:
        if window.tenant != scene.tenant and window.end_ms > scene.now_ms and _has_room(search, window):
            rest = tuple(w for w in scene.config.reservations if w is not window)
            if search.trials.with_config(replace(scene.config, reservations=rest)).started:
                text = f"lift reservation {window.name} of tenant {window.tenant}"
                yield cluster(f"reservations.{window.name}", window.tenant, None, text)
                return


def _has_room(search: Search, window: Reservation) -> bool:
    free, need = search.scene.snapshot.free, search.scene.needs[0][0]
    return any(name in free and capacity(need, free[name], 1) for name in window.nodes)


def open_node(search: Search) -> Edits:
    """A node opened again that is being drained, or is shut to the tenant."""
    scene = search.scene
    need, most = scene.needs[0]
    nodes = scene.snapshot.nodes.values()
    shut = [n for n in nodes if n.state == "ready" and (n.draining or scene.tenant in n.shut_to)]
    tried = 0
    for node in shut:
        free = scene.snapshot.free[node.spec.name]._replace(closed="", shut_to=())
        if tried < NODES_TRIED_MAX and capacity(need, free, most) and _fits_with(search, node, free):
            tried += 1
            if search.trials.with_node(replace(node, draining=False, shut_to=()), free).started:
                name, field = node.spec.name, "draining" if node.draining else "shut_to"
                old, new = (True, False) if node.draining else (scene.tenant, None)
                why = "it is being drained" if node.draining else f"it is shut to tenant {scene.tenant}"
                yield cluster(f"nodes.{name}.{field}", old, new, f"open node {name} again: {why}")
                return


def _fits_with(search: Search, node: Node, free: NodeCapacity) -> bool:
    scene = search.scene
    known = scene.real()
    with known.tentatively():
        known.change(known.index[node.spec.name], free)
        return fits(scene.gang, known, scene.tenant)


def ending(search: Search) -> Edits:
    """The end of a running job: of the jobs whose end would suffice, the first expected to end."""
    planned = 0
    for job in _by_end(search) if search.trials.few() else ():
        if _fits_without(search, job):
            planned += 1
            if search.trials.without(job).started:
                yield cluster(f"jobs.{job.id}", job.state, "ended", f"job {job.id} ending")
                return
            if planned == ENDINGS_PLANNED_MAX:
                return


def _by_end(search: Search) -> list[Job]:
    snapshot = search.scene.snapshot
    pool = search.gang.pool
    ends: dict[JobId, int] = {}
    for end_ms, job_id in islice(snapshot.ends, ENDINGS_SEEN_MAX):
        ends[job_id] = end_ms
    found = [snapshot.running[job_id] for job_id in ends]
    for job in snapshot.running.values():
        if len(found) >= ENDINGS_SEEN_MAX:
            break
        if job.id not in ends:
            found.append(job)
    return [job for job in found if job.spec.ask.pool == pool and job.id not in search.awaited]


def _fits_without(search: Search, job: Job) -> bool:
    scene = search.scene
    known, account = scene.real(), scene.account_of(job)
    if account is None:
        return False
    with known.tentatively():
        known.put_back(job.ask, held_places(job))
        if not fits(scene.gang, known, scene.tenant):
            return False
    with scene.tree.without([(account, scene.held(job))]):
        return not scene.quota_blocks


def more_nodes(search: Search) -> Edits:
    """The smallest number of additional nodes of a kind that the pool has."""
    scene = search.scene
    if scene.quota_blocks or not search.trials.few():
        return
    for least, node, shape in sorted(_kinds(search), key=lambda entry: entry[:1])[:KINDS_TRIED_MAX]:
        count = _fewest(lambda count, node=node, shape=shape: _started_with(search, count, node, shape), least)  # type: ignore[misc]
        if count and not search.trials.spent:
            text = f"{counted(count, 'more node')} like {node.spec.name}"
            present = len(scene.snapshot.nodes)
            yield cluster("nodes", present, present + count, text)
            return


def _fewest(works: Callable[[int], bool], guess: int) -> int:
    """Return the least number from 1 to the maximum that works, 0 when none was found; larger numbers work, too.

    The guess would suffice if no other job took any of it: mostly right, seldom too many.
    """
    high = guess
    while not works(high):
        high *= 2
        if high > NODES_ADDED_MAX:
            return 0
    low = high // 2 if high > guess else 0
    while high - low > 1:
        middle = high - 1 if high == guess else (low + high) // 2
        if works(middle):
            high = middle
        else:
            low = middle
    return high


def _kinds(search: Search) -> Iterator[tuple[int, Node, NodeShape]]:
    """Yield each kind of open node that holds a replica when empty, and how many more of them suffice at most."""
    scene = search.scene
    need, most = scene.needs[0]
    possible = scene.replicas_possible
    seen: set[NodeShape] = set()
    for name, free in scene.snapshot.free.items():
        if free.closed or free.shape in seen or shape_refusal(need, free.shape):
            continue
        seen.add(free.shape)
        each = capacity(need, empty(free.shape), most)
        if not each:
            continue
        count = -(-(most - min(possible, most - 1)) // each) + len(scene.gang.others)
        if count <= NODES_ADDED_MAX:
            yield count, scene.snapshot.nodes[name], free.shape


def _started_with(search: Search, count: int, like: Node, shape: NodeShape) -> bool:
    more: dict[NodeName, tuple[Node, NodeCapacity]] = {}
    for number in range(count):
        name = NodeName(f"{like.spec.name}+{number}")
        node = replace(like, spec=replace(like.spec, name=name), incarnation=Incarnation(f"new {number}"))
        more[name] = (node, empty(shape))
    return search.trials.with_more_nodes(more).started
