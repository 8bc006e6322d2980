"""Filters a node's report: only entries that the node may report, within bounds.

A node may report only on the replicas that are placed on it. All its entries on other replicas are dropped; so a
compromised node can lie about its own jobs, but not about those of other nodes.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from penstock.core.lifecycle.registering import AMOUNT_MAX
from penstock.core.messages.reports import (
    HostFigures,
    NodeReport,
    ProgressSeen,
    ReplicaInspected,
    ReplicaKey,
    ReplicaSeen,
    with_texts,
)
from penstock.core.model.cluster import NodeSpec, OthersLoad
from penstock.core.model.hangs import FRAMES_MAX, Frame, Sight
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import Attempt
from penstock.core.model.measured import Measured, is_possible
from penstock.core.model.nodes import DeviceFault, DeviceInstances, DeviceUser
from penstock.core.model.resources import RESOURCE_FIELDS
from penstock.core.place.mig import geometry_of, illegal
from penstock.core.state.state import State

CLOCKS_DIFFER_MS = 60_000
"""Between a node's clock and the server's, over the life of a replica."""
SAID_MAX_CHARS = 1_000
"""Of one text of a node: the cause of a replica's end, the result of a check."""
NAME_MAX_CHARS = 200
"""Of a function or a file on a stack."""
FAULT_MAX_CHARS = 300
"""Of what is said of a fault of a device; of all faults of a node as many as it has devices."""
WORD_MAX_CHARS = 64
"""Of the code of a fault; of a program or an account on a device."""
PID_MAX = 2**31 - 1
INSTANCES_MAX = 16
"""MIG instances on one device: more than any model has."""
USERS_MAX = 64
"""Programs of others on the devices of one node: they are shown with it."""

Told = TypeVar("Told", ProgressSeen, ReplicaInspected)


def heard(state: State, report: NodeReport, now_ms: int) -> NodeReport:
    """Return the report without entries on foreign replicas or impossible figures, and with long texts cut.

    Args:
        now_ms: unix time.
    """
    check = report.check
    if check is not None and len(check.text) > SAID_MAX_CHARS:
        check = replace(check, text=check.text[:SAID_MAX_CHARS])
    others = report.others
    if others is not None and not _possible(others, state.nodes[report.node].spec):
        others = None
    elif others is not None and others.users:
        others = replace(others, users=_users(others.users, len(state.nodes[report.node].spec.devices)))
    figures = report.figures
    if figures is not None and figures.host is not None:
        figures = replace(figures, host=_believable(figures.host))
    return replace(
        report,
        figures=figures,
        others=others,
        instances=_instances(report.instances, state.nodes[report.node].spec),
        faults=None if report.faults is None else _faults(report.faults, len(state.nodes[report.node].spec.devices)),
        replicas=tuple(_shortened(_believed(state, report.node, seen, now_ms)) for seen in report.replicas),
        progress=tuple(_briefly(seen) for seen in _newest(_own(state, report.node, report.progress))),
        inspected=tuple(replace(i, sight=_bounded(i.sight)) for i in _own(state, report.node, report.inspected)),
        check=check,
    )


def _possible(others: OthersLoad, spec: NodeSpec) -> bool:
    """Return whether programs could hold this of a node: no amount below 0, and each device once."""
    amounts = [getattr(others.host, field) for field in RESOURCE_FIELDS]
    amounts += [number for _, number in others.host.extended]
    held = others.devices
    known = not held or (held[0] >= 0 and held[-1] < len(spec.devices) and held == tuple(sorted(set(held))))
    return known and all(0 <= amount <= AMOUNT_MAX for amount in amounts)


def _believable(host: HostFigures) -> HostFigures | None:
    """Return what a node says of its host, where no part is more than a whole; None else."""
    parts, network = (host.cpu_milli, host.memory_milli), host.network_bps
    fine = all(part is None or 0 <= part <= 1000 for part in parts) and (network is None or 0 <= network <= AMOUNT_MAX)
    return host if fine else None


def _instances(told: tuple[DeviceInstances, ...] | None, spec: NodeSpec) -> tuple[DeviceInstances, ...] | None:
    """Return the instances of devices that can have them, where they can lie there together."""
    if told is None:
        return None
    found: dict[int, DeviceInstances] = {}
    for one in told:
        device = spec.devices[one.index] if 0 <= one.index < len(spec.devices) else None
        geometry = geometry_of(device.model, device.memory_bytes) if device is not None and device.mig else None
        if geometry is not None and len(one.instances) <= INSTANCES_MAX and not illegal(geometry, one.instances):
            found[one.index] = DeviceInstances(one.index, tuple(sorted(one.instances, key=lambda i: (i[1], i[0]))))
    return tuple(found[index] for index in sorted(found))


