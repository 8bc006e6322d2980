"""Lengths, sizes and resources as Slurm writes them.

Source of the formats: https://slurm.schedmd.com/sacct.html (Timelimit, ReqMem, AllocTRES) and tres.html.
"""

from typing import NamedTuple

from penstock.core.config.ask import REPLICAS_MAX
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.formats.numbers import RUN_MAX_MS, number, seconds_to_ms, whole_number
from penstock.traces.loaders.shapes import WIDTH_MAX
from penstock.traces.loaders.table import TextTable

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
NO_LIMIT = frozenset({"", "UNLIMITED", "Partition_Limit", "INVALID", "Unknown", "None"})
CPUS_MAX = 1_000_000
MEMORY_BYTES_MAX = 2**60

Key = tuple[str, ...]
"""Cells of `sacct.SHAPE_COLUMNS`, in that order; empty where a column is missing."""


class TresAmounts(NamedTuple):
    """Trackable resources of a whole job; 0 and empty where they are not told."""

    cpus: int = 0
    memory_bytes: int = 0
    nodes: int = 0
    gpus: int = 0
    model: str = ""


def length_ms(text: str) -> int:
    """Return milliseconds for `1-02:03:04`, `1-02`, `02:03:04`, `03:04.500` or seconds. Raises: ValueError."""
    days, dash, clock = text.partition("-")
    if not dash:
        days, clock = "0", text
    parts = clock.split(":")
    if len(parts) > 3 or "-" in clock:
        raise ValueError(text)
    if dash:  # behind days come hours first, however many parts there are
        parts += ["0"] * (3 - len(parts))
    *high, last = parts
    found = seconds_to_ms(last) + whole_number(days) * 86_400_000
    unit_ms = 60_000
    for part in reversed(high):
        found += whole_number(part) * unit_ms
        unit_ms *= 60
    if not 0 <= found <= RUN_MAX_MS:
        raise ValueError(text)
    return found


def limit_ms(text: str) -> int:
    """Return milliseconds for a time limit, in which a plain number is minutes; 0 for none. Raises: ValueError."""
    if text in NO_LIMIT:
        return 0
    if text.isdigit() and text.isascii() and len(text) < 12:
        return min(int(text) * 60_000, RUN_MAX_MS)
    return length_ms(text)


def size_bytes(text: str) -> int:
    """Return bytes for `4G`, `62.50G` or `4000M`; without a unit it is MiB. Raises: ValueError."""
    unit = _UNITS.get(text[-1:].upper())
    value = number(text[:-1] if unit else text)
    found = int(value * (unit or _UNITS["M"])) if abs(value) < 2**53 else -1
    if not 0 <= found <= MEMORY_BYTES_MAX:
        raise ValueError(text)
    return found


def tres(text: str) -> TresAmounts:
    """Return what `cpu=4,mem=16G,node=1,gres/gpu=2,gres/gpu:a100=2` says. Raises: ValueError."""
    cpus = memory = nodes = gpus = of_models = 0
    model = ""
    for item in text.split(",") if text else ():
        name, found, value = item.partition("=")
        if not found:
            raise ValueError(text)
        if name == "cpu":
            cpus = _count(value, CPUS_MAX)
        elif name == "mem":
            memory = size_bytes(value)
        elif name == "node":
            nodes = _count(value, REPLICAS_MAX)
        elif name == "gres/gpu":
            gpus = _count(value, REPLICAS_MAX * WIDTH_MAX)
        elif name.startswith("gres/gpu:"):
            of_models += _count(value, REPLICAS_MAX * WIDTH_MAX)
            model = model or name.removeprefix("gres/gpu:")
    return TresAmounts(cpus, memory, nodes, gpus or of_models, model)


