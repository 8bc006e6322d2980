"""Making room in a cycle: shrink elastic jobs, then ask victims to leave, and keep what becomes free."""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.model.cluster import ROOT_QUEUE
from penstock.core.model.ids import Incarnation, JobId, NodeName, PoolName, QueueName
from penstock.core.model.jobs import Job, ReplicaPlace
from penstock.core.model.plan import Preemption, PreemptionRuleName
from penstock.core.order.tree import Branch, QueueTree
from penstock.core.order.walk import Cursor
from penstock.core.place.backfill import held_places, opening_now
from penstock.core.place.gang import Prepared, put_gang
from penstock.core.place.index import FreeCluster
from penstock.core.place.shadow import Claim, Shadows
from penstock.core.preempt.consolidate import fits_when_moved, gain_of, movable, move_cost
from penstock.core.preempt.rights import Claimant
from penstock.core.preempt.victims import Victim, cheapest_victims, cpus_of, shrink_cost, victim_cost
from penstock.core.state.idleness import makes_room
from penstock.core.state.snapshot import Snapshot

GONE = ReplicaPlace(NodeName(""), Incarnation(""))
"""Stands for the place of a replica that holds nothing any more: its node may have other devices by now."""


class Room:
    """Who was asked to leave in this cycle, for whom, and the places that are kept for those."""

    def __init__(
        self,
        cluster: FreeCluster,
        shadows: Shadows,
        tree: QueueTree,
        snapshot: Snapshot,
        now_ms: int,
        tries_max: int,
    ) -> None:
        self._cluster, self._shadows, self._tree = cluster, shadows, tree
        self._snapshot, self._settings, self._now_ms = snapshot, snapshot.config.settings, now_ms
        self._tries_max = tries_max
        self.chosen: set[JobId] = set()
        self._candidates: dict[PoolName, dict[int, tuple[Branch, int, list[Victim]]]] | None = None
        self._below: dict[tuple[PoolName, QueueName], list[tuple[Branch, int, list[Victim]]]] = {}
        self.preemptions: list[Preemption] = []
        self.held: dict[JobId, tuple[ReplicaPlace, ...]] = {}
        self._owed = {job.id for job in snapshot.beneficiaries}
        self._expected: list[tuple[Branch, tuple[int, ...]]] | None = None
        """Use that is about to end: of attempts that leave."""
        self._lowest: dict[PoolName, int] = {}
        """The lowest priority of those that may be asked at all, by pool."""
        for pool, priority in snapshot.evictable:
            self._lowest[pool] = min(priority, self._lowest.get(pool, priority))
        running, rules = snapshot.running, snapshot.config.idle_rules
        self._idle = {i for i in snapshot.idle if makes_room(running[i], rules, now_ms)} if rules else set[JobId]()
        """Attempts that make room because they are idle."""
        self.again_ms = 0
        """When the first attempt that was passed over has had its guaranteed run time (unix ms); 0: none was."""

    def hold_leaving(self, job: Job, prepared: Prepared, demand: tuple[int, ...]) -> tuple[JobId, ...] | None:
        """Keep room for `job` among what is being freed anyway: its own victims, and attempts that end.

        Returns those who leave, or None when that is not room enough. What the job asks for counts from now on for
        the queues above it: nobody else may use what is about to be free below their maxima.
        """
        if not self._snapshot.stopping:
            return None
        leaving = self._leaving(job)
        found = self._hold(job, leaving, prepared) if leaving else None
        branch = self._part(job)
        if found is not None and branch is not None:
            self._tree.charge(branch, demand)
        return found

    def _leaving(self, job: Job) -> list[Job]:
        """Return attempts that end and whose room nobody else is owed."""
        stopping, running = self._snapshot.stopping, self._snapshot.running
        return [
            running[job_id]
            for job_id in sorted(stopping)
            if (stopping[job_id] == job.id or stopping[job_id] not in self._owed) and job_id not in self.chosen
        ]

    def _ending(self) -> list[tuple[Branch, tuple[int, ...]]]:
        """Return use that is about to end: of attempts that leave."""
        if self._expected is None:
            leaving = map(self._snapshot.running.__getitem__, sorted(self._snapshot.stopping))
            parts = ((self._part(job), job) for job in leaving)
            self._expected = [(branch, self._demand(job)) for branch, job in parts if branch is not None]
        return self._expected

    def _hold(
        self, job: Job, leaving: Sequence[Job], prepared: Prepared, chosen: Sequence[Victim] = ()
    ) -> tuple[JobId, ...] | None:
        mark = self._cluster.mark()
        for one in leaving:
            self._cluster.put_back(one.leaves, held_places(one))
        for victim in chosen:
            self._cluster.put_back(victim.gives, victim.places)
        opening = opening_now(prepared, self._cluster, self._now_ms)
        self._cluster.rollback(mark)
        if opening is None:
            return None
        for node, free in opening.beside:
            self._shadows.claim(node, Claim(self._now_ms, free, job.id))
        used = {place.node for place in opening.places}
        gone = (*leaving, *(v.job for v in chosen))
        self.chosen.update(v.id for v in gone if used & {place.node for _, place in held_places(v)})
        self.held[job.id] = opening.places
        return tuple(v.id for v in gone)

    def make(
        self, cursor: Cursor, demand: tuple[int, ...], prepared: Prepared, below: QueueName | None = None
    ) -> tuple[JobId, ...] | None:
        """Ask the cheapest lawful set of others to leave for the job, or return None when there is none.

        Args:
            below: the queue whose maximum is in the way, if one is: only who counts there can help.
        """
        if not self.may_ask(cursor):
            return None
        expected = list(self._ending())
        for branch, amounts in expected:
            self._tree.charge(branch, amounts, -1)
        claimant = Claimant(cursor.job, cursor.key, cursor.leaf, demand, self._tree)
        chosen = self._shrunk(cursor, claimant, prepared)
        if chosen is None and self._settings.defrag:
            chosen = self._moved(cursor, claimant, prepared)
        if chosen is None and self._worth_looking(cursor, claimant):
            chosen = self._evicted(cursor, claimant, prepared, below)
            chosen = self._frozen_where_enough(cursor, claimant, prepared, chosen) if chosen is not None else None
        for branch, amounts in expected:
            self._tree.charge(branch, amounts)
        if chosen is None:
            return None
        self._tree.charge(cursor.leaf, demand)
        for victim in chosen:
            attempt = victim.job.attempt
            assert attempt is not None
            order = Preemption(victim.job.id, attempt.number, cursor.job.id, victim.cost, victim.rule, victim.suspend)
            self.preemptions.append(order)
            self._ending().append((victim.branch, victim.demand))
        found = self._hold(cursor.job, self._leaving(cursor.job), prepared, chosen)
        self.chosen.update(v.job.id for v in chosen)
        return found

    def may_ask(self, cursor: Cursor) -> bool:
        """Rule out, without a look at who runs, that anybody could be asked: most classes that do not fit end here."""
        if self._snapshot.elastic or self._idle:
            return True
        if self._settings.defrag or self._tree.promises or cursor.leaf.policy == "least_attained":
            return bool(self._snapshot.evictable)
        return self._lowest.get(cursor.key.ask.pool, cursor.key.priority) < cursor.key.priority

    def _worth_looking(self, cursor: Cursor, claimant: Claimant) -> bool:
        """Rule out at once that anybody could be asked: this runs for every class that does not fit."""
        if not claimant.may_preempt:
            return False
        if cursor.leaf.policy == "least_attained" or self._idle:
            return True
        if claimant.may_reclaim and claimant.somebody_lends():
            return True
        pool, priority = cursor.key.ask.pool, cursor.key.priority
        return any(p < priority and name == pool for name, p in self._snapshot.evictable)

    def _askable(self, pool: PoolName, below: QueueName) -> Sequence[tuple[Branch, int, list[Victim]]]:
        """Return attempts that are not being stopped and have had their guaranteed run time, with their costs.

        They come by queue, from `below` down, each with the lowest priority there: a claimant looks only where it has
        a right, and a cycle in which a thousand queues are at their maxima looks at each of them once.
        """
        if self._candidates is None:
            self._candidates = {}
            for job_id in sorted(self._snapshot.running):
                self._weigh(self._snapshot.running[job_id])
            for of_pool, queues in self._candidates.items():
                for entry in queues.values():
                    part = entry[0]
                    names = [at.name for at in part.path()] + ([part.cap.name] if part.cap is not None else [])
                    for name in dict.fromkeys(names):
                        self._below.setdefault((of_pool, name), []).append(entry)
        return self._below.get((pool, below), ())

    def _weigh(self, job: Job) -> None:
        attempt, branch = job.attempt, self._part(job)
        assert attempt is not None
        assert self._candidates is not None
        if attempt.stop is not None or branch is None or not job.spec.preemptible or not self._ran_enough(job):
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

    def _part(self, job: Job) -> Branch | None:
        branch = self._tree.branches.get(job.spec.queue)
        return None if branch is None else self._tree.part(branch, job.spec.tenant)

    def _demand(self, job: Job) -> tuple[int, ...]:
        attempt = job.attempt
        assert attempt is not None
        held = [r.place if r.holds else GONE for r in attempt.replicas]
        demand = self._tree.demand_of(job.ask, held, self._snapshot.nodes)
        suspending = attempt.stop is not None and attempt.stop.reason == "suspended"
        return cpus_of(demand, self._tree.cpu_columns) if suspending else demand

    def _evicted(
        self, cursor: Cursor, claimant: Claimant, prepared: Prepared, below: QueueName | None
    ) -> tuple[Victim, ...] | None:
        victims = []
        for branch, lowest, weighed in self._askable(cursor.key.ask.pool, below or ROOT_QUEUE):
            asked = claimant.may_ask_in(branch, lowest)
            for victim in weighed if asked or self._idle else ():
                if victim.job.id not in self.chosen:
                    rule = self._rule_for(claimant, victim, asked=asked)
                    if rule is not None:
                        victims.append(victim if rule == victim.rule else replace(victim, rule=rule))

        def works(chosen: Sequence[Victim]) -> bool:
            if not claimant.lawful((v.rule, v.branch, v.demand) for v in chosen):
                return False
            if not claimant.unblocked((v.branch, v.demand) for v in chosen):
                return False
            return self._fits_without(chosen, leaving, prepared)

        leaving = self._leaving(cursor.job)
        return cheapest_victims(victims, works, tries_max=self._tries_max)

    def _rule_for(self, claimant: Claimant, victim: Victim, *, asked: bool) -> PreemptionRuleName | None:
        """Return what gives the right to ask `victim`; `asked`: the other rules may allow it.

        Reclaim is the stronger right; else that it is idle comes first, for it is what makes it cheap.
        """
        job, now_ms = victim.job, self._now_ms
        rule = claimant.rule_for(job, victim.branch, victim.demand, self._settings, now_ms) if asked else None
        idle = rule != "reclaim" and job.id in self._idle and claimant.may_take_idle(job.spec.priority)
        return "held_idle" if idle else rule

    def _fits_without(self, victims: Sequence[Victim], leaving: Sequence[Job], prepared: Prepared) -> bool:
        mark = self._cluster.mark()
        for job in leaving:
            self._cluster.put_back(job.leaves, held_places(job))
        for victim in victims:
            self._cluster.put_back(victim.gives, victim.places)
        fits = prepared.put() is not None
        self._cluster.rollback(mark)
        return fits

    def _frozen_where_enough(
        self, cursor: Cursor, claimant: Claimant, prepared: Prepared, chosen: tuple[Victim, ...]
    ) -> tuple[Victim, ...]:
        """Suspend those of the victims that may be, while the job has room enough beside the memory that they keep."""
        leaving = self._leaving(cursor.job)
        for victim in sorted(chosen, key=lambda v: (-v.cost, v.job.id)):
            if not victim.job.can_suspend:
                continue
            kept = replace(victim, suspend=True, demand=cpus_of(victim.demand, self._tree.cpu_columns))
            tried = tuple(kept if v is victim else v for v in chosen)
            enough = claimant.unblocked((v.branch, v.demand) for v in tried)
            if enough and self._fits_without(tried, leaving, prepared):
                chosen = tried
        return chosen

    def _shrunk(self, cursor: Cursor, claimant: Claimant, prepared: Prepared) -> tuple[Victim, ...] | None:
        """Let elastic jobs give back what they hold beyond their minimum: they save, and go on smaller at once."""
        victims = []
        for job in map(self._snapshot.running.__getitem__, self._snapshot.elastic):
            spec_ask, attempt = job.spec.ask, job.attempt
            if attempt is None or attempt.stop is not None or attempt.suspended_ms or job.id in self.chosen:
                continue
            branch = self._part(job)
            if branch is None or len(attempt.replicas) <= spec_ask.replicas or spec_ask.pool != cursor.key.ask.pool:
                continue
            if attempt.choice == 0:
                cost = shrink_cost(job, self._settings)
                victims.append(Victim(job, cost, held_places(job), "shrink", branch, self._surplus(job)))
        if not victims:
            return None

        def works(chosen: Sequence[Victim]) -> bool:
            if not claimant.unblocked((v.branch, v.demand) for v in chosen):
                return False
            return self._fits_beside_minimum(chosen, leaving, prepared)

        leaving = self._leaving(cursor.job)
        return cheapest_victims(victims, works, tries_max=self._tries_max)

    def _moved(self, cursor: Cursor, claimant: Claimant, prepared: Prepared) -> tuple[Victim, ...] | None:
        """Let jobs that can save go on elsewhere, when enough is free, but scattered, and that is worth it."""
        pool, ask = cursor.key.ask.pool, cursor.key.ask
        if not claimant.unblocked(()) or self._cluster.free_milli.get(pool, 0) < ask.device_milli:
            return None

        def weigh(job: Job) -> Victim | None:
            branch = self._part(job)
            if branch is None or job.id in self.chosen or not self._ran_enough(job):
                return None
            cost = move_cost(job, self._settings, self._now_ms)
            return Victim(job, cost, held_places(job), "defrag", branch, (0,) * len(claimant.demand))

        def works(chosen: Sequence[Victim]) -> bool:
            return fits_when_moved(chosen, leaving, prepared, self._cluster)

        leaving = self._leaving(cursor.job)
        found = cheapest_victims(movable(self._snapshot, pool, weigh), works, tries_max=self._tries_max)
        if found is None:
            return None
        gain = gain_of(cursor.job, prepared, self._cluster, self._snapshot, self._now_ms)
        worth = gain * 1000 >= sum(v.cost for v in found) * self._settings.defrag_gain_milli
        return found if worth else None

    def _surplus(self, job: Job) -> tuple[int, ...]:
        """Return what an elastic job's queue uses less when it goes on at its minimum."""
        attempt = job.attempt
        assert attempt is not None
        held, least = len(attempt.replicas), job.spec.ask.replicas
        return tuple(amount * (held - least) // held for amount in self._demand(job))

    def _fits_beside_minimum(self, victims: Sequence[Victim], leaving: Sequence[Job], prepared: Prepared) -> bool:
        mark = self._cluster.mark()
        for job in leaving:
            self._cluster.put_back(job.leaves, held_places(job))
        for victim in victims:
            self._cluster.put_back(victim.job.ask, victim.places)
        fits = prepared.put() is not None
        for victim in victims:
            ask = victim.job.spec.ask
            fits = fits and put_gang(ask.sized(ask.replicas), self._cluster, victim.job.spec.tenant) is not None
        self._cluster.rollback(mark)
        return fits