def _faults(faults: Iterable[DeviceFault], devices: int) -> tuple[DeviceFault, ...]:
    """Return the first fault of each device that there is, with short texts."""
    first: dict[int, DeviceFault] = {}
    for one in faults:
        if 0 <= one.index < devices and one.index not in first:
            first[one.index] = replace(one, code=one.code[:WORD_MAX_CHARS], text=one.text[:FAULT_MAX_CHARS])
    return tuple(first[index] for index in sorted(first))


def _users(users: Iterable[DeviceUser], devices: int) -> tuple[DeviceUser, ...]:
    """Return one process of each program and account on each device that there is, the lowest first."""
    first: dict[tuple[int, str, str], DeviceUser] = {}
    for one in users:
        key = one.index, one.user[:WORD_MAX_CHARS], one.program[:WORD_MAX_CHARS]
        if 0 <= one.index < devices and 0 <= one.pid <= PID_MAX and (key not in first or one.pid < first[key].pid):
            first[key] = DeviceUser(one.index, one.pid, *key[1:])
    return tuple(first[key] for key in sorted(first)[:USERS_MAX])


def _own(state: State, node: NodeName, told: Iterable[Told]) -> list[Told]:
    return [one for one in told if _is_placed(state, node, one.key)]


def _newest(told: Sequence[ProgressSeen]) -> list[ProgressSeen]:
    """Return the entries, of each job's checkpoints and signals only the newest: each would be a record.

    So a program that reports thousands a second neither fills the log nor delays other callers.
    """
    last: dict[JobId, int] = {}
    signals: dict[ReplicaKey, int] = {}
    for at, seen in enumerate(told):
        known = last.get(seen.key.job_id)
        if seen.kind == "checkpoint" and (known is None or seen.step >= told[known].step):
            last[seen.key.job_id] = at
        elif seen.kind == "listens":
            signals[seen.key] = at
    kept = {*last.values(), *signals.values()}
    return [seen for at, seen in enumerate(told) if seen.kind not in ("checkpoint", "listens") or at in kept]


def _is_placed(state: State, node: NodeName, key: ReplicaKey) -> bool:
    return _attempt_on(state, node, key) is not None


def _attempt_on(state: State, node: NodeName, key: ReplicaKey) -> Attempt | None:
    """Return the present attempt of a replica, where it has one and the replica is on this node."""
    job = state.jobs.get(key.job_id)
    attempt = job.attempt if job is not None else None
    if attempt is None or attempt.number != key.attempt or not 0 <= key.rank < len(attempt.replicas):
        return None
    return attempt if attempt.replicas[key.rank].place.node == node else None


def _believed(state: State, node: NodeName, seen: ReplicaSeen, now_ms: int) -> ReplicaSeen:
    """Return the entry without what the replica cannot have used."""
    info = seen.exit
    if info is None or info.measured is None or can_have_used(state, node, seen.key, info.measured, now_ms):
        return seen
    return replace(seen, exit=replace(info, measured=None))


def can_have_used(state: State, node: NodeName, key: ReplicaKey, told: Measured, now_ms: int) -> bool:
    """Return whether a replica of a present attempt, on this node, can have used this by now (unix). Any thread."""
    attempt, known = _attempt_on(state, node, key), state.nodes.get(node)
    if attempt is None or known is None:
        return False
    spec = known.spec
    held = [spec.devices[index] for index in attempt.replicas[key.rank].place.devices if index < len(spec.devices)]
    return is_possible(
        told,
        devices=len(held),
        device_memory_bytes=2 * sum(one.memory_bytes for one in held),
        lived_ms=max(0, now_ms - attempt.allocated_ms) + CLOCKS_DIFFER_MS,
    )


def _shortened(seen: ReplicaSeen) -> ReplicaSeen:
    info = seen.exit
    if len(seen.refused) > SAID_MAX_CHARS:
        seen = replace(seen, refused=seen.refused[:SAID_MAX_CHARS])
    return seen if info is None else replace(seen, exit=with_texts(info, lambda text: text[:SAID_MAX_CHARS]))


def _briefly(seen: ProgressSeen) -> ProgressSeen:
    return replace(seen, why=seen.why[:SAID_MAX_CHARS]) if len(seen.why) > SAID_MAX_CHARS else seen


def _bounded(sight: Sight) -> Sight:
    return replace(
        sight,
        stack=tuple(_named(frame) for frame in sight.stack[:FRAMES_MAX]),
        native=tuple(name[:NAME_MAX_CHARS] for name in sight.native[:FRAMES_MAX]),
        problem=sight.problem[:SAID_MAX_CHARS],
        killed=sight.killed[:SAID_MAX_CHARS],
    )


def _named(frame: Frame) -> Frame:
    if max(len(frame.function), len(frame.file)) <= NAME_MAX_CHARS:
        return frame
    return replace(frame, function=frame.function[:NAME_MAX_CHARS], file=frame.file[-NAME_MAX_CHARS:])
