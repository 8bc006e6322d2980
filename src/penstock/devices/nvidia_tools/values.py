"""A device's values by our names, whichever output they come from, become its facts and its findings.

The XML, the long text and the CSV name the same values differently; each of their parsers has a table of names, and
this module alone says what follows from a value.
"""

import re
from collections.abc import Callable, Mapping

from penstock.devices.nvidia_tools.texts import address_of, integer, serial_of, uuid_of
from penstock.devices.reading import DeviceFacts, Finding, PartFacts, said, short, size_bytes, whole

Values = Mapping[str, list[str]]
"""Our name of a value -> what the output says, the best source first; names without a value are missing."""

SENTENCES = ("deprecated", "function not found", "not available in", "not active in")
"""Words of a cell that holds a sentence in place of a value: the value is not told."""
ILL = (
    ("gpu is lost", "lost"),
    ("requires reset", "reset_required"),
    ("insufficient permission", "no_permission"),
    ("unknown error", "unhealthy"),
    ("err!", "unhealthy"),
)
"""Words of a cell that say that the device is ill, and the code of the finding."""
MINOR_VALUES = frozenset({"temperature", "power", "power_limit", "clock", "fan", "other"})
"""Values that drivers fail to read now and then while the device computes well."""
THERMAL = ("hw_thermal", "sw_thermal")
SLOWED = ("hw_slowdown", "hw_power_brake")
HELD_BY = (("power", ("sw_power_cap", "hw_power_brake")), ("heat", THERMAL), ("hardware", ("hw_slowdown",)))
"""Why clocks are held down, and the values that say so when they are active."""
RECOVERY = {
    "gpu reset": "reset_required",
    "reset": "reset_required",
    "gpu reset required": "reset_required",
    "node reboot": "reset_required",
    "node reboot required": "reset_required",
    "drain and reset": "reset_required",
    "drain p2p": "fabric_fault",
}
FABRIC = {"not supported": "", "not started": "fabric_fault", "in progress": "fabric_fault"}
"""States of the NVLink fabric other than completed, and the code of the finding."""
YES = (
    ("reset_required", "reset_required", "a reset is required"),
    ("drain", "reset_required", "it is to be drained and reset"),
    ("row_pending", "row_remap_pending", "rows of memory are to be remapped at the next reset"),
    ("row_failure", "row_remap_failed", "rows of memory could not be remapped"),
    ("page_pending", "page_retirement_pending", "pages of memory are to be retired at the next reset"),
    ("repair_pending", "reset_required", "memory is to be repaired at the next reset"),
    ("unrepairable", "hardware_fault", "memory cannot be repaired"),
    ("sram_threshold", "hardware_fault", "errors of on-chip memory are beyond the vendor's limit"),
)
"""Name of a value that is bad when it is yes, the code, and the text."""
MASKED = "its uuid is masked or cut"
UNBALANCED_PARTS = 50
"""Memory that is used, free and reserved is the total, but for one part in so many and the rounding."""
ROUNDING_BYTES = 8 * 2**20
MIG_WORDS = {"enabled": True, "disabled": False}
_CAPABILITY = re.compile(r"(\d{1,3})\.(\d{1,2})")
_BRACKETED = re.compile(r"\[(.*)\]")


