"""`penstock logs`, and following what jobs write."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.api import types as api
from penstock.cli.errors import NotThere
from penstock.cli.options import JobArgument
from penstock.cli.output import json_line, raw, say
from penstock.cli.place import client_of
from penstock.core.model.jobs import FINAL_STATES
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.client import Client

POLL_S = 0.15
TAIL_PIECE_BYTES = 64 * 1024
"""Size of the last piece of an output; those before it are twice as large each, up to the largest."""
TAIL_MAX_BYTES = 16 * 2**20
"""The last lines are looked for in this much of an output's end."""


def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job has ended.")] = False,
    rank: Annotated[int | None, typer.Option(help="Only this replica.", min=0)] = None,
    attempt: Annotated[int | None, typer.Option(help="Only this attempt; by default the newest.", min=1)] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", help="Only the last lines of each output.", min=0)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print each line as a JSON object.")] = False,
) -> None:
    """Print the output of a job, byte by byte. At a terminal its escape sequences take effect, as with cat."""
    client = client_of()
    shown = client.job(job)
    if rank is not None or attempt is not None:
        check_place(client.outputs(job), shown, rank=rank, attempt=attempt)
    if follow:
        follow_job(client, job, rank=rank, attempt=attempt, tail=tail, json=json)
        return
    follower = OutputFollower(client, job, rank=rank, attempt=attempt, tail=tail, json=json)
    while follower.step():
        pass
    follower.finish()
    if not follower.any:
        say(f"penstock: job {job} is {shown.state} and has written nothing", err=True)


def check_place(outputs: list[api.OutputRef], job: api.JobView, *, rank: int | None, attempt: int | None) -> None:
    """Raise NotThere when an attempt or rank is named that the job does not have."""
    if attempt is not None and attempt > job.attempt:
        known = counted(job.attempt, "attempt") if job.attempt else "no attempt yet"
        raise NotThere(f"job {job.id} has no attempt {attempt}: it has {known}")
    ranks = {each.rank for each in outputs} | {each.rank for each in job.replica_list} | set(range(job.replicas))
    if rank is not None and rank not in ranks:
        raise NotThere(f"job {job.id} has no rank {rank}: its ranks are 0 to {max(ranks)}")


class OutputFollower:
    """Prints outputs from where it left off; lines of several replicas carry their rank.

    Without an attempt, it begins with the newest and continues with those that follow. `tail` is of the outputs that
    are there at the first step: those of a later attempt are printed whole.
    """

    def __init__(
        self,
        client: "Client",
        job_id: int,
        *,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        json: bool = False,
        err: bool = False,
    ) -> None:
        self._client, self._job_id, self._rank, self._attempt = client, job_id, rank, attempt
        self._tail, self._json, self._err = tail, json, err
        self._first: int | None = attempt
        self._offsets: dict[tuple[int, int], int] = {}
        self._partial: dict[tuple[int, int], bytes] = {}
        self.any = False
        """Whether anything was printed."""

    def step(self) -> bool:
        """Print new output; return whether there was any."""
        listed = [o for o in self._client.outputs(self._job_id) if self._rank in (None, o.rank)]
        if self._first is None and listed:
            self._first = max(o.attempt for o in listed)
        first, last = self._first or 0, self._attempt or math.inf
        wanted = [o for o in listed if first <= o.attempt <= last]
        several = len({o.rank for o in wanted}) > 1
        printed = sum(self._print(output, several) for output in wanted)
        self._tail = None
        return printed > 0

    def _print(self, output: api.OutputRef, several: bool) -> bool:
        place = (output.attempt, output.rank)
        if place not in self._offsets and self._tail is not None:
            self._offsets[place] = self._begin_of_tail(output)
        offset = self._offsets.get(place, 0)
        if output.size_bytes <= offset and place in self._offsets:
            return False
        where, data = self._client.logs(self._job_id, output.attempt, output.rank, offset)
        self._offsets[place] = where + len(data)
        if where > offset:
            data = b"[penstock: %d older bytes were given up]\n" % (where - offset) + data
        self.any = self.any or bool(data)
        if several or self._json:
            *lines, self._partial[place] = (self._partial.pop(place, b"") + data).split(b"\n")
            raw(b"".join(self._line(place, line) for line in lines), err=self._err)
        else:
            raw(data, err=self._err)
        return bool(data)

    def _line(self, place: tuple[int, int], line: bytes) -> bytes:
        attempt, rank = place
        if not self._json:
            return b"[%d] %s\n" % (rank, line)
        shown = {"job": self._job_id, "attempt": attempt, "rank": rank, "line": line.decode(errors="replace")}
        return json_line(shown).encode()

    def _begin_of_tail(self, output: api.OutputRef) -> int:
        """Return where the last lines of an output begin, looked for from its end."""
        end, left, piece = output.size_bytes, self._tail or 0, TAIL_PIECE_BYTES
        if left == 0:
            return end
        at = end
        while at > 0 and end - at < TAIL_MAX_BYTES:
            begin = max(0, at - piece)
            where, data = self._client.logs(self._job_id, output.attempt, output.rank, begin, at - begin)
            stop = min(len(data), end - 1 - where)  # a line feed at the very end ends the last line
            while (stop := data.rfind(b"\n", 0, max(0, stop))) >= 0:
                left -= 1
                if left == 0:
                    return where + stop + 1
            if where > begin:
                return where  # what was before has been given up
            at, piece = begin, min(2 * piece, api.LOG_READ_MAX_BYTES)
        return at

    def finish(self) -> None:
        """Print unfinished last lines."""
        for place, line in sorted(self._partial.items()):
            if line:
                raw(self._line(place, line), err=self._err)


def follow_job(
    client: "Client",
    job_id: int,
    *,
    rank: int | None = None,
    attempt: int | None = None,
    tail: int | None = None,
    json: bool = False,
    err: bool = False,
    say: Callable[[str], object] | None = None,
    follower: OutputFollower | None = None,
) -> api.JobView:
    """Print output until the job has ended and everything was printed; return the ended job.

    Args:
        err: print to standard error.
        say: called once with why the job waits, if it does, and for each new attempt.
        follower: goes on where this one is, in place of one made of the arguments before.
    """
    if follower is None:
        follower = OutputFollower(client, job_id, rank=rank, attempt=attempt, tail=tail, json=json, err=err)
    seen_attempt, explained = 0, False
    begun = time.monotonic()
    while True:
        job = client.job(job_id)
        if say is not None and job.attempt > max(1, seen_attempt):
            say(f"job {job_id}: attempt {job.attempt}")
        seen_attempt = max(seen_attempt, job.attempt)
        if say is not None and job.state == "waiting" and not explained and time.monotonic() - begun > 1.0:
            explained = True
            say(client.explain(job_id).text)
        news = follower.step()
        if job.state in FINAL_STATES and not news:
            follower.finish()
            return job
        if not news:
            time.sleep(POLL_S)


def exit_code(ended: api.JobView) -> int:
    """Return the code with which a command ends that ends with a job: its program's own, or 128 and the signal."""
    if ended.state == "succeeded":
        return 0
    if ended.exit_code:
        return ended.exit_code
    return 128 + ended.exit_signal if ended.exit_signal else 1
