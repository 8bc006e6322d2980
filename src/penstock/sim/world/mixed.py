"""A pool of two device models, in some worlds: programs that differ in how much faster they are on one of them.

Jobs get the model that suits them, and move to it while nodes and servers die. What the log made of it is checked by a
fold of its own. An hour takes seconds here.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from penstock.core.config.job import parse_request
from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ProgressSeen
from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, NodeSpec, Pool, Queue
from penstock.core.model.ids import JobId, NodeName, PoolName, QueueName, Rank
from penstock.core.model.jobs import JobSpec, ReplicaPlace
from penstock.core.model.matching import ModelRule
from penstock.core.model.progress import Gauges
from penstock.core.model.resources import Resources
from penstock.devices.simulated import simulated
from penstock.sim.world.clients import Clients
from penstock.sim.world.ground import Ground, Machine
from penstock.sim.world.programs import STEP_MS, Behaviour, SimulatedProcess, steps_done
from penstock.sim.world.promises import Device, Promises, devices_of
from penstock.traces.training import FULL_SPEED

POOL, QUEUE = PoolName("mixed"), QueueName("mixed")
FAST, SLOW = "A100-SIM", "V100-SIM"
SPEEDS_MILLI = {"any": 1000, "middling": 600, "picky": 250}
"""Of programs on the slow model, against the fast one."""
KIND = "SIM_MODEL_KIND"
"""The environment variable that says which program a job runs."""
MOVES_PER_HOUR = 300
PAUSE_MS = 12_000
EVERY_MS = 1_000
JOBS = (5, 10)
HOUR_MS = 3_600_000


def is_mixed(seed: int) -> bool:
    """Return whether a seed's world has a pool of two models: every eighth, and none that has found a bug before."""
    return seed % 8 == 3


