"""The recordings of nvidia-smi, the parser of each, and what is compared of a reading."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.devices.nvidia_tools.csv_tables import accounted_apps, compute_apps, query_gpu, retired_pages
from penstock.devices.nvidia_tools.listing import listing, nvlink_errors, nvlink_status, versions
from penstock.devices.nvidia_tools.monitors import dmon, pmon
from penstock.devices.nvidia_tools.plain import plain
from penstock.devices.nvidia_tools.text_log import text_log
from penstock.devices.nvidia_tools.topology import topology
from penstock.devices.nvidia_tools.xml_log import xml_log
from penstock.devices.reading import DeviceFacts, Reading

HERE = Path(__file__).parent.parent / "recordings" / "nvidia_smi"
MIB = 2**20
MIG_COLUMNS = ("name", "pci.bus_id", "mig.mode.current", "mig.mode.pending")
Parser = Callable[[str], Reading]


def accounted(text: str) -> Reading:
    return accounted_apps(text)[1]


PARSERS: tuple[tuple[str, Parser], ...] = (
    ("q-x", xml_log),
    ("query-gpu", query_gpu),
    ("query-mig", partial(query_gpu, columns=MIG_COLUMNS)),
    ("q", text_log),
    ("plain", plain),
    ("L", listing),
    ("nvlink-s", nvlink_status),
    ("nvlink-e", nvlink_errors),
    ("version", versions),
    ("topo-m", topology),
    ("dmon", dmon),
    ("pmon", pmon),
    ("compute-apps", compute_apps),
    ("accounted-apps", accounted),
    ("retired-pages", retired_pages),
    ("error", listing),
)
"""Kind of a recording, as its name begins, and its parser; the first that fits."""


def names() -> list[str]:
    return sorted(path.name for path in HERE.glob("nvidia-smi-*"))


def text(name: str) -> str:
    return (HERE / f"nvidia-smi-{name.removeprefix('nvidia-smi-')}").read_text(encoding="utf-8")


def parser(name: str) -> Parser:
    kind = name.removeprefix("nvidia-smi-")
    return next(parse for prefix, parse in PARSERS if kind.startswith(f"{prefix}-"))


def read(name: str) -> Reading:
    return parser(name)(text(name))


def mib(value: int | None) -> int | None:
    return None if value is None else value // MIB


def identity(device: DeviceFacts) -> tuple[int | None, str, str, int | None, int | None]:
    """Return what a device is taken for: index, address, model, memory in total and used (MiB)."""
    return device.index, device.pci, device.model, mib(device.memory_bytes), mib(device.memory_used_bytes)


def parts(device: DeviceFacts) -> list[tuple[int | None, int | None, int | None]]:
    """Return instance, compute instance and memory (MiB) of each part."""
    return [(part.instance, part.compute_instance, mib(part.memory_bytes)) for part in device.parts]


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


def pids(reading: Reading) -> list[int]:
    return [process.pid for process in reading.processes]
