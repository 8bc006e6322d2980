"""The nodes of slurm.conf: `NodeName` lines with their defaults, to drafts that lack devices, place and pool.

Source: https://slurm.schedmd.com/slurm.conf.html#SECTION_NODE-CONFIGURATION
"""

import re
from collections.abc import Iterable

import msgspec

from penstock.core.model.resources import Resources
from penstock.core.model.words import counted
from penstock.formats.hostlist import HOSTS_MAX
from penstock.formats.slurm import Gres, read_gres
from penstock.migrate.report import Fate, MigrationReport, SourcePlace, fates
from penstock.migrate.slurm.hosts import Hosts
from penstock.migrate.slurm.lines import PlacedValue, SlurmField, SlurmLine, Values, with_defaults

NODES_MAX = HOSTS_MAX
CPUS_MAX = 100_000
MIB = 2**20
MEBIBYTES_MAX = 2**33
_WORD = re.compile(r"[^,()]+(?:\([^()]*\))?|[()]")
"""What commas outside of brackets divide; a bracket that is left over is a word of its own, and no resource."""
_GONE = ("FUTURE",)
_DOWN = ("DOWN", "DRAIN", "DRAINING", "FAIL", "FAILING", "MAINT")


class Draft(msgspec.Struct, kw_only=True):
    """A node as slurm.conf has it; other files add to it."""

    name: str
    place: SourcePlace
    capacity: Resources
    cores_per_socket: int
    features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    address: str = "127.0.0.1"
    switch: str = ""
    rack: str = ""
    zone: str = ""
    partitions: list[str] = msgspec.field(default_factory=list)


def read_nodes(lines: Iterable[SlurmLine], hosts: Hosts, report: MigrationReport) -> dict[str, Draft]:
    """Return nodes by name in the order of the file; each field of their lines gets an entry.

    Raises: ImportFault for a node given twice, bad numbers, and above `NODES_MAX` nodes.
    """
    found: dict[str, Draft] = {}
    for line, values in with_defaults(lines, "NodeName", _fate, report):
        names = line.name
        here = hosts.expand(line.place, "NodeName", names)
        if len(found) + len(here) > NODES_MAX:
            raise line.place.fault("NodeName", names, f"at most {NODES_MAX} nodes")
        if values.get("State", PlacedValue("", line.place)).text.upper().split("+")[0] in _GONE:
            report.lost(line.place, "NodeName", names, "FUTURE nodes are not there yet")
        else:
            report.mapped(line.place, "NodeName", names, f"{counted(len(here), 'node')}")
            _add(found, here, values, line, hosts)
    return found


def _add(found: dict[str, Draft], names: tuple[str, ...], values: Values, line: SlurmLine, hosts: Hosts) -> None:
    capacity, cores = _capacity(values, line.place)
    gres = values.get("Gres")
    features = values.get("Features") or values.get("Feature")
    addresses = _addresses(values, len(names), hosts)
    for index, name in enumerate(names):
        if name in found:
            first = found[name].place
            raise line.place.fault("NodeName", name, f"each node once; it is also at {first.file}:{first.line}")
        found[name] = Draft(
            name=name,
            place=line.place,
            capacity=capacity,
            cores_per_socket=cores,
            features=tuple(w for w in re.split(r"[,\s]+", features.text) if w) if features else (),
            gres=_read_gres(gres) if gres else (),
            address=addresses[index] if addresses else name,
        )


def _addresses(values: Values, count: int, hosts: Hosts) -> tuple[str, ...]:
    """Return one address for each node, or none: then a node is reached by its name, as in Slurm."""
    given = values.get("NodeAddr") or values.get("NodeHostname")
    if given is None:
        return ()
    found = hosts.expand(given.place, "NodeAddr", given.text)
    if len(found) not in (1, count):
        raise given.place.fault("NodeAddr", given.text, f"one address, or one for each of {count} nodes")
    return found if len(found) == count else found * count


def _whole(values: Values, key: str, default: int, most: int, place: SourcePlace) -> int:
    value = values.get(key, PlacedValue(str(default), place))
    return value.place.whole(key, value.text, most)


