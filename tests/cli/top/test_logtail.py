"""The end of an output as it grows: bounded, in whole lines, of the newest attempt."""

from typing import Any

from penstock.api.types import OutputRef
from penstock.cli.top import logtail
from penstock.cli.top.logtail import LINE_MAX, RANKS_MAX, STEP_BYTES, TAIL_BYTES, LogTail


class Outputs:
    """The two calls of the client that a tail makes; counts what was read."""

    def __init__(self) -> None:
        self.written: dict[tuple[int, int], bytes] = {}
        self.read_bytes = 0

    def outputs(self, job_id: int) -> list[OutputRef]:
        return [OutputRef(attempt, rank, len(data)) for (attempt, rank), data in self.written.items()]

    def logs(self, job_id: int, attempt: int, rank: int, offset: int, limit: int) -> tuple[int, bytes]:
        piece = self.written[attempt, rank][offset : offset + limit]
        self.read_bytes += len(piece)
        return offset, piece


def tail(outputs: Outputs) -> Any:
    made = LogTail(1)
    return lambda: made.step(outputs)  # type: ignore[arg-type]


def test_lines_come_whole_and_once() -> None:
    outputs = Outputs()
    outputs.written[1, 0] = b"one\ntw"
    step = tail(outputs)
    assert step() == (["one"], ["tw"], "attempt 1")
    outputs.written[1, 0] += b"o\nthree\n"
    assert step() == (["two", "three"], [], "attempt 1")
    assert step() == ([], [], "attempt 1")


def test_of_a_long_output_the_end_is_read_and_what_is_left_out_is_said() -> None:
    outputs = Outputs()
    line = b"x" * 99 + b"\n"
    outputs.written[1, 0] = line * 100_000
    step = tail(outputs)
    lines = step().lines
    assert outputs.read_bytes == TAIL_BYTES
    assert lines[0] == f"[... {10_000_000 - TAIL_BYTES:,} bytes not shown]"
    assert set(lines[1:]) == {"x" * 99}
    outputs.written[1, 0] += line * (1 + STEP_BYTES // 100)
    step()
    assert outputs.read_bytes == 2 * TAIL_BYTES


def test_another_attempt_begins_anew_and_is_named() -> None:
    outputs = Outputs()
    outputs.written[1, 0] = b"first"
    step = tail(outputs)
    step()
    outputs.written[2, 0] = b"again\n"
    assert step() == (["--- attempt 2 ---", "again"], [], "attempt 2")


def test_lines_of_several_replicas_carry_their_rank_and_there_is_a_most() -> None:
    outputs = Outputs()
    for rank in range(RANKS_MAX + 4):
        outputs.written[1, rank] = b"hello\n"
    lines, _, note = tail(outputs)()
    assert lines == [f"[{rank}] hello" for rank in range(RANKS_MAX)]
    assert note == "attempt 1, 16 of 20 replicas: penstock logs 1 --rank N has any"


def test_a_line_without_end_is_cut_and_commands_are_taken_out() -> None:
    outputs = Outputs()
    outputs.written[1, 0] = b"\x1b[31mred\x1b[0m\x1b]0;title\x07 a\tb\n" + b"y" * 50_000
    lines, unfinished, _ = tail(outputs)()
    assert lines == ["red a   b"]
    assert unfinished == ["y" * LINE_MAX + "…"]


def test_nothing_written_is_said() -> None:
    assert tail(Outputs())() == ([], [], "it has written nothing yet")
    assert logtail.TAIL_BYTES < logtail.STEP_BYTES
