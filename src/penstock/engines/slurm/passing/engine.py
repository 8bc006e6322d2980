"""The engine that passes jobs on: an attempt that Penstock starts becomes one job of Slurm.

Everything runs on one loop; `send` may be called from any thread. Two things are looked at: the files of the scripts,
several times a second, and `squeue`, now and then or when a file alone does not say why. No memory of its own: a server
that starts again finds its jobs by those files and by the tags of its jobs in Slurm.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence

from penstock.core.messages.orders import Addressed, CheckNode, FreezeReplica, Order, StartReplica, StopReplica
from penstock.core.messages.reports import NodeCheck, ReplicaKey
from penstock.core.model.ids import JobId, NodeName
from penstock.core.model.jobs import ExitInfo
from penstock.engines.processes.accounts import cannot_be
from penstock.engines.processes.paths import DataFolder
from penstock.engines.slurm.commands import SlurmAway
from penstock.engines.slurm.nodes import SlurmNode
from penstock.engines.slurm.passing.attempts import ELEMENTS_MAX, NOT_BEGUN, Attempt, attempt_key, group_of, shape_of
from penstock.engines.slurm.passing.judging import Judge
from penstock.engines.slurm.passing.listening import Listener
from penstock.engines.slurm.passing.options import indexes_of, why_not
from penstock.engines.slurm.passing.script import NEVER_RAN_CODE
from penstock.engines.slurm.passing.spool import AttemptKey, Spool
from penstock.engines.slurm.passing.stopping import Stopper
from penstock.engines.slurm.passing.submitting import Submitter
from penstock.engines.slurm.reading import SlurmConfig, SlurmReader
from penstock.engines.slurm.server import JobTerms, PassingServer
from penstock.engines.slurm.standing import INCARNATION, StandingNodes
from penstock.engines.slurm.writing import AT_ONCE, NotTaken, SlurmWriter

log = logging.getLogger(__name__)

TURN_S = 0.05
REFRESH_S = 30.0
HURRY_S = 1.0
"""Between two questions where an end waits for Slurm's word."""
COST_SHARE = 20
"""Refreshes are this many times as far apart as the last one took, at least; a tenth of it in a hurry."""
NODES_EVERY_S = 60.0
SWEEP_EVERY_S = 3_600.0
LEAD = AT_ONCE
"""Number of jobs of a burst that the engine submits by an `sbatch` each. Slurm tries to start a single job at once, and
elements of an array only in its next scheduling pass (when a job ends, or a second or more later). Each array after
them is as large as all jobs before it together."""
AGAIN_S = 2.0
"""What could not be made ready is tried again after this long."""


