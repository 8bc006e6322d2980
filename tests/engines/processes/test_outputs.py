"""Outputs of programs: readable while they grow, and never larger on disk than their bound."""

import os
import subprocess
import sys
import time

import pytest

from penstock.core.messages.reports import ReplicaKey
from penstock.engines.processes import outputs
from penstock.engines.processes.outputs import LocalOutputs, bound_output, last_error, tell
from penstock.engines.processes.paths import DataFolder

MOST = 64 * 4096
KEY = ReplicaKey(1, 1, 0)


@pytest.fixture
def data(tmp_path):
    found = DataFolder(tmp_path)
    found.job(1).mkdir(parents=True)
    return found


@pytest.fixture
def writer(data):
    """Append as a program does: by a descriptor that it has had from the start."""
    descriptor = os.open(data.output(KEY), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield lambda text: os.write(descriptor, text)
    os.close(descriptor)


def on_disk(data) -> int:
    return data.output(KEY).stat().st_blocks * 512


def read(data, offset: int) -> tuple[int, bytes]:
    return LocalOutputs(data).read(1, 1, 0, offset, 1 << 20)


def test_an_output_within_its_bound_is_left_alone(data, writer):
    writer(b"x" * MOST)
    assert not bound_output(data.output(KEY), MOST)
    assert read(data, 0) == (0, b"x" * MOST)


def test_of_a_larger_output_the_newest_part_is_kept_and_its_place(data, writer):
    lines = b"".join(b"%07d\n" % n for n in range(100_000))
    writer(lines)
    assert bound_output(data.output(KEY), MOST)
    where, kept = read(data, 0)
    assert on_disk(data) <= MOST
    assert (len(kept) >= MOST // 2, lines[where:]) == (True, kept)
    writer(b"and on\n")
    assert read(data, len(lines)) == (len(lines), b"and on\n")


def test_whatever_is_written_the_disk_holds_no_more_than_the_bound(data, writer):
    for _ in range(50):
        writer(os.urandom(MOST // 4))
        bound_output(data.output(KEY), MOST)
        assert on_disk(data) <= MOST


def test_without_holes_all_is_given_up_and_readers_go_on_with_what_is_new(data, writer, monkeypatch, caplog):
    class NoHoles:
        fallocate = staticmethod(lambda *_: -1)

    monkeypatch.setattr(outputs.ctypes, "CDLL", lambda *_, **__: NoHoles)
    writer(b"x" * (2 * MOST))
    assert bound_output(data.output(KEY), MOST)
    assert data.output(KEY).stat().st_size == 0
    assert "given up" in caplog.text
    writer(b"new\n")
    assert read(data, 2 * MOST) == (0, b"new\n")
    assert not bound_output(data.output(KEY), MOST)


def test_an_output_that_is_not_there_is_not_bounded(data):
    assert not bound_output(data.output(KEY), MOST)


def test_a_lease_that_a_job_holds_on_its_output_holds_up_nobody(data):
    data.output(KEY).write_bytes(b"RuntimeError: x\n" * 10_000)
    hold = (
        "import fcntl, os, signal, sys, time\n"
        "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "file = os.open(sys.argv[1], os.O_WRONLY)\n"
        "fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, str(data.output(KEY))], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"held\n":
            pytest.skip("this file system has no leases")
        begun = time.monotonic()
        assert LocalOutputs(data).read(1, 1, 0, 0, 100) is None
        assert not bound_output(data.output(KEY), 4096)
        assert last_error(data.output(KEY)) == ""
        assert time.monotonic() - begun < 5, "the kernel lets others wait for 45 s"
    finally:
        holder.kill()
        holder.communicate()
    assert last_error(data.output(KEY)) == "RuntimeError: x"


@pytest.mark.parametrize(("before", "after"), [("", ""), ("half", "half\n"), ("whole\n", "whole\n")])
def test_what_penstock_says_is_a_line_of_its_own(tmp_path, before, after):
    output = tmp_path / "log"
    output.write_text(before)
    assert tell(output, "it uses too much")
    assert output.read_text() == f"{after}penstock: it uses too much\n"


def linked(output, target):
    os.link(target, output)


def pointed(output, target):
    output.symlink_to(target)


def piped(output, _):
    os.mkfifo(output)


def missing(_, __):
    pass


@pytest.mark.parametrize("made", [linked, pointed, piped, missing])
def test_what_penstock_says_goes_nowhere_else(tmp_path, made):
    """The account of a job may make anything of its output: a name of another file, or a pipe that nobody reads."""
    target = tmp_path / "target"
    target.write_text("whole")
    made(tmp_path / "log", target)
    assert not tell(tmp_path / "log", "it uses too much")
    assert target.read_text() == "whole"
    assert made is not missing or not (tmp_path / "log").exists()
