"""AWS Neuron devices (Inferentia, Trainium), by `neuron-ls`.

Programs are given cores: NEURON_RT_VISIBLE_CORES lists their numbers, so that a device's uuid here is the range of its
cores, `4-7`; a device whose cores are not known is left out. neuron-ls takes some tenths of a second. It shows no use:
that, neuron-monitor alone has, which runs on and on. Sources: Neuron documentation, runtime configuration and neuron-ls
user guide.
"""

from msgspec.structs import replace

from penstock.devices.by_tools import ByTools, Question, first_of, in_order, with_findings
from penstock.devices.provider import Sources
from penstock.devices.reading import DeviceFacts, Finding, Reading

MODELS = {"706": "Inferentia", "716": "Trainium", "726": "Inferentia2", "736": "Trainium2"}
"""By the first digits of the PCI device id. Source: aws-neuron-driver, the list of its PCI devices."""


class Neuron(ByTools):
    """Neuron devices of this machine."""

    vendor = "aws"
    variables = ("NEURON_RT_VISIBLE_CORES",)
    files = ("/dev/neuron[0-9]*",)
    signs = ("/dev/neuron[0-9]*", "/sys/module/neuron")
    open_means_use = True

    def inventory(self, sources: Sources) -> Reading:
        here = _listed(sources)
        known = tuple(_told(sources, device) for device in here.devices if device.uuid)
        left = len(here.devices) - len(known)
        kept = {device.index for device in known}
        text = f"{left} devices without numbers of cores: NEURON_RT_VISIBLE_CORES cannot name them"
        return replace(
            with_findings(here, [Finding(code="masked", text=text)] if left else []),
            devices=known,
            links=tuple(link for link in here.links if {link.device, link.peer} <= kept),
            processes=tuple(each for each in here.processes if each.index in kept),
        )

    def sample(self, sources: Sources) -> Reading:
        return self.inventory(sources)


def _listed(sources: Sources) -> Reading:
    from penstock.devices import neuron_tools

    questions = (
        Question(("neuron-ls", "--json-output"), neuron_tools.parse_json),
        Question(("neuron-ls",), neuron_tools.parse_table),
    )
    return in_order(first_of(sources, questions))


def _told(sources: Sources, device: DeviceFacts) -> DeviceFacts:
    """Return a device with its model and its file."""
    number = sources.read(f"/sys/bus/pci/devices/{device.pci}/device").strip().removeprefix("0x")
    model = MODELS.get(number[:3], "Neuron device")
    return replace(device, model=model, files=(f"/dev/neuron{device.index}",))
