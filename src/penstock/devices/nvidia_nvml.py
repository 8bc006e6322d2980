"""NVIDIA devices through NVML, which stays open from one sample to the next.

NVML is started anew when the driver has gone, when the number of devices changes, and now and then while a device is
lost. Names of devices are read when it starts: a handle is of one device for as long as it lives.
"""

import ctypes
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from penstock.devices import nvidia_nvml_facts as facts_of
from penstock.devices import xids
from penstock.devices.nvidia_nvml_calls import (
    CORRUPTED_INFOROM,
    DRIVER_GONE,
    DRIVER_NOT_LOADED,
    INSUFFICIENT_POWER,
    IRQ_ISSUE,
    LIBRARY_NOT_FOUND,
    LOST,
    NO_PERMISSION,
    RESET_REQUIRED,
    TIMEOUT,
    UNKNOWN,
    VERSION_MISMATCH,
    Calls,
    bounded,
    instance_of,
)
from penstock.devices.nvidia_nvml_facts import Name
from penstock.devices.nvidia_tools.texts import INDEX_MAX
from penstock.devices.reading import DeviceFacts, Finding, PartFacts, ProcessFacts, Reading

PACKAGE = "pynvml"
PAUSE_S = 30.0
"""Between two starts of NVML for a device that is lost, and between two tries to hear of Xids."""
EVENTS_MAX = 64
"""Xids that one sample takes."""
XID_EVENT = 0x8
NONE = Finding(code="no_devices", text="NVML counts no device")
NO_PACKAGE = Finding(code="not_supported", text="nvidia-ml-py is not installed (extra: nvidia)")
STARTS = {
    DRIVER_NOT_LOADED: ("no_driver", "NVML: the driver is not loaded"),
    LIBRARY_NOT_FOUND: ("no_driver", "NVML: the driver's library is not installed"),
    NO_PERMISSION: ("no_permission", "NVML: this user may not use the driver"),
    VERSION_MISMATCH: ("driver_mismatch", "NVML: kernel module and library differ in version"),
}
"""What NVML says when it does not start, or does not count its devices."""
ILL = {
    LOST: ("lost", "NVML: the device is lost"),
    RESET_REQUIRED: ("reset_required", "NVML: the device must be reset"),
}
"""What any call for a device may say of it."""
UNUSABLE = {
    **ILL,
    INSUFFICIENT_POWER: ("hardware_fault", "NVML: its power cables are not attached"),
    IRQ_ISSUE: ("init_failed", "NVML: the kernel has a problem with its interrupts"),
    NO_PERMISSION: ("no_permission", "NVML: this user may not use the device"),
    CORRUPTED_INFOROM: ("inforom_corrupted", "NVML: its InfoROM is corrupted"),
    UNKNOWN: ("unhealthy", "NVML: unknown error"),
}
"""What the call for its handle may say of a device that then has none."""


class Held(NamedTuple):
    """A device that NVML counts."""

    number: int
    """As NVML counts."""
    name: Name
    handle: Any
    """None for a device that cannot be used."""
    error: int
    total: int | None


class Look(NamedTuple):
    """What one look at a device gave."""

    device: DeviceFacts | None
    processes: tuple[ProcessFacts, ...] = ()
    findings: tuple[Finding, ...] = ()


