"""Devices as the API shows them to a caller."""

from collections.abc import Mapping

from penstock.api.nodes import ClosureView, DeviceUserView, DeviceView, MigInstanceView
from penstock.core.lifecycle.device_health import open_due_ms
from penstock.core.model.access import Scope
from penstock.core.model.cluster import DeviceClosure, Node, Settings
from penstock.core.model.ids import JobId
from penstock.core.place.capacity import NodeCapacity
from penstock.core.state.state import State


def device_views(state: State, node: Node, held: Mapping[int, JobId | None], scope: Scope) -> list[DeviceView]:
    """Return the devices of a node.

    Args:
        held: by the index of each device that a job holds, that job; None where the caller does not see it.
    """
    settings = state.config.settings
    closed = {one.index: closure_view(one, settings) for one in node.devices_closed}
    users: dict[int, list[DeviceUserView]] = {}
    if sees_users(state, scope):
        for one in node.others.users:
            users.setdefault(one.index, []).append(DeviceUserView(one.pid, one.user, one.program))
    free = state.indexes.free[node.spec.name]
    shape = free.shape.devices
    promised = {one.device: shape[one.device].memory_bytes - one.memory_left for one in free.shared}
    return [
        DeviceView(
            device.index,
            device.vendor,
            device.model,
            device.memory_bytes,
            device.simulated,
            held.get(device.index),
            device.index in held,
            device.healthy,
            device.mig,
            device.isolation,
            promised.get(device.index, 0),
            closed.get(device.index),
            device.index in node.others.devices,
            users.get(device.index, []),
            device.mig_mode,
            _instances(node, free, device.index) if device.mig else [],
        )
        for device in shape
    ]


def _instances(node: Node, free: NodeCapacity, index: int) -> list[MigInstanceView]:
    held = free.instances(index)
    present = next((one.instances for one in node.instances or () if one.index == index), ())
    every = sorted({*held, *present}, key=lambda one: (one[1], one[0]))
    return [MigInstanceView(profile, start, (profile, start) in held) for profile, start in every]


def sees_users(state: State, scope: Scope) -> bool:
    """Return whether a caller may see whose programs use devices beside jobs."""
    return scope.sees_all or state.config.settings.holders_shown == "users"


def closure_view(closure: DeviceClosure, settings: Settings) -> ClosureView:
    return ClosureView(
        closure.code,
        closure.reason,
        closure.closed_ms,
        closure.by,
        closure.closures,
        not closure.clear_ms,
        open_due_ms(closure, settings) or 0,
    )
