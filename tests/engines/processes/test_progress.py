"""Report files: programs write what they like into them, the agent takes what is a report."""

import fcntl
import itertools
import json
import os
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.messages.reports import ProgressSeen
from penstock.core.model.batching import BatchSeen
from penstock.engines.processes import progress
from penstock.engines.processes.progress import ReportFile
from tests.engines.agent.builders import KEY


@pytest.fixture
def path(tmp_path):
    return tmp_path / "report"


def line(kind: str, **fields) -> bytes:
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


def add(path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def checkpoint(step: int, size: int = 0, why: str = "") -> ProgressSeen:
    return ProgressSeen(KEY, "checkpoint", step, size, why)


def test_no_file_is_no_report(path):
    assert ReportFile(KEY, path).read() == []


def test_checkpoints_and_resumptions_are_passed_on_in_order(path):
    add(path, line("resumed", step=3) + line("checkpoint", step=5, bytes=7, why="asked") + line("checkpoint", step=6))
    assert ReportFile(KEY, path).read() == [ProgressSeen(KEY, "resumed", 3), checkpoint(5, 7, "asked"), checkpoint(6)]


def test_what_a_program_says_of_its_checkpoints_is_kept_short(path):
    add(path, b"".join(line("checkpoint", step=n, why="x" * 60_000) for n in range(100)))
    assert {len(seen.why) for seen in ReportFile(KEY, path).read()} == {progress.WHY_MAX_CHARS}


def test_a_report_is_passed_on_once(path):
    file = ReportFile(KEY, path)
    add(path, line("checkpoint", step=5))
    assert (len(file.read()), file.read()) == (1, [])


def test_of_plain_steps_the_newest_is_passed_on(path):
    file = ReportFile(KEY, path)
    add(path, line("metrics", step=4) + line("metrics", step=9) + line("metrics", step=8))
    assert file.read() == [ProgressSeen(KEY, "progress", 9)]
    add(path, line("metrics", step=9))
    assert file.read() == []


def test_half_a_line_waits_for_its_end(path):
    file, whole = ReportFile(KEY, path), line("checkpoint", step=5)
    add(path, whole[:9])
    assert file.read() == []
    add(path, whole[9:])
    assert file.read() == [checkpoint(5)]


def test_done_is_noted(path):
    file = ReportFile(KEY, path)
    add(path, line("done"))
    assert (file.read(), file.done) == ([], True)


@pytest.mark.parametrize("garbage", [b"", b"no json", b"[]", b'{"kind": 5}', b'{"step": 1}', b'{"kind":"a"', b"\0\r"])
def test_a_line_that_is_no_report_is_counted_and_passed_over(path, garbage):
    file = ReportFile(KEY, path)
    add(path, garbage + b"\n" + line("checkpoint", step=5))
    assert file.read() == [checkpoint(5)]
    assert file.bad_lines >= 1


@pytest.mark.parametrize(
    "poison",
    [b'{"kind":"\xff"}', b'{"kind":"a","x":' + b"[" * 50_000, b'{"kind":"checkpoint","step":%d}' % 10**30],
    ids=["no utf-8", "deep", "huge step"],
)
def test_no_line_of_a_program_can_harm_the_agent(path, poison):
    from penstock.engines.agent.protocol import frame
    from tests.engines.agent.builders import Agent

    file, agent = ReportFile(KEY, path), Agent()
    add(path, poison + b"\n" + line("checkpoint", step=5))
    for seen in file.read():
        agent.agent_state.on_progress(seen)
    sent = agent.report(1)
    assert frame(sent)
    assert sent.report.progress == (checkpoint(5),)


def test_a_negative_step_is_no_checkpoint(path):
    add(path, line("checkpoint", step=-1))
    assert ReportFile(KEY, path).read() == []


def test_a_line_that_never_ends_is_given_up(path):
    file = ReportFile(KEY, path)
    add(path, b"x" * (progress.LINE_MAX_BYTES + 1))
    assert file.read() == []
    add(path, b"\n" + line("checkpoint", step=5))
    assert file.read() == [checkpoint(5)]


def test_much_more_than_one_read_is_taken_to_the_end(path, monkeypatch):
    monkeypatch.setattr(progress, "READ_MAX_BYTES", 500)
    add(path, b"".join(line("checkpoint", step=n) for n in range(200)))
    assert [s.step for s in ReportFile(KEY, path).read()] == list(range(200))


@given(cuts=st.lists(st.integers(0, 400), max_size=6))
def test_however_it_is_written_everything_is_read_once(cuts, tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "report"
    data = b"".join(line("checkpoint", step=n) for n in range(9))
    file, found = ReportFile(KEY, path), []
    ends = sorted({min(c, len(data)) for c in cuts} | {0, len(data)})
    for begin, end in itertools.pairwise(ends):
        add(path, data[begin:end])
        found += file.read()
    assert [s.step for s in found] == list(range(9))


def gauges_after(file, path, *losses):
    """Return the gauges once these losses were reported, one a step."""
    for loss in losses:
        strange = {"loss": None, "not_finite": ["loss"]} if loss == "nan" else {"loss": loss}
        add(path, line("progress", step=file.step + 1, total=100, **strange))
    return file.read()[-1].gauges


def test_a_loss_that_stays_no_number_is_told(path):
    file = ReportFile(KEY, path)
    assert not gauges_after(file, path, 0.5, "nan", "nan").loss_not_finite, "one that is skipped is usual"
    assert gauges_after(file, path, "nan").loss_not_finite
    assert gauges_after(file, path, None).loss_not_finite, "nothing new is known of it"
    assert not gauges_after(file, path, 0.4).loss_not_finite


@pytest.mark.parametrize(
    "strange", [{"loss": "high"}, {"not_finite": 7}, {"loss": {"a": 1}, "not_finite": {"loss": 1}}]
)
def test_what_a_program_calls_its_loss_harms_nothing(path, strange):
    file = ReportFile(KEY, path)
    add(path, line("progress", step=1, total=100, **strange))
    assert not file.read()[-1].gauges.loss_not_finite
    assert file.bad_lines == 0


def test_a_file_of_zeros_that_is_huge_does_not_hold_the_agent_up(path):
    path.touch()
    os.truncate(path, 1 << 40)
    file, before_s = ReportFile(KEY, path), time.process_time()
    assert file.read() == []
    assert time.process_time() - before_s < 5
    assert file.bad_lines == progress.TURN_MAX_BYTES // progress.READ_MAX_BYTES


def test_of_much_more_than_one_go_a_program_that_has_ended_is_heard_to_the_end(path, monkeypatch):
    monkeypatch.setattr(progress, "TURN_MAX_BYTES", 200)
    monkeypatch.setattr(progress, "READ_MAX_BYTES", 100)
    add(path, b"".join(line("progress", step=n) for n in range(200)) + line("checkpoint", step=200) + line("done"))
    file = ReportFile(KEY, path)
    assert file.read()[-1].step < 20
    assert not file.done
    assert file.rest()[-1] == checkpoint(200)
    assert file.done


def test_a_lease_on_the_file_does_not_hold_the_agent_up(path):
    add(path, line("checkpoint", step=5))
    holder = os.open(path, os.O_WRONLY)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        file, before_s = ReportFile(KEY, path), time.monotonic()
        assert file.read() == []
        assert time.monotonic() - before_s < 5
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, before)
    assert file.read() == [checkpoint(5)]


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_plain_file_is_not_read(path, kind):
    if kind == "pipe":
        os.mkfifo(path)
    else:
        other = path.with_name("other")
        add(other, line("checkpoint", step=5))
        path.symlink_to(other)
    assert ReportFile(KEY, path).read() == []


def batch_after(path, **fields):
    file = ReportFile(KEY, path)
    add(path, line("progress", step=1, time_ms=1_000, **fields))
    (seen,) = file.read()
    return seen.gauges.batch if seen.gauges is not None else None


def test_what_a_program_measured_with_its_batch_is_taken(path):
    told = {"local_batch": 32.0, "accumulation": 1.0, "step_s": 0.25, "sync_s": 0.01, "noise_scale": 812.6}
    assert batch_after(path, **told) == BatchSeen(32, 1, 250_000, 10_000, 813)


def test_a_batch_and_its_time_are_enough(path):
    assert batch_after(path, local_batch=32, step_s=0.25) == BatchSeen(32, 0, 250_000)


@pytest.mark.parametrize(
    "fields",
    [
        {"local_batch": 32},
        {"local_batch": 0, "step_s": 1},
        {"local_batch": -4, "step_s": 1},
        {"local_batch": 1e15, "step_s": 1},
        {"local_batch": 32, "step_s": 1e9},
        {"local_batch": 32, "step_s": None},
        {"local_batch": 32, "step_s": 1, "accumulation": 1e7},
    ],
)
def test_batches_that_cannot_be_are_dropped(path, fields):
    assert batch_after(path, **fields) is None


def test_a_wait_longer_than_the_step_and_an_absurd_noise_are_bounded(path):
    found = batch_after(path, local_batch=32, step_s=1, sync_s=5, noise_scale=1e15)
    assert found == BatchSeen(32, 0, 1_000_000, 1_000_000, 0)
