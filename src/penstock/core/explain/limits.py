"""Constraints by limits of the configuration: quotas at every level, the pool's reserve, admission in turns."""

from collections.abc import Iterator
from itertools import islice

from penstock.core.explain.scene import Scene
from penstock.core.model.explanation import Constraint
from penstock.core.model.ids import JobId
from penstock.core.model.plan import QuotaExceeded
from penstock.core.model.quantities import format_milli, format_resource, listed, resource_text, split_resource
from penstock.core.model.resources import Sharing
from penstock.core.order.admission import (
    admission_limit_milli,
    admitted_waiting_milli,
    over_admission,
    reserved_milli,
    takes_turns,
)
from penstock.core.order.expected_power import power_pool
from penstock.core.order.queues import holder_text

UNITS = {
    "devices": "device_milli",
    "cpus": "cpu_milli",
    "memory": "memory_bytes",
    "storage": "storage_bytes",
    "jobs": "jobs",
}
RUNNING_SEEN_MAX = 512
"""Running jobs that are checked one by one."""
_DEVICES = 0


def limits(scene: Scene) -> Iterator[Constraint]:
    """Yield every limit that the job would exceed if it started now, lowest queue first."""
    if scene.branch is None:
        text = f"queue {scene.spec.queue} is not in the tree of queues"
        yield Constraint("no_queue", text, where=scene.spec.queue)
        return
    for block in blocks(scene):
        yield quota_constraint(scene, block)
    short = scene.reserve_short(scene.gang, scene.spec.preemptible)
    if short and scene.pool is not None:
        free = scene.real().free_milli.get(scene.pool.name, 0)
        kept = reserved_milli(scene.pool, scene.pool_milli(scene.pool.name))
        text = f"pool {scene.pool.name} keeps {format_milli(kept)} devices for preemptible jobs and has "
        text += f"{format_milli(free)} free; this one takes {format_milli(scene.gang.device_milli)}: "
        text += f"short by {format_milli(short)}"
        yield Constraint("reserve", text, short, "device_milli", scene.pool.name)
    yield from _expected(scene)
    yield from _virtualization(scene)
    yield from _admission(scene)


def _expected(scene: Scene) -> Iterator[Constraint]:
    """Yield the demand that is expected, where room for it holds the job back."""
    verdict = scene.base.verdicts.get(scene.job.class_id)
    demand = verdict.expected if verdict is not None else None
    if demand is not None:
        text = f"it would cut into room that pool {demand.pool} keeps for {demand.text}"
        yield Constraint("expected_demand", text, max(0, demand.until_ms - scene.now_ms), "ms", demand.pool)


def blocks(scene: Scene) -> list[QuotaExceeded]:
    """Return the maxima that block the job, and the one that only the placement showed."""
    found = scene.quota_blocks
    verdict = scene.base.verdicts.get(scene.job.class_id)
    late = verdict.quota if verdict is not None else None
    if late is not None and not any((b.queue, b.resource) == (late.queue, late.resource) for b in found):
        found.append(late)
    return found


def quota_constraint(scene: Scene, block: QuotaExceeded) -> Constraint:
    """Return the constraint of a blocking maximum: a limit of the queue, or amounts that siblings do not lend."""
    used, limit, short = (format_resource(block.resource, n) for n in (block.used, block.limit, block.short))
    pool = power_pool(block.resource)
    if pool:
        text = f"pool {pool}: devices in use are expected to draw {used} of {limit}, this job "
        text += f"{format_resource(block.resource, block.asked)}: {short} too much{_by_whom(scene, block)}"
        return Constraint("power_cap", text, block.short, "power_mw", pool)
    unit = UNITS.get(split_resource(block.resource)[1], "device_milli")
    name = resource_text(block.resource)
    if is_maximum(scene, block):
        text = f"{holder_text(block.queue)}: {name} {used} of {limit} used, short by {short}{_by_whom(scene, block)}"
        return Constraint("quota", text, block.short, unit, block.queue)
    text = f"queue {block.queue}: {name} {used} of {limit} used or kept by queues that do not lend them, "
    return Constraint("not_lent", text + f"short by {short}", block.short, unit, block.queue)


def _by_whom(scene: Scene, block: QuotaExceeded) -> str:
    """Return which running jobs use the short resource, largest use first; '' where none does."""
    tree, running = scene.tree, scene.snapshot.running
    holder, column = tree.named(block.queue), tree.resources.index(block.resource)
    found: list[tuple[int, JobId]] = []
    for job in islice(running.values(), RUNNING_SEEN_MAX):
        account = scene.account_of(job)
        if account is not None and any(at is holder for at in account.counted_in()):
            amount = scene.held(job)[column]
            found += [(-amount, job.id)] if amount else []
    said = "in use, among others, by job" if len(running) > RUNNING_SEEN_MAX else "in use by job"
    return f"; {said} {listed(job_id for _, job_id in sorted(found))}" if found else ""


def is_maximum(scene: Scene, block: QuotaExceeded) -> bool:
    """Return whether a block is a queue's or tenant's own maximum, which an operator can raise by name."""
    branch, column = scene.tree.named(block.queue), scene.tree.resources.index(block.resource)
    return dict(branch.limits).get(column) == block.limit and branch.used[column] == block.used


def _virtualization(scene: Scene) -> Iterator[Constraint]:
    """Yield a constraint if the pool does not give out the parts of devices that the job asks for."""
    strategy = scene.config.sharing.get(scene.gang.pool, Sharing()).virtualization
    asks = (scene.gang.each.devices, *(group.each.devices for group in scene.gang.others))
    if any(ask is not None and not ask.given_by(strategy) for ask in asks):
        text = f"pool {scene.gang.pool} does not give out such parts of devices: its virtualization is {strategy}"
        yield Constraint("virtualization", text, where=scene.gang.pool)


def _admission(scene: Scene) -> Iterator[Constraint]:
    name, total = scene.spec.queue, scene.pool_milli(scene.gang.pool)
    if not takes_turns(scene.settings, scene.tree.rules.get(name), scene.job):
        return
    admitted = admitted_waiting_milli(name, scene.snapshot.classes) + scene.tree.branches[name].used[_DEVICES]
    short = over_admission(scene.settings, scene.gang.device_milli, admitted, total)
    if short:
        limit = admission_limit_milli(scene.settings, total)
        text = f"queue {name} lets jobs take turns for up to {format_milli(limit)} devices, "
        text += f"{format_milli(admitted)} are in: short by {format_milli(short)}"
        yield Constraint("admission", text, short, "device_milli", name)
