"""One scheduling cycle: who starts where, who makes room, and why the rest waits.

`plan` decides on a snapshot; `verify` says what of the plan still holds on a newer state, at commit.
"""

from typing import Literal

import msgspec

from penstock.core.faults import planted
from penstock.core.model.cluster import Queue
from penstock.core.model.ids import AttemptNumber, ClassId, JobId, NodeName, PoolName, QueueName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace
from penstock.core.order.tree import JobOrder
from penstock.core.place.free import FreeNode, emptied
from penstock.core.place.gang import NoFit, place_gang
from penstock.core.room.victims import candidates, cheapest_victims, held_places
from penstock.core.snapshot import Snapshot
from penstock.core.state import State

WaitCode = Literal["no_fit", "making_room", "behind_starving_job", "backing_off", "cycle_full"]


class Start(msgspec.Struct, frozen=True):
    job_id: JobId
    attempt: AttemptNumber
    ask: GangAsk
    places: tuple[ReplicaPlace, ...]
    waited_ms: int


class Preemption(msgspec.Struct, frozen=True):
    """An order to one victim to save and leave, for the sake of `beneficiary`."""

    victim: JobId
    attempt: AttemptNumber
    beneficiary: JobId
    cost: int


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the jobs of one class wait after this cycle; `first` is the one that was tried."""

    code: WaitCode
    first: JobId
    refused: tuple[tuple[str, int], ...] = ()
    replicas_possible: int = 0
    blocker: JobId | None = None
    victims: tuple[JobId, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """What one cycle decided, in the order it decided."""

    seq: int
    starts: tuple[Start, ...]
    preemptions: tuple[Preemption, ...]
    verdicts: dict[ClassId, Verdict]
    held: dict[JobId, tuple[ReplicaPlace, ...]]
    """Places kept for jobs whose room is being made."""
    dropped: int = 0
    """Decisions that `verify` took out because the state had moved on."""


def plan(snapshot: Snapshot, now_ms: int) -> Plan:
    """Return the decisions of one cycle.

    Jobs for which others are already leaving come first, so that nobody takes their room; then every job in the
    order of the queue tree. A class whose head does not fit is not tried again in this cycle. The result depends
    on nothing but the arguments.
    """
    cycle = _Cycle(snapshot, now_ms)
    for beneficiary in sorted(snapshot.beneficiaries, key=lambda j: (-j.spec.priority, j.id)):
        cycle.keep_room(beneficiary)
    order = JobOrder(snapshot.config, snapshot.classes, now_ms)
    while (job := order.peek()) is not None:
        if job.id in cycle.handled:
            order.advance()
        elif job.not_before_ms > now_ms:
            cycle.verdicts.setdefault(job.class_id, Verdict("backing_off", job.id))
            order.advance()
        elif cycle.consider(job):
            order.advance()
        else:
            order.drop_class()
    return cycle.result()


class _Cycle:
    """The tentative world of one cycle: free capacity shrinks as decisions are made."""

    def __init__(self, snapshot: Snapshot, now_ms: int) -> None:
        self._snapshot, self._now_ms = snapshot, now_ms
        self._cluster = snapshot.cluster
        self._queues: dict[QueueName, Queue] = {q.name: q for q in snapshot.config.queues}
        self._starving: dict[PoolName, JobId] = {}
        self._starts: list[Start] = []
        self._preemptions: list[Preemption] = []
        self._chosen: set[JobId] = set()
        self._lowest = min((j.spec.priority for j in snapshot.running if j.spec.preemptible), default=None)
        self.held: dict[JobId, tuple[ReplicaPlace, ...]] = {}
        self.verdicts: dict[ClassId, Verdict] = {}
        self.handled: set[JobId] = set()

    def result(self) -> Plan:
        return Plan(self._snapshot.seq, tuple(self._starts), tuple(self._preemptions), self.verdicts, self.held)

    def keep_room(self, job: Job) -> None:
        """Start a beneficiary if it fits by now, else keep what is free and what its victims still hold."""
        places = place_gang(job.spec.ask, self._cluster)
        if not isinstance(places, NoFit):
            self._start(job, places)
        else:
            self._hold_leaving_room(job)

    def consider(self, job: Job) -> bool:
        """Decide about one job; return False when no other job of its class needs a look."""
        ahead = self._starving.get(job.spec.ask.pool)
        if ahead is not None:
            self.verdicts[job.class_id] = Verdict("behind_starving_job", job.id, blocker=ahead)
            return False
        if len(self._starts) >= self._snapshot.config.settings.starts_per_cycle_max:
            self.verdicts[job.class_id] = Verdict("cycle_full", job.id)
            return False
        places = place_gang(job.spec.ask, self._cluster)
        if not isinstance(places, NoFit):
            self._start(job, places)
            return True
        if self._hold_leaving_room(job) or self._make_room(job):
            return True
        self.verdicts[job.class_id] = Verdict("no_fit", job.id, places.refused, places.replicas_possible)
        waited_ms = self._now_ms - job.submitted_ms
        starving = waited_ms >= self._snapshot.config.settings.starvation_after_ms
        if starving and not isinstance(place_gang(job.spec.ask, emptied(self._cluster)), NoFit):
            self._starving[job.spec.ask.pool] = job.id
        return False

    def _start(self, job: Job, places: tuple[ReplicaPlace, ...]) -> None:
        if not planted("gang_checked_one_by_one"):
            self._cluster.take(job.spec.ask, places)
        waited_ms = max(0, self._now_ms - job.waiting_since_ms)
        number = AttemptNumber(job.last_attempt + 1)
        self._starts.append(Start(job.id, number, job.spec.ask, places, waited_ms))
        self.handled.add(job.id)

    def _hold_leaving_room(self, job: Job) -> bool:
        """Keep room for `job` among what is being freed anyway: its own victims, and attempts that end."""
        stopping = self._snapshot.stopping
        leaving = [
            victim
            for victim in self._snapshot.running
            if victim.id in stopping and stopping[victim.id] in (None, job.id) and victim.id not in self._chosen
        ]
        if not leaving:
            return False
        return self._hold(job, leaving)

    def _hold(self, job: Job, leaving: list[Job]) -> bool:
        for victim in leaving:
            self._cluster.put_back(victim.spec.ask, held_places(victim))
        places = place_gang(job.spec.ask, self._cluster)
        for victim in leaving:
            self._cluster.take(victim.spec.ask, held_places(victim))
        if isinstance(places, NoFit):
            return False
        self._cluster.take(job.spec.ask, places)
        used = {p.node for p in places}
        self._chosen.update(v.id for v in leaving if used & {p.node for p in held_places(v)})
        self.held[job.id] = places
        self.handled.add(job.id)
        who = tuple(v.id for v in leaving)
        self.verdicts.setdefault(job.class_id, Verdict("making_room", job.id, victims=who))
        return True

    def _make_room(self, job: Job) -> bool:
        queue = self._queues.get(job.spec.queue)
        if queue is None or queue.preemption == "never":
            return False
        if self._lowest is None or self._lowest >= job.spec.priority:
            return False
        settings = self._snapshot.config.settings
        running = [j for j in self._snapshot.running if j.id not in self._chosen]
        victims = cheapest_victims(
            job.spec.ask,
            self._cluster,
            candidates(job, running, settings, self._now_ms),
            tries_max=settings.victim_sets_tried_max,
        )
        if victims is None:
            return False
        for victim in victims:
            attempt = victim.job.attempt
            assert attempt is not None
            self._preemptions.append(Preemption(victim.job.id, attempt.number, job.id, victim.cost))
        held = self._hold(job, [v.job for v in victims])
        self._chosen.update(v.job.id for v in victims)
        return held


def verify(proposed: Plan, state: State) -> Plan:
    """Return what of `proposed` still holds on `state`: checked again at commit, on real free capacity.

    A start holds when its job still waits with the same attempt number and every place is free on an open node
    in the same life. Preemptions hold together: if one victim of a beneficiary is gone, or a node that it was to start
    on takes no work any more, none of them is asked.
    """
    nodes: dict[NodeName, FreeNode] = {}
    starts = tuple(s for s in proposed.starts if _start_holds(s, state, nodes))
    closed = {job_id for job_id, places in proposed.held.items() if not all(_open(p, state) for p in places)}
    broken = closed | {p.beneficiary for p in proposed.preemptions if not _preemption_holds(p, state)}
    preemptions = tuple(p for p in proposed.preemptions if p.beneficiary not in broken)
    dropped = len(proposed.starts) - len(starts) + len(proposed.preemptions) - len(preemptions)
    return msgspec.structs.replace(proposed, starts=starts, preemptions=preemptions, dropped=dropped)


def _start_holds(start: Start, state: State, nodes: dict[NodeName, FreeNode]) -> bool:
    job = state.jobs.get(start.job_id)
    if job is None or job.state != "waiting" or job.unmet or job.cancel_requested:
        return False
    if job.last_attempt + 1 != start.attempt:
        return False
    if planted("plan_not_verified"):
        return True
    taken: list[ReplicaPlace] = []
    for place in start.places:
        if not _take_place(start, place, state, nodes):
            for done in taken:
                nodes[done.node].put_back(start.ask.each, done.devices)
            return False
        taken.append(place)
    return True


def _take_place(start: Start, place: ReplicaPlace, state: State, nodes: dict[NodeName, FreeNode]) -> bool:
    node = nodes.get(place.node)
    if node is None:
        known = state.nodes.get(place.node)
        if known is None:
            return False
        node = nodes[place.node] = FreeNode(known, state.derived.loads.get(place.node))
    if node.closed or node.incarnation != place.incarnation or not node.devices.issuperset(place.devices):
        return False
    if start.ask.each.host.shortage(node.host):
        return False
    if not planted("gang_checked_one_by_one"):
        node.take(start.ask.each, place.devices)
    return True


def _open(place: ReplicaPlace, state: State) -> bool:
    node = state.nodes.get(place.node)
    return node is not None and node.incarnation == place.incarnation and node.state == "ready" and not node.draining


def _preemption_holds(preemption: Preemption, state: State) -> bool:
    victim, beneficiary = state.jobs.get(preemption.victim), state.jobs.get(preemption.beneficiary)
    if victim is None or victim.attempt is None or victim.attempt.number != preemption.attempt:
        return False
    return victim.attempt.stop is None and beneficiary is not None and beneficiary.state == "waiting"
