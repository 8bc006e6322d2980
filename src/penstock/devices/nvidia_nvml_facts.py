"""What NVML tells of one device, of its parts (MIG), of the processes on it, and of the links between devices."""

import ctypes
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from penstock.core.model.resources import LinkKind
from penstock.devices import xids
from penstock.devices.nvidia_nvml_calls import NO_INSTANCE, Calls, bounded, instance_of, text_in
from penstock.devices.nvidia_tools.texts import address_of, old_part, serial_of, uuid_of
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, PartFacts, ProcessFacts, short

ECC_CORRECTED, ECC_UNCORRECTED = 3, 4
PAGES_CORRECTED, PAGES_UNCORRECTED, PAGES_PENDING = 29, 30, 31
LINK_ERRORS = (38, 45, 52, 59)
"""Checksums of flow control and of data, replays, recoveries: the sum over all links of a device."""
ENERGY = 83
ROWS_PENDING, ROWS_FAILED = 144, 145
RECOVERY = 230
FIELDS = (
    ECC_CORRECTED, ECC_UNCORRECTED, PAGES_CORRECTED, PAGES_UNCORRECTED, PAGES_PENDING, *LINK_ERRORS, ENERGY,
    ROWS_PENDING, ROWS_FAILED, RECOVERY,
)  # fmt: skip
"""Ids of fields (`NVML_FI_DEV_...`) that a sample asks for."""

POWER_CAP, SLOWED, HEAT, POWER_BRAKE = 0x4, 0x8, 0x20 | 0x40, 0x80
"""Bits of the reasons why clocks are held down: software power cap; hardware slowdown; heat, by software or hardware;
the power brake of the host."""
ALL_PROFILES = 0x12
PARTS_MAX = 16
PID_MAX = 2**31
FABRIC_NOT_SUPPORTED, FABRIC_COMPLETED = 0, 3
FABRIC_STATES = {1: "not started", 2: "in progress"}
FABRIC_HEALTH = (
    (4, 0x3, 1, "fabric_fault", "routes are unhealthy"),
    (8, 0xF, 2, "fabric_fault", "it is configured wrongly"),
    (0, 0x3, 1, "link_fault", "it has less bandwidth than it should"),
    (2, 0x3, 1, "link_fault", "routes are being recovered"),
    (6, 0x3, 1, "link_fault", "accesses are being recovered after a time-out"),
)
"""Of the health mask: where a value begins, its bits, the least bad value, the code, and the text. The configuration is
bad from 2 up, the others at 1 alone."""
_PROFILE = re.compile(r"MIG (\d\S{0,31})$")


class Name(msgspec.Struct, frozen=True):
    """What a device is called: at least one of the two, unless nothing tells them."""

    uuid: str = ""
    pci: str = ""


def name_of(call: Calls, handle: Any) -> Name:
    info = call("nvmlDeviceGetPciInfo", handle)
    return Name(uuid_of(call.text("nvmlDeviceGetUUID", handle)), address_of(text_in(info, "busId")))


def memory_of(call: Calls, handle: Any) -> tuple[int | None, int | None]:
    """Return total and used memory, bytes, the latter without what the driver reserves (since driver 510)."""
    info = call("nvmlDeviceGetMemoryInfo", handle, getattr(call.library, "nvmlMemory_v2", None))
    if info is None:
        info = call("nvmlDeviceGetMemoryInfo", handle)
    total, used = bounded(getattr(info, "total", None), 2**50), bounded(getattr(info, "used", None), 2**50)
    return (total, used) if total and (used is None or used <= total) else (None, None)


def fixed(call: Calls, handle: Any, name: Name, index: int) -> DeviceFacts:
    """Return what stays the same of a device."""
    modes = mig_modes(call, handle)
    capability = call("nvmlDeviceGetCudaComputeCapability", handle)
    return DeviceFacts(
        index=index,
        uuid=name.uuid,
        pci=name.pci,
        model=call.text("nvmlDeviceGetName", handle),
        serial=serial_of(call.text("nvmlDeviceGetSerial", handle)),
        minor=call.count("nvmlDeviceGetMinorNumber", handle, most=2**20),
        memory_bytes=memory_of(call, handle)[0],
        capability=(int(capability[0]), int(capability[1])) if capability else None,
        power_limit_mw=call.count("nvmlDeviceGetPowerManagementDefaultLimit", handle, most=10**7) or None,
        partitioned=modes[0] if modes is not None else None,
        parts=parts(call, handle, whole=True) if modes is not None and modes[0] else (),
    )


def mig_modes(call: Calls, handle: Any) -> tuple[bool, bool] | None:
    """Return whether MIG is on, and will be on after the next reset; None for a device without it."""
    modes = call("nvmlDeviceGetMigMode", handle)
    return (bool(modes[0]), bool(modes[1])) if modes is not None else None


