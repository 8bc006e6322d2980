"""Values as AMD's tools write them. A value in another form than expected is not told, never guessed.

`MB` and `GB` of amd-smi are powers of two, whatever they are called: it shows 196592 MB for the 192 GiB of an MI300X.
"""

import re

from penstock.devices.reading import NUMBER_MAX, pci_address, said

_QUANTITY = re.compile(r"(-?\d+(?:[.,]\d+)?)\s*([A-Za-z%°/]*)")
_MEMORY = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}")
_MASKED = re.compile(r"[<\[(]?(redacted|masked|hidden|removed)[>\])]?|[xX*#0-]{8,}", re.IGNORECASE)
_SERIAL = re.compile(r"[A-Za-z0-9_-]{4,100}")
_NAME = re.compile(r"(?=.*[A-Za-z0-9]{3})(?=.*[A-Za-z])[ -~]{4,100}")
_NO_NAME = re.compile(r"card (series|model|vendor|sku):|: |  ", re.IGNORECASE)

TEMPERATURE_MAX_C = 200
POWER_MAX_W = 10_000
CLOCK_MAX_MHZ = 20_000

MODELS = {
    0x66A1: "Radeon Pro VII/Radeon Instinct MI50 32GB",
    0x7408: "Instinct MI250X",
    0x740C: "Instinct MI250X/MI250",
    0x740F: "Instinct MI210",
    0x738C: "Instinct MI100",
    0x74A0: "Instinct MI300A",
    0x74A1: "Instinct MI300X",
    0x74A2: "Instinct MI308X",
    0x74A5: "Instinct MI325X",
    0x74B5: "Instinct MI300X VF",
    0x75A0: "Instinct MI350X",
    0x75A3: "Instinct MI355X",
}
"""Names by PCI device id, for sysfs and for tools without their table of names. Source: pci.ids."""


def quantity(text: str | None, units: tuple[str, ...], limit: float, *, least: float = 0) -> float | None:
    """Return the number of a value in one of `units`, None for any other unit or a number beyond the limits."""
    read = _QUANTITY.fullmatch(said(text))
    if read is None or read[2].lower() not in units:
        return None
    value = float(read[1].replace(",", "."))
    return value if least <= value <= limit else None


def percent_milli(text: str | None, *, bare: bool = False) -> int | None:
    """Return thousandths of a percentage; counters that are called activity are none."""
    value = quantity(text, ("%", "") if bare else ("%",), 100)
    return None if value is None else round(value * 10)


def watts_mw(text: str | None, *, bare: bool = False, least: float = 0) -> int | None:
    value = quantity(text, ("w", "") if bare else ("w",), POWER_MAX_W, least=least)
    return None if value is None else round(value * 1000)


def degrees(text: str | None, *, bare: bool = False) -> int | None:
    units = ("°c", "c", "") if bare else ("°c", "c")
    value = quantity(text, units, TEMPERATURE_MAX_C, least=-50)
    return None if value is None else round(value)


def clock_mhz(text: str | None) -> int | None:
    value = quantity((text or "").strip().strip("()"), ("mhz",), CLOCK_MAX_MHZ)
    return None if value is None else round(value)


def count(text: str | None, limit: int = NUMBER_MAX) -> int | None:
    """Return a whole number that stands alone, None for any other."""
    value = said(text)
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 20 and int(value) <= limit else None


def memory_bytes(text: str | None, *, used: bool = False) -> int | None:
    """Return the bytes of a size with its unit; the size of a whole memory is never 0."""
    read = _QUANTITY.fullmatch(said(text))
    each = _MEMORY.get(read[2].upper()) if read else None
    if read is None or each is None:
        return None
    value = float(read[1].replace(",", ".")) * each
    return round(value) if 0 <= value <= NUMBER_MAX and (used or value > 0) else None


def address(text: str | None) -> str:
    """Return a PCI address that is whole: domain, bus, device and function."""
    value = said(text)
    whole = pci_address(value) if _ADDRESS.fullmatch(value) else ""
    return "" if whole.startswith("0000:00:00.") else whole


def base_address(pci: str) -> str:
    """Return the address of the device without the function, by which parts of one device differ."""
    return pci.partition(".")[0]


def masked(text: str | None) -> bool:
    """Return whether a value was replaced before the output was handed on."""
    return bool(_MASKED.fullmatch((text or "").strip()))


def uuid(text: str | None) -> str:
    value = said(text).lower()
    return value if _UUID.fullmatch(value) and not masked(value) else ""


def unique_id(text: str | None) -> str:
    """Return the number that the device itself has, in 16 digits; '' for none.

    The same number is `Unique ID` (rocm-smi), `ASIC_SERIAL` (amd-smi) and `unique_id` (sysfs, decimal).
    """
    value = said(text)
    if _HEX.fullmatch(value):
        number = int(value, 16)
    elif value.isascii() and value.isdigit() and len(value) <= 20:
        number = int(value)
    else:
        return ""
    return f"0x{number:016x}" if 0 < number < 2**64 else ""


def serial(text: str | None) -> str:
    value = said(text)
    return value if _SERIAL.fullmatch(value) and not masked(value) and value.strip("0") not in ("", "x") else ""


def model(text: str | None) -> str:
    """Return a name of a model; '' for ids, for names that were cut, and for what is no name.

    Names are in ASCII; that an output says `not available` in another language is no name of a model.
    """
    value = said(text)
    cut = value.startswith("...") or value.endswith("...")
    if cut or not _NAME.fullmatch(value) or masked(value) or _HEX.fullmatch(value) or _NO_NAME.search(value):
        return ""
    return value


def model_by_id(text: str | None) -> str:
    """Return the name of a model by its PCI device id in hexadecimal, '' for those that are not in `MODELS`."""
    value = said(text)
    return MODELS.get(int(value, 16), "") if _HEX.fullmatch(value) else ""
