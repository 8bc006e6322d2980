"""What jobs hold of queues and pools, in the words of Kubernetes. Any thread may ask: it sees what holds about now."""

from collections.abc import Mapping

from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.state.state import State


def queue_uses(state: State) -> Mapping[str, tuple[int, int, dict[str, str]]]:
    """Return how many jobs wait in each queue, how many hold places, and what these hold, by resource."""
    waiting, uses = dict(state.indexes.waiting_by_queue), dict(state.indexes.usage)
    held: dict[str, list[UsedAmounts]] = {}
    for (queue, _), use in uses.items():
        held.setdefault(queue, []).append(use.now)
    return {
        queue: (waiting.get(queue, 0), sum(one.jobs for one in held.get(queue, ())), _amounts(held.get(queue, [])))
        for queue in state.config.queue_by_name
    }


def _amounts(held: list[UsedAmounts]) -> dict[str, str]:
    devices, cpus = sum(one.device_milli for one in held), sum(one.cpu_milli for one in held)
    memory = sum(one.memory_bytes for one in held)
    found = {"devices": _milli(devices), "cpu": _milli(cpus), "memory": str(memory)}
    return {name: text for name, text in found.items() if text != "0"}


def _milli(number: int) -> str:
    return f"{number}m" if number % 1000 else str(number // 1000)


def pool_uses(state: State) -> Mapping[str, tuple[int, int]]:
    """Return how many devices each pool has, and how many of them jobs hold."""
    found: dict[str, tuple[int, int]] = dict.fromkeys(state.config.pool_by_name, (0, 0))
    for name, node in state.indexes.nodes.items():
        load = state.indexes.loads.get(name)
        total, held = found.get(node.spec.pool, (0, 0))
        taken = sum(bool(holders) for holders in tuple(load.devices.values())) if load is not None else 0
        if node.state == "ready":
            found[node.spec.pool] = total + len(node.spec.devices), held + taken
    return found
