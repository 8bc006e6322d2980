"""The engine of a shadow beside Slurm: what Slurm decides becomes reports, and no order is ever carried out.

Everything runs on one loop; `send` may be called from any thread. Every refresh asks for all jobs at once.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from penstock.core.messages.orders import Addressed, Order
from penstock.core.model.ids import JobId, NodeName
from penstock.engines.slurm.commands import SlurmAway
from penstock.engines.slurm.jobs import SlurmJob, is_of
from penstock.engines.slurm.newjobs import pools_of
from penstock.engines.slurm.nodes import SlurmNode
from penstock.engines.slurm.reading import QueueRead, SlurmConfig, SlurmReader
from penstock.engines.slurm.server import ShadowServer
from penstock.engines.slurm.shadow.tracks import Track, Tracks
from penstock.engines.slurm.standing import StandingNodes

log = logging.getLogger(__name__)

TURN_S = 0.1
REFRESH_S = 30.0
REFRESH_MIN_S = 5.0
COST_SHARE = 20
"""Refreshes are this many times as far apart as the last one took, at least: 5 % of the time."""
NODES_EVERY_S = 60.0
ABSENT_LEAST = 2
"""Refreshes that must miss a job before it counts as vanished."""


class SlurmShadow:
    """An `Engine` that watches one cluster.

    Args:
        refresh_s: time between two questions for all jobs (s).
        begun: what was read for the history of the log; what had ended by then is in it.
    """

    def __init__(
        self,
        server: ShadowServer,
        reader: SlurmReader,
        config: SlurmConfig,
        *,
        refresh_s: float = REFRESH_S,
        begun: QueueRead | None = None,
    ) -> None:
        self._server, self.reader, self.config, self._begun = server, reader, config, begun
        self._refresh_s = max(REFRESH_MIN_S, refresh_s)
        self.nodes = StandingNodes(server)
        self.tracks = Tracks(server, self.nodes)
        self._listed: list[SlurmNode] = []
        self._nodes_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.problem = ""
        """Why the last refresh failed; '' where it did not."""
        self.accounts_problem = ""
        """Why sacct does not answer; '' where it does, or was not needed."""
        self.refreshes = 0
        self._unread: set[str] = set()

    def send(self, orders: Sequence[Addressed]) -> None:
        """Take orders of the server; none is carried out."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._obey, [order for _, order in orders])

    def _obey(self, orders: Sequence[Order]) -> None:
        for order in orders:
            self.nodes.obey(order)

    @property
    def idle(self) -> bool:
        """Whether the server was told all that is known. On the engine's loop."""
        return self.tracks.idle and self.nodes.idle

    def connected(self) -> set[NodeName]:
        """Return the nodes that the server has taken in. Any thread."""
        return self.nodes.connected()

    def said_of(self, job_id: JobId) -> str:
        """Return what Slurm says of a job that waits, and since when it says nothing more. Any thread."""
        said = self.tracks.said_of(job_id)
        return f"{said}; no news: {self.problem}" if said and self.problem else said

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self.nodes.keep())
            group.create_task(self._settle())

    async def _settle(self) -> None:
        while True:
            self.nodes.flush()
            self.tracks.turn()
            await asyncio.sleep(TURN_S)

    async def follow_once(self) -> None:
        """Ask once; where Slurm does not answer, note why."""
        try:
            await self.refresh()
            self._say("")
        except SlurmAway as error:
            self._say(error.message)

    async def _follow(self) -> None:
        while True:
            begun_s = asyncio.get_running_loop().time()
            await self.follow_once()
            took_s = asyncio.get_running_loop().time() - begun_s
            await asyncio.sleep(max(self._refresh_s - took_s, COST_SHARE * self.reader.commands.last_s))

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("Slurm does not answer: what is shown is what it said last", extra={"problem": problem})
        elif self.problem and not problem:
            log.info("Slurm answers again")
        self.problem = problem

    async def refresh(self) -> None:
        """Ask once, and take what is new. Raises: SlurmAway; nothing is taken then."""
        now_s = asyncio.get_running_loop().time()
        if not self._listed or now_s - self._nodes_s >= NODES_EVERY_S:
            self._listed, self._nodes_s = await self.reader.nodes(), now_s
        read = await self.reader.queue()
        if self.refreshes == 0:
            self._begin(read)
        self.tracks.pools = pools_of(self._listed, self._server.config())
        self.nodes.see(self._listed)
        for line in self._lines(read):
            self.tracks.see(line)
        for one in read.unread:
            self._say_unread(one.number, one.why)
        await self._look_for(read)
        shown = {line.key for line in read.jobs.values()}
        if shown:  # an empty answer means nothing
            self.tracks.keep_only(shown.__contains__)
        self.refreshes += 1

    def forget_nodes(self) -> None:
        """Ask for the nodes again with the next refresh."""
        self._nodes_s = -NODES_EVERY_S

    def _lines(self, read: QueueRead) -> Iterator[SlurmJob]:
        """Yield the lines of all jobs; one that several elements of an array share once for each that is known."""
        shared = set()
        for number in [number for number in self.tracks.by_number if "_" in number and number not in read.jobs]:
            line = read.jobs.get(number.partition("_")[0]) or next(
                (one for one in read.rest if is_of(number, one)), None
            )
            if line is not None and is_of(number, line):
                shared.add(line.number)
                self.tracks.over.add(line.key)
                yield replace(line, number=number)
        yield from (line for number, line in read.jobs.items() if number not in shared)

    def _begin(self, read: QueueRead) -> None:
        """Take over the jobs of the log, and pass over what had ended before."""
        lines = {str(line.key): line for line in read.jobs.values()}
        by_number = {(line.number, line.user): line for line in read.jobs.values()}
        for job in self._server.live():
            number = job.label.partition("@")[0]
            again = by_number.get((number, job.user))
            line = lines.get(job.label) or (again if again is not None and again.restarts else None)
            self.tracks.adopt(job, line or _unknown(number, job.label, job.user), known=line is not None)
        known = {(track.line.number, track.line.user) for track in self.tracks.by_number.values()}
        before = (self._begun or read).jobs.values()
        self.tracks.over = {
            line.key for line in before if line.phase == "ended" and (line.number, line.user) not in known
        }

    def _say_unread(self, number: str, why: str) -> None:
        if number not in self._unread:
            self._unread.add(number)
            log.warning("a line of squeue cannot be read: its job stays as it was", extra={"job": number, "why": why})

    async def _look_for(self, read: QueueRead) -> None:
        """Ask the accounts for jobs that squeue no longer shows; one that nobody knows any more has vanished."""
        unread = {one.number for one in read.unread}
        gone = [
            track
            for number, track in self.tracks.by_number.items()
            if number not in read.jobs and number not in unread and track.line.phase != "ended"
        ]
        gone += self.tracks.left
        if not gone:
            return
        now_s = asyncio.get_running_loop().time()
        if self.config.accounts:
            try:
                runs = await self.reader.ended(_asked(gone))
                self.accounts_problem = ""
            except SlurmAway as error:
                if not self.accounts_problem:
                    log.warning(
                        "sacct does not answer: jobs that have ended wait for it", extra={"problem": error.message}
                    )
                self.accounts_problem = error.message
                return
        else:
            runs = []
        for track in gone:
            self._settle_gone(track, _newest(track, runs), now_s)

    def _settle_gone(self, track: Track, run: SlurmJob | None, now_s: float) -> None:
        if run is not None and run.phase == "again" and track in self.tracks.left:
            self.tracks.vanish(track)  # what became of it is another job here
            return
        if run is not None and run.phase in ("ended", "again"):
            self.tracks.end(track, replace(run, number=track.line.number))
            return
        if run is not None:  # the accounts have it as it was: squeue's answer was empty, or it is about to end
            track.missing, track.absent_s = 0, now_s
            return
        track.absent_s = track.absent_s if track.missing else now_s
        track.missing += 1
        if track.missing >= ABSENT_LEAST and now_s - track.absent_s >= self.config.min_job_age_s:
            self.tracks.vanish(track)


