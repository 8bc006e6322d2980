"""A library as `libnvidia-ml.so.1` is: the real `pynvml` calls it as it calls that, with its own structs and errors.

Its devices are those of recordings. A test says which call fails how (`fault`), what the devices do, and reloads the
driver, after which every call fails until the library is started anew.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pynvml

from penstock.devices.reading import DeviceFacts, PartFacts, Reading

SUCCESS, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND = 0, 1, 2, 3, 6
SMALL, TIMEOUT, LOST = 7, 10, 15
ERRORS = (1, 2, 3, 4, 6, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 999)
"""That a call may return; the size of a buffer and a missing library aside, which have meanings of their own."""
DEVICE_STEP, PART_STEP, INSTANCE_BASE, EVENTS = 0x1000, 0x10, 0x800000, 0x700000
NO_INSTANCE = 2**32 - 1
GARBAGE = 7
"""What stands in a field that is not supported."""


class Running(msgspec.Struct):
    """A process on a device."""

    pid: int
    memory: int
    instance: int = NO_INSTANCE
    kind: str = "compute"


class Gpu(msgspec.Struct):
    """A device: what NVML tells of it, as far as it is not in the recording."""

    facts: DeviceFacts
    processes: list[Running] = []
    fields: dict[int, int] = {}
    reasons: int = 0
    mig_pending: bool | None = None
    fabric: tuple[int, int, int] | None = None
    """State, status and health; None: it is on none."""
    group: int = 0
    """Devices of a group are joined by NVLink."""
    seen: bool = True
    """A handle can be had of it."""


class Library:
    """The functions by the names in the shared library."""

    def __init__(self, *gpus: Gpu, driver: str = "535.183.01") -> None:
        self.gpus = list(gpus)
        self.driver = driver
        self.started = 0
        self.fault: Callable[[str, int | None], int] = lambda function, device: SUCCESS
        """Returns the error of a call, by the function and the place of its device."""
        self.absent: set[str] = set()
        self.events: list[tuple[int, int, int]] = []
        """Device, Xid, instance."""
        self.registered: set[int] = set()
        self.sets = 0
        self.calls: list[str] = []

    def reload(self) -> None:
        """Reload the driver: what was started is not any more."""
        self.started = self.sets = 0
        self.registered.clear()

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = _FUNCTIONS.get(name)
        if function is None or name in self.absent:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            place = self._place(arguments[0]) if arguments else None
            if error := self.fault(name, place):
                return error
            if not self.started and name != "nvmlInitWithFlags":
                return UNINITIALIZED
            return function(self, *arguments)

        return call

    def _place(self, handle: Any) -> int | None:
        """Return the place of the device of a handle, of it or of a part of it."""
        if isinstance(handle, ctypes.c_uint):
            return handle.value
        address = _address(handle)
        return address // DEVICE_STEP - 1 if address and address < EVENTS else None

    def gpu(self, handle: Any) -> Gpu:
        return self.gpus[(_address(handle) or 0) // DEVICE_STEP - 1]

    def part(self, handle: Any) -> PartFacts | None:
        """Return the part of a handle, None for one of a whole device."""
        at = ((_address(handle) or 0) % DEVICE_STEP) // PART_STEP
        return self.gpu(handle).facts.parts[at - 1] if at else None


def _address(handle: Any) -> int | None:
    return ctypes.c_void_p.from_buffer(handle).value if isinstance(handle, ctypes._Pointer) else None


def _point(reference: Any, address: int) -> int:
    value = ctypes.c_void_p(address)
    ctypes.memmove(ctypes.addressof(reference._obj), ctypes.addressof(value), ctypes.sizeof(value))
    return SUCCESS


def _put(reference: Any, value: int | None) -> int:
    if value is None:
        return NOT_SUPPORTED
    reference._obj.value = value
    return SUCCESS


def _init(library: Library, flags: int) -> int:
    library.started += 1
    return SUCCESS


def _shutdown(library: Library) -> int:
    library.started -= 1
    library.registered.clear()
    return SUCCESS


def _handle(library: Library, index: Any, device: Any) -> int:
    if index.value >= len(library.gpus):
        return INVALID
    return _point(device, (index.value + 1) * DEVICE_STEP) if library.gpus[index.value].seen else LOST


def _text(read: Callable[[Library, Any], str]) -> Callable[..., int]:
    def function(library: Library, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = read(library, handle).encode()[: size.value - 1]
        return SUCCESS if buffer.value else NOT_SUPPORTED

    return function


def _name(library: Library, handle: Any) -> str:
    part, model = library.part(handle), library.gpu(handle).facts.model
    return f"{model} MIG {part.profile}" if part and part.profile else model


def _uuid(library: Library, handle: Any) -> str:
    part = library.part(handle)
    return part.uuid if part else library.gpu(handle).facts.uuid


def _driver(library: Library, buffer: Any, size: Any) -> int:
    buffer.value = library.driver.encode()
    return SUCCESS


def _pci(library: Library, handle: Any, info: Any) -> int:
    info._obj.busId = f"0000{library.gpu(handle).facts.pci.upper()}".encode()
    return SUCCESS


def _number(name: str) -> Callable[..., int]:
    """Return a function whose last argument is a number of the facts."""

    def function(library: Library, handle: Any, *arguments: Any) -> int:
        return _put(arguments[-1], getattr(library.gpu(handle).facts, name))

    return function


def _memory(library: Library, handle: Any, info: Any) -> int:
    of: DeviceFacts | PartFacts = library.part(handle) or library.gpu(handle).facts
    if of.memory_bytes is None:
        return NOT_SUPPORTED
    info._obj.total, info._obj.used = of.memory_bytes, of.memory_used_bytes or 0
    info._obj.free = info._obj.total - info._obj.used
    return SUCCESS


def _capability(library: Library, handle: Any, major: Any, minor: Any) -> int:
    capability = library.gpu(handle).facts.capability
    if capability is None:
        return NOT_SUPPORTED
    major._obj.value, minor._obj.value = capability
    return SUCCESS


def _mig_mode(library: Library, handle: Any, current: Any, pending: Any) -> int:
    gpu = library.gpu(handle)
    if gpu.facts.partitioned is None:
        return NOT_SUPPORTED
    current._obj.value = gpu.facts.partitioned
    pending._obj.value = gpu.facts.partitioned if gpu.mig_pending is None else gpu.mig_pending
    return SUCCESS


def _mig_handle(library: Library, handle: Any, index: Any, part: Any) -> int:
    listed = [p for p in library.gpu(handle).facts.parts if p.compute_instance is not None]
    if index.value >= len(listed):
        return NOT_FOUND
    return _point(part, (_address(handle) or 0) + (index.value + 1) * PART_STEP)


def _part_number(name: str) -> Callable[..., int]:
    def function(library: Library, handle: Any, number: Any) -> int:
        part = library.part(handle)
        return INVALID if part is None else _put(number, getattr(part, name))

    return function


def _instance(library: Library, handle: Any, instance: Any, found: Any) -> int:
    return _point(found, INSTANCE_BASE + (_address(handle) or 0) + int(instance))


def _instance_info(library: Library, instance: Any, info: Any) -> int:
    address = (ctypes.cast(instance, ctypes.c_void_p).value or 0) - INSTANCE_BASE
    parts = library.gpus[address // DEVICE_STEP - 1].facts.parts
    part = next((each for each in parts if each.instance == address % DEVICE_STEP), None)
    if part is None:
        return NOT_FOUND
    info._obj.id = address % DEVICE_STEP
    info._obj.placement.start, info._obj.placement.size = part.start or 0, part.size or 0
    return SUCCESS


def _profiles(parts: tuple[PartFacts, ...]) -> list[str]:
    return sorted({part.profile for part in parts})


def _profile(library: Library, handle: Any, number: int, info: Any) -> int:
    parts = library.gpu(handle).facts.parts
    profiles = _profiles(parts)
    if number >= len(profiles):
        return NOT_SUPPORTED
    info._obj.id, info._obj.instanceCount, info._obj.name = 100 + number, 7, f"MIG {profiles[number]}".encode()
    memory = next((part.memory_bytes for part in parts if part.profile == profiles[number]), None)
    info._obj.memorySizeMB = (memory or 0) // 2**20
    return SUCCESS


def _instances(library: Library, handle: Any, profile: int, found: Any, count: Any) -> int:
    parts = library.gpu(handle).facts.parts
    name = _profiles(parts)[profile - 100]
    numbers = sorted({each.instance for each in parts if each.profile == name and each.instance is not None})
    for at, number in enumerate(numbers):
        found[at] = ctypes.cast(INSTANCE_BASE + (_address(handle) or 0) + number, pynvml.c_nvmlGpuInstance_t)
    count._obj.value = len(numbers)
    return SUCCESS


def _p2p(library: Library, one: Any, other: Any, kind: int, status: Any) -> int:
    joined = library.gpu(one).group == library.gpu(other).group != 0
    status._obj.value = 0 if joined else 5
    return SUCCESS


def _ancestor(library: Library, one: Any, other: Any, level: Any) -> int:
    same = library.gpu(one).facts.numa_node == library.gpu(other).facts.numa_node
    level._obj.value = 30 if same else 50
    return SUCCESS


def _use(library: Library, handle: Any, use: Any) -> int:
    milli = library.gpu(handle).facts.use_milli
    if milli is None:
        return NOT_SUPPORTED
    use._obj.gpu = milli // 10
    return SUCCESS


def _reasons(library: Library, handle: Any, reasons: Any) -> int:
    return _put(reasons, library.gpu(handle).reasons)


def _fields(library: Library, handle: Any, count: Any, values: Any) -> int:
    for value in values._obj:
        known = library.gpu(handle).fields.get(value.fieldId)
        value.nvmlReturn, value.valueType = NOT_SUPPORTED if known is None else SUCCESS, 3
        value.value.ullVal = GARBAGE if known is None else known
    return SUCCESS


def _processes(kind: str) -> Callable[..., int]:
    def function(library: Library, handle: Any, count: Any, rows: Any) -> int:
        part = library.part(handle)
        running = [
            each
            for each in library.gpu(handle).processes
            if each.kind == kind and (part is None or each.instance == part.instance)
        ]
        if rows is None:
            count._obj.value = len(running)
            return SMALL if running else SUCCESS
        for at, each in enumerate(running):
            rows[at].pid, rows[at].usedGpuMemory = each.pid, each.memory
            rows[at].gpuInstanceId = each.instance
        count._obj.value = len(running)
        return SUCCESS

    return function


def _fabric(library: Library, handle: Any, info: Any) -> int:
    fabric = library.gpu(handle).fabric
    if fabric is not None:
        info._obj.state, info._obj.status, info._obj.healthMask = fabric
    return SUCCESS


def _events(library: Library, events: Any) -> int:
    library.sets += 1
    return _point(events, EVENTS)


def _register(library: Library, handle: Any, kinds: Any, events: Any) -> int:
    library.registered.add((_address(handle) or 0) // DEVICE_STEP - 1)
    return SUCCESS


def _wait(library: Library, events: Any, data: Any, timeout: Any) -> int:
    while library.events:
        device, xid, instance = library.events.pop(0)
        if device in library.registered:
            address = ctypes.c_void_p((device + 1) * DEVICE_STEP)
            ctypes.memmove(ctypes.addressof(data._obj), ctypes.addressof(address), ctypes.sizeof(address))
            data._obj.eventType, data._obj.eventData, data._obj.gpuInstanceId = 8, xid, instance
            return SUCCESS
    return TIMEOUT


def _free(library: Library, events: Any) -> int:
    library.sets -= 1
    return SUCCESS


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "nvmlInitWithFlags": _init,
    "nvmlShutdown": _shutdown,
    "nvmlSystemGetDriverVersion": _driver,
    "nvmlDeviceGetCount_v2": lambda library, count: _put(count, len(library.gpus)),
    "nvmlDeviceGetHandleByIndex_v2": _handle,
    "nvmlDeviceGetName": _text(_name),
    "nvmlDeviceGetUUID": _text(_uuid),
    "nvmlDeviceGetSerial": _text(lambda library, handle: library.gpu(handle).facts.serial),
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetMinorNumber": _number("minor"),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetMemoryInfo_v2": _memory,
    "nvmlDeviceGetCudaComputeCapability": _capability,
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetMaxMigDeviceCount": lambda library, handle, count: _put(count, 7),
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig_handle,
    "nvmlDeviceGetGpuInstanceId": _part_number("instance"),
    "nvmlDeviceGetComputeInstanceId": _part_number("compute_instance"),
    "nvmlDeviceGetGpuInstanceById": _instance,
    "nvmlGpuInstanceGetInfo": _instance_info,
    "nvmlDeviceGetGpuInstanceProfileInfoV": _profile,
    "nvmlDeviceGetGpuInstances": _instances,
    "nvmlDeviceGetP2PStatus": _p2p,
    "nvmlDeviceGetTopologyCommonAncestor": _ancestor,
    "nvmlDeviceGetUtilizationRates": _use,
    "nvmlDeviceGetTemperature": _number("temperature_c"),
    "nvmlDeviceGetPowerUsage": _number("power_mw"),
    "nvmlDeviceGetEnforcedPowerLimit": _number("power_limit_mw"),
    "nvmlDeviceGetPowerManagementDefaultLimit": _number("power_limit_mw"),
    "nvmlDeviceGetClockInfo": _number("clock_mhz"),
    "nvmlDeviceGetCurrentClocksEventReasons": _reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _reasons,
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes("compute"),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": _processes("mps"),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": _processes("graphics"),
    "nvmlDeviceGetGpuFabricInfoV": _fabric,
    "nvmlEventSetCreate": _events,
    "nvmlDeviceRegisterEvents": _register,
    "nvmlEventSetWait_v2": _wait,
    "nvmlEventSetFree": _free,
}
FUNCTIONS = tuple(sorted(_FUNCTIONS))


def gpus_of(*readings: Reading) -> list[Gpu]:
    """Return the recorded devices as those of one machine: each with an address, a uuid and a minor of its own."""
    devices = [device for reading in readings for device in reading.devices]
    gpus = []
    for at, device in enumerate(devices):
        facts = msgspec.structs.replace(
            device,
            index=at,
            pci=f"0000:{at + 1:02x}:00.0",
            uuid=f"GPU-{at:08x}{(device.uuid or f'GPU-{at:08x}-1111-2222-3333-444444444444')[12:]}",
            minor=at,
            numa_node=at * 2 // len(devices),
            capability=device.capability or (8, 0),
        )
        gpus.append(Gpu(facts, processes=[Running(pid=1000 + at, memory=2**30)], fields={3: at, 4: 0, 83: 10**6 + at}))
    return gpus


@contextmanager
def loaded(library: Library) -> Iterator[Library]:
    """Make `pynvml` call this library."""
    before, cache = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlLib = library
    try:
        yield library
    finally:
        pynvml.nvmlLib = before
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlGetFunctionPointer_cache.update(cache)
