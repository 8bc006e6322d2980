"""How much memory is left, told by machine and control groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.training import CheckpointDirectory
from penstock.training.ranks.layouts import Whole
from penstock.training.reports import Reporter
from penstock.training.saver import Saver
from penstock.training.storage import hostmemory

MEMINFO = "MemTotal: 999999 kB\nMemAvailable:   1000 kB\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V1 = {
    "proc/self/cgroup": "9:cpu:/j\n8:memory:/job/1\n",
    "sys/fs/cgroup/memory/job/1/memory.limit_in_bytes": "900000\n",
    "sys/fs/cgroup/memory/job/1/memory.usage_in_bytes": "250000\n",
}
V2 = {
    "proc/self/cgroup": "0::/job/1\n",
    "sys/fs/cgroup/job/1/memory.max": "700000\n",
    "sys/fs/cgroup/job/1/memory.current": "800000\n",
}
STAT = {"sys/fs/cgroup/memory/job/1/memory.stat": "cache 7\ninactive_file 3\ntotal_inactive_file 50000\n"}
FREE = {**V1, "sys/fs/cgroup/memory/job/1/memory.limit_in_bytes": str(2**63 - 4096)}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/meminfo": MEMINFO}, 1_024_000),
        ({"proc/meminfo": MEMINFO, **V1}, 650_000),
        ({"proc/meminfo": MEMINFO, **V1, **STAT}, 700_000),
        ({"proc/meminfo": MEMINFO, **V2}, 0),
        ({"proc/meminfo": MEMINFO, **V2, "sys/fs/cgroup/job/1/memory.max": "max\n"}, 1_024_000),
        ({"proc/meminfo": MEMINFO, **FREE}, 1_024_000),
    ],
    ids=[
        "nothing",
        "machine",
        "version 1",
        "version 1 with cache",
        "version 2",
        "version 2 without limit",
        "version 1 without limit",
    ],
)
def test_the_least_of_all_limits_counts(files: dict[str, str], expected: int | None, tmp_path: Path) -> None:
    assert hostmemory.spare_bytes(machine(tmp_path, files)) == expected


def test_a_copy_that_would_have_the_job_killed_is_not_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostmemory, "spare_bytes", lambda: 100_000)
    saver = Saver(CheckpointDirectory(folder), Whole(), Reporter(None), behind=True)
    saver.save_behind(1, lambda: {"a": np.zeros(20_000)}, "interval")
    assert not saver.busy
    assert saver.directory.steps() == [1]