def gres(text: str, nodes: int) -> tuple[int, str]:
    """Return GPUs of a whole job on so many nodes, and their model, for what AllocGRES and ReqGRES say.

    `gpu:a100:8` is of the job, as is `PER_JOB:gpu:8`; `PER_NODE:gpu:2` is of each node. How many tasks and sockets
    there are is not known: `PER_TASK` and `PER_SOCKET` count once a node. Of several, divided by blanks, the largest
    counts: they speak of the same devices. Raises: ValueError.
    Source: `_fill_in_gres_fields` and `_build_tres_str` in Slurm's node_scheduler.c.
    """
    most, model = 0, ""
    for words in text.split():
        prefix = words.partition(":")[0]
        total = 0
        for item in words.removeprefix(f"{prefix}:" if prefix.startswith("PER_") else "").split(","):
            count, named = _gpus(item)
            total += count
            model = model or named
        most = max(most, total * nodes if prefix.startswith("PER_") and prefix != "PER_JOB" else total)
    return most, model


def _gpus(item: str) -> tuple[int, str]:
    """Return the number and model of `gpu:a100:2`, `gpu:2` or `gpu`; 0 for another resource. Raises: ValueError."""
    parts = item.partition("(")[0].replace("gres/", "").split(":")
    if parts[0] == "gres":
        parts = parts[1:]
    if not parts or parts[0] != "gpu":
        return 0, ""
    counted = len(parts) > 1 and parts[-1].isdigit()
    count = _count(parts[-1], REPLICAS_MAX * WIDTH_MAX) if counted else 1
    return count, ":".join(parts[1:-1] if counted else parts[1:])


def ask_of(table: TextTable, key: Key) -> GangAsk:
    """Return the gang that the cells of a row say: as many replicas as nodes, alike as far as the numbers divide.

    Raises: TraceError at the table's present line.
    """
    try:
        return _ask(key)
    except (ValueError, OverflowError):
        found = " ".join(cell for cell in key if cell)
        expected = "resources such as cpu=4,mem=16G,node=1,gres/gpu=2, a number of nodes and CPUs, memory such as 4G"
        raise table.fault("AllocTRES, ReqTRES, ReqGRES, NNodes, AllocCPUS, ReqMem", found, expected) from None


def _ask(key: Key) -> GangAsk:
    allocated, requested, allocated_gres, requested_gres, nodes_of, more_nodes, ncpus, cpus_of, cpus_asked, memory = key
    known = tres(allocated or requested)
    nodes = known.nodes or _first(REPLICAS_MAX, nodes_of, more_nodes) or 1
    cpus = known.cpus or _first(CPUS_MAX, cpus_of, ncpus, cpus_asked)
    gpus, model = known.gpus, known.model
    if not gpus and (allocated_gres or requested_gres):
        gpus, model = gres(allocated_gres or requested_gres, nodes)
    memory_bytes = known.memory_bytes or _memory(memory, nodes, cpus)
    if -(-gpus // nodes) > WIDTH_MAX:
        raise ValueError(gpus)
    host = Resources(-(-1000 * cpus // nodes), -(-memory_bytes // nodes))
    return _spread(gpus, nodes, host, (model,) if model else ())


def _spread(gpus: int, nodes: int, host: Resources, models: tuple[str, ...]) -> GangAsk:
    """Return one replica a node; where the devices do not divide, the first nodes have one more."""
    each, rest = divmod(gpus, nodes)

    def ask(count: int) -> ReplicaAsk:
        return ReplicaAsk(host, DeviceAsk(count, models=models) if count else None)

    if not rest:
        return GangAsk(nodes, ask(each))
    return GangAsk(rest, ask(each + 1), others=(GroupAsk(nodes - rest, ask(each)),))


def _memory(text: str, nodes: int, cpus: int) -> int:
    """Return the memory of a job: `4Gn` is of each node, `4Gc` of each CPU, `4G` of the job."""
    if text in ("", "0", "0n", "0c", "?"):
        return 0
    if text[-1] == "n":
        return size_bytes(text[:-1]) * nodes
    if text[-1] == "c":
        return size_bytes(text[:-1]) * max(1, cpus)
    return size_bytes(text)


def _first(most: int, *cells: str) -> int:
    return next((_count(cell, most) for cell in cells if cell), 0)


def _count(text: str, most: int) -> int:
    """Return a whole number; large ones are written with a unit of thousands, as in `1.5K`."""
    factor = 1000 if text[-1:] == "K" else 1
    value = round(number(text[:-1]) * 1000) if factor > 1 else whole_number(text)
    if not 0 <= value <= most:
        raise ValueError(text)
    return value
