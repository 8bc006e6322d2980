"""What a row of `sacct` asked for, as a gang.

Source of the formats: https://slurm.schedmd.com/sacct.html (ReqMem, AllocTRES) and tres.html.
"""

from penstock.core.model.jobs import GangAsk
from penstock.core.model.resources import Resources
from penstock.formats.slurm import size_bytes
from penstock.formats.slurm_tres import CPUS_MAX, NODES_MAX, count_of, gpus_of, spread, tres
from penstock.traces.loaders.shapes import WIDTH_MAX
from penstock.traces.loaders.table import TextTable

SHAPE_COLUMNS = (
    "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "NNodes", "AllocNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "ReqMem"
)  # fmt: skip
Key = tuple[str, ...]
"""Cells of `SHAPE_COLUMNS`, in that order; empty where a column is missing."""


def gres(text: str, nodes: int) -> tuple[int, str]:
    """Return GPUs of a whole job on `nodes` nodes, and their model, from AllocGRES or ReqGRES.

    `gpu:a100:8` is of the job, as is `PER_JOB:gpu:8`; `PER_NODE:gpu:2` is of each node. How many tasks and sockets
    there are is not known: `PER_TASK` and `PER_SOCKET` count once a node. Of several, divided by blanks, the largest
    counts: they mean the same devices. Raises: ValueError.
    Source: `_fill_in_gres_fields` and `_build_tres_str` in Slurm's node_scheduler.c.
    """
    most, model = 0, ""
    for words in text.split():
        prefix = words.partition(":")[0]
        total = 0
        for item in words.removeprefix(f"{prefix}:" if prefix.startswith("PER_") else "").split(","):
            count, named = gpus_of(item)
            total += count
            model = model or named
        most = max(most, total * nodes if prefix.startswith("PER_") and prefix != "PER_JOB" else total)
    return most, model


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
    nodes = known.nodes or _first(NODES_MAX, nodes_of, more_nodes) or 1
    cpus = known.cpus or _first(CPUS_MAX, cpus_of, ncpus, cpus_asked)
    gpus, model = known.gpus, known.model
    if not gpus and (allocated_gres or requested_gres):
        gpus, model = gres(allocated_gres or requested_gres, nodes)
    memory_bytes = known.memory_bytes or _memory(memory, nodes, cpus)
    if -(-gpus // nodes) > WIDTH_MAX:
        raise ValueError(gpus)
    host = Resources(-(-1000 * cpus // nodes), -(-memory_bytes // nodes))
    return spread(gpus, nodes, host, (model,) if model else ())


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
    return next((count_of(cell, most) for cell in cells if cell), 0)
