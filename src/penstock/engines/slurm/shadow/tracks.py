"""Jobs of Slurm and what the server was told of them: one step at a time, each once the one before is in the log.

A job is submitted, its run starts, its replicas end; a job that is put back waits again and gets another run. What
Slurm says now is the goal, and each step goes towards it; a step that is refused is tried again, with less of what the
job has where it does not fit what is known of its nodes.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import JobId, NodeName, PoolName, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.engines.slurm.jobs import SlurmJob, ask_of, less_of, user_of
from penstock.engines.slurm.lives import goes_on
from penstock.engines.slurm.newjobs import new_job
from penstock.engines.slurm.server import LiveJob, Noted, Refused, ShadowServer
from penstock.engines.slurm.standing import StandingNodes
from penstock.engines.slurm.states import exit_of, word_of

log = logging.getLogger(__name__)

AGAIN_S = 0.5
"""The server is asked again about a job after this long."""
TRIES = 4
"""So often a start is tried before less is asked for: nodes may be about to be known."""
STEPS_MAX = 500
"""Jobs about which the server is asked in one turn of the loop."""
NOT_YET = ("Dependency", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser", "JobHeldAdmin", "JobArrayTaskLimit",
           "RequeuedHold", "SpecialExit", "DeadLine", "Prolog", "Cleaning", "JobHoldMaxRequeue")  # fmt: skip
"""Reasons of jobs that are not to start, whatever is free."""
VANISHED = "it vanished: neither squeue nor sacct shows it"


class Track:
    """One job."""

    def __init__(self, line: SlurmJob) -> None:
        self.line = line
        self.label = str(line.key)
        self.job_id: JobId | None = None
        self.ask: GangAsk | None = None
        self.run_s = 0
        """When the run began that is in the log; 0: none is."""
        self.past_s = 0
        """When the run before it began, whose end is in the log."""
        self.replicas: list[ReplicaKey] = []
        """Of that run, those that have not ended in the log."""
        self.ending = False
        """Their ends are being reported."""
        self.asked = False
        self.again_s = 0.0
        self.tries = 0
        self.held = False
        self.missing = 0
        """Refreshes in a row in which squeue and sacct were without it."""
        self.absent_s = 0.0
        """Since when it is missing, on the loop's clock."""
        self.cancelled = False
        self.over = False


