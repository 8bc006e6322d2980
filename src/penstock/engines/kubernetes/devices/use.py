"""Who has what: devices that are taken, parts of devices that are shared, and counters that follow. No I/O."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from penstock.engines.kubernetes.devices.pools import CounterId, DeviceId, Inventory, Placed, Pool, amount
from penstock.engines.kubernetes.objects.devices import Allocation, Result

Consumed = Mapping[str, Fraction]


class Use:
    """What the allocations of all claims take. A device may be in several of them: then each counts."""

    def __init__(self) -> None:
        self._of: dict[str, list[tuple[DeviceId, Consumed | None]]] = {}
        """What each claim has; None: the device as a whole."""
        self._whole: dict[DeviceId, int] = {}
        self._shared: dict[DeviceId, list[Consumed]] = {}

    def put(self, claim: str, allocation: Allocation | None) -> set[DeviceId]:
        """Note what a claim has by now. Returns: the devices of which more or less is taken than before."""
        before = self._of.pop(claim, [])
        for device, consumed in before:
            self._less(device, consumed)
        after = [(_id(one), _consumed(one)) for one in allocation.devices.results if not one.admin_access] if (
            allocation is not None) else []  # fmt: skip
        for device, consumed in after:
            self._more(device, consumed)
        if after:
            self._of[claim] = after
        return set() if before == after else {device for device, _ in (*before, *after)}

    def _more(self, device: DeviceId, consumed: Consumed | None) -> None:
        if consumed is None:
            self._whole[device] = self._whole.get(device, 0) + 1
        else:
            self._shared.setdefault(device, []).append(consumed)

    def _less(self, device: DeviceId, consumed: Consumed | None) -> None:
        if consumed is None:
            self._whole[device] -= 1
            if not self._whole[device]:
                del self._whole[device]
        else:
            self._shared[device].remove(consumed)
            if not self._shared[device]:
                del self._shared[device]

    def devices_of(self, claim: str) -> list[DeviceId]:
        return [device for device, _ in self._of.get(claim, ())]

    def taken(self, device: DeviceId) -> bool:
        """Return whether a claim has the device as a whole."""
        return device in self._whole

    def touched(self, device: DeviceId) -> bool:
        """Return whether a claim has the device, or a part of it."""
        return device in self._whole or device in self._shared

    def consumed(self, device: DeviceId) -> dict[str, Fraction]:
        """Return how much of each capacity is given out."""
        found: dict[str, Fraction] = {}
        for one in self._shared.get(device, ()):
            for name, number in one.items():
                found[name] = found.get(name, Fraction(0)) + number
        return found

    def counters_left(self, pool: Pool) -> dict[CounterId, Fraction]:
        """Return what is left of the counters of a pool; it may be less than nothing."""
        found = dict(pool.counters)
        for placed in pool.devices.values():
            if placed.counters and self.touched(placed.id):
                for key, number in placed.counters.items():
                    found[key] = found.get(key, Fraction(0)) - number
        return found

    def doubles_of(self, claim: str, inventory: Inventory) -> Iterable[tuple[DeviceId, list[str]]]:
        """Yield devices of a claim that others have, too, and of which there is not enough for all; and the claims."""
        for device, _ in self._of.get(claim, ()):
            placed, shared = inventory.device(device), self._shared.get(device, [])
            several = self._whole.get(device, 0) > 1 or (device in self._whole and shared)
            if several or (placed is not None and not fits(placed, self.consumed(device))):
                yield device, sorted(key for key, has in self._of.items() if any(one == device for one, _ in has))


def fits(placed: Placed, consumed: Mapping[str, Fraction]) -> bool:
    """Return whether a device has this much of each capacity."""
    return all(number <= amount(placed.spec.capacity[name].value) for name, number in consumed.items()
               if name in placed.spec.capacity)  # fmt: skip


def _id(one: Result) -> DeviceId:
    return DeviceId(one.driver, one.pool, one.device)


def _consumed(one: Result) -> Consumed | None:
    if not one.share_id:
        return None
    return {name: amount(value) for name, value in one.consumed_capacity.items()}