class Mixed:
    """The pool, its jobs and their programs; `rng` has no other use, so a seed otherwise keeps its meaning."""

    def __init__(self, world: Ground, rng: random.Random) -> None:
        self._world, self._rng = world, rng

    def declare(self, config: ClusterConfig) -> ClusterConfig:
        """Return the same with a pool that matches models, and a queue without limits; restarts are cheap."""
        rule = ModelRule(match=True, move=True, moves_per_hour=MOVES_PER_HOUR)
        speeds = ((FAST, 1_000, 1_000), (SLOW, self._rng.choice((300, 1_000)), self._rng.choice((200, 1_000))))
        pool = Pool(POOL, backfill="none", models=rule, speeds=speeds if self._rng.random() < 0.5 else ())
        queue = Queue(QUEUE, policy=self._rng.choice(("fifo", "least_attained")))
        settings = replace(config.settings, checkpoint_cost_ms=200, restart_cost_ms=400)
        return replace(config, pools=(*config.pools, pool), queues=(*config.queues, queue), settings=settings)

    def node_specs(self) -> Iterator[NodeSpec]:
        """Yield the nodes of the pool."""
        for number in range(self._rng.randint(2, 4)):
            yield NodeSpec(
                name=NodeName(f"mixed{number}"),
                capacity=Resources(cpu_milli=8_000, memory_bytes=2**33),
                devices=simulated(2, (FAST, SLOW)[number % 2], 80 * 2**30),
                pool=POOL,
                virtual=True,
            )

    def plan_requests(self, clients: Clients, over_ms: int) -> None:
        """Spread jobs over a time: most can save, and accept any model."""
        for number in range(self._rng.randint(*JOBS)):
            entry = self._entry(number)
            key = f"mixed-{number}"
            parsed, problems = parse_request([entry])
            assert not problems, problems
            clients.asked[key] = parsed
            at_ms = self._rng.randint(3_000, over_ms)
            self._world.agenda.after(at_ms, lambda key=key: clients.submit(key))  # type: ignore[misc]

    def _entry(self, number: int) -> dict[str, Any]:
        rng = self._rng
        kind = rng.choice(sorted(SPEEDS_MILLI))
        behaviour = Behaviour(
            steps=rng.choice((150, 400, 800)), saves_every=rng.choice((0, 10, 25)), heeds_stop=rng.random() < 0.9
        )
        entry: dict[str, Any] = {
            "name": f"{kind}-{number}",
            "command": list(behaviour.command()),
            "env": {KIND: kind},
            "tenant": rng.choice(self._world.tenants[:2]),
            "queue": QUEUE,
            "pool": POOL,
            "devices": 1,
            "replicas": rng.choice((1, 1, 1, 2)),
            "cpus": 0,
            "grace": rng.choice((1, 5)),
            "retries": 0,
            "preemptible": rng.random() < 0.9,
            "priority": rng.choice(("medium", "medium", "high")),
        }
        if behaviour.saves_every and rng.random() < 0.7:
            entry["checkpoint"] = {"request_signal": "SIGUSR1"}
        return entry

    # Programs.

    def begins(self, node: Machine, process: SimulatedProcess, order: StartReplica) -> bool:
        """Let a process be as fast as its program is on its devices, if it is one of these; return whether it is."""
        kind = dict(order.env).get(KIND)
        if kind is None:
            return False
        slow = any(node.spec.devices[index].model == SLOW for index in process.devices)
        node.go_at(process, FULL_SPEED // 1000 * (SPEEDS_MILLI[kind] if slow else 1000))
        node.agenda.after(EVERY_MS, lambda: self._tell(node, process))
        return True

    def _tell(self, node: Machine, process: SimulatedProcess) -> None:
        if node.processes.get(process.key) is not process:
            return
        if node.agent_state is not None and process.frozen_ms is None and not process.suspended_ms:
            step_ms = STEP_MS * FULL_SPEED // process.speed
            gauges = Gauges(step_ms=step_ms, report_gap_ms=EVERY_MS, total_steps=process.behaviour.steps)
            done = steps_done(process, node.agenda)
            node.agent_state.on_progress(ProgressSeen(process.key, "progress", done, gauges=gauges))
        node.agenda.after(EVERY_MS, lambda: self._tell(node, process))

    def violations(self, records: Iterable[ev.Record]) -> Iterator[str]:
        """Yield moves that must not be."""
        check = MovesCheck()
        yield from check.violations(records)
        self._world.probes["moved_to_model"] += check.moves


class _Run:
    """A live attempt in the pool."""

    def __init__(self, event: ev.AttemptAllocated) -> None:
        self.places: dict[Rank, ReplicaPlace] = {Rank(rank): place for rank, place in enumerate(event.places)}
        """Those that are held."""
        self.waits_for: set[Rank] = set(map(Rank, range(len(event.places))))
        self.running_ms = 0
        self.saved = False


class MovesCheck:
    """The fold of a log that follows who moves to which model."""

    def __init__(self) -> None:
        self.moves = 0
        self._specs: dict[JobId, JobSpec] = {}
        self._models: dict[Device, str] = {}
        self._runs: dict[JobId, _Run] = {}
        self._moved: dict[JobId, list[int]] = {}
        self._promises = Promises()
        self._due: dict[int, list[tuple[JobId, JobId]]] = {}
        """By plan: who moves, and whose devices it gets."""
        self._asked: dict[int, set[JobId]] = {}
        """By plan: who is asked to move."""

    def violations(self, records: Iterable[ev.Record]) -> Iterator[str]:
        """Yield moves of jobs that cannot save or may not be moved, too often, to no other model, or at the cost of
        another tenant or priority; and places that were promised and not kept.
        """
        self._promises = Promises()
        for record in records:
            yield from self._follow(record.event, record.time_ms)
        for basis, pairs in self._due.items():
            for job_id, other in pairs:
                if other not in self._asked.get(basis, ()):
                    yield f"job {job_id} moves to devices of job {other}, which stays"

    def _follow(self, event: ev.AnyEvent, now_ms: int) -> Iterator[str]:
        self._promises.follow(event, self._specs)
        match event:
            case ev.JobSubmitted() if event.spec.ask.pool == POOL:
                self._specs[event.job_id] = event.spec
            case ev.JobEdited() if event.job_id in self._specs:
                change, spec = event.change, self._specs[event.job_id]
                priority = spec.priority if change.priority is None else change.priority
                preemptible = spec.preemptible if change.preemptible is None else change.preemptible
                self._specs[event.job_id] = replace(spec, priority=priority, preemptible=preemptible)
            case ev.NodeRegistered() if event.spec.pool == POOL:
                self._models.update({(event.spec.name, one.index): one.model for one in event.spec.devices})
            case ev.AttemptAllocated() if event.job_id in self._specs:
                yield from self._promises.given(event)
                self._runs[event.job_id] = _Run(event)
            case ev.ReplicaStarted() if event.job_id in self._runs:
                run = self._runs[event.job_id]
                run.waits_for.discard(event.rank)
                run.running_ms = run.running_ms or (0 if run.waits_for else now_ms)
            case ev.ReplicaExited() if event.job_id in self._runs:
                self._runs[event.job_id].places.pop(event.rank, None)
            case ev.CheckpointSaved() if event.job_id in self._runs:
                self._runs[event.job_id].saved = True
            case ev.AttemptStopRequested() if event.job_id in self._runs and event.rule == "model":
                yield from self._move(event, now_ms)
            case ev.AttemptStopRequested():
                self._promises.void(event.job_id)
            case ev.AttemptEnded():
                self._runs.pop(event.job_id, None)
            case _:
                pass

    def _move(self, event: ev.AttemptStopRequested, now_ms: int) -> Iterator[str]:
        job_id, spec, run = event.job_id, self._specs[event.job_id], self._runs[event.job_id]
        self.moves += 1
        moved = self._moved.setdefault(job_id, [])
        moved.append(now_ms)
        if not spec.preemptible or not (spec.checkpoint.request_signal or run.saved):
            yield f"job {job_id} is moved, and may not be, or has nothing saved"
        if not run.running_ms or event.decided_ms < run.running_ms + PAUSE_MS:
            yield f"job {job_id} is moved {event.decided_ms - run.running_ms} ms after it began to run"
        if sum(at_ms > now_ms - HOUR_MS for at_ms in moved) > MOVES_PER_HOUR:
            yield f"job {job_id} is moved more than {MOVES_PER_HOUR} times in an hour"
        here, there = self._on(run.places.values()), self._on(event.room)
        if len(there) != 1 or here == there:
            yield f"job {job_id} is moved from {sorted(here)} to {sorted(there)}"
        self._promises.make(job_id, event.room, event.basis)
        self._asked.setdefault(event.basis, set()).add(job_id)
        wanted = devices_of(event.room)
        for other, one in self._runs.items():
            if other != job_id and wanted & devices_of(one.places.values()):
                self._due.setdefault(event.basis, []).append((job_id, other))
                rival = self._specs[other]
                if (rival.tenant, rival.priority) != (spec.tenant, spec.priority):
                    yield f"job {other} of {rival.tenant} leaves its model for job {job_id} of {spec.tenant}"

    def _on(self, places: Iterable[ReplicaPlace]) -> set[str]:
        return {self._models[device] for device in devices_of(places)}