def _asked(tracks: Sequence[Track]) -> Iterator[tuple[str, int]]:
    """Yield the numbers to ask the accounts for, of elements that of their array too, and when they were submitted."""
    numbers = {}
    for track in tracks:
        numbers[track.line.number] = track.line.submit_s
        base, _, element = track.line.number.partition("_")
        if element and track.line.phase == "waiting":
            numbers.setdefault(base, track.line.submit_s)
    yield from numbers.items()


def _newest(track: Track, runs: Sequence[SlurmJob]) -> SlurmJob | None:
    """Return the last run of a job in the accounts, that of its present submit where there is one."""
    number, submit_s, user = track.line.key
    own = [run for run in runs if is_of(number, run) and run.user == user and run.submit_s >= submit_s]
    exact = [run for run in own if run.submit_s == submit_s]
    again = [run for run in own if track.run_s and run.start_s == track.run_s]
    return max(exact or again, key=lambda run: (run.start_s, run.end_s), default=None)


def _unknown(number: str, label: str, user: str) -> SlurmJob:
    """Return a line for a job of the log that squeue does not show: the accounts are asked for it."""
    submit = label.partition("@")[2]
    return SlurmJob(
        number=number, user=user, account="", partitions=(), qos="", state="PENDING", phase="waiting", reason="",
        submit_s=int(submit) if submit.isdecimal() else 0, eligible_s=0, start_s=0, end_s=0, limit_ms=0, nodes=1,
        tres="", hosts="", code=0, signal=0, restarts=0, features="", name="",
    )  # fmt: skip
