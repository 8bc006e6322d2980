"""Huawei Ascend devices, by `npu-smi`.

A device is a chip; its index is the logic id, by which ASCEND_RT_VISIBLE_DEVICES names it (ascending, digits and
commas alone) and which only `npu-smi info -m` tells. `npu-smi info` takes about a second and more with each card, so a
sample is one run of it. Sources: CANN environment variable reference; npu-smi command reference.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.model.resources import Device
from penstock.devices.by_tools import (
    ByTools,
    Question,
    ask,
    by_address,
    in_order,
    joined,
    named_as,
    with_findings,
    with_numa,
    with_words,
)
from penstock.devices.provider import Sources
from penstock.devices.reading import DeviceFacts, Finding, Reading

CARDS_MAX = 64
"""That are asked about one by one."""
DRIVER_FOLDERS = (
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/version.info",
    "/etc/ascend_install.info",
)
"""Of the host, that programs in a container need. Source: vLLM Ascend installation guide, docker run."""


class Huawei(ByTools):
    """Ascend devices of this machine."""

    vendor = "huawei"
    variables = ("ASCEND_RT_VISIBLE_DEVICES",)
    files = ("/dev/davinci[0-9]*",)
    signs = ("/dev/davinci_manager", "/dev/davinci[0-9]*")
    shared = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")

    def inventory(self, sources: Sources) -> Reading:
        """Return the chips of `npu-smi info`, else of `-l` and `-t board`; about two seconds, else three a card."""
        from penstock.devices import huawei_tools

        table = ask(sources, Question(("npu-smi", "info"), huawei_tools.parse_info))
        mapping = ask(sources, Question(("npu-smi", "info", "-m"), huawei_tools.parse_mapping))
        here = table if table.devices else _one_by_one(sources, table)
        if not here.devices:
            return here
        here = _with_logic_ids(here, mapping)
        topology = ask(sources, Question(("npu-smi", "info", "-t", "topo"), huawei_tools.parse_topology))
        known = {device.index for device in here.devices}
        links = tuple(link for link in topology.links if {link.device, link.peer} <= known)
        here = with_findings(replace(here, links=links), topology.findings)
        return with_words(in_order(with_numa(sources, here)))

    def sample(self, sources: Sources) -> Reading:
        from penstock.devices import huawei_tools

        return by_address(ask(sources, Question(("npu-smi", "info"), huawei_tools.parse_info)))

    def container_flags(self, given: Sequence[Device]) -> tuple[str, ...]:
        """Return the devices, the manager's files, and the driver's folders, which an image does not have."""
        devices = super().container_flags(given)
        folders = tuple(f"-v={path}:{path}:ro" for path in self._there(DRIVER_FOLDERS))
        return (*devices, *folders) if devices else ()


def _with_logic_ids(here: Reading, mapping: Reading) -> Reading:
    """Return devices with their logic ids as indexes; none where these are not known.

    Without a mapping, the table's own numbers are taken if they count from 0: in a container they do not.
    """
    ids = {(device.card, device.chip): device.index for device in mapping.devices}
    known = [
        replace(device, index=ids[device.card, device.chip])
        for device in here.devices
        if (device.card, device.chip) in ids and device.pci
    ]
    if len(known) == len(here.devices):
        return with_findings(named_as(here, known), mapping.findings)
    if sorted(-1 if d.index is None else d.index for d in here.devices) == [*range(len(here.devices))]:
        return with_findings(here, mapping.findings)
    text = f"{len(here.devices)} chips whose logic ids are not known: ASCEND_RT_VISIBLE_DEVICES cannot name them"
    unnamed = [Finding(code="masked", text=text)]
    return with_findings(Reading(findings=here.findings, driver=here.driver), mapping.findings, unnamed)


def _one_by_one(sources: Sources, table: Reading) -> Reading:
    """Return the cards that `-l` lists, with the address, model, memory."""
    from penstock.devices import huawei_details, huawei_tools

    listed = ask(sources, Question(("npu-smi", "info", "-l"), huawei_tools.parse_list))
    devices: list[DeviceFacts] = []
    findings: list[Finding] = [*table.findings, *listed.findings]
    driver = ""
    for device in listed.devices[:CARDS_MAX]:
        about = ("-i", str(device.card))
        about_card = ask(sources, Question(("npu-smi", "info", "-t", "board", *about), huawei_details.parse_board))
        usages = ask(sources, Question(("npu-smi", "info", "-t", "usages", *about), huawei_details.parse_usages))
        findings += [*about_card.findings, *usages.findings]
        driver = driver or about_card.driver
        told = [each for each in about_card.devices if each.card == device.card]
        if len(told) != 1 or not told[0].pci:
            continue
        named = Reading(devices=(replace(told[0], index=device.index, card=device.card, chip=device.chip or 0),))
        same = [replace(each, pci=told[0].pci) for each in usages.devices if each.card == device.card]
        devices += joined(named, Reading(devices=tuple(same[:1]))).devices
    return Reading(devices=tuple(devices), findings=tuple(dict.fromkeys(findings)), driver=driver)
