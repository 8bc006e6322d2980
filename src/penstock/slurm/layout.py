"""How many places a job has, and the tasks, CPUs, memory and devices of each. Source: sbatch(1); tried with 22.05."""

import re
from typing import NamedTuple

from penstock.slurm import values
from penstock.slurm.directives import Options
from penstock.slurm.options import Unknown
from penstock.slurm.values import Gpus

PLACES_MAX = 10_000
_MIG = re.compile(r"(?:.*_)?([0-9]g\.[0-9]+gb(?:\+\w+)?)", re.IGNORECASE)


class Layout(NamedTuple):
    places: int
    tasks: tuple[int, ...]
    """Of each place."""
    cpus: tuple[int, ...]
    devices: int
    """Of each place."""
    kind: str
    memory: tuple[int, ...]
    """MiB of each place; 0: no limit."""
    notes: tuple[str, ...]


def layout(options: Options) -> Layout:
    """Return the places of a job. Raises: Unknown for values that cannot be read or do not go together."""
    notes: list[str] = []
    per_node = _count(options, "ntasks-per-node")
    tasks = _count(options, "ntasks")
    places, tasks = _places(options, tasks, per_node, notes)
    total = tasks or places * (per_node or 1)
    if total < places:
        notes.append(f"{places} nodes for {total} tasks: it gets {total}")
        places = total
    if places > PLACES_MAX:
        raise Unknown(f"a job has at most {PLACES_MAX:,} nodes, this one asks for {places:,}")
    share, more = divmod(total, places)
    dealt = tuple(share + (number < more) for number in range(places))
    devices, kind, others = _devices(options, places, dealt[0])
    notes += others
    per_task = _count(options, "cpus-per-task") or 1
    least = max(_count(options, "mincpus"), _count(options, "cpus-per-gpu") * devices)
    cpus = tuple(max(count * per_task, least, 1) for count in dealt)
    return Layout(places, dealt, cpus, devices, kind, _memory(options, cpus, devices, notes), tuple(notes))


def _count(options: Options, name: str) -> int:
    return values.count(options[name]) if name in options else 0


def _places(options: Options, tasks: int, per_node: int, notes: list[str]) -> tuple[int, int]:
    """Return the number of places and of tasks (0: not asked for)."""
    if "nodes" in options:
        low, high = values.nodes(options["nodes"])
        if high > low:
            notes.append(f"--nodes={options.get('nodes')}: it gets {low}")
        return low, tasks
    if "ntasks-per-gpu" in options and "gpus" in options and not tasks:
        tasks = values.count(options["ntasks-per-gpu"]) * values.gpus(options["gpus"]).number
    return (-(-tasks // per_node) if tasks and per_node else 1), tasks


def _devices(options: Options, places: int, tasks: int) -> tuple[int, str, list[str]]:
    """Return the devices of each place, their type, and what has no meaning here."""
    notes: list[str] = []
    asked: list[Gpus] = []
    if "gres" in options:
        found, others = values.gres(options["gres"])
        asked += [found] if found else []
        notes += [f"--gres={word} is left out: only devices (gpu) are counted" for word in others]
    if "gpus-per-node" in options:
        asked.append(values.gpus(options["gpus-per-node"]))
    if "gpus-per-task" in options:
        each = values.gpus(options["gpus-per-task"])
        asked.append(Gpus(each.number * tasks, each.kind))
    if "gpus" in options and not asked:
        whole = values.gpus(options["gpus"])
        if whole.number % places:
            raise Unknown(
                f"--gpus={options.get('gpus')}: {whole.number} devices cannot be dealt evenly to {places} nodes"
            )
        asked.append(Gpus(whole.number // places, whole.kind))
    number = max((one.number for one in asked), default=0)
    kinds = {one.kind for one in asked if one.kind}
    if len(kinds) > 1:
        raise Unknown(f"a job has devices of one type here, not of {' and '.join(sorted(kinds))}")
    return number, kinds.pop() if kinds else "", notes


def _memory(options: Options, cpus: tuple[int, ...], devices: int, notes: list[str]) -> tuple[int, ...]:
    ways = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in options]
    if len(ways) > 1:
        raise Unknown(f"{' and '.join('--' + name for name in ways)} exclude each other")
    if not ways:
        return (0,) * len(cpus)
    size = values.mebibytes(options[ways[0]])
    if ways == ["mem"]:
        if not size:
            notes.append("--mem=0: it gets no limit, but no whole node either")
        return (size,) * len(cpus)
    return tuple(size * (count if ways == ["mem-per-cpu"] else devices) for count in cpus)


def mig_profile(kind: str) -> str:
    """Return the MIG profile that a type such as `a100_3g.20gb` names, or ''."""
    match = _MIG.fullmatch(kind)
    return match[1].lower() if match else ""
