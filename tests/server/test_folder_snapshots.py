"""Jobs that start in a snapshot of the submitter's folder, from end to end: sent, unpacked on the node, run."""

import os
from pathlib import Path

import pytest

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