class Told:
    """One device's values, read by name."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __call__(self, name: str) -> str:
        """Return the first source of a value that tells it, '' where none does."""
        return next((value for each in self._values.get(name, ()) if (value := usable(each))), "")

    def all(self, name: str) -> list[str]:
        """Return every source of a value that tells it."""
        return [value for each in self._values.get(name, ()) if (value := usable(each))]

    def ill(self) -> dict[str, str]:
        """Return the codes that values hold in place of facts, with the value; minor values alone are no illness."""
        codes: dict[str, str] = {}
        for name, values in self._values.items():
            for value in values:
                lower = value.lower()
                for words, code in ILL:
                    if words in lower:
                        minor = code == "unhealthy" and name in MINOR_VALUES
                        codes.setdefault("tool_failed" if minor else code, f"{name.replace('_', ' ')}: {value}")
        if "unhealthy" in codes:
            codes.pop("tool_failed", None)
        return codes


def usable(value: str) -> str:
    """Return a value that tells something, '' for `[N/A]`, an error or a sentence in place of one."""
    kept = said(value)
    lower = kept.lower()
    if any(words in lower for words in SENTENCES) or any(words in lower for words, _ in ILL):
        return ""
    return "" if _BRACKETED.fullmatch(kept) else kept


def device_of(values: Values, parts: tuple[PartFacts, ...] = ()) -> tuple[DeviceFacts, list[Finding]]:
    """Return the facts of one device, and what is wrong with it."""
    told = Told(values)
    ill = told.ill()
    total, used, balanced = _memory(told)
    if ill.keys() & {"lost", "reset_required"}:
        used = None
    device = DeviceFacts(
        index=integer(told("index")),
        uuid=uuid_of(told("uuid")),
        pci=address_of(told("pci")),
        model=told("model"),
        serial=serial_of(told("serial")),
        minor=integer(told("minor")),
        memory_bytes=total,
        memory_used_bytes=used,
        use_milli=_bounded(told("use"), 10, 1000),
        temperature_c=_bounded(told("temperature"), 1, 200),
        power_mw=_bounded(told("power"), 1000, 10**7),
        power_limit_mw=_bounded(told("power_limit"), 1000, 10**7) or None,
        clock_mhz=_bounded(told("clock"), 1, 10**5),
        capability=_capability(told("capability")),
        throttled=tuple(word for word, names in HELD_BY if any(told(name).lower() == "active" for name in names)),
        ecc_corrected=_errors(told, "ecc_corrected"),
        ecc_uncorrected=_errors(told, "ecc_uncorrected"),
        partitioned=MIG_WORDS.get(told("mig_current").lower()),
        parts=parts,
    )
    found = finder(device)
    findings = [found(code, text) for code, text in ill.items()]
    if not balanced:
        findings.append(found("unreadable", "used and free memory do not add up to the total"))
    if any(value and not device.uuid for value in told.all("uuid")):
        findings.append(found("masked", MASKED))
    return device, [*findings, *_health(told, device, found)]


def named(device: DeviceFacts) -> bool:
    """Return whether anything tells which device it is."""
    return bool(device.index is not None or device.uuid or device.pci or device.model)


def finder(device: DeviceFacts) -> Callable[[str, str], Finding]:
    """Return what makes findings of a device."""

    def found(code: str, text: str) -> Finding:
        return Finding(code=code, text=short(text), index=device.index, uuid=device.uuid, pci=device.pci)

    return found


def _bounded(text: str, scale: int, most: int) -> int | None:
    value = whole(text, scale)
    return value if value is not None and value <= most else None


def _capability(text: str) -> tuple[int, int] | None:
    match = _CAPABILITY.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def _memory(told: Told) -> tuple[int | None, int | None, bool]:
    """Return total and used memory, and whether the figures agree; those that do not are not told.

    The reserved part is in the used one before driver 510, beside it since.
    """
    total, used, free = (size_bytes(told(f"memory_{name}")) for name in ("total", "used", "free"))
    reserved = size_bytes(told("memory_reserved")) or 0
    if not total:
        return None, used if total is None else None, True
    if used is None:
        return total, None, True
    sums = [used] if free is None else [used + free, used + free + reserved]
    slack = total // UNBALANCED_PARTS + ROUNDING_BYTES
    fits = used <= total + ROUNDING_BYTES if free is None else any(abs(total - each) <= slack for each in sums)
    return (total, used, True) if fits else (None, None, False)


def _errors(told: Told, name: str) -> int | None:
    """Return the total of a kind of error where the output has one, else the sum of its places."""
    total = whole(told(f"{name}_total"))
    if total is not None:
        return total
    places = [count for each in told.all(name) if (count := whole(each)) is not None]
    return sum(places) if places else None


def _health(told: Told, device: DeviceFacts, found: Callable[[str, str], Finding]) -> list[Finding]:
    findings = [found(code, text) for name, code, text in YES if any(v.lower() == "yes" for v in told.all(name))]
    if device.ecc_uncorrected:
        findings.append(found("ecc_uncorrected", f"uncorrected memory errors: {device.ecc_uncorrected}"))
    pages = sum(whole(each) or 0 for each in told.all("pages"))
    if pages:
        findings.append(found("pages_retired", f"pages of memory retired: {pages}"))
    current, pending = told("mig_current"), told("mig_pending")
    if current and pending and current.lower() != pending.lower():
        findings.append(found("mig_pending", f"MIG is {current}, {pending} after the next reset"))
    if (inforom := told("inforom")) and inforom.lower() != "valid":
        findings.append(found("inforom_corrupted", f"checksum of the infoROM: {inforom}"))
    return [*findings, *_recovery(told, found), *_fabric(told, found), *_slowed(told, found)]


def _recovery(told: Told, found: Callable[[str, str], Finding]) -> list[Finding]:
    action = told("recovery")
    if not action:
        return []
    return [found(RECOVERY.get(action.lower(), "unknown_format"), f"recovery action: {action}")]


def _fabric(told: Told, found: Callable[[str, str], Finding]) -> list[Finding]:
    state, status, health = told("fabric_state"), told("fabric_status"), told("fabric_health")
    if state and state.lower() != "completed":
        code = FABRIC.get(state.lower(), "unknown_format")
        return [found(code, f"state of the NVLink fabric: {state}")] if code else []
    if state and status and status.lower() != "success":
        return [found("fabric_fault", f"status of the NVLink fabric: {status}")]
    if health.lower() in ("unhealthy", "limited capacity"):
        return [found("fabric_fault", f"health of the NVLink fabric: {health}")]
    return []


def _slowed(told: Told, found: Callable[[str, str], Finding]) -> list[Finding]:
    """Return what slows the device down against its maker's wish; limits of power are everyday and are not told."""
    if any(told(name).lower() == "active" for name in THERMAL):
        return [found("too_hot", "its clocks are lowered because it is too hot")]
    if any(told(name).lower() == "active" for name in SLOWED):
        return [found("throttled", "its clocks are lowered by the hardware (power brake or slowdown)")]
    return []
