"""AMD GPUs, by the kernel's topology (KFD), `amd-smi` or else `rocm-smi`, and sysfs.

Indexes are those of ROCR_VISIBLE_DEVICES, which counts the GPUs of KFD's topology; it also takes `GPU-` and the unique
id in 16 hexadecimal digits, which stays right where files of other devices are closed. HIP_VISIBLE_DEVICES counts
within what that has left (`installed.visibility`). amd-smi is a program of a second and more, so a sample reads sysfs,
which is some dozen small files for each device; tools are asked for it only where sysfs tells nothing.

KFD itself denies a process the devices whose render nodes its control group denies; `/dev/kfd` is everyone's.
Sources: ROCm, "GPU isolation techniques" and its runtime; the kernel's documentation of amdgpu (sysfs, hwmon, RAS).
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from penstock.core.model.resources import Device
from penstock.devices.by_tools import (
    ByTools,
    Number,
    Question,
    ask,
    denied,
    first_of,
    in_order,
    joined,
    named_as,
    with_findings,
    with_numa,
)
from penstock.devices.provider import Sources
from penstock.devices.reading import DeviceFacts, Finding, Reading

NODES = "/sys/class/kfd/kfd/topology/nodes"
DRM_MAJOR = 226
"""Source: the kernel's devices.txt."""

_UNIQUE = re.compile(r"0x[0-9a-f]{16}")
_NODE = re.compile(rf"{NODES}/(\d{{1,4}})/")


class Amd(ByTools):
    """AMD GPUs of this machine. One that is divided into compute partitions is left out: ROCR names its parts alone."""

    vendor = "amd"
    variables = ("ROCR_VISIBLE_DEVICES",)
    files = ("/dev/dri/renderD[0-9]*",)
    signs = ("/dev/kfd", NODES)
    shared = ("/dev/kfd",)

    def inventory(self, sources: Sources) -> Reading:
        """Return KFD's devices with what a tool knows more of them: about two seconds with amd-smi."""
        from penstock.devices.amd_tools import amd_smi, rocm_smi, rocm_smi_tables

        kernel = _kernel(sources, links=True)
        tool = first_of(
            sources,
            (
                Question(("amd-smi", "static", "--json"), amd_smi.read),
                Question(("rocm-smi", "-a", "--json"), rocm_smi.read),
                Question(("rocm-smi", "--showproduct"), rocm_smi.read_lines),
                Question(("rocm-smi",), rocm_smi_tables.read),
            ),
        )
        if not kernel.devices:
            tool = with_findings(_tool_alone(sources, tool), kernel.findings)
        named = replace(tool, devices=tuple(map(_by_unique_id, tool.devices)))
        here = joined(kernel, named) if kernel.devices else named
        return in_order(with_numa(sources, _without_parts(here)))

    def sample(self, sources: Sources) -> Reading:
        from penstock.devices import amd_sysfs

        here = _without_parts(_kernel(sources))
        figures = amd_sysfs.read(sources, here.devices)
        if any(device.use_milli is not None or device.memory_used_bytes is not None for device in figures.devices):
            return self.counted(with_findings(figures, here.findings))
        return self.counted(with_findings(_by_tools(sources, here), here.findings))

    def own_files(self, sources: Sources) -> list[tuple[str, ...]]:
        devices = in_order(_without_parts(_kernel(sources))).devices
        files = [device.files for device in devices]
        return files if [device.index for device in devices] == list(range(len(devices))) and all(files) else []

    def limit_power(self, sources: Sources, uuid: str, limit_mw: int) -> str:
        """Keep a device to a limit (mW), 0: to its own; return '' or why it is not."""
        from penstock.devices import amd_power

        pci = next((one.pci for one in _kernel(sources).devices if uuid and one.uuid == uuid), "")
        return amd_power.limit_power(sources, pci, limit_mw) if pci else "the kernel does not know its address"

    def closed_files(self, given: Iterable[Device], here: Iterable[Device]) -> tuple[str, ...]:
        """Return the files of all AMD devices but those given; none where these are not all known by their ids."""
        if not any(self._real(device) for device in here):
            return ()
        files = {device.uuid: set(_numbers(self._machine, device)) for device in _kernel(self._machine).devices}
        wanted = [device.uuid for device in given if self._real(device)]
        if "" in files or not set(wanted) <= set(files):
            return ()
        own = {number for uuid in wanted for number in files[uuid]}
        return denied({number for numbers in files.values() for number in numbers} - own)

    def paths_of(self, given: Sequence[Device]) -> tuple[str, ...]:
        files = {device.uuid: device.files for device in _kernel(self._machine).devices if device.uuid}
        uuids = [device.uuid for device in given if self._real(device)]
        if not set(uuids) <= set(files):
            return super().paths_of(given)
        return tuple(path for uuid in uuids for path in files[uuid])


