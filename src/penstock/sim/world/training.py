"""Elastic training programs, in some worlds: jobs with batch ranges in a pool that re-allocates, and how they train.

Their profiles are made up; they report what programs of a replay report. `rounds.py` judges what the log made of them.
"""

import random
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from penstock.core.config.job import parse_request
from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ProgressSeen, ReplicaKey
from penstock.core.model.batching import BatchAsk, BatchChoice, ElasticRule, total_of
from penstock.core.model.cluster import ClusterConfig, NodeSpec, Pool, Queue
from penstock.core.model.events import AttemptAllocated, AttemptStopRequested, BatchChosen, Record
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, PoolName, QueueName
from penstock.core.model.jobs import ReplicaPlace
from penstock.core.model.matching import ModelRule
from penstock.core.model.resources import Resources
from penstock.devices.simulated import simulated
from penstock.sim.replay.execution_model import FULL_SPEED, gauges_of
from penstock.sim.world.clients import Clients
from penstock.sim.world.ground import Ground, Machine
from penstock.sim.world.programs import STEP_MS, Behaviour, SimulatedProcess, steps_done
from penstock.sim.world.rounds import RoundsCheck
from penstock.traces.profiles import NODE_DEVICES, ProfiledRun, TraceProfile
from penstock.traces.training import Pace, Training

POOL, QUEUE = PoolName("lab"), QueueName("lab")
BATCHES = (16, 64, 256)
LOCAL_BATCHES = (4, 16, 64)
EPOCHS = 3
KINDS = 3
"""Different programs of one world."""
NODES_MAX = 3
KIND = "SIM_KIND"
"""The environment variable that says which program a job runs."""
EVERY_MS = 1_000
JOBS = (5, 9)
OTHERS = (0, 4)
"""Jobs of one size in the same pool."""
RESTARTS = (1, 2, 3, 12)
FAST, SLOW = "A100-SIM", "V100-SIM"
MIXED_PART = 0.5
"""Part of these worlds in which the pool has two device models, and rounds choose them, too."""


def trains(seed: int) -> bool:
    """Return whether a seed's world has training programs: every eighth has."""
    return seed % 8 == 1