def _capacity(values: Values, place: SourcePlace) -> tuple[Resources, int]:
    """Return the capacity of a node for jobs, less Slurm's own share, and cores per socket."""
    boards = _whole(values, "Boards", 1, 1_000, place)
    sockets = _whole(values, "SocketsPerBoard", 0, 1_000, place) * boards or _whole(values, "Sockets", 1, 1_000, place)
    cores = _whole(values, "CoresPerSocket", 1, 10_000, place)
    threads = _whole(values, "ThreadsPerCore", 1, 1_000, place)
    cpus_key = "CPUs" if "CPUs" in values else "Procs"
    cpus = _whole(values, cpus_key, min(sockets * cores * threads, CPUS_MAX), CPUS_MAX, place)
    reserved = _whole(values, "CoreSpecCount", 0, CPUS_MAX, place)
    threads_counted = 1 if cpus <= sockets * cores else threads  # CPUs may be set to the cores
    free = max(0, cpus - reserved * threads_counted)
    if reserved == 0 and "CPUSpecList" in values:
        free = max(0, cpus - _listed(values["CPUSpecList"]))
    memory = _whole(values, "RealMemory", 1, MEBIBYTES_MAX, place)
    kept = _whole(values, "MemSpecLimit", 0, MEBIBYTES_MAX, place)
    disk = _whole(values, "TmpDisk", 0, MEBIBYTES_MAX, place)
    return Resources(free * 1000, max(0, memory - kept) * MIB, disk * MIB), max(1, cores)


def _listed(value: PlacedValue) -> int:
    """Return how many numbers a list such as `0,2-3` has."""
    count = 0
    for word in value.text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", word)
        if match is None:
            raise value.place.fault("CPUSpecList", value.text, "numbers such as 0,2-3")
        count += int(match[2] or match[1]) - int(match[1]) + 1
    return max(0, count)


def _read_gres(value: PlacedValue) -> tuple[Gres, ...]:
    found = []
    for word in _WORD.findall(value.text):
        gres = read_gres(word.strip())
        if gres is None:
            raise value.place.fault("Gres", word, "resources such as gpu:a100:8, gpu:4 or shard:16")
        found.append(gres)
    return tuple(found)


def _fate(field: SlurmField) -> Fate:
    if field.key != "State":
        return _FATES.get(field.key, Fate("not mapped", "nodes of Penstock have no such field"))
    word = field.value.upper().split("+")[0]
    if word in _GONE:
        return Fate("not mapped", "FUTURE nodes are left out")
    if word in _DOWN:
        return Fate("not mapped", "a state, not a configuration: `penstock drain NODE` closes a node")
    if word == "CLOUD":
        return Fate("approximated", "taken as always there: Penstock starts no machines")
    return Fate("mapped", "a node is ready when its agent reports")


_FATES = {
    **fates("mapped", {
        "cpus": "CPUs Procs",
        "cpus, where CPUs does not say": "Boards Sockets SocketsPerBoard ThreadsPerCore",
        "cpus, where CPUs does not say; and the NUMA node of devices": "CoresPerSocket",
        "taken off cpus": "CoreSpecCount CPUSpecList",
        "taken off memory": "MemSpecLimit",
        "memory in MiB (2^20), as Slurm's megabytes are": "RealMemory",
        "storage": "TmpDisk",
        "labels feature.NAME: true": "Features Feature",
        "devices where the name is gpu; see gres.conf": "Gres",
        "address": "NodeAddr",
        "address, where NodeAddr does not say": "NodeHostname",
    }),
    **fates("not mapped", {
        "the pool's placement chooses among nodes; weights are not known": "Weight",
        "prices are not part of the cluster file": "TRESWeights",
        "a state, not a configuration": "Reason",
        "Penstock's agents have ports of their own": "Port",
        "nodes of Penstock have no such field": "BcastAddr CpuBind RestrictedCoresPerGPU Parameters Topology AutoResume"
        " GresConf SuspendTime",
    }),
}  # fmt: skip
KEYS = ("NodeName", "State", *_FATES)
"""Keys of a line, as Slurm spells them."""
