"""What Cambricon's `cnmon` prints of MLU cards: the table of versions 4 and 5.

Version 4 has no addresses, and the driver in each row; version 5 has both the other way round.
"""

from msgspec.structs import replace

from penstock.devices import smi_table
from penstock.devices.reading import DeviceFacts, Finding, Reading, said


def parse_table(text: str) -> Reading:
    """Return what `cnmon` says: cards with use, memory and power, and the processes on them.

    `vMemory-Usage` is address space of the host, not memory of the card.
    """
    table = smi_table.read_table(text, "Card")
    devices: list[DeviceFacts] = []
    findings: list[Finding] = []
    for read in table.records:
        facts = smi_table.common_facts(read, "Card")
        if facts is None:
            table.refused.append(" ".join(read.values()))
            continue
        devices.append(replace(facts, use_milli=smi_table.thousandths(read.get("Util"))))
        if said(state := read.get("Inited")) and state != "On":
            findings.append(Finding(code="init_failed", text=f"Inited: {state}", index=facts.index, pci=facts.pci))
    rows = (smi_table.process(read, "Card", "Process Name", "Memory Usage(MiB)") for read in table.processes)
    processes = [process for process in rows if process is not None]
    driver = table.driver(("Driver",)) or next((r["Driver"] for r in table.records if said(r.get("Driver"))), "")
    return smi_table.whole_reading(table, devices, processes, driver.removeprefix("v"), findings, processes_last=True)
