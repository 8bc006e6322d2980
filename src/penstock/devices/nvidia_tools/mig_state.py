"""All that `nvidia-smi` says of MIG on a machine, put together: instances with their names and who has them open.

A state is whole or not at all: what cannot be read beyond doubt is `Unreadable`, for steps are decided on it.
"""

import msgspec

from penstock.core.place.mig import Geometry, geometry_of
from penstock.devices.nvidia_tools.listing import listing
from penstock.devices.nvidia_tools.mig_facts import Instance, MigReading
from penstock.devices.nvidia_tools.mig_tables import compute_instances, gpu_instances, profiles
from penstock.devices.nvidia_tools.plain import plain
from penstock.devices.provider import Output, Sources
from penstock.devices.reading import DeviceFacts, PartFacts, Reading, short

TOOL = "nvidia-smi"
DOUBTS = frozenset(
    {"unreadable", "cut", "unknown_format", "duplicate", "masked", "tool_failed", "no_driver", "driver_mismatch",
     "no_permission", "no_devices"}
)  # fmt: skip
"""Findings with which an output says too little to decide on, unless they are of another device."""


class MigInstance(msgspec.Struct, frozen=True):
    """A GPU instance and what is in it."""

    instance: int
    profile: str
    start: int
    compute: tuple[int, ...]
    """Ids of its compute instances."""
    uuid: str
    """Of the compute instance that takes all of it: by this a program sees it. '' where there is none such."""
    pids: tuple[int, ...]
    """Processes that have it open."""


class MigDevice(msgspec.Struct, frozen=True):
    """A device of the machine with its instances, by start."""

    index: int
    """As the tool counts."""
    uuid: str
    geometry: Geometry | None
    enabled: bool | None
    """Whether MIG is on; None where the device has none."""
    pending: bool
    """Whether that changes at the next reset."""
    instances: tuple[MigInstance, ...]
    pids: tuple[int, ...]
    """Processes on the device that are in none of its instances."""


class Unreadable(msgspec.Struct, frozen=True):
    """The state is not known."""

    reason: str


MigState = tuple[MigDevice, ...]


def read_state(sources: Sources) -> MigState | Unreadable:
    """Return all devices with their instances. Runs the tool four times."""
    outputs = {words: sources.run(TOOL, *words) for words in ((), ("-L",), ("mig", "-lgi"), ("mig", "-lci"))}
    for words, output in outputs.items():
        if problem := unusable(output, *words):
            return Unreadable(problem)
    table, names = plain(_text(outputs[()])), listing(_text(outputs["-L",]))
    instances = gpu_instances(_text(outputs["mig", "-lgi"]))
    inside = compute_instances(_text(outputs["mig", "-lci"]))
    for reading in (table, names, instances, inside):
        if doubt := next((f for f in reading.findings if f.code in DOUBTS and f.index is None), None):
            return Unreadable(doubt.text)
    shown = {device.index: device for device in table.devices}
    found = []
    for device in names.devices:
        if device.index in shown and not _doubted(device.index, table, instances, inside):
            if not _agree(shown[device.index], instances):
                return Unreadable(f"the instances of device {device.index} changed while they were read")
            found.append(_device(device, shown[device.index], table, instances, inside))
    return tuple(found)


def read_profiles(sources: Sources, index: int) -> dict[str, int] | Unreadable:
    """Return the ids of the profiles of a device by their names."""
    output = sources.run(TOOL, "mig", "-lgip", "-i", str(index))
    if problem := unusable(output, "mig", "-lgip"):
        return Unreadable(problem)
    reading = profiles(_text(output))
    if doubt := next((f for f in reading.findings if f.code in DOUBTS), None):
        return Unreadable(doubt.text)
    return {profile.name: profile.profile for profile in reading.profiles if profile.gpu == index}


def unusable(output: Output, *words: str) -> str:
    """Return why a run of the tool says nothing, or ''."""
    if output.missing:
        return f"{TOOL} is not installed"
    if output.timed_out:
        return f"{' '.join((TOOL, *words))} gave no answer in time"
    if output.code is None:
        return f"{' '.join((TOOL, *words))} was ended: {short(output.error_text) or 'no reason is known'}"
    return ""


def _text(output: Output) -> str:
    return output.text or output.error_text


def _doubted(index: int | None, *readings: Reading | MigReading) -> bool:
    return any(f.code in DOUBTS and f.index == index for reading in readings for f in reading.findings)


def _agree(shown: DeviceFacts, instances: MigReading) -> bool:
    """Return whether the table has no instance that the list does not have."""
    return {part.instance for part in shown.parts} <= {i.instance for i in instances.instances if i.gpu == shown.index}


def _device(
    named: DeviceFacts, shown: DeviceFacts, table: Reading, instances: MigReading, inside: MigReading
) -> MigDevice:
    index = named.index
    assert index is not None
    own = [one for one in instances.instances if one.gpu == index]
    uuids = _uuids(named.parts, shown.parts)
    processes = [process for process in table.processes if process.index == index]
    found = []
    for one in sorted(own, key=lambda one: one.start):
        compute = [c for c in inside.instances if (c.gpu, c.instance) == (index, one.instance)]
        pids = tuple(process.pid for process in processes if process.instance == one.instance)
        found.append(_instance(one, compute, uuids, pids))
    ids = {one.instance for one in own}
    others = tuple(process.pid for process in processes if process.instance not in ids)
    pending = any(f.code == "mig_pending" and f.index == index for f in table.findings)
    geometry = geometry_of(named.model, shown.memory_bytes or 0)
    return MigDevice(index, named.uuid, geometry, shown.partitioned, pending, tuple(found), others)


_Names = dict[tuple[int | None, int | None], tuple[str, str]]
"""Name and profile of each compute instance, by the ids of its GPU instance and its own."""


def _uuids(named: tuple[PartFacts, ...], shown: tuple[PartFacts, ...]) -> _Names:
    """Return name and profile of each compute instance by its ids: both lists count them in one order."""
    if len(named) != len(shown):
        return {}
    return {
        (ids.instance, ids.compute_instance): (name.uuid, name.profile)
        for name, ids in zip(named, shown, strict=True)
        if name.instance in (None, ids.instance)
    }


def _instance(
    one: Instance,
    compute: list[Instance],
    uuids: _Names,
    pids: tuple[int, ...],
) -> MigInstance:
    uuid = ""
    if len(compute) == 1 and compute[0].name == one.name:
        name, profile = uuids.get((one.instance, compute[0].compute_instance), ("", ""))
        uuid = name if profile == one.name else ""
    inside = tuple(c.compute_instance for c in compute if c.compute_instance is not None)
    return MigInstance(one.instance, one.name, one.start, inside, uuid, pids)
