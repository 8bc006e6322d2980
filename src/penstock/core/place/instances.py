"""Where an instance of a MIG profile goes: to one that is there and idle, or where fewest re-partitions are needed.

To re-partition is to destroy an idle instance that is in the way, or to make one. It takes a node seconds each. In a
pool that divides its devices ahead of demand that counts first: the idle instances are there to be used. In other
pools instances are packed first, so that devices stay whole for larger requests; of equal devices the one with fewest
re-partitions is taken.
"""

from typing import NamedTuple

from penstock.core.model.resources import WHOLE_DEVICE_MILLI
from penstock.core.place import mig
from penstock.core.place.capacity import Instances, NodeCapacity


class Place(NamedTuple):
    """Where on a device an instance would lie; the best of several is the lowest."""

    first: int
    second: int
    device: int
    start: int


def open_geometry(free: NodeCapacity, index: int, profile: str) -> mig.Geometry | None:
    """Return how a device is divided that is cut up or wholly free, and has the profile; None for others."""
    device = free.shape.devices[index]
    if not device.mig or not (free.instances(index) or free.devices[index] == WHOLE_DEVICE_MILLI):
        return None
    geometry = mig.geometry_of(device.model, device.memory_bytes)
    return geometry if geometry is not None and geometry.profile(profile) is not None else None


def instance_place(free: NodeCapacity, index: int, profile: str) -> Place | None:
    """Return the best place of an instance on a device, or None where none fits."""
    geometry = open_geometry(free, index, profile)
    if geometry is None:
        return None
    held, idle = free.instances(index), idle_on(free, index)
    ahead = free.shape.sharing.mig_strategy != "none"
    start = None
    if ahead and idle:
        start = mig.best_start(geometry, held, profile, among=[at for name, at in idle if name == profile])
    if start is None:
        start = mig.best_start(geometry, held, profile)
    if start is None:
        return None
    ranks = repartitions(free, index, profile, start), int(not held)
    return Place(*(ranks if ahead else ranks[::-1]), index, start)


def idle_on(free: NodeCapacity, index: int) -> Instances:
    """Return the instances that are on a device, and that neither a job has nor one that a job has is to replace."""
    present = next((found for i, found in free.present if i == index), ())
    if not present:
        return ()
    taken = sum(_slices(free, index, profile, start) for profile, start in free.instances(index))
    return tuple(one for one in present if not taken & _slices(free, index, *one))


def repartitions(free: NodeCapacity, index: int, profile: str, start: int) -> int:
    """Return how many instances have to be destroyed or made for one at this place; 0 where it is there, idle."""
    idle = idle_on(free, index)
    if (profile, start) in idle:
        return 0
    covers = _slices(free, index, profile, start)
    return 1 + sum(1 for one in idle if covers & _slices(free, index, *one))


def _slices(free: NodeCapacity, index: int, profile: str, start: int) -> int:
    """Return the memory slices of an instance as bits."""
    device = free.shape.devices[index]
    geometry = mig.geometry_of(device.model, device.memory_bytes)
    known = geometry.profile(profile) if geometry is not None else None
    return ((1 << known.memory_slices) - 1) << start if known is not None else 0