def _kernel(sources: Sources, *, links: bool = False) -> Reading:
    """Return KFD's devices, named as ROCR names them, with their files; the links between them where asked for."""
    from penstock.devices.amd_tools import kfd

    nodes = dict(_texts(sources, f"{NODES}/*/properties"))
    if not nodes:
        return Reading()
    kinds = ("io_links", "p2p_links") if links else ()
    ways = [text for kind in kinds for _, text in _texts(sources, f"{NODES}/*/{kind}/*/properties")]
    reading = kfd.read(nodes, ways, dict(_texts(sources, f"{NODES}/*/mem_banks/0/properties")))
    devices = []
    for device in reading.devices:
        files = () if device.minor is None else (f"/dev/dri/renderD{device.minor}",)
        devices.append(replace(_by_unique_id(device), files=files))
    return replace(reading, devices=tuple(devices))


def _texts(sources: Sources, pattern: str) -> Iterator[tuple[int, str]]:
    """Yield the number of a node, and the text of a file of it."""
    for path in sources.glob(pattern):
        if found := _NODE.match(path):
            yield int(found[1]), sources.read(path)


def _by_unique_id(device: DeviceFacts) -> DeviceFacts:
    """Return a device with its unique id as ROCR takes it for a uuid, which the uuid of amd-smi is not."""
    unique = next((name for name in (device.uuid, device.serial) if _UNIQUE.fullmatch(name)), "")
    serial = "" if _UNIQUE.fullmatch(device.serial) else device.serial
    return replace(device, uuid=unique and f"GPU-{unique[2:]}", serial=serial)


def _without_parts(here: Reading) -> Reading:
    """Return a reading without devices that are divided into several parts, and a finding for those."""
    divided = [device for device in here.devices if len(device.parts) > 1]
    kept = tuple(device for device in here.devices if device not in divided)
    indexes = {device.index for device in kept}
    text = f"{len(divided)} GPUs are divided into compute partitions, which cannot be given to programs: set SPX"
    return with_findings(
        replace(
            here,
            devices=kept,
            links=tuple(link for link in here.links if {link.device, link.peer} <= indexes),
            processes=tuple(each for each in here.processes if each.index is None or each.index in indexes),
        ),
        [Finding(code="parts_unknown", text=text)] if divided else [],
    )


def _tool_alone(sources: Sources, tool: Reading) -> Reading:
    """Return what tools tell where KFD's topology cannot be read: by their own count, with links."""
    from penstock.devices.amd_tools import joining, topology

    for command in (("amd-smi", "topology", "--json"), ("rocm-smi", "--showtopo")):
        links = ask(sources, Question(command, lambda text: topology.read(text, as_counted=True)))
        if links.links:
            return joining.join(tool, links)
    return tool


def _by_tools(sources: Sources, here: Reading) -> Reading:
    """Return what changes by amd-smi, whose figures name devices by its own count alone, else by rocm-smi."""
    from penstock.devices.amd_tools import amd_smi, joining, rocm_smi

    listed = ask(sources, Question(("amd-smi", "list", "--json"), amd_smi.read))
    if listed.devices:
        figures = [
            ask(sources, Question(("amd-smi", what, "--json"), lambda text: amd_smi.read(text, as_counted=True)))
            for what in ("metric", "process")
        ]
        reading = joining.join(listed, *figures)
    else:
        reading = ask(sources, Question(("rocm-smi", "-a", "--json"), rocm_smi.read))
    reading = replace(reading, devices=tuple(map(_by_unique_id, reading.devices)))
    return named_as(reading, here.devices) if here.devices else reading


def _numbers(sources: Sources, device: DeviceFacts) -> set[Number]:
    """Return the numbers of a device's files: by which it computes, and by which it draws."""
    numbers = set() if device.minor is None else {(DRM_MAJOR, device.minor)}
    for path in sources.glob(f"/sys/bus/pci/devices/{device.pci}/drm/*/dev") if device.pci else []:
        with contextlib.suppress(ValueError):
            major, minor = sources.read(path).split(":")
            numbers.add((int(major), int(minor)))
    return numbers
