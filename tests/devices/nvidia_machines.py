"""Machines with NVIDIA devices for tests: by NVML, from recorded facts, and by recorded outputs of nvidia-smi."""

from functools import cache

from msgspec.structs import replace

from penstock.devices.nvidia import Nvidia
from penstock.devices.reading import DeviceFacts, PartFacts, ProcessFacts, Reading
from penstock.testing.devices import Recorded
from tests.devices.nvidia_tools.recorded import read
from tests.devices.nvml_library import Gpu, Library, Running, gpus_of

GIB = 2**30
INSTANCES = (("1g.10gb", 9, 6), ("3g.40gb", 2, 0))
"""Profile, GPU instance and first slice of the parts of the divided device."""


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def parts() -> tuple[PartFacts, ...]:
    return tuple(
        PartFacts(
            profile=profile,
            uuid=f"MIG-{instance:08x}-1111-2222-3333-444444444444",
            instance=instance,
            compute_instance=0,
            start=start,
            size=4 if profile.startswith("3") else 1,
            memory_bytes=(40 if profile.startswith("3") else 10) * GIB,
            memory_used_bytes=GIB,
        )
        for profile, instance, start in INSTANCES
    )


def divided(gpu: Gpu) -> Gpu:
    """Return a device with MIG on and two instances, each with a process."""
    gpu.facts = replace(gpu.facts, partitioned=True, parts=parts(), use_milli=None)
    gpu.processes = [Running(pid=2000 + instance, memory=GIB, instance=instance) for _, instance, _ in INSTANCES]
    return gpu


recorded = cache(read)


def library(*names: str) -> Library:
    """Return a library of three recorded devices, or of those named."""
    return Library(*gpus_of(*(recorded(name) for name in names or ("q-x-12.xml", "q-x-17.xml", "q-x-2.xml"))))


def nvidia(clock: Clock | None = None) -> Nvidia:
    return Nvidia(clock or Clock())


def sampled(provider: Nvidia, sources: Recorded | None = None) -> Reading:
    return provider.sample(sources or Recorded())


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


def by_uuid(reading: Reading) -> dict[str, DeviceFacts]:
    return {device.uuid or device.pci: device for device in reading.devices}


def on(reading: Reading) -> list[tuple[int, str, int | None]]:
    """Return pid, device and instance of each process."""
    rows: list[ProcessFacts] = list(reading.processes)
    return [(each.pid, each.uuid, each.instance) for each in rows]
