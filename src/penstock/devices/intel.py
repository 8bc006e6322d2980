"""Intel data center GPUs (vendor `intel`), by `xpu-smi`.

ZE_AFFINITY_MASK counts the devices that Level Zero finds, in xpu-smi's order. It finds those whose files it can open:
files of other devices stay open, or the mask would name others than were given. A GPU of two stacks (Max 1350 and
above) counts as two unless the program's environment has ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE: such GPUs are left out.
`discovery` takes about a second, `dump` its interval. Sources: Level Zero specification, "Environment Variables";
oneAPI GPU optimization guide, "Exposing the Device Hierarchy"; xpu-smi user guide.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from penstock.core.model.resources import Device
from penstock.devices.by_tools import (
    ByTools,
    Question,
    ask,
    first_of,
    in_order,
    joined,
    with_findings,
    with_numa,
    with_words,
)
from penstock.devices.provider import Sources
from penstock.devices.reading import DeviceFacts, Finding, Reading

DEVICES_MAX = 64
"""That are asked about one by one."""
DUMP = ("xpu-smi", "dump", "-d", "-1", "-m", "0,1,2,3,18", "-n", "1")
"""Use, power, clock, temperature and used memory, once."""
SCREENLESS = "0x0380"
"""PCI class of a display controller that is no VGA adapter."""
STACKED = ("Max 1350", "Max 1450", "Max 1550")
"""In names of models with two stacks."""


class Intel(ByTools):
    """Intel GPUs of this machine."""

    vendor = "intel"
    variables = ("ZE_AFFINITY_MASK",)
    files = ("/dev/dri/renderD[0-9]*",)
    signs = ("/usr/bin/xpu-smi",)
    open_means_use = True
    drivers = ("/sys/bus/pci/drivers/i915/0*", "/sys/bus/pci/drivers/xe/0*")

    def is_present(self, sources: Sources) -> bool:
        """Return whether xpu-smi or a GPU without a screen is here: what draws on a screen is no accelerator."""
        folders = (folder for pattern in self.drivers for folder in sources.glob(pattern))
        screenless = (sources.read(f"{folder}/class").startswith(SCREENLESS) for folder in folders)
        return super().is_present(sources) or any(screenless)

    def inventory(self, sources: Sources) -> Reading:
        from penstock.devices import xpu_tools

        here = first_of(
            sources,
            (
                Question(("xpu-smi", "discovery", "-j"), xpu_tools.parse_json),
                Question(("xpu-smi", "discovery"), xpu_tools.parse_discovery),
                Question(("xpu-smi",), xpu_tools.parse_table),
            ),
        )
        for device in here.devices[:DEVICES_MAX]:
            if device.memory_bytes is None and device.index is not None:
                about = ("xpu-smi", "discovery", "-d", str(device.index), "-j")
                here = joined(here, ask(sources, Question(about, xpu_tools.parse_json)), counted_alike=True)
        stacked = [device for device in here.devices if any(name in device.model for name in STACKED)]
        text = f"{len(stacked)} GPUs of two stacks each, which ZE_AFFINITY_MASK counts as two: they are left out"
        left = [Finding(code="parts_unknown", text=text)] if stacked else []
        devices = tuple(_with_file(sources, device) for device in here.devices if device not in stacked)
        here = with_findings(replace(here, devices=devices), left)
        return self.counted(with_words(in_order(with_numa(sources, here))))

    def sample(self, sources: Sources) -> Reading:
        from penstock.devices import xpu_tools

        questions = (Question(DUMP, xpu_tools.parse_dump), Question(("xpu-smi",), xpu_tools.parse_table))
        return self.counted(first_of(sources, questions))

    def closed_files(self, given: Iterable[Device], here: Iterable[Device]) -> tuple[str, ...]:
        """Return no file: see above."""
        return ()

    def own_files(self, sources: Sources) -> list[tuple[str, ...]]:
        return []

    def container_flags(self, given: Sequence[Device]) -> tuple[str, ...]:
        """Return the folder of all GPUs, and the mask that shows the given ones. Source: oneAPI containers guide."""
        mask = self.words_of(given)
        return ("--device=/dev/dri", f"--env=ZE_AFFINITY_MASK={mask}") if mask else ()


def _with_file(sources: Sources, device: DeviceFacts) -> DeviceFacts:
    """Return a device with its file."""
    nodes = sources.glob(f"/sys/bus/pci/devices/{device.pci}/drm/renderD[0-9]*") if device.pci else []
    files = tuple(f"/dev/dri/{node.rpartition('/')[2]}" for node in nodes)
    return replace(device, files=files)
