"""The leak test: process trees that try to outlive their replica, run and ended through a real agent.

An attempt is one tree of one kind, ended in one way at one random moment, all derived from its seed. What is left of
it is looked for without the engine's help: by the numbers and start times that the processes noted themselves, by a
mark in command line and environment (all of /proc is searched), by a lock on a file that they held, and by the names
of control groups.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.core.messages.orders import Acknowledge, StartReplica, StopReplica
from penstock.core.messages.reports import NodeReport, ReplicaKey
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.agent.worker import AgentConfig
from penstock.engines.local.launch import agent_pid
from penstock.engines.processes.containment import CgroupV1, choose
from penstock.engines.processes.sessions import SessionContainment
from penstock.testing.builders import node
from tests.engines.agent.builders import start
from tests.engines.agent.fakeserver import FakeServer
from tests.engines.processes.remains import (
    GROUPS,
    MARK_VARIABLE,
    complete,
    groups,
    left_at,
    marked,
    noted,
    numbers,
    parent_of,
    read,
    still_there,
    unlocked,
)
from tests.server.harness import environment, until

Ending = Literal["stop", "leaves", "killed", "worker"]
Held = Literal["groups", "unified", "sessions"]

TREES = Path(__file__).with_name("trees.py")
PIPELINE = """
notes=$2 leave=$4; shift 4
note() { word=$1; read -r line </proc/self/stat; set -- $line; echo "$1 ${22} $word" >>"$notes"; }
case " $* " in *" stubborn "*) trap '' TERM ;; esac
note lives
count() { i=0; while [ $i -lt 900 ]; do i=$((i+1)); echo $i; sleep 0.1; done; }
( note lives; count ) | ( note lives; while read -r n; do echo $n; done ) | ( note lives; cat >/dev/null ) &
( note lives; trap '' TERM HUP; ( note lives; exec sleep 90 ) & exec sleep 90 ) &
( ( note lives; exec nohup sleep 90 ) 2>/dev/null & ) &
note complete
command -v setsid >/dev/null && { setsid sleep 90 & setsid sh -c "setsid sleep 90 & sleep 90" & }
[ "$leave" = - ] && leave=90
sleep "$leave" | cat
read -r up rest </proc/uptime
note "left $up"
exit 0
"""
KINDS = (
    "double-fork",
    "setsid",
    "ignores-sigterm",
    "holds-files",
    "grandchildren",
    "zombies",
    "threads",
    "pipeline",
)
HIDING = ("setsid",)
"""Kinds with a process that leaves its session and clears its environment: it is left out where only sessions hold."""
ENDINGS: tuple[Ending, ...] = ("stop", "stop", "leaves", "killed", "worker")
GRACE_S = 0.3
BOUND_S = 2.0
"""A replica's place is to be free this much after its grace."""
ZOMBIE_S = 1.0
"""What has ended must have been reaped this much after the exit was told."""
WAIT_S = 30.0
WORKER_PAUSE_S = 2.0
"""The worker is killed at most this often, however many attempts want it."""

_AGENTS = {
    "groups": "",
    "unified": """
def unified(parent):
    base = Path("/sys/fs/cgroup/unified", parent)
    base.mkdir(exist_ok=True)
    return containment.CgroupV2(base)
containment._version_2 = unified
""",
    "sessions": "containment._version_1 = containment._version_2 = lambda parent: None\n",
}
"""How the agent is made to use each containment: what it would choose itself needs nothing. `unified`: version 2 of
control groups where version 1 holds the controllers, so without limits."""
_MAIN = """
from pathlib import Path
from penstock.engines.agent import guardian
from penstock.engines.processes import containment
{}
guardian.main()
"""


