"""What each replica used of its devices: energy, time in which they were busy, memory. Pure code.

Theory. Two readings of a device in a row bound an interval, and the later one says how busy the device was in it. The
energy is the difference of the device's counter, or power x time where it has none or the counter went back or jumped.
An interval belongs to the replicas that held the device at both ends; its energy is split by the parts of the device
that were promised to them, and so is the time in which it was busy, among those that have processes on it. So what
replicas get adds up to at most what the device had, and the energy of a part that nobody holds is nobody's. An interval
longer than `GAP_MAX_MS` is not measured: nothing is assumed about it. Readings of the same moment, or an earlier one,
change nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.messages.reports import DeviceFigures, ReplicaKey
from penstock.core.model.measured import POWER_MAX_MW, Measured, added

GAP_MAX_MS = 5_000
WHOLE_MILLI = 1000
MEMORY_TOUCHED_BYTES = 64 * 2**20
"""A device whose used memory grew by this much under its only holder was made use of, whatever processes are shown."""


class Held(NamedTuple):
    """A replica's hold on one device."""

    key: ReplicaKey
    device: int
    """Its index on the node."""
    share_milli: int
    """The promised part of the device."""
    since_ms: int
    """When the replica began; readings before it are not its own."""


class _Account(msgspec.Struct):
    """Sums of one replica, in millionths of what `Measured` counts: parts of a device are cut only there."""

    known_ns: int = 0
    busy_ns: int = 0
    powered_ns: int = 0
    energy_nj: int = 0
    peak_bytes: int | None = None
    touched: set[int] = msgspec.field(default_factory=set)
    base: Measured = Measured()
    """What a former worker of the agent measured."""

    def measured(self) -> Measured:
        base = self.base
        return Measured(
            measured_ms=base.measured_ms + self.known_ns // 10**6,
            busy_ms=added((base.busy_ms, self.busy_ns // 10**6 if self.known_ns else None)),
            powered_ms=base.powered_ms + self.powered_ns // 10**6,
            energy_mj=added((base.energy_mj, self.energy_nj // 10**6 if self.powered_ns else None)),
            device_memory_peak_bytes=max(
                (one for one in (base.device_memory_peak_bytes, self.peak_bytes) if one is not None), default=None
            ),
            devices_touched=self._touched(),
        )

    def _touched(self) -> int | None:
        """Return of how many devices it has made use; that it was of none is known only where their use is."""
        count = max(self.base.devices_touched or 0, len(self.touched))
        return count if count or self.known_ns or self.base.measured_ms else None


class _Last(NamedTuple):
    """A device's last reading, and who held it then."""

    at_ms: int
    figures: DeviceFigures
    holders: frozenset[ReplicaKey]


class Meter:
    """Adds up what replicas use.

    Args:
        known: what a former worker measured of replicas that go on.
    """

    def __init__(self, known: Mapping[ReplicaKey, Measured] | None = None) -> None:
        self._accounts: dict[ReplicaKey, _Account] = {}
        self._known = dict(known or {})
        self._devices: dict[int, _Last] = {}
        self._floor: dict[tuple[ReplicaKey, int], int] = {}
        """The least memory in use on a device since its only holder began."""

    def take(
        self,
        at_ms: int,
        figures: Sequence[DeviceFigures],
        held: Sequence[Held],
        memory: Mapping[tuple[ReplicaKey, int], int],
    ) -> None:
        """Take what devices reported at one moment (monotonic).

        Args:
            held: all holds of the node.
            memory: of each replica on each device on which it has processes, bytes.
        """
        on_device: dict[int, list[Held]] = {}
        for hold in held:
            if hold.since_ms <= at_ms:
                on_device.setdefault(hold.device, []).append(hold)
        seen: set[int] = set()
        for one in figures:
            last = self._devices.get(one.index)
            if one.index in seen or (last is not None and at_ms <= last.at_ms):
                continue
            seen.add(one.index)
            holds = on_device.get(one.index, [])
            self._touch(one, holds, memory)
            if last is not None and at_ms - last.at_ms <= GAP_MAX_MS:
                self._add(last, one, at_ms - last.at_ms, holds, memory)
            self._devices[one.index] = _Last(at_ms, one, frozenset(hold.key for hold in holds))
        if seen:
            self._note_memory(seen, memory)

    def _account(self, key: ReplicaKey) -> _Account:
        if key not in self._accounts:
            self._accounts[key] = _Account(base=self._known.get(key, Measured()))
        return self._accounts[key]

    def _add(
        self,
        last: _Last,
        now: DeviceFigures,
        length_ms: int,
        holds: Sequence[Held],
        memory: Mapping[tuple[ReplicaKey, int], int],
    ) -> None:
        """Give an interval to the replicas that held the device at both its ends."""
        whole = max(WHOLE_MILLI, sum(one.share_milli for one in holds))
        energy_uj = _energy_uj(last.figures, now, length_ms)
        working = {one.key for one in holds if (one.key, now.index) in memory} or {one.key for one in holds}
        for one in holds:
            if one.key not in last.holders:
                continue
            account = self._account(one.key)
            part_ns = length_ms * 10**6 * one.share_milli // whole
            if now.use_milli is not None:
                account.known_ns += part_ns
                if one.key in working:
                    account.busy_ns += part_ns * min(now.use_milli, 1000) // 1000
            if energy_uj is not None:
                account.powered_ns += part_ns
                account.energy_nj += energy_uj * 1000 * one.share_milli // whole

    def _touch(self, now: DeviceFigures, holds: Sequence[Held], memory: Mapping[tuple[ReplicaKey, int], int]) -> None:
        """Note who has made use of a device."""
        for one in holds:
            account, place = self._account(one.key), (one.key, now.index)
            used = place in memory
            if len(holds) == 1 and not used:  # where no processes are shown, as in containers
                bytes_now = now.memory_used_bytes or 0
                floor = self._floor[place] = min(bytes_now, self._floor.get(place, bytes_now))
                used = bool(now.use_milli) or bytes_now - floor >= MEMORY_TOUCHED_BYTES
            if used:
                account.touched.add(now.index)

    def _note_memory(self, seen: set[int], memory: Mapping[tuple[ReplicaKey, int], int]) -> None:
        sums: dict[ReplicaKey, int] = {}
        read = {key for key, index in memory if index in seen}
        for (key, _), size in memory.items():
            if key in read:
                sums[key] = sums.get(key, 0) + size
        for key, size in sums.items():
            account = self._account(key)
            account.peak_bytes = max(size, account.peak_bytes or 0)

    def measured(self, key: ReplicaKey) -> Measured | None:
        """Return the sums of a replica so far; None where nothing was measured."""
        account = self._accounts.get(key)
        return account.measured() if account is not None else self._known.get(key)

    def forget(self, key: ReplicaKey) -> None:
        """Drop a replica that has ended."""
        self._accounts.pop(key, None)
        self._known.pop(key, None)
        for place in [place for place in self._floor if place[0] == key]:
            del self._floor[place]

    def image(self) -> dict[ReplicaKey, Measured]:
        """Return all sums, for a worker that goes on."""
        return self._known | {key: account.measured() for key, account in self._accounts.items()}


def _energy_uj(last: DeviceFigures, now: DeviceFigures, length_ms: int) -> int | None:
    """Return the energy that a device used between two readings (microjoules), None where that is not known.

    A counter of 0 is none: some drivers have the field and never count.
    """
    if last.energy_mj and now.energy_mj:
        used_uj = (now.energy_mj - last.energy_mj) * 1000
        if 0 <= used_uj <= POWER_MAX_MW * length_ms:
            return used_uj
    power_mw = now.power_mw
    return power_mw * length_ms if power_mw is not None and 0 <= power_mw <= POWER_MAX_MW else None
