"""Whatever dies, no job is lost, none runs twice at once, and no process is left.

The kinds take turns: 700 kills are a hundred of each. Another run, and with `-s` what it killed:

    PENSTOCK_KILLS=700 PENSTOCK_KILLS_SEED=54 pytest -s -m slow tests/engines/slurm/pilot/test_kills.py
"""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.engines.slurm import cluster as clusters
from tests.engines.slurm.pilot.flying import find, flying
from tests.engines.slurm.pilot.killing import KINDS, all_end_well, exclusive, hit

KILLS = int(os.environ.get("PENSTOCK_KILLS", "0"))
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", "53"))


@pytest.mark.slow
@pytest.mark.skipif(not KILLS, reason="PENSTOCK_KILLS=110 makes so many, PENSTOCK_KILLS_SEED=54 others")
def test_kills_of_any_part_lose_no_job(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    killed: Counter[str] = Counter()
    with clusters.own(accounting=False) as slurm, find(slurm), flying(slurm, tmp_path, idle_s=60, join_s=30) as server:
        wrong: list[str] = []
        for batch in range(0, KILLS, 10):
            jobs = exclusive(server, 8, 6.0)
            server.wait_state(jobs[0], "running", "succeeded")
            for number in range(10):
                kind = KINDS[(batch + number) % len(KINDS)]
                killed[kind] += hit(server, kind, draw)
                slurm.code("sleep", str(draw.random() * 2))
            wrong += all_end_well(server, jobs)
            assert wrong == [], f"after {batch + 10} kills"
            print(json.dumps({"seed": SEED, "killed": killed, "jobs_well_ended": 8 * (batch // 10 + 1)}), flush=True)
