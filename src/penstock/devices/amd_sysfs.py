"""What the kernel's files say at a moment of AMD GPUs: use, memory, temperature, power, clock, errors, processes.

Sources: the kernel's documentation of amdgpu ("GPU Power/Thermal Controls and Monitoring", "AMDGPU RAS Support");
amdkfd, kfd_process.c (`proc/PID/vram_GPU`).
"""

import re
from collections.abc import Iterator, Sequence

from penstock.devices.amd_tools import kfd
from penstock.devices.provider import Sources
from penstock.devices.reading import DeviceFacts, ProcessFacts, Reading, whole

KFD = "/sys/class/kfd/kfd"
TEMPERATURES = ("temp2_input", "temp1_input")
"""Of the hottest place of the die, else of its edge; thousandths of a degree."""
POWERS = ("power1_average", "power1_input")
"""In millionths of a watt."""
TEMPERATURE_MAX_C = 200
PROCESSES_MAX = 4096

_ERRORS = re.compile(r"(ue|ce): (\d{1,15})")
_PROCESS = re.compile(rf"{KFD}/proc/(\d{{1,9}})/vram_(\d{{1,10}})")


def read(sources: Sources, devices: Sequence[DeviceFacts]) -> Reading:
    """Return the figures of `devices`, which have addresses, and the processes that hold memory of them."""
    figures = [_figures(sources, device) for device in devices if device.pci]
    return Reading(devices=tuple(figures), processes=tuple(_processes(sources, devices)))


def _figures(sources: Sources, device: DeviceFacts) -> DeviceFacts:
    folder = f"/sys/bus/pci/devices/{device.pci}"
    monitor = next(iter(sources.glob(f"{folder}/hwmon/hwmon*")), "")
    use = whole(sources.read(f"{folder}/gpu_busy_percent"))
    errors = dict(_ERRORS.findall(sources.read(f"{folder}/ras/umc_err_count")))
    temperature = _first(sources, monitor, TEMPERATURES, 10**3)
    return DeviceFacts(
        index=device.index,
        uuid=device.uuid,
        pci=device.pci,
        memory_used_bytes=whole(sources.read(f"{folder}/mem_info_vram_used")),
        use_milli=use * 10 if use is not None and use <= 100 else None,
        temperature_c=temperature if temperature is not None and temperature <= TEMPERATURE_MAX_C else None,
        power_mw=_first(sources, monitor, POWERS, 10**3),
        power_limit_mw=_first(sources, monitor, ("power1_cap",), 10**3),
        clock_mhz=_first(sources, monitor, ("freq1_input",), 10**6),
        ecc_corrected=whole(errors.get("ce")),
        ecc_uncorrected=whole(errors.get("ue")),
    )


def _first(sources: Sources, folder: str, names: Sequence[str], divisor: int) -> int | None:
    """Return the first of some files' numbers, divided; None where none is there."""
    numbers = (whole(sources.read(f"{folder}/{name}")) for name in names) if folder else iter(())
    number = next((number for number in numbers if number is not None), None)
    return None if number is None else number // divisor


def _processes(sources: Sources, devices: Sequence[DeviceFacts]) -> Iterator[ProcessFacts]:
    """Yield the processes that have memory on a device: KFD lists each that opened it under all devices."""
    by_minor = {device.minor: device for device in devices if device.minor is not None}
    owners: dict[str, DeviceFacts] = {}
    for path in sources.glob(f"{KFD}/topology/nodes/*/gpu_id"):
        numbers, _ = kfd.properties(sources.read(f"{path.removesuffix('gpu_id')}properties"))
        if (device := by_minor.get(numbers.get("drm_render_minor", 0))) is not None:
            owners[sources.read(path).strip()] = device
    for path in sources.glob(f"{KFD}/proc/*/vram_*")[:PROCESSES_MAX]:
        found = _PROCESS.fullmatch(path)
        device = owners.get(found[2]) if found else None
        used = whole(sources.read(path)) if device is not None else None
        if found and device is not None and used:
            yield ProcessFacts(
                pid=int(found[1]), index=device.index, uuid=device.uuid, pci=device.pci, memory_bytes=used
            )
