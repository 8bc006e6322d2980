"""Use of resources by queues and tenants: at present, and in the past with a half-life. Integers throughout."""

from math import isqrt
from typing import NamedTuple

from penstock.core.model.ids import PoolName
from penstock.core.model.quantities import split_resource
from penstock.core.model.resources import Models

_ONE_BITS = 40
_ONE = 1 << _ONE_BITS
"""Fixed point: 1.0 of a decay factor."""
_HALVINGS = 20


class UsedAmounts(NamedTuple):
    """Amounts: devices and CPU in thousandths, memory and storage in bytes, running jobs, devices by model."""

    device_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    jobs: int = 0
    models: Models = ()
    pools: "tuple[tuple[PoolName, UsedAmounts], ...]" = ()
    """The parts by pool, ascending: only for pools that a quota is bound to."""
    storage_bytes: int = 0

    def plus(self, other: "UsedAmounts", times: int = 1) -> "UsedAmounts":
        return UsedAmounts(
            self.device_milli + times * other.device_milli,
            self.cpu_milli + times * other.cpu_milli,
            self.memory_bytes + times * other.memory_bytes,
            self.jobs + times * other.jobs,
            models_with(self.models, other.models, times) if other.models else self.models,
            _merged_pools(self, other, times) if other.pools else self.pools,
            self.storage_bytes + times * other.storage_bytes,
        )

    def of_pool(self, pool: PoolName, bound: frozenset[PoolName]) -> "UsedAmounts":
        """Return these amounts with `pool` counted too, if a quota is bound to it."""
        return self._replace(pools=((pool, self),)) if pool in bound else self

    def negative(self) -> "UsedAmounts":
        return _NOTHING.plus(self, -1)

    def amount(self, resource: str) -> int:
        """Return the amount of a resource by the name that quotas use."""
        pool, resource = split_resource(resource)
        if pool:
            return dict(self.pools).get(pool, _NOTHING).amount(resource)
        if resource.startswith("devices:"):
            return dict(self.models).get(resource[8:], 0)
        fields = {"devices": 0, "cpus": 1, "memory": 2, "jobs": 3, "storage": 6}
        found = self[fields[resource]]
        assert isinstance(found, int)
        return found


_NOTHING = UsedAmounts()


def models_with(models: Models, more: Models, times: int) -> Models:
    """Return devices by model, ascending, without zeros. Nearly always there is one model, and it is the same."""
    if len(more) == 1 and (not models or (len(models) == 1 and models[0][0] == more[0][0])):
        milli = (models[0][1] if models else 0) + times * more[0][1]
        return ((more[0][0], milli),) if milli else ()
    merged = dict(models)
    for model, milli in more:
        merged[model] = merged.get(model, 0) + times * milli
    return tuple(sorted((m, v) for m, v in merged.items() if v))


def _merged_pools(charge: UsedAmounts, more: UsedAmounts, times: int) -> tuple[tuple[PoolName, UsedAmounts], ...]:
    merged = dict(charge.pools)
    for pool, part in more.pools:
        merged[pool] = merged.get(pool, _NOTHING).plus(part, times)
    return tuple(sorted((pool, part) for pool, part in merged.items() if part != _NOTHING))


class UsageOverTime(NamedTuple):
    """Present use, and the running average of past use (devices in thousandths times 2^20) as of `since_ms`."""

    now: UsedAmounts = UsedAmounts()
    average: int = 0
    since_ms: int = 0

    def changed(self, charge: UsedAmounts, now_ms: int, half_life_ms: int, times: int = 1) -> "UsageOverTime":
        """Return the share after `charge` was added to the present use (`times` -1: taken from it)."""
        if half_life_ms == 0:
            return UsageOverTime(self.now.plus(charge, times))
        return UsageOverTime(self.now.plus(charge, times), self.average_at(now_ms, half_life_ms), now_ms)

    def average_at(self, now_ms: int, half_life_ms: int) -> int:
        """Return the average of use up to `now_ms`, in which use a half-life ago weighs half as much as use now."""
        past = decayed(self.average, now_ms - self.since_ms, half_life_ms)
        present = self.now.device_milli << 20
        return past + present - decayed(present, now_ms - self.since_ms, half_life_ms)


def decayed(value: int, elapsed_ms: int, half_life_ms: int) -> int:
    """Return `value` x 2^(-elapsed/half-life), rounded down, the same on every machine.

    The exponent is split into whole halvings and binary fractions, whose factors 2^(-1/2^k) come from repeated
    integer square roots. The value is rounded once, at the end, so that it never rises with time.
    """
    if elapsed_ms <= 0 or value == 0:
        return value
    whole, rest = divmod(elapsed_ms, half_life_ms)
    if whole >= value.bit_length():
        return 0
    fraction = (rest << _HALVINGS) // half_life_ms
    left = _ONE
    for step, factor in enumerate(_FACTORS):
        if fraction >> (_HALVINGS - 1 - step) & 1:
            left = left * factor >> _ONE_BITS
    return value * left >> _ONE_BITS + whole


def _factors() -> tuple[int, ...]:
    """Return 2^(-1/2), 2^(-1/4), ... in fixed point."""
    found, factor = [], _ONE // 2
    for _ in range(_HALVINGS):
        factor = isqrt(factor * _ONE)
        found.append(factor)
    return tuple(found)


_FACTORS = _factors()
