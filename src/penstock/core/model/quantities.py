"""Thousandths and points in time as people write them, and exact texts of every amount that a configuration holds.

Nothing is rounded on the way in, and no two amounts of one kind read alike on the way out.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable
from fractions import Fraction

from penstock.core.model.ids import PoolName

MILLI = 1000
KWH_MJ = 3_600_000_000
"""Millijoules of a kilowatt-hour."""
POWER = "power"
"""The resource of a pool's limit of power, in milliwatts: `POOL/power`. No quota names it."""
BYTES = ("memory", "storage")
"""Resources of quotas that are counted in bytes."""
TIME_MAX_MS = 253_402_300_800_000
"""The year 10000: one millisecond before it is the last time that ISO 8601 writes with four digits."""
NAMES_MAX = 4
"""Names that `listed` writes out by default."""

_DAY_MS = 86_400_000
_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_LEAP_DAYS_BEFORE_MONTH = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_UNIX_EPOCH_DAY = 719_162
"""Days from 0001-01-01 to 1970-01-01."""
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(?:[zZ]|([+-])([0-9]{2}):?([0-9]{2}))"
)
_DURATION_PARTS = (("d", _DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_SIZE_PARTS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))


def parse_milli(value: object) -> int:
    """Return thousandths for a number such as 0.25 or 16.

    Raises: ValueError for anything else, and for numbers finer than a thousandth: rounding would change the request.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(value)
    exact = Fraction(value) * MILLI if isinstance(value, int) else Fraction(repr(value)) * MILLI
    if exact.denominator != 1:
        raise ValueError(value)
    return exact.numerator


def parse_part_milli(value: object) -> int:
    """Return thousandths of a whole for a number from 0 to 1 such as 0.15, or for a text such as `15%`.

    Raises: ValueError for anything else.
    """
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9])?)%", value.strip())
        if match is None:
            raise ValueError(value)
        part = int(Fraction(match[1]) * 10)
    else:
        part = parse_milli(value)
    if not 0 <= part <= MILLI:
        raise ValueError(value)
    return part


def parse_time_ms(value: object) -> int:
    """Return unix milliseconds for an ISO 8601 time with its offset (`2026-03-01T08:00+01:00`) or for unix seconds.

    Finer than a millisecond is cut off. A time without an offset is refused: it would mean another moment on another
    machine. YAML readers give time objects for such texts; they are taken by their own ISO text.
    Raises: ValueError for anything else.
    """
    text = value.isoformat() if hasattr(value, "isoformat") else value
    if isinstance(text, str):
        found = _iso_ms(text.strip())
    elif isinstance(text, int | float) and not isinstance(text, bool) and -1 < text < TIME_MAX_MS:
        found = int(Fraction(text) * 1000)
    else:
        raise ValueError(value)
    if not 0 <= found < TIME_MAX_MS:
        raise ValueError(value)
    return found


def _iso_ms(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute = (int(match[i]) for i in range(1, 6))
    second, part = int(match[6] or 0), int((match[7] or "").ljust(3, "0")[:3])
    offset_hour, offset_minute = int(match[9] or 0), int(match[10] or 0)
    if not 1 <= month <= 12 or year < 1 or not 1 <= day <= _days_of_month(year, month):
        raise ValueError(text)
    if max(hour, offset_hour) > 23 or max(minute, offset_minute, second) > 59:
        raise ValueError(text)
    days = _days_before_year(year) + _months(year)[month - 1] + day - 1 - _UNIX_EPOCH_DAY
    offset = (offset_hour * 60 + offset_minute) * (-1 if match[8] == "-" else 1)
    return ((days * 1440 + hour * 60 + minute - offset) * 60 + second) * 1000 + part


def _days_before_year(year: int) -> int:
    """Return days from 0001-01-01 to the first of `year` in the Gregorian calendar (ISO 8601, 4.2.1)."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400


def _months(year: int) -> tuple[int, ...]:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _LEAP_DAYS_BEFORE_MONTH if leap else _DAYS_BEFORE_MONTH


def _days_of_month(year: int, month: int) -> int:
    return 31 if month == 12 else _months(year)[month] - _months(year)[month - 1]


def format_time(time_ms: int) -> str:
    """Return unix milliseconds as ISO 8601 in UTC, such as `2026-03-01T07:00:00Z`."""
    days, rest = divmod(time_ms, _DAY_MS)
    days += _UNIX_EPOCH_DAY
    year = bisect_right(range(1, 10_001), days, key=_days_before_year)
    day = days - _days_before_year(year)
    month = bisect_right(_months(year), day)
    minutes, ms = divmod(rest, 60_000)
    part = f".{ms % 1000:03}" if ms % 1000 else ""
    date = f"{year:04}-{month:02}-{day - _months(year)[month - 1] + 1:02}"
    return f"{date}T{minutes // 60:02}:{minutes % 60:02}:{ms // 1000:02}{part}Z"


def format_milli(value: int) -> str:
    """Return thousandths as the shortest decimal, such as `0.25` or `16`."""
    whole, part = divmod(abs(value), MILLI)
    decimals = f".{part:03}".rstrip("0") if part else ""
    return f"{'-' if value < 0 else ''}{whole}{decimals}"


def exact_duration(value_ms: int) -> str:
    """Return a duration in all its units, such as `1h30m`; a duration can be read back from it."""
    text = ""
    for unit, size in _DURATION_PARTS:
        count, value_ms = divmod(value_ms, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def exact_size(value_bytes: int) -> str:
    """Return bytes in the largest binary unit that divides them, such as `512GiB`; the size can be read back."""
    if not value_bytes:
        return "0"
    unit, size = next((unit, size) for unit, size in _SIZE_PARTS if value_bytes % size == 0)
    return f"{value_bytes // size}{unit}"


def split_resource(name: str) -> tuple[PoolName, str]:
    """Return the pool that a quota is bound to, empty where it is of all pools, and its resource."""
    pool, found, resource = name.partition("/")
    bound = found and pool and ":" not in pool  # models may have a slash in their names, pools neither of the two
    return (PoolName(pool), resource) if bound else (PoolName(""), name)


def format_resource(resource: str, amount: int) -> str:
    """Return an amount of a quota as it is written in a cluster file; devices and CPUs are held in thousandths."""
    _, resource = split_resource(resource)
    if resource in BYTES:
        return exact_size(amount)
    if resource == "jobs":
        return str(amount)
    return f"{format_milli(amount)} W" if resource == POWER else format_milli(amount)


def resource_text(resource: str) -> str:
    """Return a quota's resource in words, such as `devices` or `devices of pool a100`."""
    pool, name = split_resource(resource)
    return f"{name} of pool {pool}" if pool else name


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


def format_energy(value_mj: int) -> str:
    """Return an energy in the unit that suits it, such as `12 Wh` or `1.25 kWh`."""
    watt_hours = value_mj / 3_600_000
    if watt_hours < 1000:
        return f"{watt_hours:.3g} Wh"
    return f"{watt_hours / 1000:,.2f} kWh" if watt_hours < 10**6 else f"{watt_hours / 10**6:,.2f} MWh"


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


def money(amount: int, digits: int) -> str:
    """Return an amount of the smallest unit as people write it: 123456 with 2 digits is `1,234.56`."""
    sign, amount = "-" if amount < 0 else "", abs(amount)
    whole, part = divmod(amount, 10**digits)
    return f"{sign}{whole:,}.{part:0{digits}d}" if digits else f"{sign}{whole:,}"


def listed(names: Iterable[object], most: int = NAMES_MAX) -> str:
    """Return the first names and how many more there are."""
    found = [str(name) for name in names]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
