"""The power that a device in use is expected to draw, by which pools keep their limits of power.

As measured of its model where jobs have held such devices; else as its vendor limits it; else `UNKNOWN_MW`. A part of a
device counts by its share. Devices that no job holds, and CPUs, count nothing: what they draw is not decided by starts.
"""

from collections.abc import Callable, Iterable, Mapping

from penstock.core.model.cluster import ClusterConfig, Node
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import PoolName
from penstock.core.model.plan import QuotaExceeded
from penstock.core.model.quantities import POWER, format_resource, split_resource
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, Models

UNKNOWN_MW = 700_000
"""Of a device without a measurement or a limit: as much as an H100 SXM may draw."""
WATT_MW = 1_000

PoolPowers = Mapping[PoolName, Mapping[str, int]]
"""By pool and model, what one device is expected to draw (mW); of pools with a limit of power."""


def power_resource(pool: PoolName) -> str:
    """Return the name of a pool's power as that of a resource of the queue tree."""
    return f"{pool}/{POWER}"


def power_pool(resource: str) -> PoolName | None:
    """Return the pool whose limit of power a resource is; None for all others."""
    pool, name = split_resource(resource)
    return pool if pool and name == POWER else None


def declared_powers(config: ClusterConfig, nodes: Iterable[Node]) -> PoolPowers:
    """Return what devices are expected to draw as long as nothing was measured, in pools with a limit of power."""
    found: dict[PoolName, dict[str, int]] = {pool: {} for pool in config.power_limits}
    for node in nodes if found else ():
        powers = found.get(node.spec.pool)
        if powers is None:
            continue
        for device in node.spec.devices:
            powers[device.model] = max(powers.get(device.model, 0), device.power_limit_mw or UNKNOWN_MW)
    return found


def pool_powers(declared: PoolPowers, measured: Mapping[str, int]) -> PoolPowers:
    """Return what devices are expected to draw, rounded up to watts: small changes of a mean change nothing.

    Args:
        measured: mean power of one held device (mW), by model.
    """
    return {
        pool: {model: -(-(measured.get(model) or mw) // WATT_MW) * WATT_MW for model, mw in powers.items()}
        for pool, powers in declared.items()
    }


def over_power(block: QuotaExceeded, pool: PoolName) -> tuple[str, str, str]:
    """Return in words that a job alone exceeds its pool's limit: the sentence, its power, what to do."""
    asked, limit = (format_resource(block.resource, amount) for amount in (block.asked, block.limit))
    text = f"its devices are expected to draw {asked}, and devices of pool {pool} may draw {limit} together"
    return text, asked, f"ask for fewer devices, or raise `power_limit` of pool {pool}"


def power_of(models: Models, powers: Mapping[str, int]) -> int:
    """Return what devices (thousandths, by model) are expected to draw together (mW)."""
    return sum(milli * powers.get(model, UNKNOWN_MW) for model, milli in models) // WHOLE_DEVICE_MILLI


def least_power(ask: GangAsk, powers: Mapping[str, int]) -> int:
    """Return the least that a gang's devices are expected to draw (mW), whichever of a pool's models it gets."""
    return _power(ask, powers, min, 0)


def most_power(ask: GangAsk, powers: Mapping[str, int]) -> int:
    """Return the most that a gang's devices are expected to draw (mW), whichever of a pool's models it gets."""
    return _power(ask, powers, max, UNKNOWN_MW)


def _power(ask: GangAsk, powers: Mapping[str, int], choose: Callable[[list[int]], int], unknown: int) -> int:
    total = 0
    for each, replicas in ((ask.each, ask.replicas), *((group.each, group.replicas) for group in ask.others)):
        models = each.devices.models if each.devices is not None else ()
        accepted = [mw for model, mw in powers.items() if not models or model in models]
        draw = choose(accepted) if accepted else unknown
        total += replicas * (each.device_milli * draw // WHOLE_DEVICE_MILLI + power_of(each.claimed, powers))
    return total
