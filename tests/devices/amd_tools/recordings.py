"""Recorded outputs, each with the parser of its family, what stands in it, and its findings."""

from collections.abc import Callable
from pathlib import Path

from penstock.devices.amd_tools import amd_smi, amd_smi_tables, kfd, rocm_smi, rocm_smi_tables, topology
from penstock.devices.reading import Reading
from tests.devices.amd_tools import expected_amd_smi, expected_rocm

FOLDER = Path(__file__).parents[1] / "recordings" / "amd"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.name != "sources.md")

PARSERS: tuple[tuple[str, Callable[[str], Reading]], ...] = (
    ("amd-smi-monitor", amd_smi_tables.read_monitor),
    ("amd-smi-plain", amd_smi_tables.read_table),
    ("amd-smi-version", amd_smi_tables.read_versions),
    ("amd-smi-topology", topology.read),
    ("amd-smi-xgmi", topology.read_xgmi),
    ("amd-smi", amd_smi.read),
    ("kfd-node", lambda text: kfd.read({2: text})),
    ("kfd-io-link", lambda text: kfd.read({}, [text])),
    ("rocm-smi-csv", rocm_smi.read_csv),
    ("rocm-smi-showpids", rocm_smi.read_csv),
    ("rocm-smi-plain", rocm_smi_tables.read),
    ("rocm-smi-showhw", rocm_smi_tables.read),
    ("rocm-smi-version", rocm_smi.read_versions),
)


def text_of(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def parser_of(name: str) -> Callable[[str], Reading]:
    """Return the parser for the command that a recording is of."""
    if name.startswith("rocm-smi") and name.endswith(".json"):
        return rocm_smi.read
    return next((parser for begin, parser in PARSERS if name.startswith(begin)), rocm_smi.read_lines)


EXPECTED = expected_amd_smi.EXPECTED | expected_rocm.EXPECTED
FINDINGS: dict[str, list[tuple[str, int | None]]] = {
    "amd-smi-bad-pages-1.txt": [("cut", None)],
    "amd-smi-error-1.txt": [("tool_failed", None)],
    "amd-smi-list-1.txt": [("masked", 0), ("masked", 1)],
    "amd-smi-list-2.txt": [("cut", None)],
    "amd-smi-metric-1.txt": [("cut", None)],
    "amd-smi-metric-core-1.txt": [("no_devices", None)],
    "amd-smi-metric-cpu-1.txt": [("no_devices", None)],
    "amd-smi-metric-ecc-1.txt": [("cut", None)],
    "amd-smi-metric-pcie-1.txt": [("cut", None)],
    "amd-smi-metric-throttle-1.txt": [("cut", None)],
    "amd-smi-metric-usage-1.txt": [("cut", None)],
    "amd-smi-monitor-ptv-cpx-1.txt": [("parts_unknown", None)],
    "amd-smi-monitor-violation-1.txt": [("cut", None), ("parts_unknown", None)],
    "amd-smi-plain-5.txt": [("cut", 0), ("cut", None)],
    "amd-smi-process-3.txt": [("cut", None)],
    "amd-smi-metric-usage-1.json": [("unreadable", None)],
    "amd-smi-monitor-xcp-2.txt": [("cut", None)],
    "amd-smi-plain-7.txt": [("cut", 0), ("cut", 1)],
    "amd-smi-process-4.txt": [("cut", None)],
    "amd-smi-static-2.txt": [("cut", None), ("masked", 0)],
    "amd-smi-static-1.txt": [("cut", None)],
    "amd-smi-static-asic-1.txt": [("masked", 0)],
    "amd-smi-static-cpu-1.txt": [("no_devices", None)],
    "amd-smi-topology-new-1.json": [("unreadable", None)],
    "kfd-io-link-1.txt": [("no_devices", None)],
    "kfd-io-link-2.txt": [("no_devices", None)],
    "kfd-node-properties-3.txt": [("no_devices", None)],
    "rocm-smi-plain-3.txt": [("cut", 0)],
    "rocm-smi-showbus-1.txt": [("duplicate", None)],
    "rocm-smi-showproduct-3.txt": [("unknown_format", 1)],
    "rocm-smi-showtopo-error-1.txt": [("parts_unknown", None), ("not_supported", None), ("not_supported", 1)],
    "rocm-smi-showtoponuma-1.txt": [("parts_unknown", None)],
}
"""Findings of each recording, by code and index; the others have none."""
