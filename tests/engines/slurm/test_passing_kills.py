"""Whatever is killed while jobs are passed on: none is lost, none runs twice at once, no program is left, and each ends
as it should.

Another run, and with `-s` what it killed (`-k slurmctld` kills that alone):

    PENSTOCK_KILLS=100 PENSTOCK_KILLS_SEED=12 pytest -s -m slow tests/engines/slurm/test_passing_kills.py -k hundred
"""

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.model.errors import PenstockError
from tests.engines.conformance.jobsuite import left
from tests.engines.slurm import cluster
from tests.engines.slurm.cluster import SEARCHED, SlurmCluster, until
from tests.server.harness import Server, cluster_file

NODES = 4
KILLED = ("server", "slurmctld", "slurmd", "slurmstepd")
PROGRAM = """\
mine=$SHARED/on.$PENSTOCK_JOB_ID.$RANK
[ -e $mine ] && kill -0 "$(cat $mine)" 2>/dev/null && echo $PENSTOCK_JOB_ID >> $SHARED/twice
echo $$ > $mine
sleep $SECONDS_OF_WORK
rm -f $mine
exit $CODE
"""
END_S = 400.0
POINTS = int(os.environ.get("PENSTOCK_KILLS", "100"))
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", "11"))


class Killing:
    """A server that passes jobs on to a cluster, and what of both may be killed."""

    def __init__(self, slurm: SlurmCluster, folder: Path, seed: int) -> None:
        self.slurm, self.draw = slurm, random.Random(seed)
        self.shared = folder / "shared"
        self.shared.mkdir()
        options = {"slurm": True, "passing": True, "shared": str(self.shared), "refresh_s": 5.0}
        self.server = Server(folder / "data", cluster_file(NODES, devices=0), **options)
        self.jobs: dict[int, int] = {}
        """The code that each is to end with."""
        self.killed: Counter[str] = Counter()

    def submit(self) -> None:
        code, seconds = self.draw.choice((0, 0, 3, 42)), self.draw.choice((0.1, 0.5, 2, 4))
        shape = self.draw.choice(({}, {}, {"replicas": 3}, {"array": 3}, {"replicas": 2, "cpus": 2}))
        env = {"SHARED": str(self.shared), "CODE": str(code), "SECONDS_OF_WORK": str(seconds)}
        job = {"command": ["sh", "-c", PROGRAM], "env": env, "memory": "10MiB", "grace": "2s", **shape}
        with contextlib.suppress(PenstockError, OSError):  # while it is away: such a submit was not accepted
            for ref in self.server.client.submit(job).jobs:
                self.jobs[ref.id] = code

    def kill(self, what: str) -> None:
        self.killed[what] += getattr(self, f"_kill_{what}")()

    def _kill_server(self) -> bool:
        process = self.server.process
        assert process is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.server.hang_up()
        self.server.start()
        return True

    def _kill_slurmctld(self) -> bool:
        self.slurm.kill_part("slurmctld")
        time.sleep(self.draw.choice((0, 1)))
        self.slurm.start_part("slurmctld")
        return True

    def _kill_slurmd(self) -> bool:
        name = self.draw.choice(self.slurm.nodes)
        self.slurm.kill_part(name)
        time.sleep(self.draw.choice((0, 1)))
        self.slurm.start_part(name)
        return True

    def _kill_slurmstepd(self) -> bool:
        for _ in range(20):  # a step may not have begun yet
            time.sleep(self.draw.uniform(0, 0.5))
            if found := steps(self.slurm):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.draw.choice(found), signal.SIGKILL)
                    return True
        return False

    def told(self) -> str:
        """Return what is said of jobs that do not end."""
        client = self.server.client
        said = [f"{view.id} {view.state} {client.explain(view.id).text}" for view in client.jobs().jobs]
        spool = sorted(str(path.relative_to(self.shared)) for path in (self.shared / "slurm").rglob("*"))
        states = self.slurm.run("squeue", "-t", "all", "-o", "%i %T %r %N %k")
        return "\n".join([*said, *spool, states, self.server.log(), self.slurm.run("sinfo", "-N", "-l")])

    def check(self) -> None:
        """Wait for the end of all, and require that each ended as it should."""
        client = self.server.client
        self.slurm.resume()
        try:
            until("the end of all jobs", lambda: not client.jobs().jobs, wait_s=END_S, every_s=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None
        ends = {job: client.job(job) for job in self.jobs}
        wrong = {job: (view.state, view.exit_code, view.reason) for job, view in ends.items()
                 if (view.exit_code if view.state != "succeeded" else 0) != self.jobs[job]}  # fmt: skip
        assert wrong == {}, self.server.log()
        assert not (self.shared / "twice").exists(), (self.shared / "twice").read_text()
        until("no program left", lambda: not left(self.shared), wait_s=30)


def steps(slurm: SlurmCluster) -> list[int]:
    """Return the slurmstepd of jobs of a cluster."""
    mark, found = f"SLURM_CONF={slurm.folder}/slurm.conf".encode(), []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = (path / "comm").read_text().strip() == "slurmstepd"
            if named and mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def run(folder: Path, patched: pytest.MonkeyPatch, *, seed: int, points: int, each: Callable[[int], str]) -> None:
    with cluster.own(accounting=False, min_job_age_s=5) as slurm:
        for name, value in (*slurm.variables.items(), ("PATH", SEARCHED)):
            patched.setenv(name, value)
        killing = Killing(slurm, folder, seed)
        with killing.server:
            for point in range(points):
                for _ in range(killing.draw.choice((1, 2, 3))):
                    killing.submit()
                time.sleep(killing.draw.uniform(0, 1.0))
                killing.kill(each(point))
            killing.check()
            assert len(killing.jobs) >= points // 2
            print(
                json.dumps({"seed": seed, "killed": killing.killed, "jobs_well_ended": len(killing.jobs)}), flush=True
            )


@pytest.mark.slow  # in CI test_passing.py kills the server
def test_killed_parts_lose_no_job(tmp_path, monkeypatch):
    run(tmp_path, monkeypatch, seed=5, points=4, each=lambda point: KILLED[point % 4])


@pytest.mark.slow
@pytest.mark.parametrize("what", KILLED)
def test_a_hundred_kills_lose_no_job(tmp_path, monkeypatch, what):
    run(tmp_path, monkeypatch, seed=SEED, points=POINTS, each=lambda _: what)
