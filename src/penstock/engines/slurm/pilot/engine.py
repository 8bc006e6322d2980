"""The pilot: every few seconds it looks at its allocations and at the queue, and asks for, keeps or gives back nodes.

It decides nothing itself: `sizing` does. Nothing is asked for unless Slurm has just said what there is, so an ask whose
answer was lost is seen before another one is made.
"""

import asyncio
import logging
import secrets
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.core.messages.orders import Addressed
from penstock.core.model.cluster import NodeSpec
from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.core.model.words import counted
from penstock.core.status.scaleout import Missing
from penstock.engines.slurm.commands import SlurmAway
from penstock.engines.slurm.pilot import saying
from penstock.engines.slurm.pilot.fleet import Fleet, Lent, names_of
from penstock.engines.slurm.pilot.lent import LentJob
from penstock.engines.slurm.pilot.marks import key_file, over_mark
from penstock.engines.slurm.pilot.needs import Needed, nodes_needed
from penstock.engines.slurm.pilot.script import Place, job_name, script_of
from penstock.engines.slurm.pilot.server import PilotNode, PilotServer
from penstock.engines.slurm.pilot.settings import PilotSettings
from penstock.engines.slurm.pilot.sizing import Decision, Memory, after_ask, decide
from penstock.privatefiles import make_folder, write_whole

log = logging.getLogger(__name__)

AWAY_S = 25.0
"""Jobs have to be away so long before the end of their allocation: Slurm asks the agents to leave up to 40 s before."""
FRESH_S = 600.0
"""Slurm's nodes are looked at this often."""
PAUSE_FACTOR = 20
"""Where an answer of Slurm took long, the next question waits so many times as long."""


class Slurm(Protocol):
    """What is asked of Slurm."""

    async def lent(self, name: str) -> tuple[dict[tuple[str, int], LentJob], float]:
        """Return this user's jobs of a name, and how long the answer took (s). Raises: SlurmAway."""
        ...

    async def tracks_all(self) -> bool:
        """Return whether Slurm ends every process of a job, whatever it did to leave it. Raises: SlurmAway."""
        ...

    async def fresh(self, settings: PilotSettings) -> NodeSpec:
        """Return what a node of an allocation offers. Raises: SlurmAway."""
        ...

    async def submit(self, script: str) -> str:
        """Return the number of a new job. Raises: PenstockError."""
        ...

    async def cancel(self, numbers: Sequence[str]) -> None:
        """Raises: PenstockError."""
        ...


