"""The output of a job as lines, while it is written."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock import calls
from penstock.api.types import OutputRef
from penstock.core.model.jobs import FINAL_STATES

if TYPE_CHECKING:
    from penstock.client.http import ApiClient

POLL_FIRST_S, POLL_MOST_S = 0.15, 2.0
LINE_MAX_BYTES = 2**20
"""A longer line is given in parts."""


class Lines:
    """New lines of a job's outputs, from where the last look ended: of the newest attempt, and of those that follow."""

    def __init__(self, job_id: int, rank: int | None) -> None:
        self._job_id, self._rank = job_id, rank
        self._first_attempt: int | None = None
        self._offsets: dict[tuple[int, int], int] = {}
        self._partial: dict[tuple[int, int], bytes] = {}
        self._several = False
        self._pause_s = POLL_FIRST_S
        self.over = False
        """Whether everything was given."""

    def step(self, client: "ApiClient", *, follow: bool) -> tuple[list[str], float]:
        """Return new lines, and how long to wait for more (s). Without `follow` the present lines are all."""
        ended = not follow or client.job(self._job_id).state in FINAL_STATES
        new = self.new(client)
        if new:
            self._pause_s = POLL_FIRST_S
            return new, 0
        if ended:
            self.over = True
            return self.rest(), 0
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 1.5, POLL_MOST_S)
        return [], pause_s

    def new(self, client: "ApiClient") -> list[str]:
        """Return the lines that came since the last look; those of several replicas begin with their rank."""
        listed = [one for one in client.outputs(self._job_id) if self._rank in (None, one.rank)]
        if self._first_attempt is None and listed:
            self._first_attempt = max(one.attempt for one in listed)
        wanted = [one for one in listed if one.attempt >= (self._first_attempt or 0)]
        self._several = len({one.rank for one in wanted}) > 1
        return [line for one in wanted for line in self._of(client, one)]

    def _of(self, client: "ApiClient", output: OutputRef) -> Iterator[str]:
        place = (output.attempt, output.rank)
        offset = self._offsets.get(place, 0)
        if output.size_bytes <= offset:
            return
        where, data = client.logs(self._job_id, output.attempt, output.rank, offset)
        self._offsets[place] = where + len(data)
        *lines, rest = (self._partial.pop(place, b"") + data).split(b"\n")
        if len(rest) > LINE_MAX_BYTES:
            lines, rest = [*lines, rest], b""
        self._partial[place] = rest
        yield from (text for line in lines if (text := self._shown(place, line)) is not None)

    def rest(self) -> list[str]:
        """Return unfinished last lines."""
        left, self._partial = self._partial, {}
        return [text for place, line in sorted(left.items()) if line and (text := self._shown(place, line)) is not None]

    def _shown(self, place: tuple[int, int], line: bytes) -> str | None:
        """Return a line as it is given; None for one that carries a result alone."""
        line, mark, _ = line.partition(calls.MARK)
        if mark and not line:
            return None
        text = line.decode(errors="replace")
        return f"[{place[1]}] {text}" if self._several else text


def lines_of(client: "ApiClient", job_id: int, *, follow: bool, rank: int | None = None) -> Iterator[str]:
    """Yield the lines of a job's output, without their line feeds: to its end if `follow`, else the present ones."""
    lines = Lines(job_id, rank)
    while not lines.over:
        new, pause_s = lines.step(client, follow=follow)
        yield from new
        time.sleep(pause_s)


def last_lines(client: "ApiClient", job_id: int, attempt: int, most: int = 5, size: int = 4_096) -> list[str]:
    """Return the last lines of a job's first replica, for a message."""
    sizes = [one.size_bytes for one in client.outputs(job_id) if (one.attempt, one.rank) == (attempt, 0)]
    begin = max(0, sizes[0] - size) if sizes else 0
    data = client.logs(job_id, attempt, 0, begin, size)[1] if sizes else b""
    lines = [line for line in data.split(b"\n") if line.strip() and not line.startswith(calls.MARK)]
    return [line.decode(errors="replace") for line in lines[-most:]]
