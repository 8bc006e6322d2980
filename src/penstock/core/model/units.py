"""Sizes, durations and counts as people write them, parsed to integers, and back."""

import re
from fractions import Fraction

_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}
_DURATION_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_RATE_UNITS = {"bps": 1, "kbps": 10**3, "mbps": 10**6, "gbps": 10**9}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)")


def _amount(text: str, units: dict[str, int]) -> int:
    match = _PART.fullmatch(text.strip())
    if match is None or match[2].lower() not in units:
        raise ValueError(text)
    return int(Fraction(match[1]) * units[match[2].lower()])


def parse_size_bytes(value: str | float) -> int:
    """Return bytes for `64GB` (10^9), `40GiB` or `40G` (2^30) or a plain number of bytes.

    Raises: ValueError for anything else.
    """
    return value if isinstance(value, int) else _amount(str(value), _SIZE_UNITS)


def parse_duration_ms(value: str | float) -> int:
    """Return milliseconds for `90s`, `1h30m`, `2d`, `01:30:00`, or a plain number of seconds.

    Raises: ValueError for anything else.
    """
    if isinstance(value, int | float):
        return round(value * 1000)
    text = value.strip()
    if re.fullmatch(r"(\d+:)?\d{1,2}:\d{2}", text):
        total = 0
        for part in text.split(":"):
            total = total * 60 + int(part)
        return total * 1000
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return int(Fraction(text) * 1000)
    if not text or not re.fullmatch(r"([0-9]+(\.[0-9]+)?\s*[a-zA-Z]+\s*)+", text):
        raise ValueError(value)
    total = 0
    for number, unit in _PART.findall(text):
        if unit.lower() not in _DURATION_UNITS_MS:
            raise ValueError(value)
        total += int(Fraction(number) * _DURATION_UNITS_MS[unit.lower()])
    return total


def parse_rate_bps(value: str | float) -> int:
    """Return bits a second for `10Gbps`, `100Mbps` or a plain number.

    Raises: ValueError for anything else.
    """
    return value if isinstance(value, int) else _amount(str(value), _RATE_UNITS)


def format_size(value_bytes: int) -> str:
    """Return bytes in binary units, such as `40 GiB`."""
    size = float(value_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def format_duration(value_ms: int) -> str:
    """Return a short duration of at most two units, such as `3m 20s`."""
    seconds = value_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, secs = divmod(int(seconds), 60)
    hours, mins = divmod(minutes, 60)
    days, hrs = divmod(hours, 24)
    if days:
        return f"{days}d {hrs}h"
    if hours:
        return f"{hours}h {mins}m"
    return f"{mins}m {secs}s" if minutes else f"{secs}s"
