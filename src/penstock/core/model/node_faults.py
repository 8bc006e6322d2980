"""Which ends of programs are the fault of the node that they ran on."""

import re
from typing import NamedTuple

from penstock.core.model.jobs import ExitInfo

_NODE_FAULT = re.compile(
    r"uncorrectable ECC|fallen off the bus|NVML|\bXid\b|CUDA driver|hardware error|Input/output error"
    r"|Stale file handle",
    re.IGNORECASE,
)
_OWN_FAULT = re.compile(
    r"\[Errno (2|7|8|13|17|20|21|36|40)\]|rendezvous port|lost touch with the server|was shut down|^pod: |^Slurm: "
    r"|^its image |^its container |keeps its container"
)
"""Errors of the request, of the job's image or of its folder (no such file, list too long, not allowed, name taken),
not of the node; of a pod or a job of Slurm, whose node the cluster judges; or failures that are counted elsewhere."""


class Fault(NamedTuple):
    """A failure that counts against a node."""

    text: str
    own: bool = True
    """The node's own word; else a claim of a program."""


def fault_of(info: ExitInfo) -> Fault | None:
    """Return the fault of the node that an exit shows, or None."""
    if info.stop_sent or _OWN_FAULT.search(info.problem):
        return None
    if info.problem:
        return Fault(info.problem)
    for text, own in ((info.note, info.observed), (info.last_error, False)):
        if _NODE_FAULT.search(text):
            return Fault(text, own)
    return None