class Trainers:
    """Training jobs and their programs; `rng` has no other use, so a seed otherwise keeps meaning the same world."""

    def __init__(self, world: Ground, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self._programs = {f"kind-{number}": _program(f"kind-{number}", rng) for number in range(KINDS)}
        self._asks = {
            kind: BatchAsk(16, rng.choice((64, 100, 256)), rng.choice((16, 24, 64))) for kind in self._programs
        }
        self._batches: dict[tuple[JobId, AttemptNumber], BatchChoice] = {}
        """What the programs of an attempt run with."""
        self._kinds: dict[JobId, str] = {}
        self._lab: set[NodeName] = set()
        """Its nodes."""
        models = random.Random(f"{world.seed} models of the lab")
        self._slow_milli = {kind: models.choice((300, 600, 1_000)) for kind in self._programs}
        """How fast programs are on the slow model, against the fast one."""
        self._mixed = models.random() < MIXED_PART

    def declare(self, config: ClusterConfig) -> ClusterConfig:
        """Return the same with a pool that re-allocates, and a queue without limits; restarts are cheap."""
        rule = ElasticRule(self._rng.choice(("goodput", "goodput", "speedup")), True, self._rng.choice(RESTARTS))
        models = ModelRule(match=self._mixed, move=self._mixed, moves_per_hour=rule.restarts_per_hour)
        pool = Pool(POOL, backfill=self._rng.choice(("easy", "conservative", "none")), elastic=rule, models=models)
        queue = Queue(QUEUE, policy=self._rng.choice(("fifo", "priority", "shortest_predicted")))
        settings = replace(config.settings, checkpoint_cost_ms=200, restart_cost_ms=400)
        return replace(config, pools=(*config.pools, pool), queues=(*config.queues, queue), settings=settings)

    def node_specs(self) -> Iterator[NodeSpec]:
        """Yield the nodes of the pool."""
        for number in range(self._rng.randint(2, NODES_MAX)):
            self._lab.add(name := NodeName(f"lab{number}"))
            yield NodeSpec(
                name=name,
                capacity=Resources(cpu_milli=8_000, memory_bytes=2**33),
                devices=simulated(NODE_DEVICES, SLOW if self._mixed and number % 2 else FAST, 80 * 2**30),
                pool=POOL,
                virtual=True,
            )

    # Jobs.

    def plan_requests(self, clients: Clients, over_ms: int) -> None:
        """Spread training jobs, and others of the pool, over a time."""
        rng = self._rng
        entries = [self._training(number) for number in range(rng.randint(*JOBS))]
        entries += [self._of_one_size(number) for number in range(rng.randint(*OTHERS))]
        for entry in entries:
            key = str(entry["name"])
            parsed, problems = parse_request([entry])
            assert not problems, problems
            clients.asked[key] = parsed
            at_ms = rng.randint(3_000, over_ms)
            self._world.agenda.after(at_ms, lambda key=key: clients.submit(key))  # type: ignore[misc]

    def _training(self, number: int) -> dict[str, Any]:
        rng = self._rng
        kind = rng.choice(sorted(self._programs))
        ask = self._asks[kind]
        behaviour = Behaviour(
            steps=self._programs[kind].run_ms // STEP_MS,
            exit_code=rng.choice((0, 0, 0, 1)),
            saves_every=rng.choice((0, 10, 25)),
            heeds_stop=rng.random() < 0.9,
        )
        least = rng.choice((1, 1, 2))
        entry = self._entry(f"train-{number}", behaviour) | {
            "replicas": {"min": least, "max": rng.choice((4, 8, 12))},
            "env": {KIND: kind},
            "preemptible": rng.random() < 0.9,
        }
        if rng.random() < 0.8:
            entry["batch"] = {"min": ask.smallest, "max": ask.largest, "per_device_max": ask.per_device_max}
        if behaviour.saves_every and rng.random() < 0.8:
            entry["checkpoint"] = {"request_signal": "SIGUSR1"}
        return entry

    def _of_one_size(self, number: int) -> dict[str, Any]:
        rng = self._rng
        entry = self._entry(f"one-size-{number}", Behaviour(steps=rng.choice((20, 100))))
        entry["replicas"] = rng.choice((1, 2, 6))
        if rng.random() < 0.2:
            entry["topology"] = "spread"  # no round gives it places
            entry["replicas"] = 2
        return entry

    def _entry(self, name: str, behaviour: Behaviour) -> dict[str, Any]:
        rng = self._rng
        return {
            "name": name,
            "command": list(behaviour.command()),
            "tenant": rng.choice(self._world.tenants),
            "queue": QUEUE,
            "pool": POOL,
            "devices": 1,
            "cpus": 0,
            "grace": rng.choice((1, 5)),
            "retries": 0,
            "priority": rng.choice(("low", "medium", "medium", "medium", "high")),
        }

    # Programs.

    def begins(self, node: Machine, process: SimulatedProcess, order: StartReplica) -> bool:
        """Let a process train, if that is its program; return whether it does."""
        kind = dict(order.env).get(KIND)
        if kind is None:
            return False
        run = process.key.job_id, process.key.attempt
        self._kinds[process.key.job_id] = kind
        if order.batch is not None and run not in self._batches:
            self._take(process.key, order.batch)
        self._go_on(node, process)
        node.agenda.after(EVERY_MS, lambda: self._tell(node, process))
        return True

    def takes(self, key: ReplicaKey, batch: BatchChoice) -> None:
        """Let all ranks of an attempt go on with a batch, as the first one is told."""
        if key.job_id not in self._kinds:
            return
        self._world.probes["batch_changed"] += self._batches.get((key.job_id, key.attempt)) != batch
        self._take(key, batch)
        for _, node in sorted(self._world.nodes.items()):
            for process in [*node.processes.values()]:
                if (process.key.job_id, process.key.attempt) == (key.job_id, key.attempt):
                    self._go_on(node, process)

    def _take(self, key: ReplicaKey, batch: BatchChoice) -> None:
        self._batches[key.job_id, key.attempt] = batch
        replicas, asked = sum(self._placement(key)), self._asks[self._kinds[key.job_id]]
        if wrong := out_of_range(batch, replicas, asked):
            self._world.violation(f"job {key.job_id} was told to train with {batch} on {replicas} replicas: {wrong}")

    def _pace(self, process: SimulatedProcess, done: int) -> tuple[Pace, BatchChoice, int]:
        program, placement = self._programs[self._kinds[process.key.job_id]], self._placement(process.key)
        batch = self._batches.get((process.key.job_id, process.key.attempt)) or program.own_batch(sum(placement))
        return program.pace(placement, batch, program.epoch(done * STEP_MS)), batch, sum(placement)

    def _go_on(self, node: Machine, process: SimulatedProcess) -> None:
        pace, _, _ = self._pace(process, steps_done(process, node.agenda))
        node.go_at(process, max(1, pace.speed * self._milli(process) // 1000))

    def _milli(self, process: SimulatedProcess) -> int:
        """Return how fast the devices of its attempt are for a process, in thousandths of the fast model."""
        slow = SLOW in self._models(self._places(process.key))
        return self._slow_milli[self._kinds[process.key.job_id]] if slow else 1000

    def _models(self, places: Iterable[ReplicaPlace]) -> set[str]:
        nodes = self._world.nodes
        return {nodes[place.node].spec.devices[index].model for place in places for index in place.devices}

    def _tell(self, node: Machine, process: SimulatedProcess) -> None:
        """Report the progress of one rank, now and from now on; its speed changes with its epoch."""
        if node.processes.get(process.key) is not process:
            return
        if node.agent_state is not None and process.frozen_ms is None and not process.suspended_ms:
            self._go_on(node, process)
            done = steps_done(process, node.agenda)
            pace, batch, replicas = self._pace(process, done)
            gauges, _ = gauges_of(pace, batch, replicas, milli=self._milli(process))
            step_ms = max(1, STEP_MS * FULL_SPEED // process.speed)
            gauges = replace(
                gauges,
                step_ms=step_ms,
                report_gap_ms=max(EVERY_MS, step_ms),
                total_steps=process.behaviour.steps,
                samples_per_s_milli=gauges.samples_per_s_milli // replicas,
            )
            node.agent_state.on_progress(ProgressSeen(process.key, "progress", done, gauges=gauges))
        node.agenda.after(EVERY_MS, lambda: self._tell(node, process))

    def _placement(self, key: ReplicaKey) -> tuple[int, ...]:
        """Return the replicas on each node in the order of ranks."""
        return tuple(sum(1 for _ in alike) for _, alike in groupby(place.node for place in self._places(key)))

    def _places(self, key: ReplicaKey) -> tuple[ReplicaPlace, ...]:
        """Return the places of an attempt, as the log says."""
        for record in reversed(self._world.disk.records):
            event = record.event
            if isinstance(event, AttemptAllocated) and (event.job_id, event.attempt) == (key.job_id, key.attempt):
                return event.places
        raise AssertionError(f"{key} was started, and is not in the log")

    # What must be true of the log.

    def violations(self, records: Iterable[Record]) -> Iterator[str]:
        """Yield what rounds did that they must not do, and batches outside of the range of their job."""
        every = list(records)
        yield from RoundsCheck(self._world.config, POOL).violations(every)
        before: dict[JobId, set[str]] = {}
        for event in (record.event for record in every):
            self._world.probes["batch_chosen"] += isinstance(event, BatchChosen)
            if isinstance(event, AttemptAllocated) and event.places[0].node in self._lab:
                before[event.job_id] = self._models(event.places)
            elif isinstance(event, AttemptStopRequested):
                for room in event.rooms:
                    there = self._models(room.places)
                    self._world.probes["model_chosen_by_round"] += before.get(room.job_id, there) != there


def out_of_range(batch: BatchChoice, replicas: int, ask: BatchAsk) -> str:
    """Return why a job may not train with a batch on so many replicas; '' where it may."""
    total, passes = total_of(batch, replicas), batch.accumulation + 1
    if not ask.per_device_min <= batch.local <= ask.per_device_max:
        return f"{batch.local} samples a pass, {ask.per_device_min} to {ask.per_device_max} are accepted"
    if total > ask.largest:
        return f"{total} samples an update, at most {ask.largest} are accepted"
    if total < ask.smallest and total + replicas * passes <= ask.largest:
        return f"{total} samples an update, at least {ask.smallest} are accepted"
    return ""


def _program(name: str, rng: random.Random) -> Training:
    """Return a program whose gradients get noisier by the epoch, and whose ranks wait for each other."""
    base_s, sample_s, sync_s = rng.choice((0.05, 0.2)), rng.choice((0.002, 0.01)), rng.choice((0.01, 0.05, 0.2))
    shapes = [(nodes, replicas) for nodes in range(1, NODES_MAX + 1) for replicas in range(nodes, 4 * nodes + 1)]
    times = {
        (nodes, replicas): [
            (local, base_s + sample_s * local + waits_s, waits_s)
            for local in LOCAL_BATCHES
            for waits_s in [sync_s * nodes * (1 + 0.1 * replicas) if replicas > 1 else 0.0]
        ]
        for nodes, replicas in shapes
    }
    alone_s = rng.choice((15, 30, 60)) / (base_s + sample_s * BATCHES[0])
    progress = tuple(alone_s * (epoch + 1) / EPOCHS for epoch in range(EPOCHS))
    noise = tuple(rng.choice((0.5, 2.0)) * 4.0**epoch for epoch in range(EPOCHS))
    return Training(
        TraceProfile(name, {batch: ProfiledRun(progress, (1.0,) * EPOCHS, noise) for batch in BATCHES}, times),
        1,
        BATCHES[0],
    )
