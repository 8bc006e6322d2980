"""What each recorded output of rocm-smi and the kernel shows, but for its findings; written by hand from the texts."""

from penstock.devices.reading import ProcessFacts, Reading
from tests.devices.amd_tools.builders import NAVI, all_pairs, csv_card, divided, here, live, mi100, mi210, navi, plain

EXPECTED: dict[str, Reading] = {
    "rocm-smi-a-1.json": Reading(
        devices=here(
            mi100(pci="0000:1e:00.0", temperature_c=34, power_mw=39_000),
            mi100(pci="0000:22:00.0", temperature_c=33, power_mw=37_000),
            mi100(pci="0000:3f:00.0", temperature_c=34, power_mw=35_000),
            mi100(pci="0000:43:00.0", temperature_c=35, power_mw=39_000),
            mi100(pci="0000:46:00.0", temperature_c=34, power_mw=39_000),
            mi100(pci="0000:49:00.0", temperature_c=35, power_mw=40_000),
            numa_node=0,
            memory_used_bytes=6782976,
        ),
        links=all_pairs(6, "pcie"),
        driver="6.2.4",
    ),
    "rocm-smi-a-2.json": Reading(
        devices=here(
            mi100(uuid="0x79caa53982d0434e", pci="0000:83:00.0", temperature_c=55, power_mw=36_000),
            mi100(uuid="0x04eeeb369e60b84c", pci="0000:a3:00.0", temperature_c=58, power_mw=44_000),
            mi100(uuid="0xd4f8ef15c81d075e", pci="0000:c3:00.0", temperature_c=57, power_mw=43_000),
            mi100(uuid="0x1b6ef014600a6076", pci="0000:e3:00.0", temperature_c=53, power_mw=39_000),
            numa_node=1,
            memory_used_bytes=6750208,
        ),
        links=all_pairs(4, "pcie"),
        driver="6.3.6",
    ),
    "rocm-smi-a-3.json": Reading(
        devices=here(navi(memory_used_bytes=1622728704, power_mw=6_000, clock_mhz=500)), driver="6.3.6"
    ),
    "rocm-smi-a-4.json": Reading(
        devices=here(navi(memory_used_bytes=1564491776, power_mw=6_000, clock_mhz=500, model=NAVI)), driver="6.3.6"
    ),
    "rocm-smi-a-5.json": Reading(
        devices=here(navi(memory_used_bytes=1572757504, clock_mhz=500, model=NAVI)), driver="6.3.6"
    ),
    "rocm-smi-a-6.json": Reading(
        devices=here(navi(memory_used_bytes=1572745216, power_mw=6_000, clock_mhz=0, model=NAVI)), driver="6.3.6"
    ),
    "rocm-smi-a-7.json": Reading(
        devices=here(
            {
                "uuid": "0x02134b8b272d9853",
                "pci": "0000:04:00.0",
                "numa_node": 0,
                "memory_bytes": 17163091968,
                "memory_used_bytes": 17776640,
                **live(15, 40, 0, 1269),
                "power_limit_mw": 170_000,
            }
        ),
        driver="5.9.25",
    ),
    "rocm-smi-a-8.json": Reading(
        devices=here(
            {
                "uuid": "0x02f784921408e9bb",
                "pci": "0000:63:00.0",
                "model": "Radeon Instinct MI50 32GB",
                "serial": "693786211823",
                "numa_node": 0,
                "memory_bytes": 34342961152,
                "memory_used_bytes": 10850304,
                **live(26, 38, 0, 1725),
                "power_limit_mw": 225_000,
            }
        ),
        driver="5.9.17",
    ),
    "rocm-smi-csv-1.csv": Reading(
        devices=here(
            csv_card(
                uuid="0x2490210172fc1a88",
                model="Vega 20 [Radeon Pro VII/Radeon Instinct MI50 32GB]",
                memory_bytes=17163091968,
                memory_used_bytes=10854400,
                temperature_c=34,
                power_mw=19_000,
            )
        )
    ),
    "rocm-smi-csv-2.csv": Reading(
        devices=here(
            csv_card(uuid="0x18f68e602b8a790f", temperature_c=44, power_mw=41_000),
            csv_card(uuid="0x95a1ca7691e7c391", temperature_c=44, power_mw=39_000),
        )
    ),
    "rocm-smi-csv-3.csv": Reading(
        devices=here(
            csv_card(uuid="0x67c63ac3c3c637f9", temperature_c=45, power_mw=36_000),
            csv_card(uuid="0x7b6b270993774982", temperature_c=40, power_mw=40_000),
        )
    ),
    "rocm-smi-i-1.txt": Reading(devices=here({}, {}, {}, {}, model="Aqua Vanjaram [Instinct MI300A]")),
    "rocm-smi-plain-1.txt": Reading(
        devices=here(
            plain(173, 45, 0, 132),
            plain(179, 41, 0, 132),
            plain(180, 47, 0, 131),
            plain(178, 45, 0, 131),
            plain(175, 45, 0, 132),
            plain(175, 43, 0, 132),
            plain(175, 45, 0, 132),
            plain(176, 43, 0, 132),
        )
    ),
    "rocm-smi-plain-2.txt": Reading(
        devices=here(live(6, 43, 0, 0, power_limit_mw=150_000), live(8, 34, 0, 0, power_limit_mw=213_000))
    ),
    "rocm-smi-plain-3.txt": Reading(devices=here(live(102, 40, 0, 31, power_limit_mw=550_000), partitioned=False)),
    "rocm-smi-plain-4.txt": Reading(
        devices=here(
            *(
                mi210(power_w=power, temperature_c=temperature)
                for power, temperature in (
                    (43, 34),
                    (42, 39),
                    (41, 33),
                    (42, 38),
                    (43, 33),
                    (42, 35),
                    (40, 33),
                    (42, 39),
                )
            )
        )
    ),
    "rocm-smi-plain-5.txt": Reading(devices=here(live(682, 71, 100, 1653), power_limit_mw=750_000, partitioned=False)),
    "rocm-smi-plain-6.txt": Reading(
        devices=here(
            live(49, 27, 2, 44),
            live(42, 29, 1, 42),
            live(33, 30, 1, 42),
            live(40, 26, 1, 35),
            power_limit_mw=550_000,
            partitioned=False,
        )
    ),
    "rocm-smi-plain-7.txt": Reading(devices=here(live(31, 45, 100, 2324, power_limit_mw=210_000))),
    "rocm-smi-plain-8.txt": Reading(devices=here(live(30, 47, 100, 2317, power_limit_mw=210_000))),
    "rocm-smi-showbus-1.json": Reading(
        devices=here(
            {"uuid": "0x7ea821cd7d821721", "pci": "0000:63:00.0"},
            {"uuid": "0x6bb7ba7a6d466bbb", "pci": "0000:43:00.0"},
            {"uuid": "0xa8b9b59e6aa2e3ff", "pci": "0000:26:00.0"},
            {"uuid": "0x2f17859ee8d53d66", "pci": "0000:03:00.0"},
        )
    ),
    "rocm-smi-showbus-1.txt": Reading(),
    "rocm-smi-showhw-1.txt": Reading(devices=tuple(divided(3 * at, f"000{at}:01:00.0", 3) for at in range(4))),
    "rocm-smi-showpidgpus-1.txt": Reading(
        processes=(ProcessFacts(pid=3903703, index=0), ProcessFacts(pid=3903703, index=1))
    ),
    "rocm-smi-showpids-1.csv": Reading(processes=(ProcessFacts(pid=3903703, name="python", memory_bytes=12333932544),)),
    "rocm-smi-showproduct-1.txt": Reading(devices=here({}, {}, {}, {}, model="Aqua Vanjaram [Instinct MI300A]")),
    "rocm-smi-showproduct-2.txt": Reading(devices=here({"model": "AMD Instinct MI300X OAM"})),
    "rocm-smi-showproduct-3.txt": Reading(
        devices=here(*({"model": "" if at == 1 else "Instinct MI210"} for at in range(6)))
    ),
    "rocm-smi-showproduct-4.txt": Reading(devices=here({"model": "Instinct MI210"})),
    "rocm-smi-showproduct-5.txt": Reading(devices=here({"model": "AMD INSTINCT MI250 (MCM) OAM AC MBA"})),
    "rocm-smi-showtopo-error-1.txt": Reading(),
    "rocm-smi-showtoponuma-1.txt": Reading(),
    "rocm-smi-showtoponuma-2.txt": Reading(devices=here(*({"numa_node": n} for n in (3, 2, 1, 0, 7, 6, 5, 4)))),
    "rocm-smi-showtoponuma-3.txt": Reading(devices=here(*({"numa_node": n} for n in (3, 3, 1, 1, 0, 0, 2, 2)))),
    "rocm-smi-version-1.txt": Reading(),
    "kfd-io-link-1.txt": Reading(),
    "kfd-io-link-2.txt": Reading(),
    "kfd-node-properties-1.txt": Reading(
        devices=here({"uuid": "0xe3aa140f9a5f9e31", "pci": "0000:05:00.0", "model": "Instinct MI300X", "minor": 128})
    ),
    "kfd-node-properties-2.txt": Reading(
        devices=here({"uuid": "0xe3aa140f9a5f9e31", "pci": "0000:05:00.1", "model": "Instinct MI300X", "minor": 129})
    ),
    "kfd-node-properties-3.txt": Reading(),
    "kfd-node-properties-4.txt": Reading(
        devices=here({"uuid": "0x1901ead3a2ecd4a6", "pci": "0000:63:00.0", "model": "Instinct MI210", "minor": 128})
    ),
}
