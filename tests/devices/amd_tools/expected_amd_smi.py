"""What each recorded output of amd-smi shows, but for its findings; written by hand from the texts."""

from penstock.devices.reading import LinkFacts, PartFacts, ProcessFacts, Reading
from tests.devices.amd_tools.builders import (
    EIGHT,
    GIB,
    MIB,
    ONE,
    TWO,
    XGMI,
    divided,
    here,
    live,
    mi300a,
    monitored,
    on_both,
    r9700,
)

EXPECTED: dict[str, Reading] = {
    "amd-smi-bad-pages-1.txt": Reading(devices=TWO),
    "amd-smi-error-1.txt": Reading(),
    "amd-smi-list-1.txt": Reading(devices=here({"pci": "0000:23:00.0"}, {"pci": "0000:26:00.0"})),
    "amd-smi-list-2.txt": Reading(
        devices=here(
            {"pci": "0000:05:00.0", "uuid": "02939881-f3fb-8ca5-9fac-a64785cc9492"},
            {"pci": "0000:26:00.0", "uuid": "490b91e1-3ad1-e4d8-6696-ad2c07baa5e8"},
            {"pci": "0000:46:00.0", "uuid": "1564c469-db49-7532-8c92-87dec2f38a78"},
        )
    ),
    "amd-smi-metric-1.txt": Reading(devices=here({"use_milli": 1000, "power_mw": 234_000, "clock_mhz": 2102})),
    "amd-smi-metric-clock-1.txt": Reading(devices=here({"clock_mhz": 113})),
    "amd-smi-metric-core-1.txt": Reading(),
    "amd-smi-metric-cpu-1.txt": Reading(),
    "amd-smi-metric-ecc-1.txt": Reading(devices=here({"ecc_corrected": 0, "ecc_uncorrected": 0})),
    "amd-smi-metric-ecc-blocks-1.txt": Reading(devices=ONE),
    "amd-smi-metric-pcie-1.txt": Reading(devices=TWO),
    "amd-smi-metric-power-1.json": Reading(devices=here({"power_mw": 10_000})),
    "amd-smi-metric-power-1.txt": Reading(devices=here({"power_mw": 11_000}, {"power_mw": 17_000})),
    "amd-smi-metric-throttle-1.txt": Reading(devices=TWO),
    "amd-smi-metric-usage-1.json": Reading(),
    "amd-smi-metric-usage-1.txt": Reading(devices=here({}, {}, use_milli=0)),
    "amd-smi-metric-usage-2.txt": Reading(devices=here({"use_milli": 0})),
    "amd-smi-monitor-pcie-1.txt": Reading(devices=ONE),
    "amd-smi-monitor-ptumv-1.txt": Reading(
        devices=here(
            monitored(171, 32, 0, 114),
            monitored(175, 33, 0, 113),
            monitored(177, 31, 0, 113),
            monitored(172, 33, 0, 113),
            monitored(178, 32, 0, 113, memory_used_bytes=284 * MIB),
            monitored(176, 33, 0, 113),
            monitored(176, 32, 0, 113),
            monitored(175, 34, 0, 113),
        )
    ),
    "amd-smi-monitor-ptv-cpx-1.txt": Reading(),
    "amd-smi-monitor-putm-1.txt": Reading(
        devices=here(
            live(182, 42, 83, 1613),
            live(143, 40, 13, 358),
            live(117, 41, 0, 120),
            live(116, 40, 1, 134),
            live(118, 42, 0, 120),
            live(118, 39, 0, 120),
            live(116, 41, 0, 120),
            live(118, 40, 0, 120),
        )
    ),
    "amd-smi-monitor-q-1.txt": Reading(
        devices=here(
            live(199, 103, 99, 1920, memory_bytes=16335 * MIB, memory_used_bytes=1235 * MIB),
            ecc_corrected=0,
            ecc_uncorrected=0,
        ),
        processes=(ProcessFacts(pid=1564865, index=0, name="rvs", memory_bytes=round(1.1 * GIB)),),
    ),
    "amd-smi-monitor-violation-1.txt": Reading(),
    "amd-smi-monitor-xcp-1.txt": Reading(
        devices=here(live(49, 27, 2, 43), live(42, 29, 2, 47), live(33, 30, 2, 49), live(40, 26, 2, 40))
    ),
    "amd-smi-monitor-xcp-2.txt": Reading(
        devices=(
            divided(0, "", 4, **live(183, 49, 0, 1427, memory_used_bytes=round(0.3 * GIB))),
            divided(4, "", 4, **live(182, 50, 0, 1423, memory_used_bytes=round(0.3 * GIB))),
        )
    ),
    "amd-smi-monitor-xcp-3.txt": Reading(devices=here(live(32, 58, 6, 1115, memory_used_bytes=round(2.9 * GIB)))),
    "amd-smi-monitor-xcp-4.txt": Reading(devices=ONE),
    "amd-smi-plain-1.txt": Reading(
        devices=here(
            {
                "pci": "0000:ff:00.0",
                "model": "AMD Instinct MI300X VF",
                "memory_bytes": 196288 * MIB,
                "memory_used_bytes": 285 * MIB,
                "use_milli": 0,
                "temperature_c": 37,
                "power_mw": 141_000,
                "power_limit_mw": 750_000,
                "ecc_uncorrected": 0,
                "partitioned": False,
            }
        ),
        driver="6.16.6",
    ),
    "amd-smi-plain-2.txt": Reading(
        devices=here(
            {
                "pci": "0003:00:03.0",
                "model": "AMD Instinct MI300X",
                "memory_bytes": 196592 * MIB,
                "memory_used_bytes": 283 * MIB,
                "use_milli": 0,
                "temperature_c": 41,
                "power_mw": 124_000,
                "power_limit_mw": 750_000,
                "ecc_uncorrected": 0,
                "partitioned": False,
            }
        ),
        driver="6.12.12",
    ),
    "amd-smi-plain-3.txt": Reading(
        devices=here(
            {
                "pci": "0000:c5:00.0",
                "model": "Radeon 8060S Graphics",
                "memory_bytes": 2 * GIB,
                "memory_used_bytes": 155 * MIB,
                "ecc_uncorrected": 0,
            }
        ),
        driver="6.17.0-35",
    ),
    "amd-smi-plain-4.txt": Reading(
        devices=here(
            {
                "pci": "0000:c5:00.0",
                "model": "Radeon 8060S Graphics",
                "memory_bytes": 512 * MIB,
                "memory_used_bytes": 161 * MIB,
                "ecc_uncorrected": 0,
            }
        ),
        driver="6.17.0-5",
    ),
    "amd-smi-plain-5.txt": Reading(
        devices=here(
            {
                "pci": "0000:1b:00.0",
                "memory_bytes": 196592 * MIB,
                "memory_used_bytes": 149820 * MIB,
                "power_limit_mw": 750_000,
                "ecc_uncorrected": 0,
                "partitioned": False,
            }
        ),
        driver="6.16.13",
    ),
    "amd-smi-plain-6.txt": Reading(
        devices=here(
            mi300a("0000:01:00.0", 49, 27, 6),
            mi300a("0001:01:00.0", 42, 29, 2),
            mi300a("0002:01:00.0", 33, 30, 2),
            mi300a("0003:01:00.0", 40, 26, 2),
        ),
        driver="6.19.4",
    ),
    "amd-smi-plain-7.txt": Reading(
        devices=here(r9700("0000:03:00.0", 103, 79), r9700("0000:43:00.0", 92, 80)),
        processes=on_both(
            "python3.12",
            {
                213534: round(54.7 * 1024),
                213890: round(54.7 * 1024),
                213952: round(19.6 * GIB),
                213953: round(19.1 * GIB),
            },
        ),
        driver="6.16.6",
    ),
    "amd-smi-process-1.json": Reading(
        devices=TWO,
        processes=on_both(
            "/usr/bin/python3.12", {213534: 56000, 213890: 56000, 213952: 21008920000, 213953: 20503796000}
        ),
    ),
    "amd-smi-process-1.txt": Reading(
        devices=ONE, processes=(ProcessFacts(pid=1693982, index=0, memory_bytes=round(10.1 * GIB)),)
    ),
    "amd-smi-process-2.txt": Reading(
        devices=ONE,
        processes=(ProcessFacts(pid=1693982, index=0, name="TransferBench", memory_bytes=round(10.1 * GIB)),),
    ),
    "amd-smi-process-3.txt": Reading(
        devices=TWO,
        processes=(
            ProcessFacts(pid=207590, index=0, name="pt_main_thread", memory_bytes=round(7.3 * GIB)),
            ProcessFacts(pid=207591, index=1, name="pt_main_thread", memory_bytes=round(7.4 * GIB)),
        ),
    ),
    "amd-smi-process-4.txt": Reading(
        devices=TWO, processes=(ProcessFacts(pid=12345, index=0, name="python3", memory_bytes=4 * GIB),)
    ),
    "amd-smi-static-1.json": Reading(
        devices=here(
            {
                "model": "AMD Instinct MI300X",
                "pci": "0000:83:00.0",
                "serial": "0x6f1f0a2b3c4d5e6f",
                "memory_bytes": 196592 * MIB,
            }
        ),
        driver="6.19.14",
    ),
    "amd-smi-static-1.txt": Reading(
        devices=here({"model": "MI300X-O", "pci": "0000:05:00.0", "serial": "0xaf76a53c5b8e66c6"})
    ),
    "amd-smi-static-2.txt": Reading(
        devices=here(
            {
                "model": "AMD Instinct MI300A",
                "pci": "0000:01:00.0",
                "numa_node": 0,
                "memory_bytes": 96432 * MIB,
                "power_limit_mw": 550_000,
            }
        ),
        driver="6.19.4",
    ),
    "amd-smi-static-asic-1.txt": Reading(devices=here({"model": "MI308X"})),
    "amd-smi-static-cpu-1.txt": Reading(),
    "amd-smi-static-limit-1.txt": Reading(devices=here({"power_limit_mw": 203_000}, {"power_limit_mw": 213_000})),
    "amd-smi-static-partition-1.txt": Reading(
        devices=here({"partitioned": True, "parts": (PartFacts(profile="CPX", index=0, instance=0),)})
    ),
    "amd-smi-topology-1.txt": XGMI,
    "amd-smi-topology-cndz-1.txt": Reading(devices=EIGHT),
    "amd-smi-topology-new-1.json": Reading(),
    "amd-smi-topology-new-2.json": Reading(
        devices=here({"pci": "0000:08:00.0"}, {"pci": "0000:44:00.0"}), links=(LinkFacts(0, 1, "pcie"),)
    ),
    "amd-smi-topology-old-1.json": Reading(devices=TWO, links=(LinkFacts(0, 1, "pcie"),)),
    "amd-smi-version-1.txt": Reading(),
    "amd-smi-version-2.txt": Reading(),
    "amd-smi-xgmi-1.txt": XGMI,
}
