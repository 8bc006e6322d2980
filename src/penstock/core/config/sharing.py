"""The `sharing` section of a pool: when jobs that say `shareable` are put together on one device."""

from typing import Any

from penstock.core.config.fields import QUANTITY, Field, Section, duration, flag, from_milli, integer, number
from penstock.core.config.reader import Reader
from penstock.core.model.pairing import SharingSettings
from penstock.core.model.quantities import exact_duration, parse_duration_ms, parse_part_milli

WINDOW_LEAST_MS, WINDOW_MOST_MS = 5_000, 600_000


def _part(about: str, at: str, least: int, most: int, expected: str) -> Field:
    """A part of a whole, kept in thousandths."""

    def read(reader: Reader, field: str, value: Any) -> int:
        try:
            milli = parse_part_milli(value)
        except ValueError:
            milli = -1
        if not least <= milli <= most:
            reader.wrong(field, value, expected)
            return int(getattr(SharingSettings(), at))
        return milli

    return Field(read, QUANTITY, about, at, from_milli)


def _read_window(reader: Reader, field: str, value: Any) -> int:
    try:
        window_ms = parse_duration_ms(value)
    except ValueError:
        window_ms = -1
    if not WINDOW_LEAST_MS <= window_ms <= WINDOW_MOST_MS:
        reader.wrong(field, value, "a time from 5s to 10m")
        return SharingSettings().window_ms
    return window_ms


SHARING = Section(
    SharingSettings,
    {
        "enabled": flag("whether jobs that say `shareable` are put together at all", default=True),
        "use_below": _part(
            "use of a device below which its job may share it",
            "use_below_milli",
            1,
            1000,
            "a part of the time above 0, such as 0.5 or 50%",
        ),
        "window": Field(
            _read_window,
            duration("").schema,
            "for how long the use has to be measured",
            "window_ms",
            exact_duration,
        ),
        "memory_margin": _part(
            "part of a device's memory that two jobs together leave free",
            "memory_margin_milli",
            0,
            999,
            "a part of the memory below 1, such as 0.1 or 10%",
        ),
        "across_tenants": flag("whether jobs of two tenants may share one device"),
        "slowdown": number(
            "jobs are parted when a step takes this many times as long as alone",
            "a factor above 1, such as 1.2",
            low=1_001,
            high=100_000,
            default=1_200,
            at="slowdown_milli",
        ),
        "use_above": _part(
            "use of a device above which jobs that report no steps are parted",
            "use_above_milli",
            1,
            1000,
            "a part of the time above 0, such as 0.95 or 95%",
        ),
        "steps": integer("steps together before a pair is judged", 1, 1_000_000),
        "cool_down": duration("for how long two jobs that were parted are left apart", at="cool_down_ms"),
    },
)
