"""Jobs that start in a snapshot of the submitter's folder, from end to end: sent, unpacked on the node, run."""

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from penstock.client import ApiProblem
from tests.server.harness import until

LOOK = 'cat code/part.txt; ./go; stat -c "%a" code code/part.txt go; readlink link; pwd; echo "$PENSTOCK_SCRATCH_DIR"'


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a program, a link, and what is ignored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "project"
    (made / "code").mkdir(parents=True)
    (made / "code" / "part.txt").write_text("one\n")
    (made / "go").write_text("#!/bin/sh\necho went\n")
    (made / "go").chmod(0o755)
    (made / "link").symlink_to("code/part.txt")
    (made / "large.bin").write_bytes(os.urandom(3_000_000))
    (made / ".gitignore").write_text("out/\n")
    (made / "out").mkdir()
    (made / "out" / "left.txt").write_text("ignored")
    return made


def test_a_job_runs_in_the_folder_as_it_was_sent(jobs, folder):
    sent = jobs.client.send_folder(folder)
    (folder / "code" / "part.txt").write_text("two\n")
    job = jobs.submit(f"{LOOK}; ls -A | tr '\\n' ' '; cksum < large.bin", workdir={"snapshot": sent.name})
    assert jobs.ended(job).state == "succeeded", jobs.output(job)
    part, went, code, part_mode, go, link, where, scratch, *rest = jobs.output(job).splitlines()
    assert (part, went, code, part_mode, go, link) == ("one", "went", "555", "444", "555", "code/part.txt")
    assert folder.name not in where
    assert scratch.endswith(f"{job}/work")
    assert rest[0].startswith(".gitignore code go large.bin link ")


def test_every_node_of_a_gang_and_every_attempt_starts_in_it(jobs, folder):
    name = jobs.client.send_folder(folder).name
    try_once = 'cat code/part.txt; [ "$PENSTOCK_ATTEMPT" = 2 ]'
    job = jobs.submit(try_once, workdir={"snapshot": name}, replicas=2, devices=4, retries=1)
    ended = jobs.ended(job)
    assert (ended.state, sorted(ended.nodes)) == ("succeeded", ["n1", "n2"])
    assert [jobs.output(job, 2, rank) for rank in (0, 1)] == ["one\n"] * 2


def test_a_snapshot_that_the_server_has_lost_is_said_in_the_end(jobs, server, folder):
    (folder / "code" / "part.txt").write_text("never unpacked before\n")
    name = jobs.client.send_folder(folder).name
    blocker = jobs.submit("sleep 60", replicas=2, devices=4)
    jobs.state(blocker, "running")
    job = jobs.submit("cat code/part.txt", workdir={"snapshot": name}, replicas=2, devices=4, max_wait="1h")
    kept = next(server.data.folder_snapshots.glob("*/snapshots.sqlite"))
    kept.rename(kept.with_suffix(".away"))
    try:
        jobs.client.cancel(blocker)
        until(lambda: any("there is no snapshot" in text for text in _problems(jobs, job)), "the problem is in the log")
    finally:
        kept.with_suffix(".away").rename(kept)
    assert jobs.ended(job).state == "succeeded"


def _problems(jobs, job: int) -> list[str]:
    events = (one.event for one in jobs.client.job_events(job))
    return [event.exit.problem for event in events if type(event).__name__ == "ReplicaExited"]


def test_snapshots_are_listed_and_removed_by_their_owner_while_no_job_needs_them(jobs, server, folder):
    name = jobs.client.send_folder(folder).name
    job = jobs.submit("sleep 60", workdir={"snapshot": name})
    (view,) = jobs.client.snapshots(name[:8])
    assert (view.name, view.files, view.jobs) == (name, 5, 1)
    with pytest.raises(ApiProblem, match="needed by live jobs"):
        jobs.client.remove_snapshot(name)
    jobs.client.cancel(job)
    jobs.ended(job)
    with pytest.raises(ApiProblem, match="a moment ago"):
        jobs.client.remove_snapshot(name)
    for path in server.data.folder_snapshots.glob("*/snapshots.sqlite"):
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE snapshots SET used_ms = used_ms - 60000")
    jobs.client.remove_snapshot(name)
    assert jobs.client.snapshots(name) == []
    with pytest.raises(ApiProblem, match="you have not sent, or long ago"):
        jobs.submit("true", workdir={"snapshot": name})
