"""What `squeue` and `sacct` say of attempts: the second witness, and the only one of what no script can say.

One empty answer means nothing. An attempt that neither shows, twice and for longer than slurmctld keeps ended jobs, has
vanished.
"""

import asyncio
import getpass
import logging
import time
from collections.abc import Iterator, Mapping, MutableMapping
from itertools import chain

from msgspec.structs import replace

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.ids import NodeName
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.nodes import OthersLoad
from penstock.core.model.resources import Resources
from penstock.engines.slurm.commands import SlurmAway
from penstock.engines.slurm.jobs import SlurmJob, ask_of, elements_of, is_of
from penstock.engines.slurm.nodes import SlurmNode, devices_of
from penstock.engines.slurm.passing.attempts import KILL_SIGNAL, VANISHED, Attempt, explained, info_of, info_of_word
from penstock.engines.slurm.passing.listening import Listener
from penstock.engines.slurm.passing.options import attempt_of, attempts_of
from penstock.engines.slurm.passing.script import CLAIMED_CODE, LOOK_S
from penstock.engines.slurm.passing.spool import WITHDRAWN, AttemptKey, Spool
from penstock.engines.slurm.reading import QueueRead, SlurmConfig, SlurmReader
from penstock.engines.slurm.server import PassingServer
from penstock.engines.slurm.standing import StandingNodes
from penstock.engines.slurm.writing import SlurmWriter

log = logging.getLogger(__name__)

ABSENT_LEAST = 2
"""Refreshes that must miss a job before it counts as vanished, or find it over before its script counts as silent."""
SILENT_S = 3.0
"""Files of a job that is over have this long to be seen here."""
BEAT_S = 4.0 * LOOK_S
"""A replica that showed a sign of life within this time lives, whatever Slurm has forgotten."""
SUSPECT_S = 90.0
"""An end that Slurm does not explain by then is taken as it is."""
LIFELESS_S = 120.0
"""A job that Slurm calls running, and that shows no sign of life for so long, is ended."""
WAITS_S = 300.0
"""A job that Slurm has let wait for so long waits here again."""
CLOCKS_S = 10.0
"""By how much the clocks of slurmctld and of this machine may differ."""
LEFT_S = 15.0
"""A record that still runs so long after the end of all its programs is cancelled."""


