"""The charge of attempts in the use of their queues, and the capacity of all open nodes."""

from collections import Counter
from collections.abc import Mapping

from penstock.core.model.cluster import Node
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.jobs import GangAsk, Job, Replica
from penstock.core.model.resources import DeviceAsk
from penstock.core.order.ranks import expected_ms
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.place.capacity import NodeCapacity, NodeShape
from penstock.core.state.expected_end import told_end_ms

_NOTHING = UsedAmounts()


def charge_of(job: Job, nodes: Mapping[NodeName, Node]) -> UsedAmounts:
    """Return the charge of the job's attempt until it has ended; devices by model as long as they are held."""
    attempt = job.attempt
    assert attempt is not None
    ask = job.charged
    host = ask.host_total
    held = _NOTHING
    for replica in attempt.replicas:
        if replica.holds:
            given = models_of(ask, replica, nodes)
            held = given if held is _NOTHING else held.plus(given)
    amounts = (ask.charged_milli, host.cpu_milli, host.memory_bytes, 1, held.models)
    return UsedAmounts(*amounts, storage_bytes=host.storage_bytes)


def models_of(ask: GangAsk, replica: Replica, nodes: Mapping[NodeName, Node]) -> UsedAmounts:
    """Return the devices of one replica by model. Only while it holds them: later the node may have others."""
    each = ask.each_of(replica.rank)
    given = _models_of(each.devices, replica, nodes)
    return given.plus(UsedAmounts(models=each.claimed)) if each.claimed else given


def _models_of(wanted: DeviceAsk | None, replica: Replica, nodes: Mapping[NodeName, Node]) -> UsedAmounts:
    node = nodes.get(replica.place.node)
    held = replica.place.devices
    milli = wanted.milli // len(held) if wanted is not None and held else 0
    if not milli or node is None:
        return _NOTHING
    devices = node.spec.devices
    given = [devices[index].model for index in held if index < len(devices)]
    if given and given.count(given[0]) == len(given):  # nearly always
        return UsedAmounts(0, 0, 0, 0, ((given[0], milli * len(given)),))
    return UsedAmounts(models=tuple(sorted((model, milli * count) for model, count in Counter(given).items())))


def expected_end_ms(job: Job) -> int:
    """Return when the attempt is expected to end (unix ms), by its program's reports or by its length; 0 unknown."""
    attempt, length_ms = job.attempt, expected_ms(job)
    if attempt is None or attempt.suspended_ms:
        return 0
    told_ms = told_end_ms(job)
    if told_ms or not length_ms:
        return told_ms
    return attempt.allocated_ms + attempt.idle_ms + length_ms


def pool_totals(free: Mapping[NodeName, NodeCapacity]) -> dict[PoolName, UsedAmounts]:
    """Return the capacity of the open nodes of each pool, held or not."""
    counted: dict[tuple[PoolName, NodeShape], int] = {}
    for node in free.values():
        if not node.closed:
            key = (node.shape.pool, node.shape)
            counted[key] = counted.get(key, 0) + 1
    totals: dict[PoolName, UsedAmounts] = {}
    for (pool, shape), count in counted.items():
        totals[pool] = totals.get(pool, UsedAmounts()).plus(shape_total(shape), count)
    return totals


def whole_total(free: Mapping[NodeName, NodeCapacity]) -> UsedAmounts:
    """Return the capacity of the open nodes of all pools, in all and by pool."""
    whole, totals = UsedAmounts(), pool_totals(free)
    for total in totals.values():
        whole = whole.plus(total)
    return whole._replace(pools=tuple(sorted(totals.items())))


def shape_total(shape: NodeShape) -> UsedAmounts:
    models: dict[str, int] = {}
    for device in shape.devices:
        models[device.model] = models.get(device.model, 0) + 1000 * device.healthy
    devices = sum(models.values())
    has, by_model = shape.capacity, tuple(sorted(models.items()))
    return UsedAmounts(devices, has.cpu_milli, has.memory_bytes, 0, by_model, storage_bytes=has.storage_bytes)
