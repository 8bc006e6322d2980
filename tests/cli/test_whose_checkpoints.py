"""Whatever happens to a log: a job finds the checkpoints that it left, and never those of another job of its number."""

import json
import shutil
import sqlite3

import pytest

from penstock.core.model.events import LeaderElected, Record
from penstock.store.encoding import EventRow, Specs, encode
from tests.server.harness import cluster_file, until

SAVES = 'echo "found: $(ls "$PENSTOCK_CHECKPOINT_DIR")."; touch "$PENSTOCK_CHECKPOINT_DIR/$0"; exec sleep 60'


@pytest.fixture
def cluster(alone):
    alone.file(json.dumps(cluster_file(1)), "cluster.yaml")
    return alone


def up(cluster, *words: str) -> None:
    told = cluster("up", "--cluster", "cluster.yaml", *words)
    assert told.code == 0, told.err


def saving(cluster, name: str) -> int:
    return cluster.job("sh", "-c", SAVES, name)


def found(cluster, job: int, attempt: int = 1) -> str:
    """Return what an attempt of the job found where it saves."""
    path = cluster.data / "jobs" / str(job) / f"attempt-{attempt}.rank-0.log"
    until(lambda: path.exists() and path.read_text().endswith(".\n"), "it has looked")
    return path.read_text().strip()


def test_a_job_of_another_log_starts_from_nothing_and_a_return_finds_the_first_ones(cluster):
    up(cluster)
    assert found(cluster, saving(cluster, "first")) == "found: ."
    cluster("down")
    (cluster.data / "log").rename(cluster.folder / "first-log")
    up(cluster)
    assert saving(cluster, "second") == 1
    assert found(cluster, 1) == "found: ."
    cluster("down")
    (cluster.data / "log").rename(cluster.folder / "second-log")
    (cluster.folder / "first-log").rename(cluster.data / "log")
    up(cluster)
    assert found(cluster, 1, attempt=2) == "found: first."
    assert cluster("down").code == 0


def as_of_a_former_version(cluster) -> None:
    """Take out of log and folders what the version before identities did not write."""
    with sqlite3.connect(cluster.data / "log" / "log.sqlite") as connection:
        rows = connection.execute("SELECT seq, time_ms, job, body FROM events").fetchall()
        for seq, time_ms, job, body in rows:
            record: Record = Specs(lambda _: None).record(EventRow(seq, time_ms, job, body))
            if isinstance(record.event, LeaderElected):
                old = LeaderElected(record.event.epoch, record.event.server, record.event.version)
                connection.execute("UPDATE events SET body = ? WHERE seq = ?", (encode(old), seq))
    connection.close()
    shutil.rmtree(cluster.data / "log" / "snapshots", ignore_errors=True)
    for mark in (cluster.data / "jobs").glob("*/job"):
        mark.unlink()


def test_after_an_upgrade_old_jobs_find_their_checkpoints_and_new_ones_none_of_a_lost_log(cluster):
    up(cluster)
    assert found(cluster, saving(cluster, "old")) == "found: ."
    cluster("down")
    as_of_a_former_version(cluster)
    shutil.copytree(cluster.data / "jobs" / "1", cluster.data / "jobs" / "2")
    up(cluster)
    assert found(cluster, 1, attempt=2) == "found: old."
    assert saving(cluster, "new") == 2
    assert found(cluster, 2) == "found: ."
    assert cluster("down").code == 0


def test_after_a_restore_a_job_finds_its_checkpoints_and_one_submitted_since_finds_none(cluster):
    up(cluster)
    assert found(cluster, saving(cluster, "kept")) == "found: ."
    assert cluster("store", "backup", "cluster.zip").code == 0
    assert found(cluster, saving(cluster, "lost")) == "found: ."
    cluster("down")
    up(cluster)
    assert found(cluster, 1, attempt=2) == "found: kept."
    assert found(cluster, 2, attempt=2) == "found: lost."
    cluster("down")
    shutil.rmtree(cluster.data / "log")
    assert cluster("store", "restore", "cluster.zip").code == 0
    up(cluster)
    until((cluster.data / "jobs" / "1" / "restored.attempt-2.rank-0.log").exists, "attempt 2 comes again")
    assert found(cluster, 1, attempt=2) == "found: kept."
    assert saving(cluster, "new") == 2
    assert found(cluster, 2) == "found: ."
    assert cluster("down").code == 0