class Nvml:
    """NVML's devices; None in place of a reading where there is no NVML, and `trouble` says why.

    Args:
        clock: seconds of a steady clock.
        names: those of all devices that the kernel lists, for devices that NVML counts and cannot name.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, names: Callable[[], Sequence[Name]] = tuple
    ) -> None:
        self.trouble = NO_PACKAGE
        self.names = names
        self._clock = clock
        self._call: Calls | None = None
        self._held: list[Held] = []
        self._stale = False
        self._anew_at: float | None = None
        self._known: dict[int, Name] = {}
        self._events: Any = None
        self._events_at = 0.0

    @property
    def hears_xids(self) -> bool:
        """Whether Xids come as events, so that nobody need read the kernel's log."""
        return self._events is not None

    def inventory(self) -> Reading | None:
        """Return all devices with what stays the same, in the order of their addresses, counted from 0."""
        looked = self._looked(self._fixed)
        if looked is None:
            return None
        call, looks = looked
        handles = {held.name: held.handle for held in self._held}
        listed = _in_order([look.device for look in looks if look.device is not None])
        pairs = [(d.index or 0, handles[Name(d.uuid, d.pci)]) for d in listed]
        return Reading(
            devices=tuple(listed),
            links=tuple(facts_of.links(call, pairs)),
            findings=(*(() if looks else (NONE,)), *(finding for look in looks for finding in look.findings)),
            driver=call.text("nvmlSystemGetDriverVersion"),
        )

    def sample(self) -> Reading | None:
        """Return what changes of all devices, in one pass, with the Xids since the last one."""
        looked = self._looked(self._sampled)
        if looked is None:
            return None
        call, looks = looked
        return Reading(
            devices=tuple(look.device for look in looks if look.device is not None),
            processes=tuple(process for look in looks for process in look.processes),
            findings=(
                *(() if looks else (NONE,)),
                *(finding for look in looks for finding in look.findings),
                *self._xids(call),
            ),
        )

    def close(self) -> None:
        """Give NVML up; it is started anew when it is asked again."""
        if self._call is not None:
            self._forget_events(self._call)
            self._call("nvmlShutdown")
        self._call, self._held, self._stale, self._anew_at = None, [], False, None

    def _looked(self, look: Callable[[Calls, Held], Look]) -> tuple[Calls, list[Look]] | None:
        """Return a look at each device; where NVML has gone, a second one after a new start."""
        call = self._open()
        if call is None:
            return None
        looks = [look(call, held) for held in self._held]
        if self._gone(looks):
            call = self._open()
            if call is None:
                return None
            looks = [look(call, held) for held in self._held]
            self._gone(looks)
        return call, looks

    def _open(self) -> Calls | None:
        """Return the calls of NVML, started if need be; None where it does not start."""
        if self._call is not None:
            self._call.errors.clear()
            count = self._call.count("nvmlDeviceGetCount")
            moved = count is not None and min(count, INDEX_MAX) != len(self._held)
            late = self._anew_at is not None and self._clock() >= self._anew_at
            if not (self._stale or moved or late or DRIVER_GONE & set(self._call.errors)):
                return self._call
            self.close()
        try:
            call = Calls(importlib.import_module(PACKAGE))
        except ImportError:
            self.trouble = NO_PACKAGE
            return None
        call("nvmlInit")
        if call.errors:
            self.trouble = _not_started(call)
            return None
        count = call.count("nvmlDeviceGetCount")
        if count is None:
            self.trouble = _not_started(call)
            call("nvmlShutdown")
            return None
        self._call, self._events_at = call, self._clock()
        self._held = [self._hold(call, index) for index in range(min(count, INDEX_MAX))]
        self._remember()
        return call

    def _hold(self, call: Calls, index: int) -> Held:
        call.errors.clear()
        handle = call("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            return Held(index, Name(), None, (call.errors or [UNKNOWN])[-1], None)
        name = facts_of.name_of(call, handle)
        total, _ = facts_of.memory_of(call, handle)
        self._stale = self._stale or bool(DRIVER_GONE & set(call.errors))
        return Held(index, name, handle, 0, total)

    def _remember(self) -> None:
        """Keep the names of devices; one that lacks its name, or half of it, has the name that its place had before."""
        names = {held.name for held in self._held}
        for at, held in enumerate(self._held):
            known = self._known.get(held.number)
            if known is None or (held.name.uuid and held.name.pci):
                continue
            if (held.handle is None and not _shared(known, names)) or _shared(held.name, {known}):
                self._held[at] = held._replace(name=known)
        if len(self._known) != len(self._held):
            self._known = {}
        unnamed = [at for at, held in enumerate(self._held) if held.name == Name()]
        missing = [name for name in self.names() if not _shared(name, names)] if unnamed else []
        if len(missing) == len(unnamed):
            for at, name in zip(unnamed, missing, strict=True):
                self._held[at] = self._held[at]._replace(name=name)
        self._known |= {held.number: held.name for held in self._held if held.name != Name()}

    def _gone(self, looks: list[Look]) -> bool:
        """Plan a new start where a device, or half of its name, is missing; return whether one is needed now."""
        if any(look.device is None or not (look.device.uuid and look.device.pci) for look in looks):
            self._anew_at = self._anew_at or self._clock() + PAUSE_S
        return self._stale and bool(looks) and not any(look.device for look in looks)

    def _fixed(self, call: Calls, held: Held) -> Look:
        return self._look(call, held, lambda: (facts_of.fixed(call, held.handle, held.name, held.number), (), []))

    def _sampled(self, call: Calls, held: Held) -> Look:
        def read() -> tuple[DeviceFacts, tuple[ProcessFacts, ...], list[Finding]]:
            device, findings = facts_of.sampled(call, held.handle, held.name, held.total)
            processes = tuple(facts_of.processes(call, held.handle, held.name))
            if (state := facts_of.fabric(call, held.handle)) is not None:
                findings += facts_of.fabric_findings(*state, held.name)
            modes = facts_of.mig_modes(call, held.handle)
            if modes is None:
                return device, processes, findings
            on, pending = modes
            if on != pending:
                words = ("disabled", "enabled")
                text = f"MIG is {words[on]}, {words[pending]} after the next reset"
                findings.append(facts_of.found("mig_pending", text, held.name))
            parts: tuple[PartFacts, ...] = ()
            if on:
                parts = facts_of.parts(call, held.handle, whole=False)
                on_parts = (
                    process
                    for part in facts_of.mig_handles(call, held.handle)
                    for process in facts_of.processes(call, part, held.name)
                )
                processes = tuple({(each.pid, each.instance): each for each in (*on_parts, *processes)}.values())
            return replace(device, partitioned=on, parts=parts), processes, findings

        return self._look(call, held, read)

    def _look(
        self, call: Calls, held: Held, read: Callable[[], tuple[DeviceFacts, tuple[ProcessFacts, ...], list[Finding]]]
    ) -> Look:
        """Return what a device says of itself; nothing but a finding where it cannot be used or has no name."""
        if held.handle is None:
            code, text = UNUSABLE.get(held.error, ("unhealthy", f"NVML: error {held.error}"))
            self._stale = self._stale or held.error in DRIVER_GONE
            return Look(None, findings=(self._about(held, code, text),))
        if held.name == Name():
            return Look(
                None, findings=(self._about(held, "unreadable", "NVML tells neither its uuid nor its address"),)
            )
        call.errors.clear()
        device, processes, findings = read()
        errors = set(call.errors)
        self._stale = self._stale or bool(errors & DRIVER_GONE)
        findings += [self._about(held, *ILL[error]) for error in sorted(errors & ILL.keys())]
        if LOST in errors:
            return Look(None, findings=tuple(findings))
        return Look(device, processes, tuple(findings))

    @staticmethod
    def _about(held: Held, code: str, text: str) -> Finding:
        if held.name == Name():  # no index: those of an inventory are other ones where a device is missing
            return Finding(code=code, text=f"{text} (NVML counts it as {held.number})")
        return facts_of.found(code, text, held.name)

    def _xids(self, call: Calls) -> Iterator[Finding]:
        """Yield the Xids that came since the last sample."""
        if self._events is None:
            self._listen(call)
        for _ in range(EVENTS_MAX if self._events is not None else 0):
            call.errors.clear()
            event = call("nvmlEventSetWait", self._events, 0)
            if event is None:
                if call.errors != [TIMEOUT]:
                    self._forget_events(call)
                return
            number = bounded(getattr(event, "eventData", None), 2**16)
            held = next((each for each in self._held if _address(each.handle) == _address(event.device)), None)
            if event.eventType == XID_EVENT and number is not None and held is not None:
                yield from _xid(number, held.name, instance_of(event.gpuInstanceId))

    def _listen(self, call: Calls) -> None:
        """Ask for the Xids of all devices, if it is time to try."""
        if self._clock() < self._events_at:
            return
        self._events_at = self._clock() + PAUSE_S
        events = call("nvmlEventSetCreate")
        if events is None:
            return
        self._events = events
        heard = 0
        for held in self._held:
            call.errors.clear()
            if held.handle is not None:
                call("nvmlDeviceRegisterEvents", held.handle, XID_EVENT, events)
                heard += not call.errors
        if not heard:
            self._forget_events(call)

    def _forget_events(self, call: Calls) -> None:
        if self._events is not None:
            call("nvmlEventSetFree", self._events)
        self._events, self._events_at = None, self._clock() + PAUSE_S


def _not_started(call: Calls) -> Finding:
    error = call.errors[0] if call.errors else UNKNOWN
    code, text = STARTS.get(error, ("tool_failed", f"NVML does not start: error {error}"))
    return Finding(code=code, text=text)


def _in_order(devices: list[DeviceFacts]) -> list[DeviceFacts]:
    """Return devices counted from 0 in the order of their addresses, as CUDA counts by PCI_BUS_ID."""
    ordered = sorted(devices, key=lambda device: device.pci) if all(device.pci for device in devices) else devices
    return [replace(device, index=index) for index, device in enumerate(ordered)]


def _shared(name: Name, names: set[Name]) -> bool:
    return any((name.uuid and name.uuid == other.uuid) or (name.pci and name.pci == other.pci) for other in names)


def _address(handle: Any) -> int | None:
    """Return where a handle points: two handles of one device are equal pointers in different objects."""
    return ctypes.cast(handle, ctypes.c_void_p).value if handle is not None else None


def _xid(number: int, name: Name, instance: int | None) -> Iterator[Finding]:
    xid = xids.XIDS.get(number, xids.OTHER)
    if xid.code and number != xids.RECOVERY:  # the device says itself which recovery it asks for
        yield replace(facts_of.found(xid.code, f"Xid {number}: {xids.text_of(xid)}", name, number), instance=instance)
