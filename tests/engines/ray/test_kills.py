"""Kills at random points: of actors, raylets, the head, agents and the server, while jobs come and run.

No accepted job is lost, none runs twice at once, and no process is left. The figures of another run:

    python -m tests.engines.ray.test_kills ROUNDS [actor,agent,server,raylet,head] [SEED]
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.model.errors import PenstockError
from penstock.engines.processes import procfs
from tests.engines.ray.cluster import RayCluster
from tests.engines.ray.serving import RayServing
from tests.server.harness import FINAL, until

WAIT_S = 300.0
JOB = """
exec 9> "$SHARED/lock-$PENSTOCK_JOB_ID"
flock -n 9 || echo "$PENSTOCK_JOB_ID" >> "$SHARED/doubles"
sleep 0.$((PENSTOCK_JOB_ID % 10))
echo "$PENSTOCK_JOB_ID" >> "$SHARED/done"
"""


class Sweep:
    """Kills one thing after the other, each while jobs are under way."""

    def __init__(self, serving: RayServing, shared: Path, seed: int) -> None:
        self.serving, self.shared, self.random = serving, shared, random.Random(seed)
        self.accepted: list[int] = []
        self.kills: Counter[str] = Counter()

    def submit(self, count: int) -> None:
        """Submit jobs; what was not answered was not accepted, or is known by its key."""
        env = {"PATH": os.environ["PATH"], "SHARED": str(self.shared)}
        job = {"command": JOB, "env": env, "workdir": "/", "cpus": 1, "retries": 3}
        self.accepted += [one.id for one in self.serving.client.submit({"jobs": [job] * count}).jobs]

    def kill(self, what: str) -> None:
        self.kills[what] += self._killed(what)

    def _killed(self, what: str) -> bool:
        """Kill something, and return whether there was one to kill."""
        cluster, pick, killed = self.serving.cluster, self.random.choice, True
        if what == "actor":
            pids = cluster.holders()
            os.kill(pick(pids), signal.SIGKILL) if pids else None
            killed = bool(pids)
        elif what == "raylet":
            part = pick(cluster.nodes)
            killed = cluster.kill(part)
            time.sleep(self.random.random())
            cluster.start_node(part)
        elif what == "head":
            cluster.restart(self.random.random() * 3)
        elif what == "agent":
            guardian = pick(sorted(self.serving.agents().values()))
            workers = [pid for pid in procfs.all_pids() if procfs.parent_of(pid) == guardian]
            with_worker = [pid for pid in workers if procfs.session_of(pid) == procfs.session_of(guardian)]
            os.kill(pick([guardian, *with_worker]), signal.SIGKILL)
        else:
            self.serving.kill()
            self.serving.start()
        return killed

    def run(self, rounds: int, victims: tuple[str, ...]) -> None:
        for number in range(rounds):
            self.submit(self.random.randrange(1, 9))
            time.sleep(self.random.random())
            self.kill(victims[number % len(victims)])
        until(self.settled, "all jobs have ended", WAIT_S)

    def settled(self) -> bool:
        try:
            return not self.serving.client.jobs().jobs
        except PenstockError:
            return False

    def figures(self) -> dict[str, object]:
        client = self.serving.client
        states = Counter(client.job(job).state for job in self.accepted)
        doubles = self.shared / "doubles"
        done = set(map(int, (self.shared / "done").read_text().split())) if (self.shared / "done").exists() else set()
        return {
            "kills": dict(self.kills),
            "accepted": len(self.accepted),
            "states": dict(states),
            "lost": len([job for job in self.accepted if client.job(job).state not in FINAL]),
            "not_run": len(set(self.accepted) - done),
            "twice_at_once": len(doubles.read_text().split()) if doubles.exists() else 0,
        }


VICTIMS = ("actor", "agent", "server", "raylet")


def swept(
    rounds: int, victims: tuple[str, ...], seed: int, ready: Callable[[RayServing], None] = lambda _: None
) -> dict:
    """Return the figures of a sweep on a cluster of its own, with the processes left after its end."""
    cluster = RayCluster()
    try:
        cluster.start()
        with tempfile.TemporaryDirectory() as folder:
            shared = Path(folder) / "shared"
            shared.mkdir()
            with RayServing(Path(folder) / "data", cluster, shared=shared) as serving:
                sweep = Sweep(serving, shared, seed)
                sweep.run(rounds, victims)
                figures, base = sweep.figures(), serving.base
            left = [pid for pid in procfs.all_pids() if any(str(base).encode() in one for one in _words(pid))]
            return {**figures, "processes_left": len(left), "agents_left": len(serving.agents())}
    finally:
        cluster.remove()


def _words(pid: int) -> tuple[bytes, ...]:
    try:
        return (*procfs.environment_of(pid), Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return ()


@pytest.mark.slow  # test_engine.py kills each of them once in CI
@pytest.mark.parametrize(("rounds", "victims"), [(400, VICTIMS), (100, ("head",))])
def test_no_kill_loses_a_job_or_runs_one_twice_or_leaves_a_process(rounds, victims):
    found = swept(rounds, victims, seed=1)
    assert found["states"] == {"succeeded": found["accepted"]}
    zero = ("lost", "not_run", "twice_at_once", "processes_left", "agents_left")
    assert {name: found[name] for name in zero} == dict.fromkeys(zero, 0)


if __name__ == "__main__":
    rounds, victims = int(sys.argv[1]), tuple(sys.argv[2].split(",")) if len(sys.argv) > 2 else VICTIMS
    print(json.dumps(swept(rounds, victims, seed=int(sys.argv[3]) if len(sys.argv) > 3 else 1)))
