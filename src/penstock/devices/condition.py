"""The condition of a node's devices, folded from readings: faults, users who are not ours, figures. Pure code.

Theory. A reading can be wrong, and a process can be seen on a device in the moment in which it ends. So a state of a
device counts when two readings in a row show it, and is over when three in a row do not; an event, such as an Xid of
the kernel log, happened, and is reported for a while. A process counts as a stranger when two readings in a row show
it, it still runs, and it never was of a replica of ours. A provider that is silent says nothing about its devices: they
stay as they were.
"""

from collections.abc import Callable, Sequence

import msgspec

from penstock.core.messages.reports import DeviceFigures
from penstock.core.model.nodes import DeviceFault, DeviceUser
from penstock.core.model.resources import Device
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading
from penstock.devices.samples import DeviceSample

SEEN_LEAST = 2
"""Readings in a row that make a state, or a stranger."""
UNSEEN_LEAST = 3
"""Readings in a row without it that end it."""
EVENT_KEPT_MS = 10_000
"""For how long an event is reported to a server that listens: it keeps the device closed for longer."""
USERS_MAX = 8
"""Strangers that are named for one device."""
OWN_KEPT = 1_024
"""Processes of ours that have ended and are remembered: a reading may still show them."""
EVENTS = frozenset({"lost", "ecc_uncorrected", "hardware_fault", "firmware_fault", "fabric_fault", "link_fault",
                    "driver_fault", "init_failed", "reset_required", "row_remap_pending", "row_remap_failed",
                    "page_retirement_pending"})  # fmt: skip
"""Codes that happen, where the finding has a number or a time; every other is a state, there or not."""
TOLERATED = frozenset({
    "Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "plasmashell", "sddm-greeter", "gdm-x-session",
    "nvidia-persiste", "nvidia-powerd", "nvidia-smi", "nv-hostengine", "dcgm-exporter", "nvidia-cuda-mps",
    "nvtop", "nvitop", "amd-smi", "rocm-smi", "radeontop", "npu-smi", "npu-exporter", "hl-smi", "tpu-info",
    "neuron-monitor", "neuron-top", "xpu-smi", "xpumd",
})  # fmt: skip
"""Programs (as the kernel names them, 15 characters) that show or watch devices: no use by a person."""

NEW_DEVICE = "the server that runs this node offers it within a minute"
Pid = int


class Host(msgspec.Struct, frozen=True):
    """What is asked about processes while a reading is folded."""

    is_ours: Callable[[Pid], bool]
    """Whether it is of a replica of ours, or one of our own processes."""
    started: Callable[[Pid], int | None]
    """When it began, in any unit: number and start name one process for ever. None: it no longer runs."""
    user_of: Callable[[Pid], str]


class _Streak(msgspec.Struct):
    """How often in a row something was seen, or was not."""

    seen: int = 0
    unseen: int = 0
    holds: bool = False

    def step(self, *, present: bool) -> None:
        self.seen, self.unseen = (self.seen + 1, 0) if present else (0, self.unseen + 1)
        if self.seen >= SEEN_LEAST:
            self.holds = True
        elif self.unseen >= UNSEEN_LEAST:
            self.holds = False


class _Vendor(msgspec.Struct):
    """What is known of one provider's devices: how it names them, by the node's index."""

    by_uuid: dict[str, int] = {}
    by_pci: dict[str, int] = {}
    by_index: dict[int, int] = {}
    silent: tuple[Finding, ...] = ()
    strange: tuple[DeviceFacts, ...] = ()
    """Devices of the inventory that the node does not offer."""

    def index_of(self, one: DeviceFacts | Finding | ProcessFacts) -> int | None:
        """Return the node's index of the device that is named, None for one that the node does not offer."""
        if one.uuid:
            return self.by_uuid.get(one.uuid)
        if one.pci:
            return self.by_pci.get(one.pci)
        return self.by_index.get(one.index) if one.index is not None else None


