"""`penstock logs`, and following what jobs write."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.api import types as api
from penstock.cli.options import DataOption, JobArgument, client_of
from penstock.cli.output import raw

if TYPE_CHECKING:
    from penstock.client import Client

POLL_S = 0.15
FINAL = frozenset({"succeeded", "failed", "cancelled"})


def logs(
    job: JobArgument,
    data: DataOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job has ended.")] = False,
    rank: Annotated[int | None, typer.Option(help="Only this replica.")] = None,
    attempt: Annotated[int | None, typer.Option(help="Only this attempt; by default the newest.")] = None,
) -> None:
    """Print the output of a job, byte by byte. At a terminal its escape sequences take effect, as with cat."""
    client = client_of(data)
    if follow:
        follow_job(client, job, rank=rank, attempt=attempt)
        return
    client.job(job)
    follower = OutputFollower(client, job, rank=rank, attempt=attempt)
    while follower.step():
        pass
    follower.finish()


class OutputFollower:
    """Prints outputs from where it left off; lines of several replicas carry their rank."""

    def __init__(self, client: "Client", job_id: int, *, rank: int | None, attempt: int | None) -> None:
        self._client, self._job_id, self._rank, self._attempt = client, job_id, rank, attempt
        self._offsets: dict[tuple[int, int], int] = {}
        self._partial: dict[tuple[int, int], bytes] = {}

    def step(self) -> bool:
        """Print new output; return whether there was any."""
        listed = [o for o in self._client.outputs(self._job_id) if self._rank is None or o.rank == self._rank]
        if self._attempt is not None:
            listed = [o for o in listed if o.attempt == self._attempt]
        elif not self._offsets and listed:
            newest = max(o.attempt for o in listed)
            listed = [o for o in listed if o.attempt == newest]
        several = len({o.rank for o in listed}) > 1
        return sum(self._print(output, several) for output in listed) > 0

    def _print(self, output: api.OutputRef, several: bool) -> bool:
        place = (output.attempt, output.rank)
        offset = self._offsets.get(place, 0)
        if output.size_bytes <= offset and place in self._offsets:
            return False
        where, data = self._client.logs(self._job_id, output.attempt, output.rank, offset)
        self._offsets[place] = where + len(data)
        if where > offset:
            data = b"[penstock: %d older bytes were given up]\n" % (where - offset) + data
        if not several:
            raw(data)
        else:
            whole = self._partial.pop(place, b"") + data
            lines = whole.split(b"\n")
            self._partial[place] = lines.pop()
            raw(b"".join(b"[%d] %s\n" % (output.rank, line) for line in lines))
        return bool(data)

    def finish(self) -> None:
        """Print unfinished last lines."""
        for (_, rank), line in sorted(self._partial.items()):
            if line:
                raw(b"[%d] %s\n" % (rank, line))


def follow_job(
    client: "Client",
    job_id: int,
    *,
    rank: int | None = None,
    attempt: int | None = None,
    say: Callable[[str], object] | None = None,
) -> api.JobView:
    """Print output until the job has ended and everything was printed; return the ended job.

    Args:
        say: called once with why the job waits, if it does, and for each new attempt.
    """
    follower = OutputFollower(client, job_id, rank=rank, attempt=attempt)
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
        if job.state in FINAL and not news:
            follower.finish()
            return job
        if not news:
            time.sleep(POLL_S)
