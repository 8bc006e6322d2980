"""A re-allocation of all elastic jobs of a pool: sizes and places by gain, restarts paid for by the round as a whole.

Jobs that run, start in this cycle or wait take part. Running ones that change are asked to save, and come back at the
size and the places that the round gave them, which are kept until then; a job that waits starts at once where its
places are free, else once they are. A pool has no round while jobs there still leave, and no round gives an elastic
job what a job that comes before it, and does not take part, waits for.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.core.cycle.round_models import RoundModels, round_models
from penstock.core.cycle.sizing import Sizing, rounded
from penstock.core.cycle.workspace import Workspace
from penstock.core.elastic.model_curves import OnModels
from penstock.core.elastic.rounds import Rounds, takes_part
from penstock.core.elastic.worth import ElasticJob, Places, explored_maximum, replicas_of
from penstock.core.model.batching import REBALANCE
from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.core.model.jobs import CheckpointSpec, GangAsk, Job, ReplicaPlace, RequestClass, Room
from penstock.core.model.plan import Preemption, Start
from penstock.core.place.backfill import held_places
from penstock.core.place.fit import Need, capacity, closed_refusal, needs_of, put_on

JOBS_MAX = 256
"""Jobs of one round: those with the least service, and then those that come first."""
NEEDS_MAX = 16
"""Different shapes of replicas whose room is counted."""
TRIES_MAX = 4
"""Rounds that are played until one can be placed and exceeds no maximum."""
Taken = dict[JobId, tuple[ReplicaPlace, ...]]
Device = tuple[NodeName, int]


class _Member:
    """One job of a round."""

    def __init__(self, job: Job, places: Sequence[ReplicaPlace], key: RequestClass | None, at: int | None) -> None:
        self.job, self.places, self.key = job, tuple(places), key
        self.at = at
        """Where it is among the starts of the cycle; None: it starts in none of them."""
        counts: dict[str, int] = {}
        for place in places:
            counts[place.node] = counts.get(place.node, 0) + 1
        self.held: Places = tuple(sorted(counts.items()))
        self.need: Need = needs_of(job.next_ask(job.spec.ask), job.spec.tenant)[0][0]

    @property
    def runs(self) -> bool:
        return self.job.attempt is not None

    @property
    def devices(self) -> set[Device]:
        return {(place.node, index) for place in self.places for index in place.devices}


class PoolRound:
    """Plays the round of a pool, and makes decisions of what comes out."""

    def __init__(self, workspace: Workspace, sizing: Sizing, rounds: Rounds, decided: set[JobId]) -> None:
        self._workspace, self._sizing, self._rounds, self._decided = workspace, sizing, rounds, decided
        self._snapshot, self._now_ms, self._cluster, self._tree, self._holds = workspace.context
        self._settings = workspace.settings
        self.preemptions: list[Preemption] = []
        self.held: Taken = {}
        """Places of jobs that wait until running ones have left them."""
        self.waiting: list[tuple[Job, tuple[JobId, ...]]] = []
        """These jobs, and the running ones that leave."""
        self.put_off: set[int] = set()
        """Starts of this cycle that wait for their places instead: their indexes."""
        self.played = False
        self._models: RoundModels | None = None
        """The device models of the pool, where they matter."""

    def run(self, pool: PoolName, waiting: Sequence[tuple[Job, RequestClass]], *, others_wait: bool) -> None:
        """Play the round of a pool.

        Args:
            waiting: jobs that take part and do not fit, in order.
            others_wait: a job waits, too, after these, that no round can give places: then none of the others grows.
        """
        members = self._members(pool, waiting)
        self._models = round_models(self._workspace, self._sizing, pool) if members else None
        for _ in range(TRIES_MAX):
            if not members or (others_wait and all(member.key is None for member in members)):
                return
            self.played = True
            mark = self._cluster.mark()
            misfit = self._play(pool, members, others_wait=others_wait)
            if misfit is None:
                return
            self._cluster.rollback(mark)
            at = next(i for i, member in enumerate(members) if member.job.id == misfit)
            if members[at].key is not None and not members[at].job.spec.ask.elastic:
                others_wait = True
                members = [*members[:at], *(member for member in members[at:] if member.key is None)]
            else:
                members = [*members[:at], *members[at + 1 :]]

    def _members(self, pool: PoolName, waiting: Sequence[tuple[Job, RequestClass]]) -> list[_Member]:
        config, workspace = self._snapshot.config, self._workspace
        found = [_Member(job, (), key, None) for job, key in waiting]
        for at, start in enumerate(workspace.starts):
            job = workspace.elastic.get(start.job_id)
            if job is None or start.ask.pool != pool or start.choice or not takes_part(job.spec, config):
                continue
            if start.places != job.room:  # else it comes back to where a round planned it, and has restarted for that
                found.append(_Member(job, start.places, None, at))
        running = []
        for job_id in self._snapshot.elastic:
            job = self._snapshot.running[job_id]
            free = job.spec.ask.pool == pool and job_id not in self._decided and takes_part(job.spec, config)
            if free and self._sizing.settled(job) and self._stands_well(job):
                running.append(_Member(job, [place for _, place in held_places(job)], None, None))
        running.sort(key=lambda member: (-self._sizing.weight_milli(member.job), member.job.id))
        return [*found[:JOBS_MAX], *running[: max(0, JOBS_MAX - len(found))]]

    def _stands_well(self, job: Job) -> bool:
        """Return whether all nodes of a running job may get new work of it: it could come back to where it is."""
        assert job.attempt is not None
        need, index = needs_of(job.spec.ask, job.spec.tenant)[0][0], self._cluster.index
        nodes = {replica.place.node for replica in job.attempt.replicas if replica.holds}
        complete = all(replica.holds for replica in job.attempt.replicas)
        return complete and not any(closed_refusal(need, self._cluster.free_of(index[node])) for node in nodes)

    # Playing.

    def _play(self, pool: PoolName, members: list[_Member], *, others_wait: bool) -> JobId | None:
        """Play one round and decide; return the job that it cannot be placed with, None where it is decided."""
        by_id = {member.job.id: member for member in members}
        jobs = [self._elastic(member, others_wait=others_wait) for member in members]
        self._holds.lift_all_of({member.job.id for member in members if member.key is not None})
        before = self._cluster.mark()
        for member in members:
            if member.places:
                self._cluster.put_back(self._held_ask(member), enumerate(member.places))
        rooms = self._rooms(members)
        self._cluster.rollback(before)
        for one in jobs:
            for node, count in one.held:
                rooms[node] = rooms.get(node, 0) - count * one.devices_each
        free = {node: count for node, count in rooms.items() if count > 0}
        kinds = self._models.of_node if self._models is not None else None
        found = self._rounds.play(pool, jobs, self._nearest_by_kind(free, jobs), kinds)
        changed = {JobId(j.id): found.places[j.id] for j in jobs if found.places[j.id] != j.held}
        misfit = next((m.job.id for m in members if _is_left_out(m, found.places)), None) if not others_wait else None
        misfit = misfit or self._over_quota(by_id, changed)
        if misfit is None and changed:
            misfit = self._decide(by_id, changed)
        if misfit is None and not changed:
            self._holds.lower()
        return misfit

    def _elastic(self, member: _Member, *, others_wait: bool) -> ElasticJob:
        job, ask = member.job, member.job.spec.ask
        size, learned = replicas_of(member.held), self._sizing.learned(job)
        known = OnModels(learned.curve, largest_seen=learned.largest_seen)
        if self._models is not None:
            known = self._models.of(job, member.places)
        most = self._sizing.most(job, max(size, ask.replicas)) if ask.elastic else ask.replicas
        most = max(size, ask.replicas, explored_maximum(most, known.largest_seen))
        if others_wait and size:
            most = size
        return ElasticJob(
            id=job.id,
            minimum=ask.replicas,
            maximum=most,
            curve=known.curve,
            models=known.models,
            may_move=known.may_move,
            held=member.held,
            devices_each=ask.each.device_count,
            weight_milli=self._sizing.weight_milli(job),
            rest_ms=rounded(self._sizing.rest_ms(job)),
            restart_cost_ms=self._sizing.restart_ms(job) if member.runs else 0,
            may_pause=member.runs and _may_pause(job) and not others_wait,
        )

    def _held_ask(self, member: _Member) -> GangAsk:
        return member.job.ask if member.runs else member.job.next_ask(member.job.spec.ask).sized(len(member.places))

    def _rooms(self, members: Iterable[_Member]) -> dict[str, int]:
        """Return the devices by node that one of these jobs at least could use."""
        needs = list(dict.fromkeys(member.need for member in members))[:NEEDS_MAX]
        rooms: dict[str, int] = {}
        for state in self._cluster.states_in_use(rich=True):
            free = self._cluster.table.frees[state]
            count = max(capacity(need, free, len(free.devices)) * need.each.device_count for need in needs)
            if count:
                rooms.update((str(self._cluster.names[n]), count) for n in self._cluster.nodes_in(state))
        return rooms

    def _nearest_by_kind(self, free: Mapping[str, int], jobs: Sequence[ElasticJob]) -> dict[str, int]:
        """Return idle devices that these jobs could use, of each device model where they matter."""
        if self._models is None:
            return self._nearest(free, jobs)
        found: dict[str, int] = {}
        for kind in sorted(self._models.kinds):
            there = {node: count for node, count in free.items() if self._models.of_node[node] == kind}
            takers = [job for job in jobs if kind in job.models]
            here = {job.id for job in takers if any(self._models.of_node[node] == kind for node, _ in job.held)}
            found |= self._nearest(there, [job if job.id in here else replace(job, held=()) for job in takers])
        return found

    def _nearest(self, free: Mapping[str, int], jobs: Sequence[ElasticJob]) -> dict[str, int]:
        """Return idle devices, most on a node first, of no more nodes than these jobs could use."""
        wanted = 2 * sum((one.maximum - one.size) * one.devices_each for one in jobs)
        found: dict[str, int] = {}
        for node, count in sorted(free.items(), key=lambda one: (-one[1], one[0])):
            if wanted <= 0:
                break
            found[node] = count
            wanted -= count
        return found

    def _over_quota(self, by_id: Mapping[JobId, _Member], changed: Mapping[JobId, Places]) -> JobId | None:
        """Return a job whose new size exceeds a maximum once those that shrink have shrunk; None where none does."""
        charged = []
        misfit = None
        for job_id in sorted(changed, key=lambda i: (replicas_of(changed[i]) - replicas_of(by_id[i].held), i)):
            member, size = by_id[job_id], replicas_of(changed[job_id])
            branch, delta = self._sizing.account(member.job), size - replicas_of(member.held)
            if branch is None:
                return job_id
            more = self._sizing.more(member.job.spec.ask, abs(delta))
            sign = 1 if delta > 0 else -1
            if delta > 0 and self._tree.exceeded(branch, more) is not None:
                misfit = job_id
                break
            if delta:
                self._tree.charge(branch, more, sign)
                charged.append((branch, more, sign))
        for branch, more, sign in charged:
            self._tree.charge(branch, more, -sign)
        return misfit

    # Deciding.

    def _decide(self, by_id: Mapping[JobId, _Member], changed: Mapping[JobId, Places]) -> JobId | None:
        """Turn new sizes and places into starts and orders; return a job that cannot be placed, None where all are."""
        cluster, members = self._cluster, [by_id[job_id] for job_id in sorted(changed)]
        for member in members:
            if member.places and not member.runs:
                cluster.put_back(self._held_ask(member), enumerate(member.places))
        now: Taken = {}
        for member in members:
            if not member.runs:
                mark = cluster.mark()
                places = self._put(member, changed[member.job.id])
                if places is not None and self._within(member, places):
                    now[member.job.id] = places
                else:
                    cluster.rollback(mark)
        before = cluster.mark()
        for member in members:
            if member.runs:
                cluster.put_back(member.job.ask, enumerate(member.places))
        later: Taken = {}
        for member in members:
            if member.job.id in now or not changed[member.job.id]:
                continue
            places = self._put(member, changed[member.job.id])
            if places is None or not any(other.runs for other in members):  # where nobody leaves it waits in vain
                return member.job.id
            later[member.job.id] = places
        cluster.rollback(before)
        if self._models is not None and (misfit := self._over_model(by_id, later)) is not None:
            return misfit
        self._start(by_id, now)
        self._holds.lower()
        self._ask(members, later)
        return None

    def _over_model(self, by_id: Mapping[JobId, _Member], later: Taken) -> JobId | None:
        """Return a running job that exceeds a maximum at its new places, once all of them have left; None for none."""
        charged, misfit = [], None
        moving = [(by_id[job_id], places) for job_id, places in later.items() if by_id[job_id].runs]
        for member, _ in moving:
            branch = self._sizing.account(member.job)
            if branch is not None:
                charged.append((branch, self._tree.demand_of(member.job.ask, member.places, self._snapshot.nodes), -1))
        for branch, demand, sign in charged:
            self._tree.charge(branch, demand, sign)
        for member, places in moving:
            branch, ask = self._sizing.account(member.job), member.job.spec.ask.sized(len(places))
            demand = self._tree.demand_of(ask, places, self._snapshot.nodes)
            if branch is None or not self._tree.charge_within(branch, demand):
                misfit = member.job.id
                break
            charged.append((branch, demand, 1))
        for branch, demand, sign in reversed(charged):
            self._tree.charge(branch, demand, -sign)
        return misfit

    def _put(self, member: _Member, wanted: Places) -> tuple[ReplicaPlace, ...] | None:
        """Take places for a job on these nodes, or return None: what was taken has to be rolled back."""
        found: list[ReplicaPlace] = []
        for name, count in wanted:
            node = self._cluster.index[NodeName(name)]
            put = put_on(member.need, self._cluster.free_of(node), count)
            if put is None:
                return None
            self._cluster.change(node, put[0])
            found += [self._cluster.place_of(node, picked) for picked in put[1]]
        return tuple(found)

    def _within(self, member: _Member, places: tuple[ReplicaPlace, ...]) -> bool:
        """Return whether a job that starts now exceeds no maximum, before anybody has left."""
        branch, held = self._sizing.account(member.job), len(member.places)
        if branch is None or (member.key is not None and self._workspace.full):
            return False
        ask = member.job.next_ask(member.job.spec.ask).sized(len(places))
        demand = self._tree.demand_of(ask, places, self._snapshot.nodes)
        if held:
            before = self._tree.demand_of(ask.sized(held), member.places, self._snapshot.nodes)
            demand = tuple(max(0, b - a) for a, b in zip(before, demand, strict=True))
        return self._tree.exceeded(branch, demand) is None

    def _start(self, by_id: Mapping[JobId, _Member], now: Taken) -> None:
        """Start what waits where its places are free, and let what starts in this cycle start as the round says."""
        workspace = self._workspace
        for job_id, places in now.items():
            member = by_id[job_id]
            ask = member.job.next_ask(member.job.spec.ask).sized(len(places))
            if member.key is not None:
                workspace.begin(member.job, (0, ask, places), workspace.end_ms(member.key))
                continue
            assert member.at is not None
            start, branch = workspace.starts[member.at], self._sizing.account(member.job)
            assert branch is not None
            self._tree.charge(branch, self._tree.demand_of(start.ask, start.places, self._snapshot.nodes), -1)
            self._tree.charge(branch, self._tree.demand_of(ask, places, self._snapshot.nodes))
            workspace.starts[member.at] = replace(start, ask=ask, places=places)

    def _ask(self, members: Sequence[_Member], later: Taken) -> None:
        """Ask running jobs that change to save and leave, and keep places for all that come later."""
        owners = {
            (place.node, index): job_id
            for job_id, places in later.items()
            for place in places
            for index in place.devices
        }
        leaving = [member for member in members if member.runs]
        rooms: dict[JobId, list[Room]] = {member.job.id: [] for member in leaving}
        for member in members:
            places = later.get(member.job.id)
            if places is None:
                continue
            if not member.runs:
                self.held[member.job.id] = places
                self.waiting.append((member.job, tuple(other.job.id for other in leaving)))
                if member.at is not None:
                    self.put_off.add(member.at)
            rooms[self._carrier(member, places, leaving)].append(Room(member.job.id, places))
        for member in leaving:
            attempt = member.job.attempt
            assert attempt is not None
            takes = [
                owners[device]
                for device in sorted(member.devices)
                if owners.get(device, member.job.id) != member.job.id
            ]
            smaller = len(later.get(member.job.id, ())) < len(member.places)
            whom = max(sorted(set(takes)), key=takes.count) if takes and smaller else member.job.id
            cost = max(1, member.job.ask.device_total) * self._sizing.restart_ms(member.job)
            order = Preemption(member.job.id, attempt.number, whom, cost, REBALANCE, rooms=tuple(rooms[member.job.id]))
            self.preemptions.append(order)
            self._decided.add(member.job.id)

    def _carrier(self, member: _Member, places: tuple[ReplicaPlace, ...], leaving: Sequence[_Member]) -> JobId:
        """Return the running job whose order says where this one comes: its own, or one that leaves these places."""
        if member.runs:
            return member.job.id
        wanted = {(place.node, index) for place in places for index in place.devices}
        return next((other.job.id for other in leaving if other.devices & wanted), leaving[0].job.id)


def _is_left_out(member: _Member, places: Mapping[int, Places]) -> bool:
    """Return whether a job of one size that waits gets nothing: nobody may grow, or come after it, in its place."""
    return member.key is not None and not member.job.spec.ask.elastic and not places[member.job.id]


def _may_pause(job: Job) -> bool:
    """Return whether a running job may be sent back to wait: it is preemptible, and goes on from a checkpoint."""
    declared = job.spec.checkpoint != CheckpointSpec()
    return job.evictable and (job.saves or declared or job.progress.saved_on is not None)


def without(starts: Sequence[Start], put_off: set[int]) -> tuple[Start, ...]:
    """Return the starts of a cycle that are not put off."""
    return tuple(start for at, start in enumerate(starts) if at not in put_off)