class Judge:
    """Compares attempts with what Slurm says. On the engine's loop."""

    def __init__(
        self,
        server: PassingServer,
        spool: Spool,
        writer: SlurmWriter,
        nodes: StandingNodes,
        listener: Listener,
        attempts: MutableMapping[AttemptKey, Attempt],
        config: SlurmConfig,
    ) -> None:
        self._server, self._spool, self._writer, self._nodes = server, spool, writer, nodes
        self._listener, self._attempts, self._config = listener, attempts, config
        self._user = getpass.getuser()
        self._left: dict[str, tuple[float, AttemptKey]] = {}
        """Jobs of Slurm of attempts that are over, since when (s), and which: numbers come back."""
        self._beats: dict[ReplicaKey, tuple[int, float]] = {}
        """When a replica showed life last by the storage's clock, and since when that is so (s)."""
        self.over: dict[AttemptKey, SlurmJob] = {}
        """Jobs of Slurm that are over, of attempts that are not known here: a server before this one submitted them."""
        self._cancelling: set[AttemptKey] = set()
        self.accounts_problem = ""
        """Why sacct does not answer; '' where it does, or was not needed."""

    def waits(self) -> bool:
        """Return whether an end waits for Slurm's word."""
        return any(
            one.suspects or one.killed or one.state == "unsure" or _over_there(one) for one in self._attempts.values()
        )

    def again(self, now_s: float) -> list[Attempt]:
        """Return attempts to submit again: Slurm has none of their jobs. Claims keep two from running."""
        found = [one for one in self._attempts.values() if one.state == "unsure" and one.looks >= ABSENT_LEAST]
        for one in found:
            one.enter("queued", now_s)
        return [one for one in found if not one.stopping]

    def left(self, attempt: Attempt) -> None:
        """Forget an attempt; its job of Slurm is to end by itself."""
        if attempt.number:
            self._left[attempt.number] = asyncio.get_running_loop().time(), attempt.key
        for key in [key for key in self._beats if attempt.named(key)]:
            del self._beats[key]

    # What squeue says.

    def see(self, read: QueueRead, listed: Mapping[NodeName, SlurmNode], now_s: float) -> dict[NodeName, OthersLoad]:
        """Take what Slurm says of all jobs; return what those of others hold of each node."""
        held: dict[NodeName, list[tuple[Resources, int]]] = {}
        self.over.clear()
        for attempt in self._attempts.values():
            attempt.line = None
        together = chain.from_iterable(elements_of(line) for line in read.rest if line.phase == "ended")
        for line in (*read.jobs.values(), *together, *self._withdrawn(read)):
            own = self._ours(line, now_s)
            if own is not None:
                own.line = line
            elif line.phase == "running" and not self._is_tagged(line):
                for name in _names(line):
                    held.setdefault(name, []).append(_share(line))
        for attempt in self._attempts.values():
            if attempt.line is None and "_" in attempt.number:
                attempt.line = next((one for one in read.rest if is_of(attempt.number, one)), None)
            attempt.taken = attempt.line is None and attempt.number in read.jobs
        return {name: self._load(name, shares, listed) for name, shares in held.items() if name in listed}

    def _withdrawn(self, read: QueueRead) -> Iterator[SlurmJob]:
        """Yield elements of arrays that were cancelled before they began: Slurm keeps no record of those.

        One that has run is shown for as long as slurmctld keeps ended jobs: so is each, for as long after the submit.
        """
        since_s = time.time() - self._config.min_job_age_s + CLOCKS_S
        arrays: dict[str, SlurmJob] = {}
        for line in read.jobs.values():
            if "_" in line.number and line.submit_s > since_s and line.restarts == 0 and self._is_tagged(line):
                arrays.setdefault(line.number.partition("_")[0], line)
        seen = {*read.jobs, *(one.number for one in read.unread)}
        seen.update(one.number for line in read.rest for one in elements_of(line))
        for base, line in arrays.items():
            for _, index in attempts_of(line.comment, self._server.cluster()):
                if (number := f"{base}_{index}") not in seen:
                    yield replace(line, number=number, state="CANCELLED", phase="ended", hosts="", code=0, signal=0)

    def _is_tagged(self, line: SlurmJob) -> bool:
        key = attempt_of(line.comment, self._server.cluster(), line.number)
        return key is not None and line.user == (self._account(key) or self._user)

    def _account(self, key: AttemptKey) -> str:
        attempt = self._attempts.get(key)
        if attempt is not None:
            return attempt.account
        terms = self._server.terms(key.job_id)
        return terms.account if terms is not None else ""

    def _ours(self, line: SlurmJob, now_s: float) -> Attempt | None:
        """Return the attempt that a job of Slurm is."""
        key = attempt_of(line.comment, self._server.cluster(), line.number)
        if key is None or not self._is_tagged(line):
            return None
        attempt, live = self._attempts.get(key), line.phase in ("waiting", "running")
        if attempt is None:
            if live and self._server.terms(key.job_id) is not None:
                attempt = self._attempts[key] = Attempt(key, self._account(key))
            elif live:
                self._left.setdefault(line.number, (now_s, key))
                return None
            else:
                if line.code != CLAIMED_CODE:
                    self.over[key] = line
                return None
        if attempt.state in ("gathering", "queued", "unsure"):
            if line.code == CLAIMED_CODE:
                return None
            attempt.number = line.number
            attempt.enter("submitted", now_s)
        if attempt.number and attempt.number != line.number:
            if live:
                self._left.setdefault(line.number, (now_s, key))
            return None
        attempt.number = line.number
        return attempt

    def _load(
        self, name: NodeName, shares: list[tuple[Resources, int]], listed: Mapping[NodeName, SlurmNode]
    ) -> OthersLoad:
        host = Resources()
        for one, _ in shares:
            host += one
        ours = self._server.held_devices(name)
        count = sum(gpus for _, gpus in shares)
        free = [device.index for device in devices_of(listed[name]) if device.index not in ours]
        return OthersLoad(host=host, devices=tuple(free[len(free) - min(count, len(free)) :]))

    # What follows from it.

    async def look(self, reader: SlurmReader, read: QueueRead, now_s: float) -> None:
        """Let attempts end of which Slurm says so, and end jobs of Slurm that are nobody's."""
        unread = {one.number for one in read.unread}
        absent = []
        for attempt in tuple(self._attempts.values()):
            if attempt.state == "unsure" and attempt.line is None and read.jobs:
                attempt.looks += 1
            if attempt.state != "submitted" or attempt.number in unread:
                continue
            if attempt.line is None:
                absent.append(attempt)
            elif attempt.line.phase in ("ended", "again"):
                await self._over(attempt, attempt.line, now_s)
            else:
                attempt.looks = 0
                self._waits(attempt, attempt.line, now_s)
                await self._alive(attempt, now_s)
        await self._absent(reader, read, absent, now_s)
        await self._clear(read, now_s)

    def _waits(self, attempt: Attempt, line: SlurmJob, now_s: float) -> None:
        """Take back what Slurm lets wait for long: other nodes may be free, or another job's turn."""
        if line.phase != "waiting" or attempt.stopping:
            attempt.waits_s = 0.0
            return
        attempt.waits_s = attempt.waits_s or now_s
        if now_s - attempt.waits_s >= WAITS_S:
            attempt.waits_s = now_s
            log.info("Slurm does not start a job: it waits here again", extra={"job": str(attempt.key)})
            self._server.requeue(attempt.key.job_id, lambda refused: None)

    def _living(self, attempt: Attempt) -> list[ReplicaKey]:
        keys = {*attempt.started, *(order.key for order in attempt.orders.values())}
        return [key for key in sorted(keys) if self._nodes.state_of(key) not in (None, "exited")]

    async def _over(self, attempt: Attempt, line: SlurmJob, now_s: float) -> None:
        """Take Slurm's word for the end of an attempt, where its script has said nothing, or not why."""
        keys = self._living(attempt)
        if not keys:
            return
        if line.code == CLAIMED_CODE and not attempt.suspects:
            other = await asyncio.to_thread(self._spool.claimed, attempt.account, attempt.key)
            if other not in ("", line.number, WITHDRAWN):
                attempt.number = other  # this was a second copy
                return
        if not attempt.looks:
            attempt.since_s = now_s
        attempt.looks += 1
        silent = attempt.looks >= ABSENT_LEAST and now_s - attempt.since_s >= SILENT_S
        for key in keys:
            ended = attempt.suspects.get(key)
            if ended is not None:
                info = explained(ended[0], line)
            elif silent:
                info = info_of_word(line, str(self._spool.root), started=key in attempt.started)
            else:
                continue
            await self._end(attempt, key, info)

    async def _end(self, attempt: Attempt, key: ReplicaKey, info: ExitInfo | None) -> None:
        if key in attempt.kill_at_s:
            if info is None:
                info = ExitInfo(signal=KILL_SIGNAL if key in attempt.killed else 15)
            info = replace(info, stop_sent=True)
        if info is not None:
            attempt.suspects.pop(key, None)
            await self._listener.end([(key, info)])
        elif attempt.key not in self._cancelling:
            self._cancelling.add(attempt.key)
            self._server.cancel(attempt.key.job_id, "cancelled in Slurm", lambda done: self._cancels(attempt))

    def _cancels(self, attempt: Attempt) -> None:
        """The server knows of it: the stop that it orders by now ends the attempt."""
        self._cancelling.discard(attempt.key)

    async def _alive(self, attempt: Attempt, now_s: float) -> None:
        """Take note of signs of life of an attempt that Slurm calls running."""
        for key, (ended, since_s) in tuple(attempt.suspects.items()):
            if now_s - since_s >= SUSPECT_S:
                await self._end(attempt, key, info_of(ended, stopping=False))
        for key in self._living(attempt):
            if key not in attempt.started:
                continue
            silent_s = now_s - await self._beat(attempt, key, now_s)
            if silent_s >= LIFELESS_S and not self._listener.away and self._others_live(key, now_s):
                text = f"Slurm: no sign of life for {LIFELESS_S:.0f} s, and Slurm calls it running"
                await self._end(attempt, key, ExitInfo(problem=text))
                self._left.setdefault(attempt.number, (now_s - LEFT_S, attempt.key))

    async def _beat(self, attempt: Attempt, key: ReplicaKey, now_s: float) -> float:
        """Return when a replica was seen to have shown a new sign of life (s)."""
        beat_ms = await asyncio.to_thread(self._spool.beat_ms, attempt.account, key)
        known = self._beats.get(key)
        if known is None or known[0] != beat_ms:
            known = self._beats[key] = (beat_ms, now_s)
        return known[1]

    def _others_live(self, key: ReplicaKey, now_s: float) -> bool:
        """Return whether any other replica shows life, or there is none: else the storage may be what is silent."""
        others = [since_s for one, (_, since_s) in self._beats.items() if one != key]
        return not others or any(now_s - since_s < LIFELESS_S / 2 for since_s in others)

    async def _absent(self, reader: SlurmReader, read: QueueRead, absent: list[Attempt], now_s: float) -> None:
        """Ask the accounts for attempts that squeue does not show."""
        wanted = [one for one in absent if self._living(one) and one.number]
        if not wanted:
            return
        runs: list[SlurmJob] = []
        if self._config.accounts:
            begin_s = int(time.time() - (now_s - min(one.since_s for one in wanted)))
            try:
                runs = await reader.ended((one.number, begin_s) for one in wanted)
                self.accounts_problem = ""
            except SlurmAway as error:
                if not self.accounts_problem:
                    log.warning("sacct does not answer: ends wait for it", extra={"problem": error.message})
                self.accounts_problem = error.message
                return
        for attempt in wanted:
            own = [run for run in runs if is_of(attempt.number, run) and run.user == (attempt.account or self._user)]
            run = max(own, key=lambda one: (one.submit_s, one.start_s, one.end_s), default=None)
            if run is not None and run.phase in ("ended", "again"):
                attempt.line = run
                await self._over(attempt, run, now_s)
                continue
            keys = self._living(attempt)
            beats = [await self._beat(attempt, key, now_s) for key in keys if key in attempt.started]
            if run is not None or any(now_s - beat_s < BEAT_S for beat_s in beats):
                attempt.looks = 0
                continue
            if not attempt.looks:
                attempt.since_s = now_s
            attempt.looks += 1
            old = now_s - attempt.since_s >= self._config.min_job_age_s
            if attempt.looks >= ABSENT_LEAST and (old or attempt.taken):
                for key in keys:
                    await self._end(attempt, key, VANISHED)

    async def _clear(self, read: QueueRead, now_s: float) -> None:
        """End jobs of Slurm whose attempts are over, or that are submitted twice."""
        over = []
        for number, (since_s, key) in tuple(self._left.items()):
            line = read.jobs.get(number)
            own = line is not None and attempt_of(line.comment, self._server.cluster(), number) == key
            if line is None or not own or line.phase not in ("waiting", "running"):
                del self._left[number]
            elif now_s - since_s >= LEFT_S:
                over.append(number)
        if over:
            try:
                await self._writer.cancel(over)
            except SlurmAway as error:
                log.warning("jobs of Slurm that are nobody's cannot be ended", extra={"problem": error.message})


def _over_there(attempt: Attempt) -> bool:
    return attempt.looks > 0 and attempt.line is not None


def _names(line: SlurmJob) -> Iterator[NodeName]:
    try:
        yield from map(NodeName, line.node_names())
    except ValueError:
        return


def _share(line: SlurmJob) -> tuple[Resources, int]:
    """Return what a job of others holds of each of its nodes, and how many devices."""
    try:
        ask = ask_of(line, {})
    except ValueError:
        return Resources(), 0
    return ask.each.host, ask.each.device_count
