"""The same five job files on every engine that runs processes: results equal bit for bit, no step lost to a stop.

    @pytest.fixture(scope="module")
    def cluster(tmp_path_factory):
        with started() as server:
            yield RunningCluster(server.client, tmp_path_factory.mktemp("shared"), nodes=4, cpus=4)

    class TestJobsOnMyEngine(JobConformance):
        pass

The files stand in `jobs/`; they are submitted as they are, but for the environment that names Python and two folders.
What they must come to is worked out once, by the same programs outside Penstock.
"""

import fcntl
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.api.types import JobView
from penstock.client import Client
from penstock.yamltext import read_yaml
from tests.training.needs import need_later

need_later("torch", "two of the job files train with PyTorch")
need_later("sklearn", "the examples train on scikit-learn's digits")

T = TypeVar("T")
Undisturbed = Callable[..., str]
ROOT = Path(__file__).resolve().parents[3]
FILES = Path(__file__).parent / "jobs"
EXAMPLES = ROOT / "examples"
FINAL = ("succeeded", "failed", "cancelled")
PATIENCE_S = 180.0
POLL_S = 0.1
UNDER_WAY = 30
"""Steps of the training that is preempted, when the urgent job comes."""


@dataclass(frozen=True)
class RunningCluster:
    """A server of the engine, ready, with nothing else to do."""

    client: Client
    shared: Path
    """A folder that all nodes and this test reach by the same name."""
    nodes: int
    cpus: int
    """Of each node; `nodes` times `cpus` is at least 4."""


class JobConformance:
    """Collected by pytest in the class of an engine; its `cluster` is a fixture."""

    @pytest.fixture
    def undisturbed(self, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
        """Return a function that gives the digest of a training outside Penstock; all engines' tests share them."""
        own = tmp_path_factory.getbasetemp()
        folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

        def found(example: str, *options: str, ranks: int) -> str:
            return once(folder, f"undisturbed-{example}-{ranks}", lambda: trained(example, *options, ranks=ranks))

        return found

    def test_ranks_of_a_gang_train_together_bit_for_bit(
        self, cluster: RunningCluster, undisturbed: Undisturbed
    ) -> None:
        (job,) = submitted(cluster, "ddp.yaml")
        assert ended(cluster, job).state == "succeeded", told(cluster, job)
        assert digest(cluster, job) == undisturbed("digits_ddp.py", "--steps", "20", "--hidden", "16", ranks=4)

    def test_an_elastic_job_trains_at_the_size_there_is_room_for(
        self, cluster: RunningCluster, undisturbed: Undisturbed
    ) -> None:
        (job,) = submitted(cluster, "elastic.yaml")
        assert ended(cluster, job).state == "succeeded", told(cluster, job)
        ranks = re.search(r"starting at step 0 of 30 with ([234]) ranks", output(cluster, job))
        assert ranks, told(cluster, job)
        assert digest(cluster, job) == undisturbed("elastic_ddp.py", "--steps", "30", ranks=int(ranks[1]))

    def test_members_of_an_array_end_each_in_its_own_way(self, cluster: RunningCluster) -> None:
        members = submitted(cluster, "array.yaml")
        views = [ended(cluster, member) for member in members]
        failed = [(view.array_index, exit_code(view)) for view in views if view.state != "succeeded"]
        assert failed == [(3, 7)]
        printed = [output(cluster, member).strip() for member in members]
        assert printed == [f"square {i * i}" if i != 3 else "" for i in range(10)]

    def test_a_chain_hands_on_its_files_and_ends_with_the_first_failure(self, cluster: RunningCluster) -> None:
        prepare, fit, evaluate, publish = submitted(cluster, "chain.yaml")
        states = [ended(cluster, job).state for job in (prepare, fit, evaluate, publish)]
        assert states == ["succeeded", "succeeded", "failed", "cancelled"], told(cluster, evaluate)
        assert exit_code(cluster.client.job(evaluate)) == 5
        assert output(cluster, evaluate).strip() == "the sum is 5050"
        started = [cluster.client.job(job).started_ms for job in (prepare, fit, evaluate)]
        assert started == sorted(started)

    def test_a_preempted_training_loses_no_step_and_no_bit(
        self, cluster: RunningCluster, undisturbed: Undisturbed
    ) -> None:
        (job,) = submitted(cluster, "preempted.yaml")
        until(lambda: cluster.client.job(job).step >= UNDER_WAY, "the training is under way", cluster, job)
        urgent = cluster.client.submit(
            {
                "name": "urgent",
                "command": "sleep 1",
                "priority": "high",
                "replicas": cluster.nodes,
                "cpus": cluster.cpus,
                "topology": "spread" if cluster.nodes > 1 else None,
            }
        )
        assert ended(cluster, urgent.jobs[0].id).state == "succeeded", told(cluster, urgent.jobs[0].id)
        assert ended(cluster, job).state == "succeeded", told(cluster, job)
        first, *others = cluster.client.attempts(job).attempts
        assert first.outcome == "preempted"
        assert others, "it went on in another attempt"
        assert [(a.resumed_step, a.lost_steps) for a in others] == [(first.saved_step, 0)]
        assert first.saved_step is not None
        assert first.saved_step >= UNDER_WAY
        assert digest(cluster, job) == undisturbed("digits_numpy.py", "--steps", "400", "--hidden", "16", ranks=1)

    def test_nothing_is_left(self, cluster: RunningCluster) -> None:
        """After the others: no job lives and no program of theirs."""
        assert not cluster.client.jobs().jobs
        until(lambda: not left(cluster.shared), "all programs have ended")


def submitted(cluster: RunningCluster, name: str) -> list[int]:
    """Submit a job file and return the numbers of its jobs, those of an array in the order of its members."""
    raw: Any = read_yaml(str(FILES / name), "the job file")
    given = {"PYTHON": sys.executable, "EXAMPLES": str(EXAMPLES), "SHARED": str(cluster.shared), **paths()}
    jobs = raw.get("jobs", [raw])
    jobs = [{**raw.get("defaults", {}), **job, "env": given, "workdir": str(cluster.shared)} for job in jobs]
    return [ref.id for ref in cluster.client.submit({"jobs": jobs}).jobs]


def paths() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}


