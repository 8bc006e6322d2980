"""The strongest containment of this machine: its groups are made when a test module imports this."""

from pathlib import Path

import pytest

from penstock.engines.processes.boxes import Box
from penstock.engines.processes.containment import choose
from tests.engines.processes.processes import PARENT, SESSIONS

STRONG = choose(PARENT)
needs_groups = pytest.mark.skipif(STRONG.kind.startswith("sessions"), reason="no writable control groups here")
KINDS = [pytest.param(STRONG, marks=[needs_groups, pytest.mark.root], id="groups"), SESSIONS]


def setting(box: Box, version_1: str, version_2: str) -> str:
    """Return what a control file of a box holds: `CONTROLLER/FILE` of version 1, or the file of version 2."""
    if STRONG.kind.startswith("cgroup v2"):
        return (Path(box.gates[0]).parent / version_2).read_text().strip()
    tree, file = version_1.split("/")
    mounts = [gate for gate in box.gates if tree in gate.split("/")[4].split(",")]
    return (Path(mounts[0]).parent / file).read_text().strip()