def mig_handles(call: Calls, handle: Any) -> Iterator[Any]:
    """Yield the compute instances of a device; in a container those that were given to it."""
    for index in range(min(call.count("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, PARTS_MAX)):
        part = call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if part is not None:
            yield part


def parts(call: Calls, handle: Any, *, whole: bool) -> tuple[PartFacts, ...]:
    """Return the parts of a device: its compute instances, and instances without any where the caller may see them.

    Args:
        whole: with what stays the same: profile and place.
    """
    found: list[PartFacts] = []
    for part in mig_handles(call, handle):
        uuid = call.text("nvmlDeviceGetUUID", part)
        total, used = memory_of(call, part)
        facts = PartFacts(
            uuid=uuid if old_part(uuid) else uuid_of(uuid),
            instance=instance_of(call("nvmlDeviceGetGpuInstanceId", part)),
            compute_instance=instance_of(call("nvmlDeviceGetComputeInstanceId", part)),
            memory_bytes=total,
            memory_used_bytes=used,
        )
        if whole:
            facts = _placed(call, handle, facts, call.text("nvmlDeviceGetName", part))
        if facts.uuid or facts.instance is not None:
            found.append(facts)
    if whole:
        taken = {part.instance for part in found}
        found += [part for part in _instances(call, handle) if part.instance not in taken]
    return tuple(found)


def _placed(call: Calls, handle: Any, part: PartFacts, name: str) -> PartFacts:
    match = _PROFILE.search(name)
    start, size = None, None
    if part.instance is not None and (
        (instance := call("nvmlDeviceGetGpuInstanceById", handle, part.instance)) is not None
    ):
        start, size = _place(call("nvmlGpuInstanceGetInfo", instance))
    return msgspec.structs.replace(part, profile=match[1] if match else "", start=start, size=size)


def _place(info: Any) -> tuple[int | None, int | None]:
    place = getattr(info, "placement", None)
    start, size = bounded(getattr(place, "start", None), 64), bounded(getattr(place, "size", None), 64)
    return (start, size) if size else (None, None)


def _instances(call: Calls, handle: Any) -> Iterator[PartFacts]:
    """Yield the GPU instances of a device, of every profile; only administrators see them."""
    kind: Any = getattr(call.library, "c_nvmlGpuInstance_t", None)
    for number in range(ALL_PROFILES) if kind is not None else ():
        profile = call("nvmlDeviceGetGpuInstanceProfileInfo", handle, number)
        if profile is None or not 0 < profile.instanceCount <= PARTS_MAX:
            continue
        listed, count = (kind * PARTS_MAX)(), ctypes.c_uint(PARTS_MAX)
        if call("nvmlDeviceGetGpuInstances", handle, profile.id, listed, ctypes.byref(count)) is None:
            continue
        for instance in list(listed)[: min(count.value, PARTS_MAX)]:
            info = call("nvmlGpuInstanceGetInfo", instance)
            if info is not None:
                start, size = _place(info)
                yield PartFacts(
                    profile=text_in(profile, "name").removeprefix("MIG "),
                    instance=instance_of(info.id),
                    start=start,
                    size=size,
                    memory_bytes=int(profile.memorySizeMB) * 2**20 or None,
                )


def links(call: Calls, devices: Sequence[tuple[int, Any]]) -> Iterator[LinkFacts]:
    """Yield each pair's closest link, by NVLink peer status and PCIe common ancestor.

    A pair of which NVML does not say whether it has an NVLink is left out.

    Args:
        devices: index and handle of each.
    """
    for at, (index, handle) in enumerate(devices):
        for peer, other in devices[at + 1 :]:
            call.errors.clear()
            joined = call("nvmlDeviceGetP2PStatus", handle, other, 2)
            if joined == 0:
                yield LinkFacts(index, peer, "nvlink")
            elif joined is None and call.refused:
                continue
            elif kind := _path(call.count("nvmlDeviceGetTopologyCommonAncestor", handle, other)):
                yield LinkFacts(index, peer, kind)


def _path(level: int | None) -> LinkKind | None:
    """Return the kind of a path by its farthest bridge; a board's own is none and counts as a PCIe switch."""
    if level is None:
        return None
    return "pcie" if level <= 30 else "numa" if level <= 40 else "node"


def sampled(call: Calls, handle: Any, name: Name, total: int | None) -> tuple[DeviceFacts, list[Finding]]:
    """Return what changes of a device, and what that says is wrong; not its parts.

    Args:
        total: its memory, bytes, where NVML refuses to tell.
    """
    whole, used = memory_of(call, handle)
    use = call("nvmlDeviceGetUtilizationRates", handle)
    reasons = call.count("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = call.count("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
    fields = call.fields(handle, FIELDS)
    errors = [fields[each] for each in LINK_ERRORS if each in fields]
    percent = bounded(getattr(use, "gpu", None), 100)
    facts = DeviceFacts(
        uuid=name.uuid,
        pci=name.pci,
        memory_bytes=whole or total,
        memory_used_bytes=used,
        use_milli=percent * 10 if percent is not None else None,
        temperature_c=call.count("nvmlDeviceGetTemperature", handle, 0, most=200),
        power_mw=call.count("nvmlDeviceGetPowerUsage", handle, most=10**7),
        power_limit_mw=call.count("nvmlDeviceGetEnforcedPowerLimit", handle, most=10**7) or None,
        clock_mhz=call.count("nvmlDeviceGetClockInfo", handle, 1, most=10**5),
        energy_mj=fields.get(ENERGY),
        throttled=_throttled(reasons),
        link_errors=sum(errors) if errors else None,
        ecc_corrected=fields.get(ECC_CORRECTED),
        ecc_uncorrected=fields.get(ECC_UNCORRECTED),
    )
    return facts, [*_slowed(reasons, name), *_memory_findings(fields, name), *_recovery(fields, name)]


def found(code: str, text: str, name: Name, number: int | None = None) -> Finding:
    return Finding(code=code, text=short(text), uuid=name.uuid, pci=name.pci, number=number)


def _throttled(reasons: int) -> tuple[str, ...]:
    bits = (("power", POWER_CAP | POWER_BRAKE), ("heat", HEAT), ("hardware", SLOWED))
    return tuple(word for word, bit in bits if reasons & bit)


def _slowed(reasons: int, name: Name) -> Iterator[Finding]:
    """Yield what slows a device down against its maker's wish; limits of power are everyday."""
    if reasons & HEAT:
        yield found("too_hot", "its clocks are lowered because it is too hot", name)
    elif reasons & (SLOWED | POWER_BRAKE):
        yield found("throttled", "its clocks are lowered by the hardware (power brake or slowdown)", name)


def _memory_findings(fields: dict[int, int], name: Name) -> Iterator[Finding]:
    if fields.get(ROWS_PENDING):
        yield found("row_remap_pending", "rows of memory are to be remapped at the next reset", name)
    if fields.get(ROWS_FAILED):
        yield found("row_remap_failed", "rows of memory could not be remapped", name)
    if fields.get(PAGES_PENDING):
        yield found("page_retirement_pending", "pages of memory are to be retired at the next reset", name)
    if pages := fields.get(PAGES_CORRECTED, 0) + fields.get(PAGES_UNCORRECTED, 0):
        yield found("pages_retired", f"pages of memory retired: {pages}", name)


def _recovery(fields: dict[int, int], name: Name) -> Iterator[Finding]:
    if action := fields.get(RECOVERY):
        xid = xids.RECOVERY_ACTIONS.get(action, xids.XIDS[xids.RECOVERY])
        yield found(xid.code, xids.text_of(xid), name)


def fabric(call: Calls, handle: Any) -> tuple[int, int, int] | None:
    """Return state, status and health mask of the NVLink fabric; None for a device that is on none."""
    for function, kind in (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    ):
        make = getattr(call.library, kind, None)
        info = make() if make is not None else None
        if info is not None and call(function, handle, ctypes.byref(info)) is not None:
            on = info.state != FABRIC_NOT_SUPPORTED
            return (info.state, info.status, getattr(info, "healthMask", 0)) if on else None
    return None


def fabric_findings(state: int, status: int, health: int, name: Name) -> Iterator[Finding]:
    """Yield what is wrong with the fabric of a device: programs cannot use NVSwitches until it is completed."""
    if state != FABRIC_COMPLETED:
        yield found("fabric_fault", f"state of the NVLink fabric: {FABRIC_STATES.get(state, state)}", name)
    elif status != 0:
        yield found("fabric_fault", f"status of the NVLink fabric: error {status}", name)
    else:
        for shift, bits, bad, code, text in FABRIC_HEALTH:
            value = health >> shift & bits
            if value == bad or (bits > 0x3 and value > bad):
                yield found(code, f"health of the NVLink fabric: {text}", name)


def processes(call: Calls, handle: Any, name: Name) -> Iterator[ProcessFacts]:
    """Yield the processes that compute or draw on a device or a part of it, each once."""
    seen: dict[tuple[int, int | None], int | None] = {}
    for kind in ("Compute", "MPSCompute", "Graphics"):
        for each in call(f"nvmlDeviceGet{kind}RunningProcesses", handle) or ():
            pid = bounded(getattr(each, "pid", None), PID_MAX)
            if pid:
                key = pid, instance_of(getattr(each, "gpuInstanceId", NO_INSTANCE))
                memory = bounded(getattr(each, "usedGpuMemory", None), 2**50)
                before = seen.get(key)
                seen[key] = memory if before is None else max(before, memory or 0)
    for (pid, instance), memory in seen.items():
        yield ProcessFacts(pid=pid, uuid=name.uuid, pci=name.pci, instance=instance, memory_bytes=memory)