def ended(cluster: RunningCluster, job: int) -> JobView:
    """Return the job when it has ended."""

    def found() -> JobView | None:
        view = cluster.client.job(job)
        return view if view.state in FINAL else None

    return until(found, f"job {job} has ended", cluster, job)


def until(found: Callable[[], T | None], what: str, cluster: RunningCluster | None = None, job: int = 0) -> T:
    """Return the first true value of `found`."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := found()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S} s until {what}\n{told(cluster, job) if cluster else ''}")
        time.sleep(POLL_S)
    return value


def told(cluster: RunningCluster, job: int) -> str:
    """Return what the server and the program say of the job, for messages."""
    view = cluster.client.job(job)
    return f"{view.state}: {view.reason}\n{cluster.client.explain(job).text}\n{output(cluster, job)}"


def output(cluster: RunningCluster, job: int) -> str:
    """Return what rank 0 of the last attempt has printed; nothing where it printed nothing."""
    attempts = [ref.attempt for ref in cluster.client.outputs(job)]
    return cluster.client.logs(job, max(attempts), 0)[1].decode() if attempts else ""


def exit_code(view: JobView) -> int | None:
    """Return the exit code of an ended job."""
    return view.exit_code


def digest(cluster: RunningCluster, job: int) -> str:
    return digest_in(output(cluster, job))


def digest_in(text: str) -> str:
    found = re.search(r"final digest: ([0-9a-f]{64})", text)
    assert found, text
    return found[1]


def left(folder: Path) -> list[int]:
    """Return the processes that carry the folder in their environment."""
    mark = f"SHARED={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                held = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in held:
                found.append(int(entry.name))
    return found


# The same programs outside Penstock.


def trained(example: str, *options: str, ranks: int) -> str:
    """Return the digest of a training by so many ranks on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        program = [str(Path(__file__).with_name("ranks.py")), str(ranks), str(port)] if ranks > 1 else []
        done = subprocess.run(
            [sys.executable, *program, str(EXAMPLES / example), *options, "--dir", folder],
            env=paths() | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=folder,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return digest_in(done.stdout)


def once(folder: Path, name: str, make: Callable[[], str]) -> str:
    """Return what one of the workers that share the folder has made."""
    kept = folder / name
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(make(), encoding="ascii")
        return kept.read_text(encoding="ascii")
