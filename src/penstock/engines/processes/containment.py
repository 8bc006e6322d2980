"""Boxes: containers of all processes of one replica, so that none of them can be left behind.

Control groups where they can be written (version 2, or those trees of version 1 that there are); else sessions and an
environment mark, which a process that clears both can escape: the agent says which it uses.
"""

import os

from penstock.engines.processes.boxes import Containment
from penstock.engines.processes.cgroup_v1 import CgroupV1 as CgroupV1
from penstock.engines.processes.cgroup_v1 import find as _version_1
from penstock.engines.processes.cgroup_v2 import CgroupV2 as CgroupV2
from penstock.engines.processes.cgroup_v2 import find as _version_2
from penstock.engines.processes.memory import groups_of_slurm
from penstock.engines.processes.sessions import SessionContainment

KIND_VARIABLE = "PENSTOCK_BOXES"
"""`sessions`: no control groups, even where they can be written: those of others hold agent and jobs."""


def choose(parent: str) -> Containment:
    """Return the strongest containment that this process can use; boxes go below `parent` (a path component)."""
    if os.environ.get(KIND_VARIABLE) == "sessions":
        return SessionContainment(parent, groups_of_slurm())
    return _version_2(parent) or _version_1(parent) or SessionContainment(parent)
