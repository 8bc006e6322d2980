"""Sets limits of power by vendors' tools: `python -m penstock.devices.power_limits`, with the devices on its input.

It reads what each device has, changes what differs, and looks again: some tools end well without having done anything.
A limit above a device's own is its own, and one below what its vendor allows is the least that is allowed. It prints
which devices are not as they should be. A provider sets limits by a method `limit_power`; one without it offers none.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.devices.provider import DeviceProvider, Machine, Output, Sources
from penstock.devices.reading import short

WATT_MW = 1_000


class LimitedDevice(msgspec.Struct, frozen=True):
    """A device of the node."""

    index: int
    vendor: str
    uuid: str


class NotLimited(msgspec.Struct, frozen=True):
    """A device that does not have the limit that it should have, or not exactly."""

    index: int
    why: str


class PowerLimits(NamedTuple):
    """The limits of a device (mW): the present one, its own, and what its vendor allows."""

    now_mw: int
    default_mw: int
    least_mw: int
    most_mw: int


def wanted_of(limit_mw: int, has: PowerLimits) -> tuple[int, str]:
    """Return the limit that a device should have (mW), and why it is not the one asked for; '' where it is.

    Args:
        limit_mw: 0: the device's own.
    """
    if not limit_mw or limit_mw >= has.default_mw:
        return has.default_mw, ""
    if limit_mw < has.least_mw:
        return has.least_mw, f"its vendor allows no less than {has.least_mw / WATT_MW:g} W, which it has"
    return limit_mw, ""


def set_by(
    limit_mw: int,
    look: Callable[[], PowerLimits | None],
    change: Sequence[Callable[[int], Output]],
) -> str:
    """Bring a device to a limit; return '' or why it does not have it.

    Args:
        look: returns the limits of the device; None where they are not known.
        change: ways to set a limit (mW), tried until the device has it.
    """
    has = look()
    if has is None:
        return "its limits cannot be read: it may not have any"
    wanted_mw, note = wanted_of(limit_mw, has)
    said = ""
    for way in change:
        if has.now_mw == wanted_mw:
            return note
        output = way(wanted_mw)
        said = said or _words(output)
        has = look() or has
    return note if has.now_mw == wanted_mw else said or f"it still has {has.now_mw / WATT_MW:g} W"


def _words(output: Output) -> str:
    """Return what a tool said, in one line."""
    if output.missing:
        return "the vendor's tool is not installed"
    if output.timed_out:
        return "the vendor's tool did not end in time"
    lines = f"{output.text}\n{output.error_text}".strip().splitlines()
    return short(lines[0].strip()) if lines else ""


def keep(
    devices: Sequence[LimitedDevice], limit_mw: int, here: Sequence[DeviceProvider], sources: Sources
) -> list[NotLimited]:
    """Bring all devices to a limit; return those that do not have it."""
    by_vendor = {one.vendor: one for one in here}
    found = []
    for device in devices:
        limit = getattr(by_vendor.get(device.vendor), "limit_power", None)
        if limit is None:
            why = f"Penstock cannot limit the power of {device.vendor} devices" if limit_mw else ""
        else:
            why = limit(sources, device.uuid, limit_mw)
        if why:
            found.append(NotLimited(device.index, why))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock.devices.power_limits")
    parser.add_argument("--limit-mw", type=int, required=True, help="of each device; 0: its own")
    parser.add_argument("--folder", type=Path, help="simulated devices, as files")
    given = parser.parse_args(arguments)
    from penstock.devices.process import providers

    devices = msgspec.json.decode(sys.stdin.buffer.read(), type=list[LimitedDevice])
    failed = keep(devices, given.limit_mw, providers(given.folder), Machine())
    sys.stdout.buffer.write(msgspec.json.encode(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
