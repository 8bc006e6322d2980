"""Readings as tests write them down: shorthand for devices, their figures, links and processes."""

from functools import partial

from penstock.devices.reading import DeviceFacts, LinkFacts, PartFacts, ProcessFacts, Reading

MIB = 2**20
GIB = 2**30


def here(*facts: dict[str, object] | DeviceFacts, **same: object) -> tuple[DeviceFacts, ...]:
    """Return devices that are counted from 0, `same` in all of them."""
    return tuple(DeviceFacts(index=at, **{**same, **each}) for at, each in enumerate(facts))


def live(power_w: int, temperature_c: int, use_percent: int, clock: int, **more: object) -> dict[str, object]:
    """Return the figures of a running device."""
    return {
        "power_mw": power_w * 1000,
        "temperature_c": temperature_c,
        "use_milli": use_percent * 10,
        "clock_mhz": clock,
        **more,
    }


def all_pairs(count: int, kind: str) -> tuple[LinkFacts, ...]:
    return tuple(LinkFacts(one, other, kind) for one in range(count) for other in range(one + 1, count))


BUS = [f"0000:{bus}:00.0" for bus in ("0c", "22", "38", "5c", "9f", "af", "bf", "df")]
EIGHT = here(*({"pci": pci} for pci in BUS))
XGMI = Reading(devices=EIGHT, links=all_pairs(8, "nvlink"))
MI100 = "Arcturus GL-XL [Instinct MI100]"
NAVI = "Navi 22 [Radeon RX 6700/6700 XT / 6800M]"
ONE, TWO = here({}), here({}, {})
monitored = partial(live, memory_bytes=196300 * MIB, memory_used_bytes=283 * MIB)
mi100 = partial(dict, model=MI100, memory_bytes=34342961152, power_limit_mw=290_000, use_milli=0, clock_mhz=300)
navi = partial(
    dict,
    pci="0000:07:00.0",
    numa_node=0,
    memory_bytes=12868124672,
    use_milli=0,
    temperature_c=47,
    power_limit_mw=211000,
)
plain = partial(live, power_limit_mw=750_000, model="AMD Instinct MI300X", partitioned=False)
mi210 = partial(live, power_limit_mw=300_000, model="Instinct MI210", use_percent=0, clock=800)
csv_card = partial(dict, use_milli=0, model="Instinct MI210", memory_bytes=68702699520, memory_used_bytes=10960896)


def divided(index: int, pci: str, count: int, **facts: object) -> DeviceFacts:
    parts = tuple(PartFacts(index=index + at, instance=at) for at in range(count))
    return DeviceFacts(index=index, pci=pci, partitioned=True, parts=parts, **facts)


def mi300a(pci: str, power_w: int, temperature_c: int, use_percent: int) -> dict[str, object]:
    return {
        "pci": pci,
        "model": "AMD Instinct MI300A",
        "memory_bytes": 385728 * MIB,
        "memory_used_bytes": 25 * MIB,
        "power_mw": power_w * 1000,
        "temperature_c": temperature_c,
        "use_milli": use_percent * 10,
        "ecc_uncorrected": 0,
        "partitioned": False,
    }


def r9700(pci: str, power_w: int, temperature_c: int) -> dict[str, object]:
    return {
        "pci": pci,
        "memory_bytes": 32624 * MIB,
        "memory_used_bytes": 29777 * MIB,
        "power_mw": power_w * 1000,
        "power_limit_mw": 300_000,
        "temperature_c": temperature_c,
        "use_milli": 1000,
        "ecc_uncorrected": 0,
    }


def on_both(name: str, memory: dict[int, int]) -> tuple[ProcessFacts, ...]:
    """Return the same processes on devices 0 and 1, by pid with their memory."""
    return tuple(
        ProcessFacts(pid=pid, index=index, name=name, memory_bytes=size)
        for index in (0, 1)
        for pid, size in memory.items()
    )