class Condition:
    """The condition of the devices of one node.

    Args:
        devices: as the node offers them.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = list(devices)
        self._vendors: dict[str, _Vendor] = {}
        self._states: dict[tuple[int, str], _Streak] = {}
        self._said: dict[tuple[int, str], DeviceFault] = {}
        self._events: dict[tuple[int, str], tuple[int, DeviceFault]] = {}
        self._heard: set[tuple[int, str, float | None, int | None]] = set()
        self._users: dict[tuple[int, Pid], _Streak] = {}
        self._named: dict[tuple[int, Pid], DeviceUser] = {}
        self._own: dict[tuple[Pid, int], None] = {}
        self._figures: dict[int, DeviceFigures] = {}
        self._processes: dict[str, tuple[tuple[int, ProcessFacts], ...]] = {}

    # Taking readings.

    def take(self, sample: DeviceSample, now_ms: int, host: Host) -> None:
        """Fold one sample; `now_ms` is monotonic."""
        vendor = self._vendors.setdefault(sample.vendor, _Vendor())
        if sample.kind == "silent":
            vendor.silent = sample.reading.findings
            return
        vendor.silent = ()
        if sample.kind == "inventory":
            self._name(sample.vendor, vendor, sample.reading)
        # A cut output says nothing about devices that it does not show.
        whole = not any(one.effect == "warn" and _of_output(one) for one in sample.reading.findings)
        self._take_faults(sample.vendor, vendor, sample.reading, now_ms, whole=whole)
        self._take_figures(vendor, sample.reading)
        self._take_users(sample.vendor, vendor, sample.reading, host)

    def _name(self, name: str, vendor: _Vendor, reading: Reading) -> None:
        """Note how a provider names the devices that the node offers: by uuid, else in its order."""
        offered = [one for one in self._devices if one.vendor == name]
        by_uuid = {one.uuid: one.index for one in offered if one.uuid}
        vendor.by_uuid, vendor.strange = by_uuid, ()
        for place, facts in enumerate(reading.devices):
            index = by_uuid.get(facts.uuid) if facts.uuid else None
            if index is None and not by_uuid and place < len(offered):
                index = offered[place].index
            if index is None:
                if facts.model and facts.memory_bytes:  # else it could not be offered
                    vendor.strange += (facts,)
                continue
            if facts.pci:
                vendor.by_pci[facts.pci] = index
            if facts.index is not None:
                vendor.by_index[facts.index] = index

    def _take_faults(self, name: str, vendor: _Vendor, reading: Reading, now_ms: int, *, whole: bool) -> None:
        present: dict[tuple[int, str], DeviceFault] = {}
        for one in reading.findings:
            index = vendor.index_of(one)
            if index is None or one.effect != "close":
                continue
            fault = DeviceFault(index, one.code, one.text, one.number)
            if _is_event(one):
                self._happened(one, fault, now_ms)
            else:
                present.setdefault((index, one.code), fault)
        shown = {vendor.index_of(one) for one in reading.devices}
        mine = [one.index for one in self._devices if one.vendor == name]
        if whole and (shown - {None} or _says_none(reading)):
            for index in mine:
                if index not in shown and vendor.by_uuid | vendor.by_index:
                    present.setdefault((index, "lost"), DeviceFault(index, "lost", "the device has disappeared"))
        for key in present.keys() | {key for key in self._states if key[0] in mine}:
            if not whole and key not in present and key[0] not in shown:
                continue
            self._states.setdefault(key, _Streak()).step(present=key in present)
            if key in present:
                self._said[key] = present[key]
            if not self._states[key].holds and not self._states[key].seen:
                del self._states[key]
                self._said.pop(key, None)

    def _happened(self, one: Finding, fault: DeviceFault, now_ms: int) -> None:
        """Take an event once, however often the output shows it."""
        name = (fault.index, one.code, one.time_s, one.number)
        if name in self._heard and one.time_s is not None:
            return
        self._heard.add(name)
        self._events[fault.index, one.code] = (now_ms + EVENT_KEPT_MS, fault)

    def _take_figures(self, vendor: _Vendor, reading: Reading) -> None:
        for one in reading.devices:
            index = vendor.index_of(one)
            if index is not None:
                self._figures[index] = _figures(index, one)

    def _take_users(self, name: str, vendor: _Vendor, reading: Reading, host: Host) -> None:
        on_devices = [(index, one) for one in reading.processes if (index := vendor.index_of(one)) is not None]
        self._processes[name] = tuple(on_devices)
        mine = {one.index for one in self._devices if one.vendor == name}
        seen: dict[tuple[int, Pid], ProcessFacts] = {}
        for index, one in on_devices:
            started = None if _tolerated(one.name) else host.started(one.pid)
            if started is None or (one.pid, started) in self._own:
                continue
            if host.is_ours(one.pid):
                self._remember(one.pid, started)
            else:
                seen.setdefault((index, one.pid), one)
        for key in seen.keys() | {key for key in self._users if key[0] in mine}:
            streak = self._users.setdefault(key, _Streak())
            streak.step(present=key in seen)
            if key in seen and key not in self._named:
                one = seen[key]
                self._named[key] = DeviceUser(key[0], one.pid, one.user or host.user_of(one.pid), one.name)
            if not streak.seen and (not streak.holds or host.started(key[1]) is None):
                del self._users[key]
                self._named.pop(key, None)

    def _remember(self, pid: Pid, started: int) -> None:
        """Take note of a process of ours: a reading may still show it when its replica has ended."""
        self._own[pid, started] = None
        while len(self._own) > OWN_KEPT:
            del self._own[next(iter(self._own))]

    def keep_events(self, now_ms: int) -> None:
        """Report the events for a while from now on: there is no server at present that could hear of them."""
        self._events = {key: (now_ms + EVENT_KEPT_MS, fault) for key, (_, fault) in self._events.items()}

    # What follows.

    def faults(self, now_ms: int) -> tuple[DeviceFault, ...]:
        """Return the faults of devices that must not be given out, by device and code."""
        found = {key: self._said[key] for key, streak in self._states.items() if streak.holds and key in self._said}
        for key, (until_ms, fault) in list(self._events.items()):
            if now_ms < until_ms:
                found.setdefault(key, fault)
            else:
                del self._events[key]
        if not self._events:
            self._heard = {one for one in self._heard if one[2] is not None}
        return tuple(found[key] for key in sorted(found))

    def users(self) -> tuple[DeviceUser, ...]:
        """Return the processes that are not ours and hold devices, by device and number; a few of each device."""
        found: dict[int, list[DeviceUser]] = {}
        for key in sorted(key for key, streak in self._users.items() if streak.holds):
            found.setdefault(key[0], []).append(self._named[key])
        return tuple(user for index in sorted(found) for user in found[index][:USERS_MAX])

    def figures(self) -> tuple[DeviceFigures, ...]:
        """Return the newest figures of each device, by index."""
        return tuple(self._figures[index] for index in sorted(self._figures))

    def figures_in(self, sample: DeviceSample) -> tuple[DeviceFigures, ...]:
        """Return the figures of the devices that a sample shows, in its order."""
        vendor = self._vendors.get(sample.vendor, _Vendor())
        indexes = [(vendor.index_of(one), one) for one in sample.reading.devices]
        return tuple(_figures(index, one) for index, one in indexes if index is not None)

    def notes(self) -> tuple[str, ...]:
        """Return for people what providers cannot say at present, and which devices came later than the agent."""
        found: list[str] = []
        for name in sorted(self._vendors):
            vendor = self._vendors[name]
            found += [one.text for one in vendor.silent]
            found += [f"{name} {one.model} {one.uuid or one.pci} is new: {NEW_DEVICE}" for one in vendor.strange]
        return tuple(found)

    def new(self) -> int:
        """Return how many devices the machine has that the node does not offer."""
        return sum(len(vendor.strange) for vendor in self._vendors.values())

    def processes(self) -> tuple[tuple[int, ProcessFacts], ...]:
        """Return the processes on devices as last read, ours and others', with the node's index of the device."""
        return tuple(pair for name in sorted(self._processes) for pair in self._processes[name])


def others_of(users: Sequence[DeviceUser]) -> tuple[int, ...]:
    """Return the indexes of devices that are taken, ascending."""
    return tuple(sorted({one.index for one in users}))


def _figures(index: int, one: DeviceFacts) -> DeviceFigures:
    return DeviceFigures(
        index=index,
        use_milli=one.use_milli,
        memory_used_bytes=one.memory_used_bytes,
        temperature_c=one.temperature_c,
        power_mw=one.power_mw,
        power_limit_mw=one.power_limit_mw,
        energy_mj=one.energy_mj,
        clock_mhz=one.clock_mhz,
        throttled=one.throttled,
        ecc_corrected=one.ecc_corrected,
        ecc_uncorrected=one.ecc_uncorrected,
        link_errors=one.link_errors,
    )


def _is_event(one: Finding) -> bool:
    return one.code in EVENTS and (one.number is not None or one.time_s is not None)


def _of_output(one: Finding) -> bool:
    """Return whether a finding is of the output as a whole."""
    return one.index is None and not one.uuid and not one.pci


def _says_none(reading: Reading) -> bool:
    return any(one.code == "no_devices" for one in reading.findings)


def _tolerated(name: str) -> bool:
    program = name.rpartition("/")[2].split(" ", 1)[0]
    return program[:15] in TOLERATED