class SlurmPassing:
    """An `Engine` for the nodes of one cluster.

    Args:
        shared: folder that the server and all nodes see under the same path.
        refresh_s: time between two questions for all jobs (s).
        index_max: the highest index of an array that Slurm takes.
    """

    def __init__(
        self,
        server: PassingServer,
        reader: SlurmReader,
        writer: SlurmWriter,
        shared: DataFolder,
        config: SlurmConfig,
        *,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._server, self.reader, self.config, self._refresh_s = server, reader, config, refresh_s
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.nodes = StandingNodes(server, self._carry_out)
        self.spool = Spool(shared.root)
        self._submitter = Submitter(writer, self.spool, shared, server.cluster())
        self.listener = Listener(server, self.spool, shared, self.nodes, self.attempts, self.hurry)
        self.stopper = Stopper(self.spool, writer, self.nodes, self.hurry)
        self.judge = Judge(server, self.spool, writer, self.nodes, self.listener, self.attempts, config)
        self._queue: dict[Attempt, None] = {}
        self._submitting = 0
        self.lead = LEAD
        self._led = 0
        """Jobs that went since none waited here or in Slurm."""
        self._listed: dict[NodeName, SlurmNode] = {}
        self._nodes_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._hurried = asyncio.Event()
        self.problem = ""
        """Why the last refresh failed; '' where it did not."""
        self.refreshes = 0

    def send(self, orders: Sequence[Addressed]) -> None:
        """Pass orders on. Any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._obey, list(orders))

    def connected(self) -> set[NodeName]:
        """Return the nodes that the server has taken in. Any thread."""
        return self.nodes.connected()

    def said_of(self, job_id: JobId) -> str:
        """Return what Slurm says of a job that has not begun. Any thread."""
        for key, attempt in tuple(self.attempts.items()):
            if key.job_id == job_id and not attempt.started:
                line = attempt.line
                if line is not None:
                    return f"Slurm, job {line.number}: {line.reason or line.state}"
                return self.problem or f"Slurm: {attempt.state}"
        return ""

    def hurry(self) -> None:
        """Ask Slurm soon."""
        self._hurried.set()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self.nodes.keep())
            group.create_task(self._settle())

    # Orders.

    def _obey(self, orders: Sequence[Addressed]) -> None:
        for node, order in orders:
            if self.nodes.knows(node):
                self.nodes.obey(order, node)
        self._pump()

    def _carry_out(self, node: NodeName, order: Order) -> None:
        match order:
            case StartReplica():
                self._start(node, order)
            case StopReplica():
                attempt = self.attempts.get(attempt_key(order.key)) or self._new(order.key)
                self._queue.pop(attempt, None)
                self.stopper.ask(attempt, node, order, self._now())
            case FreezeReplica() if self.nodes.state_of(order.key) not in (None, "exited"):
                self.nodes.refuse(order.key, "jobs that are passed on to Slurm cannot be frozen")
            case CheckNode():
                known = self._listed.get(node)
                closed = known.closed if known is not None else "Slurm does not list it"
                self.nodes.checked(node, NodeCheck(not closed, closed or "Slurm calls it well"))
            case _:
                pass

    def _new(self, key: ReplicaKey) -> Attempt:
        terms = self._server.terms(key.job_id)
        made = self.attempts[attempt_key(key)] = Attempt(attempt_key(key), terms.account if terms is not None else "")
        return made

    def _start(self, node: NodeName, order: StartReplica) -> None:
        if order.incarnation != INCARNATION or self.nodes.state_of(order.key) is not None:
            return
        order = self._server.prepared(order)
        attempt = self.attempts.get(attempt_key(order.key)) or self._new(order.key)
        attempt.orders[order.key.rank] = order
        self.nodes.stand(order.key, node, "starting")
        reason = why_not(order) or (cannot_be(order.account) if order.account else "")
        if reason:
            self.nodes.end(order.key, ExitInfo(NEVER_RAN_CODE, note=reason))
        elif attempt.stopping:
            self.nodes.end(order.key, NOT_BEGUN)
        elif attempt.complete and attempt.state == "gathering":
            terms = self._server.terms(attempt.key.job_id)
            attempt.apart = terms is None
            attempt.shape = shape_of(attempt.replicas(), terms or JobTerms({}))
            over = self.judge.over.get(attempt.key)
            attempt.enter("queued" if over is None else "submitted", self._now())
            if over is None:
                self._queue[attempt] = None
            else:
                attempt.number = over.number
                self.hurry()

    # Submits.

    def _pump(self) -> None:
        for attempt in [one for one in self._queue if one.state != "queued"]:
            del self._queue[attempt]
        if self._led and not self._queue and all(one.started for one in self.attempts.values()):
            self._led = 0
        while self._queue and self._submitting < AT_ONCE and self.refreshes:
            group = self._next()
            for attempt in group:
                del self._queue[attempt]
                attempt.enter("submitting", self._now())
            self._submitting += 1
            self._do(self._submit(group))

    def _next(self) -> list[Attempt]:
        """Return what is submitted next, as one job of Slurm."""
        first = next(iter(self._queue))
        if first.in_array or not self.lead:
            most = ELEMENTS_MAX
        else:
            most = 1 if self._led < self.lead else min(self._led, ELEMENTS_MAX)
        group = group_of(first, tuple(self._queue), self._server.cluster(), self.config.index_max, most)
        self._led += len(group)
        return group

    async def _submit(self, group: Sequence[Attempt]) -> None:
        elements = [attempt.replicas() for attempt in group]
        try:
            terms = self._server.terms(group[0].key.job_id)
            if terms is None:  # it has ended: its stop is on the way
                return
            number = await self._submitter.submit(elements, terms, self._listed)
        except SlurmAway as error:
            log.warning("sbatch did not answer", extra={"job": str(group[0].key), "problem": error.message})
            for attempt in group:
                attempt.apart = attempt.apart or error.answered
                attempt.enter("unsure", self._now())
            self.hurry()
        except (NotTaken, ValueError) as error:
            problem = error.message if isinstance(error, NotTaken) else str(error)
            if len(group) == 1:
                self._refused(group, ExitInfo(NEVER_RAN_CODE, note=problem, observed=True))
            else:  # perhaps there are too many of them, or Slurm has no arrays
                self._apart(group)
        except (OSError, KeyError) as error:
            self._refused(group, ExitInfo(problem=f"Slurm: it could not be passed on: {error}"))
        else:
            numbers = [f"{number}_{index}" for index in indexes_of(elements)] or [number]
            for attempt, own in zip(group, numbers, strict=True):
                attempt.number = own
                attempt.enter("submitted", self._now())
        finally:
            self._submitting -= 1
        self._pump()

    def _apart(self, group: Sequence[Attempt]) -> None:
        """Submit attempts again, each by itself."""
        for attempt in group:
            attempt.apart = True
            attempt.enter("queued", self._now())
            if not attempt.stopping:
                self._queue[attempt] = None

    def _refused(self, group: Sequence[Attempt], info: ExitInfo) -> None:
        for attempt in group:
            for order in attempt.replicas():
                if self.nodes.state_of(order.key) not in (None, "exited"):
                    self.nodes.end(order.key, info)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a step of an attempt failed", exc_info=error)

    # Time.

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _settle(self) -> None:
        while True:
            await self.turn()
            await asyncio.sleep(TURN_S)

    async def turn(self) -> None:
        """Take what is new in the files, and do what is due."""
        now_s = self._now()
        await self.listener.turn(now_s)
        for key in self.nodes.ended:
            self._forget(key)
        self.nodes.ended.clear()
        for attempt in self.stopper.due(self.attempts.values(), now_s):
            attempt.busy = True
            self._do(self.stopper.stop(attempt, now_s))
        for attempt in self.judge.again(now_s):
            self._queue[attempt] = None
        self._pump()
        if self.refreshes:  # before, no node is known, and what stands on it would count as lost
            self.nodes.flush()

    def _forget(self, key: ReplicaKey) -> None:
        """Remove what is kept of a replica whose end is in the log."""
        attempt = self.attempts.get(attempt_key(key))
        self.listener.forget(key, attempt.account if attempt is not None else "")
        if attempt is None or any(self.nodes.state_of(one.key) is not None for one in attempt.orders.values()):
            return
        if any(self.nodes.state_of(one) is not None for one in attempt.started):
            return
        self.judge.left(attempt)
        self._queue.pop(attempt, None)
        del self.attempts[attempt.key]

    async def _follow(self) -> None:
        sweep_s = 0.0
        while True:
            begun_s = self._now()
            self._hurried.clear()
            await self.follow_once()
            if begun_s >= sweep_s:
                sweep_s = begun_s + SWEEP_EVERY_S
                await asyncio.to_thread(self.spool.sweep)
            cost_s = self.reader.commands.last_s
            await asyncio.sleep(max(HURRY_S, COST_SHARE / 10 * cost_s))
            rest_s = max(self._refresh_s, COST_SHARE * cost_s) - (self._now() - begun_s)
            if rest_s > 0:
                try:
                    await asyncio.wait_for(self._hurried.wait(), rest_s)
                except TimeoutError:
                    continue

    async def follow_once(self) -> None:
        """Ask once; where Slurm does not answer, note why."""
        try:
            await self.refresh()
        except (SlurmAway, OSError) as error:
            problem = error.message if isinstance(error, SlurmAway) else str(error)
            if problem != self.problem:
                log.warning("Slurm does not answer: nothing is changed meanwhile", extra={"problem": problem})
            self.problem = problem
        else:
            if self.problem:
                log.info("Slurm answers again")
            self.problem = ""

    async def refresh(self) -> None:
        """Ask Slurm once. Raises: SlurmAway, OSError where the shared folder is away; nothing is taken then."""
        now_s = self._now()
        if self.refreshes == 0:
            await self.listener.turn(now_s, must=True)
        listed = self._listed
        if not listed or now_s - self._nodes_s >= NODES_EVERY_S:
            listed = {NodeName(node.name): node for node in await self.reader.nodes()}
            self._nodes_s = now_s
        read = await self.reader.queue()
        self._listed = listed
        self.nodes.see(listed.values())
        self.nodes.others(self.judge.see(read, listed, now_s))
        self.refreshes += 1
        await self.judge.look(self.reader, read, now_s)
        if self.judge.waits():
            self.hurry()

    def forget_nodes(self) -> None:
        """Ask for the nodes again with the next refresh."""
        self._nodes_s = -NODES_EVERY_S
