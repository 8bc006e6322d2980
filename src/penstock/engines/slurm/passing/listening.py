"""Hears what the scripts of attempts say: which programs run, how they ended, what they report of their work."""

import asyncio
import logging
import time
from collections.abc import Callable, MutableMapping, Sequence

from msgspec.structs import replace

from penstock.core.messages.reports import ProgressSeen, ReplicaKey
from penstock.core.model.jobs import ExitInfo
from penstock.engines.processes.outputs import bound_output, last_error
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.progress import ReportFile
from penstock.engines.slurm.passing.attempts import Attempt, attempt_key, info_of, is_suspect
from penstock.engines.slurm.passing.spool import AttemptKey, Ended, Spool, Started, name_of
from penstock.engines.slurm.server import PassingServer
from penstock.engines.slurm.standing import StandingNodes

log = logging.getLogger(__name__)

SCAN_S = 0.1
IDLE_SCAN_S = 1.0
SCAN_SHARE = 10
"""Scans are this many times as far apart as the last one took of CPU time, at least."""
WALL_SHARE = 1
"""So of what passed meanwhile, which is more where the storage is slow, or where jobs keep all cores busy."""
PROGRESS_S = 1.0
REPORTS_AT_ONCE = 200
OUTPUT_MAX_BYTES = 64 * 2**20
"""Of one replica, as on every engine."""


class Listener:
    """Reads the files of scripts and programs. On the engine's loop.

    Args:
        hurry: lets Slurm be asked soon.
    """

    def __init__(
        self,
        server: PassingServer,
        spool: Spool,
        data: DataFolder,
        nodes: StandingNodes,
        attempts: MutableMapping[AttemptKey, Attempt],
        hurry: Callable[[], None],
    ) -> None:
        self._server, self._spool, self._data, self._nodes = server, spool, data, nodes
        self._attempts, self._hurry = attempts, hurry
        self._known: dict[str, str] = {}
        """What was taken: names of files, and the account in whose folder each is."""
        self._of: dict[ReplicaKey, list[str]] = {}
        self._reports: dict[ReplicaKey, ReportFile] = {}
        self._read: list[ReplicaKey] = []
        self._scan_s = self._progress_s = 0.0
        self.away = ""
        """Why the folder cannot be read; '' where it can."""

    async def turn(self, now_s: float, *, must: bool = False) -> None:
        """Take what is new. Raises: OSError where it must, and the folder is away."""
        if must or now_s >= self._scan_s:
            pause_s = await self._scan(must=must)
            self._scan_s = now_s + max(SCAN_S if self._attempts else IDLE_SCAN_S, pause_s)
        if now_s >= self._progress_s and self._reports:
            self._progress_s = now_s + PROGRESS_S
            self._nodes.advance(await asyncio.to_thread(self._progress))

    async def _scan(self, *, must: bool) -> float:
        """Return how long it is left alone after this (s)."""
        begun_s = asyncio.get_running_loop().time()
        try:
            new, cpu_s = await asyncio.to_thread(self._read_news, frozenset(self._known))
        except OSError as error:
            if must:
                raise
            if not self.away:
                log.warning("the shared folder cannot be read", extra={"problem": str(error)})
            self.away = str(error)
            return SCAN_SHARE * (asyncio.get_running_loop().time() - begun_s)
        wall_s = asyncio.get_running_loop().time() - begun_s
        self.away = ""
        for account, news in new:
            self._take(account, news)
        known = [one for _, one in new if isinstance(one, Ended) and name_of(one) in self._known]
        await self.end([(one.key, info) for one in known if (info := self._ended(one)) is not None])
        return max(SCAN_SHARE * cpu_s, WALL_SHARE * wall_s)

    def _read_news(self, known: frozenset[str]) -> tuple[list[tuple[str, Started | Ended]], float]:
        """Return what is new, and the CPU time that it took to read (s)."""
        begun_s = time.thread_time()
        return list(self._spool.read(known)), time.thread_time() - begun_s

    def _take(self, account: str, news: Started | Ended) -> None:
        key = attempt_key(news.key)
        attempt = self._attempts.get(key)
        if attempt is None:
            terms = self._server.terms(news.key.job_id)
            if isinstance(news, Ended):
                return  # nothing is known of where: it is heard again when the server orders its start
            attempt = Attempt(key, terms.account if terms is not None else account)
            attempt.number = news.number
            attempt.enter("submitted", asyncio.get_running_loop().time())
            self._attempts[key] = attempt
        if attempt.account != account:
            return  # said by another account, which may not
        name = name_of(news)
        if isinstance(news, Ended):
            if self._nodes.state_of(news.key) is not None:
                self._note(name, account, news.key)
            return
        self._note(name, account, news.key)
        state = self._nodes.state_of(news.key)
        if state == "exited":
            return
        attempt.started[news.key], attempt.number = news, news.number
        if attempt.state in ("gathering", "queued"):  # of a server before this one
            attempt.enter("submitted", asyncio.get_running_loop().time())
        self._nodes.stand(news.key, news.node, "stopping" if news.key in attempt.kill_at_s else "running")
        self._reports[news.key] = ReportFile(news.key, self._data.report(news.key))

    def _note(self, name: str, account: str, key: ReplicaKey) -> None:
        self._known[name] = account
        self._of.setdefault(key, []).append(name)

    def _ended(self, ended: Ended) -> ExitInfo | None:
        """Return how a replica ended; None where that is not new, or waits for Slurm's word."""
        attempt = self._attempts.get(attempt_key(ended.key))
        if attempt is None or self._nodes.state_of(ended.key) in (None, "exited"):
            return None
        if is_suspect(ended, stopping=ended.key in attempt.kill_at_s):
            attempt.suspects[ended.key] = (ended, asyncio.get_running_loop().time())
            self._hurry()
            return None
        return info_of(ended, stopping=ended.key in attempt.kill_at_s)

    async def end(self, ends: Sequence[tuple[ReplicaKey, ExitInfo]]) -> None:
        """Let replicas end, with what their programs said last."""
        for at in range(0, len(ends), REPORTS_AT_ONCE):
            for key, rest, info in await asyncio.to_thread(self._last, ends[at : at + REPORTS_AT_ONCE]):
                self._nodes.advance(rest)
                if self._nodes.state_of(key) not in (None, "exited"):
                    self._nodes.end(key, info)

    def _last(
        self, ends: Sequence[tuple[ReplicaKey, ExitInfo]]
    ) -> list[tuple[ReplicaKey, list[ProgressSeen], ExitInfo]]:
        """Return of each end what its program had still to say, and the end with what it said of it."""
        found = []
        for key, info in ends:
            report = self._reports.get(key) or ReportFile(key, self._data.report(key))
            rest = report.read()
            error = "" if info.ok else last_error(self._data.output(key))
            found.append((key, rest, replace(info, done=report.done, last_error=error)))
        return found

    def _progress(self) -> list[ProgressSeen]:
        """Return what some programs have reported since they were looked at last; keep their outputs within bounds."""
        if not self._read:
            self._read = list(self._reports)
        keys, self._read = self._read[:REPORTS_AT_ONCE], self._read[REPORTS_AT_ONCE:]
        for key in keys:
            bound_output(self._data.output(key), OUTPUT_MAX_BYTES)
        return [one for key in keys if (report := self._reports.get(key)) is not None for one in report.read()]

    def forget(self, key: ReplicaKey, account: str) -> None:
        """Remove the files of a replica whose end is in the log."""
        self._reports.pop(key, None)
        names = self._of.pop(key, [])
        self._spool.forget(account, key, names)
        for name in names:
            self._known.pop(name, None)