class Tracks:
    """All jobs that have not ended in the log. Everything runs on the engine's loop."""

    def __init__(self, server: ShadowServer, nodes: StandingNodes) -> None:
        self._server, self._nodes = server, nodes
        self.by_number: dict[str, Track] = {}
        self._of_job: dict[JobId, Track] = {}
        self._changed: dict[Track, None] = {}
        self.pools: dict[str, PoolName] = {}
        self.left: list[Track] = []
        """Jobs whose number another one has by now: how they ended the accounts know."""
        self.over: set[tuple[str, int, str]] = set()
        """Jobs that squeue shows and that have ended in the log, or before the shadow began."""

    def adopt(self, job: LiveJob, line: SlurmJob, *, known: bool) -> None:
        """Take over a job of the log, of which Slurm says `line`.

        Args:
            known: whether squeue shows it; else nothing follows until the accounts say more.
        """
        track = Track(line)
        track.label, track.job_id, track.ask, track.held = job.label, job.job_id, job.ask, job.held
        track.replicas = [place.key for place in job.places]
        track.run_s = max((int(place.name) for place in job.places if place.name.isdecimal()), default=0)
        for place in job.places:
            self._nodes.stand(place.key, place.node, "running")
        self.by_number[line.number] = self._of_job[job.job_id] = track
        if known:
            self._changed[track] = None

    def see(self, line: SlurmJob) -> None:
        """Take what Slurm says of a job now."""
        track = self.by_number.get(line.number)
        if track is not None and not _same(track, line):
            self.left.append(self.by_number.pop(line.number))
            track = None
        if track is None:
            if line.key in self.over:
                return
            track = self.by_number[line.number] = Track(line)
        track.missing = 0
        if track.line != line or track.job_id is None:
            track.line = line
            self._changed[track] = None

    def end(self, track: Track, run: SlurmJob) -> None:
        """Take what the accounts say of a job that squeue no longer shows."""
        track.line = run
        self._changed[track] = None

    def vanish(self, track: Track) -> None:
        """Let a job end of which nothing is known any more."""
        log.warning("a job of Slurm has vanished", extra={"job": track.label})
        track.over = True
        self._changed[track] = None

    @property
    def idle(self) -> bool:
        """Whether no job has a step to do, or waits for an answer."""
        return not self._changed and not any(track.asked or track.ending for track in self.by_number.values())

    def said_of(self, job_id: JobId) -> str:
        """Return what Slurm says of a job that waits. Any thread."""
        track = self._of_job.get(job_id)
        if track is None:
            return ""
        line = track.line
        return f"Slurm, job {line.number}: {line.reason or line.state}"

    # Towards the server.

    def turn(self) -> None:
        """Do the next step of each job that has one."""
        for key in self._nodes.ended:
            self._ended(key)
        self._nodes.ended.clear()
        now_s, steps = asyncio.get_running_loop().time(), 0
        for track in sorted(self._changed, key=_ends_first):
            if track.asked or track.again_s > now_s:
                continue
            if steps >= STEPS_MAX:
                return
            del self._changed[track]
            steps += 1
            self._step(track)

    def _step(self, track: Track) -> None:
        line = track.line
        goal_s = line.start_s if line.ran and not track.over and line.start_s != track.past_s else 0
        if track.job_id is None:
            self._submit(track)
        elif track.run_s and (track.run_s != goal_s or line.phase in ("ended", "again") or track.over):
            self._end_run(track)
        elif track.run_s:
            self._stand(track)
        elif goal_s and track.held:
            self._hold(track, held=False)
        elif goal_s:
            self._start(track)
        elif track.over or line.phase == "ended":
            self._finish(track)
        else:
            self._hold(track, held=line.reason in NOT_YET)

    def _submit(self, track: Track) -> None:
        try:
            ask = ask_of(track.line, self.pools)
        except ValueError as error:
            self._leave_out(track, f"its amounts cannot be read: {error}")
            return
        track.asked = True
        self._server.note_waiting(
            new_job(track.line, track.label, ask, self._server.config()),
            user_of(track.line),
            partial(self._submitted, track, ask),
        )

    def _submitted(self, track: Track, ask: GangAsk, found: JobId | Refused) -> None:
        track.asked = False
        if isinstance(found, Refused):
            if found.again:
                self._again(track)
            else:
                self._leave_out(track, found.text)
            return
        track.job_id, track.ask = found, ask
        self._of_job[found] = track
        self._changed[track] = None

    def _start(self, track: Track) -> None:
        assert track.job_id is not None
        assert track.ask is not None
        try:
            nodes = [NodeName(name) for name in track.line.node_names()]
            ask = ask_of(track.line, self.pools)
        except ValueError as error:
            self._leave_out(track, f"its nodes cannot be read: {error}")
            return
        for step in range(max(0, track.tries - TRIES)):
            ask = less_of(ask, step) or ask
        track.asked = True
        if ask != track.ask:
            self._server.edit(track.job_id, ask, partial(self._edited, track, ask))
            return
        self._nodes.flush()  # ends come first: what they leave may be what this one has
        name = str(track.line.start_s)
        self._server.note_start(
            track.job_id, nodes, [name] * len(nodes), partial(self._started, track, track.line.start_s, nodes)
        )

    def _edited(self, track: Track, ask: GangAsk, refused: str) -> None:
        track.asked = False
        if refused:
            log.info("a job cannot be changed yet", extra={"job": track.label, "why": refused})
            self._again(track)
        else:
            track.ask = ask
            self._changed[track] = None

    def _started(self, track: Track, run_s: int, nodes: list[NodeName], found: Noted | Refused) -> None:
        track.asked = False
        assert track.job_id is not None
        if isinstance(found, Noted):
            track.run_s, track.tries = run_s, 0
            track.replicas = [ReplicaKey(track.job_id, found.attempt, Rank(rank)) for rank in range(len(nodes))]
            for key, node in zip(track.replicas, nodes, strict=True):
                self._nodes.stand(key, node, "running")
            self._changed[track] = None
            return
        track.tries += not found.again
        if track.tries > TRIES + 2:
            self._leave_out(track, f"it runs, but {found.text}")
        else:
            self._again(track)

    def _stand(self, track: Track) -> None:
        leaving = track.line.phase == "leaving"
        for key in track.replicas:
            self._nodes.stand(key, self._nodes.node_of(key), "stopping" if leaving else "running")

    def _end_run(self, track: Track) -> None:
        """Report how the replicas of a run ended; of one that was cancelled that comes first."""
        if track.ending:
            return
        line = track.line
        known = line.ran and line.start_s == track.run_s
        over = known and line.phase in ("ended", "again")
        if track.over or (over and word_of(line.state) == "CANCELLED"):
            reason = VANISHED if track.over else f"cancelled in Slurm{_by(line)}"
            if not self._cancelled(track, reason):
                return
        info = exit_of(line.state, line.code, line.signal) if over else exit_of("REQUEUED", 0, 0)
        if track.over:
            info = ExitInfo(problem=VANISHED, stop_sent=True)
        track.ending = True
        for key in track.replicas:
            self._nodes.end(key, info)

    def _ended(self, key: ReplicaKey) -> None:
        track = self._of_job.get(key.job_id)
        if track is None or key not in track.replicas:
            return
        track.replicas.remove(key)
        if track.replicas:
            return
        track.ending = False
        track.past_s, track.run_s = track.run_s, 0
        if not self._server.is_live(key.job_id):
            self._forget(track)
        else:
            self._changed[track] = None

    def _finish(self, track: Track) -> None:
        """End a job that has not run, or is not to go on."""
        assert track.job_id is not None
        reason = VANISHED if track.over else f"{word_of(track.line.state).lower()} in Slurm{_by(track.line)}"
        if not self._server.is_live(track.job_id) or self._cancelled(track, reason):
            self._forget(track)

    def _hold(self, track: Track, *, held: bool) -> None:
        """Hold a job that is not to start, and release one that is."""
        assert track.job_id is not None
        if held != track.held:
            track.asked = True
            self._server.hold(track.job_id, partial(self._holds, track, held), held=held)

    def _holds(self, track: Track, held: bool, refused: str) -> None:
        track.asked = False
        if refused:
            self._again(track)
        else:
            track.held = held
            self._changed[track] = None

    def _cancelled(self, track: Track, reason: str) -> bool:
        """Return whether it is in the log that a job was asked to end; where it is not, that is asked for."""
        assert track.job_id is not None
        if not track.cancelled:
            track.asked = True
            self._server.cancel(track.job_id, reason, partial(self._cancels, track))
        return track.cancelled

    def _cancels(self, track: Track, done: bool) -> None:
        track.asked, track.cancelled = False, done
        if done:
            self._changed[track] = None
        else:
            self._again(track)

    def _again(self, track: Track) -> None:
        track.again_s = asyncio.get_running_loop().time() + AGAIN_S
        self._changed[track] = None

    def _leave_out(self, track: Track, problem: str) -> None:
        log.warning("a job of Slurm cannot be shown", extra={"job": track.label, "problem": problem})
        if track.job_id is not None:
            self._server.cancel(track.job_id, problem, lambda _: None)
        self._forget(track)

    def _forget(self, track: Track) -> None:
        self.over.add(track.line.key)
        self._changed.pop(track, None)
        if self.by_number.get(track.line.number) is track:
            del self.by_number[track.line.number]
        if track in self.left:
            self.left.remove(track)
        if track.job_id is not None:
            self._of_job.pop(track.job_id, None)

    def keep_only(self, shown: Callable[[tuple[str, int, str]], bool]) -> None:
        """Forget jobs that have ended and that Slurm no longer shows."""
        self.over = {key for key in self.over if shown(key)}


def _same(track: Track, line: SlurmJob) -> bool:
    """Return whether a line is of the job that had this number before.

    One that was put back has a later time of submit. Slurm does not count that as a restart where the run had not quite
    begun: but a number does not come back while its job is there.
    """
    before = track.line
    if before.user != line.user:
        return False
    if before.submit_s == line.submit_s or goes_on(before, line):
        return True
    there = before.phase != "ended" and not track.missing
    return there and line.submit_s >= before.submit_s and (before.name, before.account) == (line.name, line.account)


def _ends_first(track: Track) -> tuple[bool, int]:
    return track.line.phase not in ("ended", "again"), track.line.submit_s


def _by(line: SlurmJob) -> str:
    """Return who cancelled a job, where sacct says it."""
    return f" by user {line.state.partition(' by ')[2]}" if " by " in line.state else ""
