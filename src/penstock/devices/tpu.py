"""Google TPU chips, by their files and `tpu-info`.

The chips are the files `/dev/accelN` or, from v5e on, `/dev/vfio/N`; the PCI id tells the model, and that its memory.
tpu-info shows use while a program runs that serves its figures; it takes some seconds, and a sample is one run of it.
Sources: Cloud TPU documentation, "Use a custom OS image" (PCI ids) and "TPU versions" (memory of a chip).
"""

from msgspec.structs import replace

from penstock.devices.by_tools import ByTools, Question, ask, joined, with_findings, with_words
from penstock.devices.provider import Sources
from penstock.devices.reading import DeviceFacts, Finding, Reading

GOOGLE = "0x1ae0"
MODELS = {
    "0x005e": ("TPU v4", 32),
    "0x0062": ("TPU v5p", 95),
    "0x0063": ("TPU v5e", 16),
    "0x006f": ("TPU v6e", 32),
    "0x0076": ("TPU7x", 192),
}
"""Names, and GiB of memory, by PCI device id; other devices of Google's are no TPUs."""
OLDER_ID = "0x0027"
OLDER = {"0x004e": ("TPU v2", 16), "0x004f": ("TPU v3", 32)}
"""By subsystem, of those that share an id."""
GIB = 2**30


class Tpu(ByTools):
    """TPU chips of this machine; which is which cannot be known where their files do not count from 0."""

    vendor = "google"
    variables = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
    files = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")
    signs = files
    shared = ("/dev/vfio/vfio",)
    open_means_use = True

    def is_present(self, sources: Sources) -> bool:
        """Return whether there are chips: devices of others have files in `/dev/vfio` too."""
        return super().is_present(sources) and bool(_models(sources))

    def inventory(self, sources: Sources) -> Reading:
        here = _chips(self.own_files(sources), _models(sources))
        said = _said(sources)
        if not here.devices:
            return with_findings(here, said.findings)
        return with_words(joined(here, said, counted_alike=True))

    def sample(self, sources: Sources) -> Reading:
        """Return the chips whose files are there, with what tpu-info says of them."""
        here = _chips(self.own_files(sources), _models(sources))
        bare = Reading(devices=tuple(DeviceFacts(index=device.index) for device in here.devices))
        return joined(bare, _said(sources), counted_alike=True)


def _said(sources: Sources) -> Reading:
    """Return what tpu-info says; the size that it shows of memory is what programs may use of it, and is left out."""
    from penstock.devices import tpu_tools

    said = ask(sources, Question(("tpu-info",), tpu_tools.parse))
    devices = tuple(replace(device, memory_bytes=None) for device in said.devices)
    return replace(said, devices=devices)


def _chips(files: list[tuple[str, ...]], models: list[tuple[str, int]]) -> Reading:
    """Return a chip for each file, where there are as many as on the PCI bus."""
    if len(files) != len(models) or not files:
        text = f"{len(files)} device files that count from 0, and {len(models)} TPU chips on the PCI bus"
        return Reading(findings=(Finding(code="no_devices" if not files else "masked", text=text),))
    model, gib = models[0] if len(set(models)) == 1 else ("", 0)
    devices = (
        DeviceFacts(index=at, files=paths, model=model, memory_bytes=gib * GIB or None)
        for at, paths in enumerate(files)
    )
    return Reading(devices=tuple(devices))


def _models(sources: Sources) -> list[tuple[str, int]]:
    """Return name and memory (GiB) of each chip on the PCI bus."""
    found = []
    for folder in sources.glob("/sys/bus/pci/devices/*"):
        if sources.read(f"{folder}/vendor").strip() != GOOGLE:
            continue
        number = sources.read(f"{folder}/device").strip()
        if number == OLDER_ID:
            found += [OLDER.get(sources.read(f"{folder}/subsystem_device").strip(), ("TPU", 0))]
        elif number in MODELS:
            found.append(MODELS[number])
    return found
