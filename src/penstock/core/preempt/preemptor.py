"""Making room in a cycle: shrink elastic jobs, then ask victims to leave, and keep what becomes free."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from penstock.core.elastic.rounds import may_join
from penstock.core.model.cluster import ROOT_QUEUE
from penstock.core.model.ids import Incarnation, JobId, NodeName, PoolName, QueueName
from penstock.core.model.jobs import Job, ReplicaPlace, RequestClass
from penstock.core.model.plan import Preemption, PreemptionRuleName
from penstock.core.order.queues import QueueNode
from penstock.core.order.ranks import request_class
from penstock.core.order.walk import ClassCursor
from penstock.core.place.backfill import held_places, opening_at, opening_now
from penstock.core.place.gang import GangPlacer, put_gang
from penstock.core.preempt.consolidate import fits_when_moved, gain_of, movable, move_cost
from penstock.core.preempt.context import CycleContext
from penstock.core.preempt.rights import PreemptionRights
from penstock.core.preempt.rooms import devices_of, leaves_in_round, overlaps
from penstock.core.preempt.victims import Victim, cheapest_victims, cpus_of, most_freed_milli, shrink_cost, victim_cost
from penstock.core.state.idleness import makes_room

ROUNDS_AWAITED = {False: 2, True: 10}
"""Periods in which rounds may give an elastic job, or another, its places before others shrink for it."""
GONE = ReplicaPlace(NodeName(""), Incarnation(""))
"""The place of a replica that no longer holds one: its node may have other devices by now."""


class Preemptor:
    """Victims of this cycle with their beneficiaries, and the places held for these."""

    def __init__(self, context: CycleContext, tries_max: int) -> None:
        self._snapshot, self._now_ms, self._cluster, self._tree, self._holds = context
        snapshot, now_ms = context.snapshot, context.now_ms
        self._settings, self._tries_max = context.settings, tries_max
        self.chosen: set[JobId] = set()
        self._candidates: dict[PoolName, dict[int, tuple[QueueNode, int, list[Victim]]]] | None = None
        self._below: dict[tuple[PoolName, QueueName], list[tuple[QueueNode, int, list[Victim]]]] = {}
        self.preemptions: list[Preemption] = []
        self.held: dict[JobId, tuple[ReplicaPlace, ...]] = {}
        self._kept: dict[JobId, tuple[JobId, ...]] = {}
        """Beneficiaries whose planned places are kept, and the attempts that leave."""
        self._owed = {job.id for job in snapshot.beneficiaries}
        self._expected: list[tuple[QueueNode, tuple[int, ...]]] | None = None
        """Use that is about to end: of attempts that leave."""
        self._lowest: dict[PoolName, int] = {}
        """The lowest priority of evictable attempts, by pool."""
        for pool, priority in snapshot.evictable:
            self._lowest[pool] = min(priority, self._lowest.get(pool, priority))
        running, rules = snapshot.running, snapshot.config.idle_rules
        self._idle = {i for i in snapshot.idle if makes_room(running[i], rules, now_ms)} if rules else set[JobId]()
        """Attempts that make room because they are idle."""
        self._timed = bool(snapshot.leaving or snapshot.config.reservations)
        """Whether nodes are kept from some time on, and jobs that end before may have them."""
        self.again_ms = 0
        """When the first attempt that was passed over has had its guaranteed run time (unix ms); 0: none was."""

    def hold_leaving(self, job: Job, key: RequestClass, placer: GangPlacer) -> tuple[JobId, ...] | None:
        """Keep room for `job` among what is being freed anyway: its own victims, and attempts that end.

        Returns the attempts that leave, or None when that is not enough room. The job's demand counts from now on for
        the queues above it: no other job may use what is about to be free below their maxima.
        """
        if not self._snapshot.stopping:
            return None
        found = self._kept.get(job.id)
        if found is None:
            leaving = self._leaving(job)
            found = self._hold(job, key, leaving, placer) if leaving else None
        branch = self._account(job)
        if found is not None and branch is not None:
            self._tree.charge(branch, self._tree.demand(key))
        return found

    def keep_room(self, job: Job, key: RequestClass, placer: GangPlacer) -> None:
        """Keep the places that were planned for a beneficiary, as long as somebody still leaves them.

        Those are its victims; of a job that changes places with another one, the other one, or itself.
        """
        if job.id in self._snapshot.stopping.values() or (job.goes_on and self._being_left(job)):
            found = self._hold(job, key, self._leaving(job), placer, room=job.room)
            if found is not None:
                self._kept[job.id] = found

    def keep_rooms_of_movers(self) -> None:
        """Keep the places where jobs are to go on that still leave their own."""
        for job_id in sorted(i for i, whom in self._snapshot.stopping.items() if i == whom):
            job = self._snapshot.running[job_id]
            if job.room and not leaves_in_round(job):
                ask = job.next_ask(job.placed_alone)
                key = request_class(job, self._snapshot.config)
                self.keep_room(job, key, GangPlacer(ask, self._cluster, job.spec.tenant))

    def waits_for_room(self, job: Job) -> bool:
        """Return whether the places where a job is to go on are kept for it until another one has left them."""
        return job.goes_on and job.id in self._kept

    def _being_left(self, job: Job) -> bool:
        """Return whether an attempt that ends holds some of the places where the job is to go on."""
        held = (place for leaving in self._leaving(job) for _, place in held_places(leaving))
        return overlaps(held, devices_of(job.room))

    def keep_rounds(self) -> dict[JobId, tuple[JobId, ...]]:
        """Keep the places that a re-allocation gave out, until those leave that hold them.

        Returns the waiting jobs that will start there, each with the attempts that leave. Places are kept for jobs that
        still leave, too: they come back to them.
        """
        running = self._snapshot.running
        leaving = [job for job in map(running.__getitem__, sorted(self._snapshot.stopping)) if leaves_in_round(job)]
        if not leaving:
            return {}
        self.chosen.update(job.id for job in leaving)
        left = devices_of(place for job in leaving for _, place in held_places(job))
        waiting = [
            job for job in self._snapshot.beneficiaries if job.room and (job.goes_on or overlaps(job.room, left))
        ]
        kept: list[Job] = []
        with self._cluster.tentatively():
            for job in leaving:
                self._cluster.put_back(job.leaves, held_places(job))
            for job in (*waiting, *(job for job in leaving if job.room)):
                ask = job.next_ask(job.spec.ask).sized(len(job.room))
                if GangPlacer(ask, self._cluster, job.spec.tenant).put_at(job.room):
                    kept.append(job)
            openings = [opening_at(job.room, self._cluster, self._now_ms) for job in kept]
        for job, opening in zip(kept, openings, strict=True):
            self._holds.claim_all(opening.beside, self._now_ms, job.id)
            self._charge_for(job)
        names = tuple(job.id for job in leaving)
        found = {job.id: names for job in kept if job.attempt is None}
        self.held.update((job.id, job.room) for job in kept if job.id in found)
        return found

    def _charge_for(self, job: Job) -> None:
        """Count what a job will hold at its room, beyond what it holds, for the queues above it from now on."""
        branch = self._account(job)
        if branch is not None:
            demand = self._tree.demand_of(job.spec.ask.sized(len(job.room)), job.room, self._snapshot.nodes)
            held = self._demand(job) if job.attempt is not None else tuple(0 for _ in demand)
            self._tree.charge(branch, tuple(max(0, one - have) for one, have in zip(demand, held, strict=True)))

    def _leaving(self, job: Job) -> list[Job]:
        """Return attempts that end and whose room is owed to no other beneficiary."""
        stopping, running = self._snapshot.stopping, self._snapshot.running
        return [
            running[job_id]
            for job_id in sorted(stopping)
            if (stopping[job_id] == job.id or stopping[job_id] not in self._owed) and job_id not in self.chosen
        ]

    def _ending(self) -> list[tuple[QueueNode, tuple[int, ...]]]:
        """Return use that is about to end: of attempts that leave."""
        if self._expected is None:
            leaving = map(self._snapshot.running.__getitem__, sorted(self._snapshot.stopping))
            parts = ((self._account(job), job) for job in leaving)
            self._expected = [(branch, self._demand(job)) for branch, job in parts if branch is not None]
        return self._expected

    def _hold(
        self,
        job: Job,
        key: RequestClass,
        leaving: Sequence[Job],
        placer: GangPlacer,
        chosen: Sequence[Victim] = (),
        room: tuple[ReplicaPlace, ...] = (),
    ) -> tuple[JobId, ...] | None:
        with self._when_left(key, leaving, chosen):
            if not room:
                opening = opening_now(placer, self._cluster, self._now_ms)
            else:
                opening = opening_at(room, self._cluster, self._now_ms) if placer.put_at(room) else None
        if opening is None:
            return None
        self._holds.claim_all(opening.beside, self._now_ms, job.id)
        used = {place.node for place in opening.places}
        gone = (*leaving, *(v.job for v in chosen))
        self.chosen.update(v.id for v in gone if used & {place.node for _, place in held_places(v)})
        self.held[job.id] = opening.places
        return tuple(v.id for v in gone)

    def make(
        self, cursor: ClassCursor, demand: tuple[int, ...], placer: GangPlacer, below: QueueName | None = None
    ) -> tuple[JobId, ...] | None:
        """Ask the cheapest lawful set of victims to leave for the job, or return None when there is none.

        Args:
            below: the queue whose maximum is in the way, if any: only attempts that count there can help.
        """
        if not self.may_ask(cursor):
            return None
        if ending := self._ending():
            with self._tree.without(ending):
                chosen = self._first_remedy(cursor, demand, placer, below)
        else:
            chosen = self._first_remedy(cursor, demand, placer, below)  # as in most cycles, for each class
        if chosen is None:
            return None
        self._tree.charge(cursor.leaf, demand)
        for victim in chosen:
            attempt = victim.job.attempt
            assert attempt is not None
            order = Preemption(victim.job.id, attempt.number, cursor.job.id, victim.cost, victim.rule, victim.suspend)
            self.preemptions.append(order)
            self._ending().append((victim.branch, victim.demand))
        found = self._hold(cursor.job, cursor.key, self._leaving(cursor.job), placer, chosen)
        self.chosen.update(v.job.id for v in chosen)
        return found

    def _first_remedy(
        self, cursor: ClassCursor, demand: tuple[int, ...], placer: GangPlacer, below: QueueName | None
    ) -> tuple[Victim, ...] | None:
        rights = PreemptionRights(cursor.job, cursor.key, cursor.leaf, demand, self._tree)
        chosen = None if self._awaits_round(cursor.job) else self._shrunk(cursor, rights, placer)
        if chosen is None:
            chosen = self._moved(cursor, rights, placer)
        return self._evicted(cursor, rights, placer, below) if chosen is None else chosen

    def _awaits_round(self, job: Job) -> bool:
        """Return whether a round may still give the job places: after a while others shrink to their minimum for it."""
        if not may_join(job.spec, self._snapshot.config):
            return False
        patience_ms = ROUNDS_AWAITED[job.spec.ask.elastic] * self._settings.elastic_growth_period_ms
        until_ms = job.waiting_since_ms + patience_ms
        if until_ms > self._now_ms:
            self.again_ms = min(self.again_ms or until_ms, until_ms)
        return until_ms > self._now_ms

    def may_ask(self, cursor: ClassCursor) -> bool:
        """Return False if surely no victim exists, without a look at running jobs: most classes stop here."""
        if self._snapshot.elastic or self._idle:
            return True
        if self._settings.defrag or self._tree.promises or cursor.leaf.policy == "least_attained":
            return bool(self._snapshot.evictable)
        return self._lowest.get(cursor.key.ask.pool, cursor.key.priority) < cursor.key.priority

    def _worth_looking(self, cursor: ClassCursor, rights: PreemptionRights) -> bool:
        """Return False if surely no victim exists, at little cost: this runs for every class that does not fit."""
        if not rights.may_preempt:
            return False
        if cursor.leaf.policy == "least_attained" or self._idle:
            return True
        if rights.may_reclaim and rights.somebody_lends():
            return True
        pool, priority = cursor.key.ask.pool, cursor.key.priority
        return any(p < priority and name == pool for name, p in self._snapshot.evictable)

    def _askable(self, pool: PoolName, below: QueueName) -> Sequence[tuple[QueueNode, int, list[Victim]]]:
        """Return attempts that are not being stopped and have had their guaranteed run time, with their costs.

        They come by queue, from `below` down, each with the lowest priority there: a beneficiary looks only where it
        has rights, and a cycle in which a thousand queues are at their maxima looks at each of them once.
        """
        if self._candidates is None:
            self._candidates = {}
            for job_id in sorted(self._snapshot.running):
                self._weigh(self._snapshot.running[job_id])
            for of_pool, queues in self._candidates.items():
                for entry in queues.values():
                    for name in dict.fromkeys(at.name for at in entry[0].counted_in()):
                        self._below.setdefault((of_pool, name), []).append(entry)
        return self._below.get((pool, below), ())

    def _weigh(self, job: Job) -> None:
        attempt, branch = job.attempt, self._account(job)
        assert attempt is not None
        assert self._candidates is not None
        if attempt.stop is not None or branch is None or not job.evictable or not self._ran_enough(job):
            return
        idle = job.id in self._idle
        cost = shrink_cost(job, self._settings) if idle else victim_cost(job, self._settings, self._now_ms)
        victim = Victim(job, cost, held_places(job), "lower_priority", branch, self._demand(job))
        queues = self._candidates.setdefault(job.spec.ask.pool, {})
        _, lowest, victims = queues.get(id(branch), (branch, job.spec.priority, []))
        victims.append(victim)
        queues[id(branch)] = (branch, min(lowest, job.spec.priority), victims)

    def _ran_enough(self, job: Job) -> bool:
        attempt, rule = job.attempt, self._tree.rules.get(job.spec.queue)
        assert attempt is not None
        least_ms = rule.min_runtime_ms if rule is not None and rule.min_runtime_ms is not None else None
        if least_ms is None:
            least_ms = self._settings.min_runtime_before_preemption_ms
        until_ms = (attempt.running_ms or attempt.allocated_ms) + least_ms
        if until_ms > self._now_ms:
            self.again_ms = min(self.again_ms or until_ms, until_ms)
        return until_ms <= self._now_ms

    def _account(self, job: Job) -> QueueNode | None:
        return self._tree.account(job.spec.queue, job.spec.tenant)

    def _demand(self, job: Job) -> tuple[int, ...]:
        attempt = job.attempt
        assert attempt is not None
        held = [r.place if r.holds else GONE for r in attempt.replicas]
        demand = self._tree.demand_of(job.ask, held, self._snapshot.nodes)
        suspending = attempt.stop is not None and attempt.stop.reason == "suspended"
        return cpus_of(demand, self._tree.cpu_columns) if suspending else demand

    def _evicted(
        self, cursor: ClassCursor, rights: PreemptionRights, placer: GangPlacer, below: QueueName | None
    ) -> tuple[Victim, ...] | None:
        """Let the cheapest lawful set of attempts leave, or be suspended where that makes enough room."""
        if not self._worth_looking(cursor, rights):
            return None
        victims = []
        for branch, lowest, weighed in self._askable(cursor.key.ask.pool, below or ROOT_QUEUE):
            asked = rights.may_ask_in(branch, lowest)
            for victim in weighed if asked or self._idle else ():
                if victim.job.id not in self.chosen:
                    rule = self._rule_for(rights, victim, asked=asked)
                    if rule is not None:
                        victims.append(victim if rule == victim.rule else replace(victim, rule=rule))

        leaving = self._leaving(cursor.job)
        with self._when_left(cursor.key, (), ()):
            free_milli = self._cluster.free_milli.get(cursor.key.ask.pool, 0)
        free_milli += sum(most_freed_milli(job.leaves, held_places(job)) for job in leaving)
        freed_milli = {v.job.id: most_freed_milli(v.gives, v.places) for v in victims}

        def works(chosen: Sequence[Victim]) -> bool:
            if placer.milli > free_milli + sum(freed_milli[v.job.id] for v in chosen):
                return False  # said at once: of a gang over all nodes each victim is tried alone
            if not rights.lawful((v.rule, v.branch, v.demand) for v in chosen):
                return False
            if not rights.unblocked((v.branch, v.demand) for v in chosen):
                return False
            return self._fits_without(cursor.key, chosen, leaving, placer)

        chosen = cheapest_victims(victims, works, tries_max=self._tries_max)
        return chosen and self._frozen_where_enough(cursor, rights, placer, chosen)

    def _rule_for(self, rights: PreemptionRights, victim: Victim, *, asked: bool) -> PreemptionRuleName | None:
        """Return the rule that gives the right to ask `victim`; `asked`: the other rules may allow it.

        Reclaim is the strongest right; then `held_idle` comes first, for idleness makes the victim cheap.
        """
        job, now_ms = victim.job, self._now_ms
        rule = rights.rule_for(job, victim.branch, victim.demand, self._settings, now_ms) if asked else None
        if asked and rule is None and (left_ms := rights.less_service_in_ms(job, self._settings, now_ms)):
            self.again_ms = min(self.again_ms or now_ms + left_ms, now_ms + left_ms)
        idle = rule != "reclaim" and job.id in self._idle and rights.may_take_idle(job.spec.priority)
        return "held_idle" if idle else rule

    def _fits_without(
        self, key: RequestClass, victims: Sequence[Victim], leaving: Sequence[Job], placer: GangPlacer
    ) -> bool:
        with self._when_left(key, leaving, victims):
            return placer.put() is not None

    @contextmanager
    def _when_left(self, key: RequestClass, leaving: Sequence[Job], victims: Sequence[Victim]) -> Iterator[None]:
        """Show a job of the class the cluster as if these had left, each after its whole grace.

        Nodes that go, or are reserved, at a time by which the job has ended are shown too: no other job keeps those.
        """
        with self._cluster.tentatively():
            if key.length_ms and self._timed:
                graces = (job.spec.grace_ms for job in (*leaving, *(victim.job for victim in victims)))
                self._holds.lift(self._now_ms + max(graces, default=0) + key.length_ms)
            for job in leaving:
                self._cluster.put_back(job.leaves, held_places(job))
            for victim in victims:
                self._cluster.put_back(victim.gives, victim.places)
            yield

    def _frozen_where_enough(
        self, cursor: ClassCursor, rights: PreemptionRights, placer: GangPlacer, chosen: tuple[Victim, ...]
    ) -> tuple[Victim, ...]:
        """Suspend the victims that can be, as long as the job has enough room beside the memory that they keep."""
        leaving = self._leaving(cursor.job)
        for victim in sorted(chosen, key=lambda v: (-v.cost, v.job.id)):
            if not victim.job.can_suspend:
                continue
            kept = replace(victim, suspend=True, demand=cpus_of(victim.demand, self._tree.cpu_columns))
            tried = tuple(kept if v is victim else v for v in chosen)
            enough = rights.unblocked((v.branch, v.demand) for v in tried)
            if enough and self._fits_without(cursor.key, tried, leaving, placer):
                chosen = tried
        return chosen

    def _shrunk(self, cursor: ClassCursor, rights: PreemptionRights, placer: GangPlacer) -> tuple[Victim, ...] | None:
        """Shrink elastic jobs to their minimum: they save, and go on smaller at once."""
        victims = []
        for job in map(self._snapshot.running.__getitem__, self._snapshot.elastic):
            spec_ask, attempt, branch = job.spec.ask, job.undisturbed, self._account(job)
            if attempt is None or job.id in self.chosen or job.protected:
                continue
            if branch is None or len(attempt.replicas) <= spec_ask.replicas or spec_ask.pool != cursor.key.ask.pool:
                continue
            if attempt.choice == 0:
                cost = shrink_cost(job, self._settings)
                victims.append(Victim(job, cost, held_places(job), "shrink", branch, self._surplus(job)))
        if not victims:
            return None

        def works(chosen: Sequence[Victim]) -> bool:
            if not rights.unblocked((v.branch, v.demand) for v in chosen):
                return False
            return self._fits_beside_minimum(cursor.key, chosen, leaving, placer)

        leaving = self._leaving(cursor.job)
        return cheapest_victims(victims, works, tries_max=self._tries_max)

    def _moved(self, cursor: ClassCursor, rights: PreemptionRights, placer: GangPlacer) -> tuple[Victim, ...] | None:
        """Move jobs that can save, when enough capacity is free, but scattered, and the gain is worth the cost."""
        pool, ask = cursor.key.ask.pool, cursor.key.ask
        if (
            not self._settings.defrag
            or not rights.unblocked(())
            or self._cluster.free_milli.get(pool, 0) < ask.device_milli
        ):
            return None

        def weigh(job: Job) -> Victim | None:
            branch = self._account(job)
            if branch is None or job.id in self.chosen or not self._ran_enough(job):
                return None
            cost = move_cost(job, self._settings, self._now_ms)
            return Victim(job, cost, held_places(job), "defrag", branch, (0,) * len(rights.demand))

        def works(chosen: Sequence[Victim]) -> bool:
            return fits_when_moved(chosen, leaving, placer, self._cluster)

        leaving = self._leaving(cursor.job)
        found = cheapest_victims(movable(self._snapshot, pool, weigh), works, tries_max=self._tries_max)
        if found is None:
            return None
        gain = gain_of(cursor.job, placer, self._cluster, self._snapshot, self._now_ms)
        worth = gain * 1000 >= sum(v.cost for v in found) * self._settings.defrag_gain_milli
        return found if worth else None

    def _surplus(self, job: Job) -> tuple[int, ...]:
        """Return the use that an elastic job's queue loses when the job goes on at its minimum."""
        attempt = job.attempt
        assert attempt is not None
        held, least = len(attempt.replicas), job.spec.ask.replicas
        return tuple(amount * (held - least) // held for amount in self._demand(job))

    def _fits_beside_minimum(
        self, key: RequestClass, victims: Sequence[Victim], leaving: Sequence[Job], placer: GangPlacer
    ) -> bool:
        smallest = [(v.job.next_ask(v.job.spec.ask).sized(v.job.spec.ask.replicas), v.job.spec.tenant) for v in victims]
        with self._when_left(key, leaving, victims):
            if placer.put() is None:
                return False
            return all(put_gang(ask, self._cluster, tenant) is not None for ask, tenant in smallest)
