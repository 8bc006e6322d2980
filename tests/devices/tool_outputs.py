"""The recorded outputs of all vendors but NVIDIA and AMD, each with its parser; what a reading says, without blanks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.devices import (
    cambricon_tools,
    gaudi_tools,
    huawei_details,
    huawei_tools,
    hygon_tools,
    kubernetes_tools,
    mthreads_tools,
    neuron_tools,
    tpu_tools,
    xpu_tools,
)
from penstock.devices.reading import Reading

FOLDER = Path(__file__).parent / "recordings"
MIB = 2**20

PARSERS: dict[str, Callable[[str], Reading]] = {
    **{f"huawei/npu-smi-info-{n}.txt": huawei_tools.parse_info for n in (*range(1, 11), "hami-1")},
    "huawei/npu-smi-error-1.txt": huawei_tools.parse_info,
    "huawei/npu-smi-info-l-1.txt": huawei_tools.parse_list,
    "huawei/npu-smi-info-m-1.txt": huawei_tools.parse_mapping,
    "huawei/npu-smi-info-m-2.txt": huawei_tools.parse_mapping,
    "huawei/npu-smi-info-t-topo-1.txt": huawei_tools.parse_topology,
    "huawei/lspci-910a-1.txt": huawei_tools.parse_lspci,
    "huawei/npu-smi-info-t-board-1.txt": huawei_details.parse_board,
    "huawei/npu-smi-info-t-board-2.txt": huawei_details.parse_board,
    "huawei/npu-smi-info-t-memory-1.txt": huawei_details.parse_memory,
    "huawei/npu-smi-info-t-usages-1.txt": huawei_details.parse_usages,
    "huawei/npu-smi-info-t-proc-mem-1.txt": huawei_details.parse_processes,
    "huawei/npu-smi-details-1.csv": huawei_details.parse_samples,
    "huawei/hccn-tool-link-stat-1.txt": huawei_details.parse_link,
    "huawei/hccn-tool-net-health-1.txt": huawei_details.parse_network,
    "huawei/hccn-tool-optical-1.txt": huawei_details.parse_optical,
    **{f"gaudi/hl-smi-plain-{n}.txt": gaudi_tools.parse_table for n in (1, 2, 3, 4)},
    **{f"gaudi/hl-smi-{kind}-1.csv": gaudi_tools.parse_rows for kind in ("discover", "probe", "query")},
    "intel-xpu/xpu-smi-plain-1.txt": xpu_tools.parse_table,
    "intel-xpu/xpu-smi-discovery-1.txt": xpu_tools.parse_discovery,
    "intel-xpu/xpu-smi-discovery-2.txt": xpu_tools.parse_discovery,
    "intel-xpu/xpu-smi-discovery-list-1.json": xpu_tools.parse_json,
    "intel-xpu/xpu-smi-discovery-device-1.json": xpu_tools.parse_json,
    "intel-xpu/xpu-smi-dump-1.csv": xpu_tools.parse_dump,
    "intel-xpu/xpu-smi-dump-2.csv": xpu_tools.parse_dump,
    "intel-xpu/xpu-smi-version-1.txt": xpu_tools.parse_version,
    **{f"tpu/tpu-info-{name}-1.txt": tpu_tools.parse for name in ("process", "streaming")},
    **{f"tpu/tpu-info-{n}.txt": tpu_tools.parse for n in (1, 2, 3)},
    "tpu/tpu-info-version-1.txt": tpu_tools.parse_version,
    "tpu/tpu-info-version-2.txt": tpu_tools.parse_version,
    **{
        f"neuron/neuron-ls-{n}.txt": neuron_tools.parse_table
        for n in (*range(1, 7), "all-procs-1", "wide-1", "topology-1")
    },
    "neuron/neuron-ls-json-1.json": neuron_tools.parse_json,
    "neuron/neuron-monitor-instance-1.json": neuron_tools.parse_json,
    "neuron/neuron-monitor-utilization-1.json": neuron_tools.parse_json,
    "cambricon/cnmon-1.txt": cambricon_tools.parse_table,
    "cambricon/cnmon-2.txt": cambricon_tools.parse_table,
    **{f"mthreads/mthreads-gmi-{n}.txt": mthreads_tools.parse_table for n in (1, 2, 3)},
    "hygon/hy-smi-virtual-1.txt": hygon_tools.parse_virtual,
    **{f"k8s/dcgm-exporter-{n}.prom": kubernetes_tools.parse_samples for n in (1, 2)},
    **{
        f"k8s/node-describe-{name}-1.txt": kubernetes_tools.parse_node
        for name in ("lost-gpu", "openshift", "timeslicing")
    },
    "k8s/node-describe-timeslicing-2.txt": kubernetes_tools.parse_node,
}
VENDORS = sorted({name.split("/", maxsplit=1)[0] for name in PARSERS})


def text_of(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def read(name: str) -> Reading:
    return PARSERS[name](text_of(name))


def told(facts: Any) -> dict[str, Any]:
    """Return the facts that are there, of a device, a process or a finding."""
    values = ((name, getattr(facts, name)) for name in facts.__struct_fields__)
    return {name: value for name, value in values if value not in (None, "", ())}


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]