def available(held: Held) -> bool:
    """Return whether an agent of this user can be made to use that containment on this machine."""
    if held == "sessions":
        return True
    chosen = choose(f"penstock-leaks-{uuid.uuid4().hex[:8]}")
    chosen.close()
    if held == "groups":
        return not isinstance(chosen, SessionContainment)
    return isinstance(chosen, CgroupV1) and os.access(GROUPS / "unified/cgroup.procs", os.W_OK)


def now_s() -> float:
    """Return seconds since boot: the clock that the programs of the trees can read too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Plan:
    """What one attempt is; it ends `moment_s` after its start, or after its tree is complete."""

    kind: str
    seed: int
    ending: Ending
    moment_s: float
    grace_s: float
    stubborn: bool
    limits: Resources
    grown: bool
    """Whether its tree may become complete first (that of `leaves` does)."""
    early: bool
    """Of `worker`: the worker is killed before the stop, else after it."""

    def __str__(self) -> str:
        extra = (", tree complete" if self.grown else "") + (", stubborn" if self.stubborn else "")
        return f"{self.kind} seed {self.seed} ({self.ending} after {self.moment_s:.3f} s{extra})"


def plan(kind: str, seed: int) -> Plan:
    """Return the attempt that belongs to a seed, again and again the same."""
    rnd = random.Random(f"{kind}.{seed}")
    return Plan(
        kind,
        seed,
        rnd.choice(ENDINGS),
        rnd.choice([0.0, rnd.uniform(0, 0.05), rnd.uniform(0, 0.4), rnd.uniform(0, 0.4)]),
        rnd.choice([GRACE_S, GRACE_S, GRACE_S, 0.0]),
        rnd.random() < 0.5,
        Resources(1_000, rnd.choice([0, 256 << 20])),
        rnd.random() < 0.4,
        rnd.random() < 0.5,
    )


@dataclass
class Outcome:
    """What became of an attempt; `left` names what should not be there any more."""

    plan: Plan
    complete: bool
    over_s: float = 0.0
    """From its end being asked for (or its leader's end) to its exit being told, less the grace."""
    worker_died: bool = False
    exit: ExitInfo | None = None
    left: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        return [f"{self.plan}: {text}" for text in self.left]

    def late(self) -> list[str]:
        return [f"{self.plan}: its exit was told {self.over_s:.2f} s after its grace"] if self.over_s > BOUND_S else []


class LeakServer(FakeServer):
    """A server that, like the real one, derives lost orders again from full reports, and acknowledges exits."""

    def __init__(self, root: Path, held: Held) -> None:
        self.exits: dict[ReplicaKey, tuple[float, ExitInfo]] = {}
        self.pids: dict[ReplicaKey, int] = {}
        self.wanted: dict[ReplicaKey, StartReplica] = {}
        self.stops: dict[ReplicaKey, StopReplica] = {}
        self.reported = False
        super().__init__(root)
        try:
            self._launch(held)
        except BaseException:
            self.close()
            raise

    def _launch(self, held: Held) -> None:
        folder = self.data.node("n1")
        folder.mkdir(parents=True, exist_ok=True)
        self.parent = f"penstock-leaks-{uuid.uuid4().hex[:8]}"
        path = folder / "agent.json"
        path.write_bytes(msgspec.json.encode(AgentConfig(str(self.data.root), node("n1"), self.parent)))
        with (folder / "agent.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN.format(_AGENTS[held]), str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self.data.root),
                start_new_session=True,
            )
        until(lambda: self.reported, "the agent has reported")

    def on_report(self, report: NodeReport, session: Any) -> None:
        heard_s = now_s()
        orders: list[Any] = []
        for seen in report.replicas:
            self.pids[seen.key] = seen.pid
            if seen.exit is not None:
                self.exits.setdefault(seen.key, (heard_s, seen.exit))
                orders.append(Acknowledge(seen.key))
        if report.inventory:
            state = {seen.key: seen.state for seen in report.replicas}
            orders += [o for k, o in list(self.wanted.items()) if k not in state and k not in self.exits]
            orders += [o for k, o in list(self.stops.items()) if state.get(k, "running") == "running"]
        session.taken(report.seq, orders, accepted=True)
        self.reported = True

    def begin(self, order: StartReplica) -> None:
        self.wanted[order.key] = order
        self.order(order)

    def stop(self, key: ReplicaKey, grace_s: float) -> None:
        order = StopReplica(key, int(grace_s * 1000))
        self.stops[key] = order
        self.order(order)

    def over(self, key: ReplicaKey) -> None:
        """Want nothing of a replica any more."""
        self.wanted.pop(key, None)
        self.stops.pop(key, None)

    def kill_worker(self) -> bool:
        """Kill the agent's worker, the guardian's only child that has its command line; return whether there was one.

        A child of the worker looks the same until it has become a replica.
        """
        guardian = agent_pid(self.data, "n1")
        if guardian is None:
            return False
        own = read(guardian, "cmdline")
        for pid in numbers():
            if parent_of(pid) == guardian and own and read(pid, "cmdline") == own:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return True
        return False

    def leave(self) -> list[str]:
        """Ask the agent to leave; return what of it is still there afterwards."""
        self.process.terminate()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            return ["the agent does not leave"]
        return [f"control group {path}" for path in groups(self.parent)]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        super().close()
        self.process.wait()
        for folder in sorted(groups(self.parent), key=lambda path: -len(path.parts)):
            with contextlib.suppress(OSError):
                folder.rmdir()


class Leaks:
    """Runs attempts through one agent; use as a context manager, nothing is left afterwards whatever was found."""

    def __init__(self, root: Path, held: Held = "groups") -> None:
        self._held = held
        self._mark = f"leak-{uuid.uuid4().hex[:10]}"
        self.server = LeakServer(root, held)
        self._number = 0
        self._marked: dict[int, list[str]] = {}
        self._searched_s = 0.0
        self.worker_killed_s = 0.0
        self.worker_kills = 0

    def __enter__(self) -> "Leaks":
        return self

    def __exit__(self, *_: object) -> None:
        for lines in marked(self._mark).values():
            for line in lines:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(line.split()[0]), signal.SIGKILL)
        self.server.close()

    def run(self, plans: Sequence[Plan], at_once: int) -> list[Outcome]:
        """Return what became of the attempts, in order."""

        async def all_of_them() -> list[Outcome]:
            places = asyncio.Semaphore(at_once)

            async def one(wanted: Plan) -> Outcome:
                async with places:
                    return await self._attempt(wanted)

            return await asyncio.gather(*map(one, plans))

        return asyncio.run(all_of_them())

    def end(self) -> list[str]:
        """Let the agent leave; return whatever is left of it and of all attempts together."""
        left = self.server.leave()
        return left + [line for lines in marked(self._mark).values() for line in lines]

    async def _attempt(self, wanted: Plan) -> Outcome:
        self._number += 1
        key = ReplicaKey(JobId(self._number), AttemptNumber(1), Rank(0))
        notes = self.server.data.root / f"notes-{self._number}"
        begun_s = now_s()
        self.server.begin(self._order(wanted, key, notes))
        asked_s, grace_s, whole = await self._until_asked(wanted, key, notes)
        deadline_s = now_s() + WAIT_S
        while key not in self.server.exits and now_s() < deadline_s:
            await asyncio.sleep(0.01)
        self.server.over(key)
        outcome = Outcome(wanted, whole)
        if key not in self.server.exits:
            outcome.left = [f"no exit was told within {WAIT_S:g} s", *marked(self._mark).get(key.job_id, [])]
            return outcome
        told_s, outcome.exit = self.server.exits[key]
        if wanted.ending == "leaves":
            asked_s = left_at(notes) or asked_s
        outcome.over_s = told_s - asked_s - grace_s
        outcome.worker_died = begun_s <= self.worker_killed_s <= told_s
        outcome.left = await self._left(key, notes, told_s)
        return outcome

    def _order(self, wanted: Plan, key: ReplicaKey, notes: Path) -> StartReplica:
        mark = f"{self._mark}-{key.job_id}"
        leave = f"{wanted.moment_s:.3f}" if wanted.ending == "leaves" else "-"
        words = [wanted.kind, str(notes), mark, leave]
        words += ["stubborn"] if wanted.stubborn else []
        words += ["hide"] if wanted.kind in HIDING and self._held != "sessions" else []
        shell, tree = ("sh", "-c", PIPELINE, "sh"), (sys.executable, "-I", "-S", str(TREES))
        return start(
            key,
            (*(shell if wanted.kind == "pipeline" else tree), *words),
            incarnation=self.server.hellos[-1][1],
            env=((MARK_VARIABLE, mark),),
            ask=ReplicaAsk(wanted.limits),
            grace_ms=int(wanted.grace_s * 1000),
        )

    async def _until_asked(self, wanted: Plan, key: ReplicaKey, notes: Path) -> tuple[float, float, bool]:
        """Bring the end about; return (since when it counts, with how much grace, whether the tree was complete)."""
        if wanted.ending == "leaves":
            return now_s(), 0.0, True
        if wanted.ending == "killed":
            while not self.server.pids.get(key) and key not in self.server.exits:
                await asyncio.sleep(0.005)
        while wanted.grown and not complete(notes) and key not in self.server.exits:
            await asyncio.sleep(0.01)
        if wanted.moment_s:
            await asyncio.sleep(wanted.moment_s)
        whole = complete(notes)
        if wanted.ending == "killed":
            asked_s = now_s()
            await self._kill_leader(key)
            return asked_s, 0.0, whole
        if wanted.ending == "worker" and wanted.early:
            self._kill_worker()
        asked_s = now_s()
        self.server.stop(key, wanted.grace_s)
        if wanted.ending == "worker" and not wanted.early:
            await asyncio.sleep(random.Random(str(wanted)).uniform(0, wanted.grace_s + 0.05))
            self._kill_worker()
        return asked_s, wanted.grace_s, whole

    async def _kill_leader(self, key: ReplicaKey) -> None:
        """Kill the first process of an attempt, if it is still the one that carries the mark."""
        pid, mark = self.server.pids[key], f"{self._mark}-{key.job_id}".encode()
        while pid and key not in self.server.exits:
            if mark in read(pid, "environ"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return
            await asyncio.sleep(0.001)  # it has no environment for a moment, while the gate becomes the program

    def _kill_worker(self) -> None:
        if now_s() > self.worker_killed_s + WORKER_PAUSE_S and self.server.kill_worker():
            self.worker_killed_s = now_s()
            self.worker_kills += 1

    async def _left(self, key: ReplicaKey, notes: Path, told_s: float) -> list[str]:
        """Return what is left of an attempt whose exit was told."""
        found = [f"control group {path}" for path in groups(self.server.parent, f"n1.{key}")]
        if self._searched_s < told_s:
            self._searched_s = now_s()
            self._marked = marked(self._mark)
        found += [f"alive: {line}" for line in self._marked.get(key.job_id, [])]
        output = self.server.data.output(key)
        if output.exists() and b"Traceback" in output.read_bytes():
            found.append(f"its program failed: {output.read_bytes()[-500:]!r}")
        themselves = noted(notes)
        found += [f"alive: noted itself, {line}" for line in still_there(themselves) if not line.endswith(" Z")]
        held = self.server.data.checkpoints(key.job_id) / "held"
        if held.exists() and not unlocked(held):
            found.append(f"somebody holds {held.name} among the checkpoints")
        while still_there(themselves) and now_s() < told_s + ZOMBIE_S:
            await asyncio.sleep(0.02)
        return found + [f"not reaped: {line}" for line in still_there(themselves) if line.endswith(" Z")]