class SlurmPilot:
    """Holds the allocations of one log."""

    def __init__(self, server: PilotServer, slurm: Slurm, settings: PilotSettings, place: Place) -> None:
        self._server, self._slurm, self._settings, self._place = server, slurm, settings, place
        self._fleet, self._memory = Fleet(), Memory()
        self._name = job_name(server.cluster())
        self._fresh: NodeSpec | None = None
        self._fresh_s = 0.0
        self._told = saying.Said()
        self._took_s = 0.0
        self._tracks_all: bool | None = None
        self._problem = ""
        """Of the last allocation, where no node of it has come."""

    def said_of(self, job_id: JobId) -> str:
        """Return what a job that waits can expect of the pilot, '' where nothing is known. Any thread."""
        ask = self._server.ask_of(job_id)
        return self._told.of(ask, time.time()) if ask is not None else ""

    def send(self, orders: Sequence[Addressed]) -> None:
        """Its nodes are those of agents, which have connections of their own."""

    def connected(self) -> set[NodeName]:
        """Its nodes are among those of agents."""
        return set()

    async def run(self) -> None:
        """Look after the allocations until cancelled."""
        self._server.begin()
        await asyncio.to_thread(make_folder, self._place.folder)
        while True:
            try:
                await self.refresh()
            except SlurmAway as error:
                log.warning("Slurm does not answer", extra={"problem": error.message})
            await asyncio.sleep(max(self._settings.refresh_s, PAUSE_FACTOR * self._took_s))

    async def refresh(self) -> None:
        """Look once, and act. Raises: SlurmAway: then nothing was asked for."""
        jobs, self._took_s = await self._slurm.lent(self._name)
        now_s = time.time()
        declared = await asyncio.to_thread(self._server.declared)
        self._fleet.see(jobs, declared, now_s)
        self._server.clear(declared)
        nodes = self._server.nodes()
        for one in list(self._fleet.lent.values()):
            await self._look_after(one, nodes, now_s)
        self._judge(nodes, now_s)
        await self._end(now_s)
        await self._size(nodes, now_s)

    def _judge(self, nodes: Mapping[NodeName, PilotNode], now_s: float) -> None:
        """Wait before the next ask where an allocation has ended and no node of it had come: the next would, too."""
        for one, came in self._fleet.judge(nodes):
            self._memory = after_ask(self._memory, now_s, ok=came)
            output = self._place.folder / f"allocation-{one.job.number}.log"
            self._problem = "" if came else f"Slurm job {one.job.number} ended before a node joined, see {output}"
            if not came:
                log.warning("no node of an allocation has joined", extra={"job": one.job.number, "output": str(output)})

    # Each allocation.

    async def _look_after(self, one: Lent, nodes: Mapping[NodeName, PilotNode], now_s: float) -> None:
        if one.over:
            return
        if not one.keys_made:
            await asyncio.to_thread(self._make_keys, one.job.number, one.names, one.job.hosts, nodes)
            one.keys_made = True
        if one.job.stage != "held" or not one.job.end_s:
            return
        here = [name for name in one.names if name in nodes and nodes[name].ready]
        if not here:
            return
        grace_s = max(nodes[name].grace_ms for name in here) / 1000
        leave_s = one.job.end_s - max(self._settings.margin_s, grace_s + 2 * AWAY_S)
        if now_s >= leave_s:
            one.leaving = True
            reason = f"Slurm job {one.job.number} ends {saying.at_clock(one.job.end_s)}"
            for name in here:
                if nodes[name].jobs or not nodes[name].closed:
                    self._server.going(name, int((one.job.end_s - AWAY_S) * 1000), reason)
        elif not one.returned:
            for name in here:
                self._server.leaves(name, int(leave_s * 1000), int((leave_s - one.job.start_s) * 1000))

    def _make_keys(
        self, number: str, names: Sequence[NodeName], hosts: Sequence[str], nodes: Collection[NodeName]
    ) -> None:
        """Give each node of an allocation the key with which it joins, where it has neither joined nor got one."""
        folder = self._place.folder / number
        make_folder(folder)
        for index, name in enumerate(names):
            path = key_file(self._place.folder, number, index)
            if name in nodes or path.exists():
                continue
            at = f"Slurm job {number}" + (f" on {hosts[index]}" if index < len(hosts) else "")
            write_whole(path, self._server.declare(name, PoolName(self._settings.pool), at))

    async def _end(self, now_s: float) -> None:
        """Let nodes go whose allocation is over: at once where surely no process is left, else by their leases."""
        for one in self._fleet.gone(self._server.connected(), now_s):
            if not await self._proven(one):
                continue
            reason = f"Slurm job {one.job.number} is over: {one.job.state}"
            await asyncio.to_thread(self._bury, one, reason)
        nodes = self._server.nodes()
        for one in list(self._fleet.lent.values()):
            if one.over and not any(name in nodes and nodes[name].ready for name in one.names):
                await asyncio.to_thread(self._bury, one, "")

    async def _proven(self, one: Lent) -> bool:
        """Return whether no process of an ended allocation lives: Slurm tracks all of them, or the wardens say so."""
        if self._tracks_all is None:
            self._tracks_all = await self._slurm.tracks_all()
        nodes = self._server.nodes()
        marks = [over_mark(self._place.folder, one.job.number, i) for i, name in enumerate(one.names) if name in nodes]
        return self._tracks_all or await asyncio.to_thread(lambda: all(mark.exists() for mark in marks))

    def _bury(self, one: Lent, reason: str) -> None:
        for name in one.names:
            if reason:
                self._server.gone(name, reason)
            self._server.remove(name)
        shutil.rmtree(self._place.folder / one.job.number, ignore_errors=True)
        self._fleet.forget(one)

    # How many.

    async def _size(self, nodes: Mapping[NodeName, PilotNode], now_s: float) -> None:
        if self._fresh is None or now_s - self._fresh_s > FRESH_S:
            self._fresh, self._fresh_s = await self._slurm.fresh(self._settings), now_s
        found = await asyncio.to_thread(self._server.missing, int(self._settings.grow_after_s * 1000))
        needed = await asyncio.to_thread(nodes_needed, found, self._fresh, self._settings.nodes_max)
        count = self._fleet.count(nodes, now_s)
        decision = decide(self._settings, count, needed.nodes, now_s, self._memory)
        self._memory = decision.memory
        await self._return(decision, now_s)
        problem = await self._ask(decision, found, now_s) or self._problem
        self._tell(needed, decision, problem)

    async def _return(self, decision: Decision, now_s: float) -> None:
        for one in self._fleet.by_number(decision.returns):
            one.returned = True
            log.info("an allocation is given back", extra={"job": one.job.number})
        nodes = self._server.nodes()
        for one in self._fleet.lent.values():
            for name in one.names if one.returned else ():
                if name in nodes and nodes[name].ready and not nodes[name].closed:
                    self._server.going(name, None, f"Slurm job {one.job.number} is given back: idle")
        idle = [
            one.job.number
            for one in self._fleet.lent.values()
            if one.returned and not one.over and all(nodes[name].empty for name in one.names if name in nodes)
        ]
        numbers = [*decision.cancels, *idle]
        if numbers:
            try:
                await self._slurm.cancel(numbers)
            except PenstockError as error:
                log.warning("allocations cannot be given back yet", extra={"problem": error.message})

    async def _ask(self, decision: Decision, found: Sequence[Missing], now_s: float) -> str:
        """Ask for nodes; return the problem of an ask that failed."""
        taken: list[str] = []
        for nodes in decision.asks:
            tag = f"ask-{secrets.token_hex(6)}"
            script = script_of(self._settings, self._place, self._name, tag, nodes)
            try:
                number = await self._slurm.submit(script)
            except PenstockError as error:
                self._memory = after_ask(self._memory, now_s, ok=False)
                log.warning("nodes cannot be asked for", extra={"problem": error.message})
                self._server.note(found, error.message, accepted=False)
                return error.message
            taken.append(number)
            self._problem = ""
            await asyncio.to_thread(self._make_keys, number, names_of(number, nodes), (), ())
        if taken:
            jobs = ", ".join(taken)
            text = f"asked Slurm for {counted(sum(decision.asks), 'node')}: job{'s' if len(taken) > 1 else ''} {jobs}"
            log.info("nodes were asked for", extra={"nodes": sum(decision.asks), "jobs": jobs})
            self._server.note(found, text, accepted=True)
        return ""

    def _tell(self, needed: Needed, decision: Decision, problem: str) -> None:
        live = [one.job for one in self._fleet.lent.values() if not one.over]
        asked = [job for job in live if job.stage == "asked"]
        held = sum(job.nodes for job in live if job.stage != "asked")
        self._told = saying.Said(needed, decision, asked, held, self._settings.nodes_max, problem)
