"""Trackable resources of a whole job: CPUs, memory, nodes and GPUs with their model."""

from typing import NamedTuple

from penstock.core.model.gang import GangAsk, GroupAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.formats.numbers import number, whole_number, within
from penstock.formats.slurm import read_gres, size_bytes, tres_items

CPUS_MAX = 1_000_000
NODES_MAX = 10_000
DEVICES_MAX = 64 * NODES_MAX


class TresAmounts(NamedTuple):
    """Trackable resources of a whole job; 0 and empty where unknown."""

    cpus: int = 0
    memory_bytes: int = 0
    nodes: int = 0
    gpus: int = 0
    model: str = ""


def tres(text: str) -> TresAmounts:
    """Return the amounts in `cpu=4,mem=16G,node=1,gres/gpu=2,gres/gpu:a100=2`. Raises: ValueError."""
    cpus = memory = nodes = gpus = of_models = 0
    model = ""
    for name, value in tres_items(text):
        if name == "cpu":
            cpus = count_of(value, CPUS_MAX)
        elif name == "mem":
            memory = size_bytes(value)
        elif name == "node":
            nodes = count_of(value, NODES_MAX)
        elif name == "gres/gpu":
            gpus = count_of(value, DEVICES_MAX)
        elif name.startswith("gres/gpu:"):
            of_models += count_of(value, DEVICES_MAX)
            model = model or name.removeprefix("gres/gpu:")
    return TresAmounts(cpus, memory, nodes, gpus or of_models, model)


def gpus_of(item: str) -> tuple[int, str]:
    """Return the number and model of `gpu:a100:2`, `gpu:2` or `gpu`; 0 for another resource. Raises: ValueError."""
    found = read_gres(item.replace("gres/", "").removeprefix("gres:"))
    if found is None or found.name != "gpu":
        return 0, ""
    if found.count > DEVICES_MAX:
        raise ValueError(item)
    return found.count, found.kind


def count_of(text: str, most: int) -> int:
    """Return a whole number; large ones are written with a unit of thousands, as in `1.5K`. Raises: ValueError."""
    factor = 1000 if text[-1:] == "K" else 1
    return within(round(number(text[:-1]) * 1000) if factor > 1 else whole_number(text), 0, most)


def spread(gpus: int, nodes: int, host: Resources, models: tuple[str, ...]) -> GangAsk:
    """Return one replica a node; where the devices do not divide, the first nodes have one more."""
    each, rest = divmod(gpus, nodes)

    def ask(count: int) -> ReplicaAsk:
        return ReplicaAsk(host, DeviceAsk(count, models=models) if count else None)

    if not rest:
        return GangAsk(nodes, ask(each))
    return GangAsk(rest, ask(each + 1), others=(GroupAsk(nodes - rest, ask(each)),))
