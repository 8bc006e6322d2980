"""The tentative state of one cycle: free capacity, use and decisions so far. It places; it does not choose."""

from collections.abc import Callable, Mapping

from penstock.core.cycle.kept_room import KeptRoom
from penstock.core.cycle.reservations import CouldStart, Openings, Reservations
from penstock.core.elastic.learned import LearnedSpeeds, first_batch
from penstock.core.elastic.rounds import Rounds
from penstock.core.model.ids import AttemptNumber, JobId, PoolName
from penstock.core.model.jobs import GangAsk, Job, ReplicaPlace, RequestClass
from penstock.core.model.plan import QuotaExceeded, Start
from penstock.core.order.extension import Policies
from penstock.core.order.usage_over_time import UsedAmounts
from penstock.core.order.walk import JobQueue
from penstock.core.place.gang import Counted, GangPlacer
from penstock.core.place.holds import FOREVER_MS
from penstock.core.place.index import Mark
from penstock.core.preempt.context import CycleContext

Placed = tuple[int, GangAsk, tuple[ReplicaPlace, ...]]
"""The number of the placed shape of a class (0 its ask, k an alternative), the shape, and its places."""


class Speeds:
    """What is kept from one cycle to the next of elastic jobs: a cache."""

    def __init__(self) -> None:
        self.learned, self.rounds = LearnedSpeeds(), Rounds()


Shapes = Callable[[RequestClass], list[GangPlacer]]


class Workspace:
    """Free capacity shrinks and use grows here as decisions are made."""

    def __init__(
        self,
        context: CycleContext,
        shapes: Shapes,
        totals: dict[PoolName, UsedAmounts],
        policies: Policies,
        openings: Openings,
        could_start: CouldStart,
        speeds: Speeds,
        *,
        keeps_room: bool = False,
    ) -> None:
        """`keeps_room`: room is kept for demand that is expected."""
        self.context, self.totals, self.speeds = context, totals, speeds
        self.snapshot, self.now_ms, self.cluster, self.tree, self.holds = context
        snapshot, tree, now_ms = self.snapshot, self.tree, self.now_ms
        self.settings = context.settings
        self.pools = {pool.name: pool for pool in snapshot.config.pools}
        self._placement = {pool.name: pool.placement for pool in snapshot.config.pools}
        self.shapes = shapes
        """Returns the shapes that jobs of a class accept, in order, ready to be placed."""
        self.order = JobQueue(snapshot.config, tree, snapshot.classes, now_ms, policies)
        self.reservations = Reservations(context, openings, could_start)
        expected = snapshot.expected if keeps_room else ()
        self.kept_room = KeptRoom(expected, snapshot.classes, self.settings, now_ms, self.cluster, totals)
        self.starts: list[Start] = []
        self.handled: set[JobId] = set()
        """Jobs already decided, outside the walk or by it."""
        self.over: QuotaExceeded | None = None
        self.elastic: dict[JobId, Job] = {}
        """Elastic jobs among those that start."""
        self.batched: dict[JobId, Job] = {}
        """Jobs with a batch range among them."""
        self._free_milli = dict(self.cluster.free_milli)
        """Free devices at the beginning of the cycle, by pool: more are never free in it, kept or not."""
        self._lifted: dict[tuple[GangPlacer, int], tuple[int, int, bool]] = {}
        """Whether a shape fitted within a horizon; with the version of the cluster and the revision of the holds."""

    @property
    def full(self) -> bool:
        """Whether the cycle has started as many jobs as one cycle may."""
        return len(self.starts) >= self.settings.starts_per_cycle_max

    def end_ms(self, key: RequestClass) -> int:
        """Return by when a job of the class that starts now has ended."""
        return self.now_ms + key.length_ms if key.length_ms else FOREVER_MS

    def may_start(self, job: Job, key: RequestClass) -> bool:
        """Return whether no maximum keeps the job from starting."""
        account = self.tree.account(job.spec.queue, job.spec.tenant)
        return account is not None and self.tree.exceeded(account, self.tree.demand(key)) is None

    def place(self, key: RequestClass) -> Placed | None:
        """Take places for a job of the class: its ask, or the first alternative that fits and exceeds no maximum.

        `over` is afterwards the maximum that kept it from places that were free for it.
        """
        return self._place(key, self.shapes(key))

    def fits(self, key: RequestClass) -> bool:
        """Return whether `place` would find places for a job of the class. Nothing is taken."""
        counted = self.counted(key)
        if counted is not None:
            self.over = None
            return self.cluster.room(counted.single) >= counted.replicas
        mark = self.cluster.mark()  # not `tentatively`: this runs for every class that waits
        fits = self._place(key, self.shapes(key)) is not None
        self.cluster.rollback(mark)
        return fits

    def counted(self, key: RequestClass) -> Counted | None:
        """Return what a class needs whose only shape needs room alone, wherever it is; None for all others."""
        shapes = self.shapes(key)
        return shapes[0].counted if len(shapes) == 1 else None

    def short(self, counted: Counted, end_ms: int) -> bool:
        """Return whether a gang that ends by `end_ms` fits nowhere, kept capacity included. Counts alone say so."""
        self.over = None
        return self.room(counted, end_ms) < counted.replicas

    def room(self, counted: Counted, end_ms: int) -> int:
        """Return for how many such replicas that end by `end_ms` there is room: now, or where it is kept from then."""
        room = self.cluster.room(counted.single)
        return max(room, self.holds.room(counted.single, end_ms)) if self.holds.may_help(end_ms) else room

    def place_in_time(self, key: RequestClass, room: tuple[ReplicaPlace, ...] = ()) -> Placed | None:
        """Take places for a job of the class, also where capacity is kept from a time on by which it has ended.

        What is kept there counts it from now on.

        Args:
            room: these places or none, in the shape that the class asks for; () for any.
        """
        end_ms = self.end_ms(key)
        found = self._place_at(key, room) if room else self.place(key)
        if found is not None:
            self.holds.taken(found[1], found[2], end_ms)
        elif self.holds.may_help(end_ms):
            found = self._place_at_lifted(key, room, end_ms) if room else self.place_lifted(key, end_ms)
        return found

    def _place_at(self, key: RequestClass, places: tuple[ReplicaPlace, ...]) -> Placed | None:
        placer, mark = self.shapes(key)[0], self.cluster.mark()
        if not key.ask.elastic or len(places) == placer.gang.replicas:
            return self._within_maxima(key, 0, placer, places, mark) if placer.put_at(places) else None
        ask, account = key.ask.sized(len(places)), self.tree.account(key.queue, key.tenant)
        if account is None or not GangPlacer(ask, self.cluster, key.tenant).put_at(places):
            return None
        if self.tree.exceeded(account, self.tree.demand_of(ask, places, self.snapshot.nodes)) is not None:
            self.cluster.rollback(mark)
            return None
        return 0, ask, places

    def _place_at_lifted(self, key: RequestClass, places: tuple[ReplicaPlace, ...], end_ms: int) -> Placed | None:
        mark = self.cluster.mark()
        self.holds.lift(end_ms)
        found = self._place_at(key, places)
        if found is None:
            self.cluster.rollback(mark)
        else:
            self.holds.taken(found[1], found[2], end_ms)
            self.holds.lower()
        return found

    def only_shape(self, key: RequestClass) -> GangPlacer | None:
        """Return the shape that alone decides whether jobs of the class fit; None where queues matter, too."""
        return self._only(self.shapes(key))

    def _only(self, shapes: list[GangPlacer]) -> GangPlacer | None:
        return shapes[0] if len(shapes) == 1 and not self.tree.needs_places else None

    def place_lifted(self, key: RequestClass, end_ms: int) -> Placed | None:
        """Take places for a job of the class that ends by `end_ms`, also in capacity that is kept from then on."""
        shapes = self.shapes(key)
        if self._known_lifted(shapes, end_ms) is False:
            return None
        mark = self.cluster.mark()
        self.holds.lift(end_ms)
        found = self._place(key, shapes)
        if found is None:
            self.cluster.rollback(mark)
            self._note_lifted(shapes, end_ms, fits=False)
        else:
            self.holds.taken(found[1], found[2], end_ms)
            self.holds.lower()
        return found

    def fits_lifted(self, key: RequestClass, end_ms: int) -> bool:
        """Return whether a job of the class fits where only claims that start before `end_ms` bind it."""
        counted, shapes = self.counted(key), self.shapes(key)
        if counted is not None:
            self.over = None
            return not self.short(counted, end_ms)
        fits = self._known_lifted(shapes, end_ms)
        if fits is None:
            with self.cluster.tentatively():
                self.holds.lift(end_ms)
                fits = self._place(key, shapes) is not None
            self._note_lifted(shapes, end_ms, fits=fits)
        return fits

    def fits_unkept(self, key: RequestClass) -> bool:
        """Return whether a job of the class, which fits nowhere now, would fit if no capacity was kept.

        Claims are lifted only where a count does not answer.
        """
        shapes = self.shapes(key)
        if all(placer.milli > self._free_milli.get(placer.gang.pool, 0) for placer in shapes):
            return False
        counts = len(shapes) == 1 and not self.counts_places(key, 0)
        fits = self._fits_where_kept(shapes[0]) if counts else None
        return self.fits_lifted(key, 0) if fits is None else fits

    def _fits_where_kept(self, placer: GangPlacer) -> bool | None:
        """Return whether nodes with kept capacity hold a gang that fits nowhere else; None where that is not sure."""
        gang, table = placer.gang, self.cluster.table
        if gang.others or (gang.topology is not None and gang.topology.required):
            return None
        kept = self.holds.kept()
        if gang.replicas == 1:
            return any(placer.view.put(table, state) is not None for state, _ in kept)
        one = self.cluster.view_of(placer.needs[0][0], 1, gang.placement)
        room = sum(nodes * one.capacity(table, state, gang.replicas) for state, nodes in kept)
        return True if room >= gang.replicas else None

    def _known_lifted(self, shapes: list[GangPlacer], end_ms: int) -> bool | None:
        """Return whether these shapes fitted when they were tried last, if nothing has changed since.

        Jobs that differ only in length see the same capacity if the same number of claims bind them: one answer.
        """
        self.over = None
        only = self._only(shapes)
        known = self._lifted.get((only, self.holds.horizon(end_ms))) if only is not None else None
        same = known is not None and known[:2] == (self.cluster.version, self.holds.revision)
        return known[2] if known is not None and same else None

    def _note_lifted(self, shapes: list[GangPlacer], end_ms: int, *, fits: bool) -> None:
        only = self._only(shapes)
        if only is not None:
            answer = (self.cluster.version, self.holds.revision, fits)
            self._lifted[only, self.holds.horizon(end_ms)] = answer

    def _place(self, key: RequestClass, shapes: list[GangPlacer]) -> Placed | None:
        self.over = None
        for choice, placer in enumerate(shapes):
            mark = self.cluster.mark()
            places = placer.put()
            if places is None:
                continue
            found = self._within_maxima(key, choice, placer, places, mark)
            if found is not None:
                return found
        return None

    def _within_maxima(
        self, key: RequestClass, choice: int, placer: GangPlacer, places: tuple[ReplicaPlace, ...], mark: Mark
    ) -> Placed | None:
        """Return the places that were taken since `mark`; give them back where they exceed a maximum."""
        ask = placer.gang.sized(placer.gang.replicas)
        if self.counts_places(key, choice):
            account = self.tree.account(key.queue, key.tenant)
            assert account is not None, "a class without a queue is not in the order"
            block = self.tree.exceeded(account, self.tree.demand_of(ask, places, self.snapshot.nodes))
            if block is not None:
                self.cluster.rollback(mark)
                self.over = self.over or block
                return None
        return choice, ask, places

    def place_alike(self, key: RequestClass, times: int) -> list[Placed] | None:
        """Place `times` jobs of a class whose demand is their ask; None when one does not fit: roll back then."""
        placer = self.shapes(key)[0]
        ask = placer.gang.sized(placer.gang.replicas)
        found = placer.put_alike(times)
        return [(0, ask, places) for places in found] if len(found) == times else None

    def counts_places(self, key: RequestClass, choice: int) -> bool:
        """Return whether a job's demand is known only once it has places: models, pools, or another shape."""
        return choice > 0 or self.tree.needs_places or self.tree.pools_differ(key)

    def begin(self, job: Job, found: Placed, end_ms: int) -> None:
        """Start a job outside the walk, in places that `place_in_time` took, and count it."""
        choice, ask, places = found
        account = self.tree.account(job.spec.queue, job.spec.tenant)
        assert account is not None, "what may start has a queue"
        self.tree.charge(account, self.tree.demand_of(ask, places, self.snapshot.nodes))
        self.reservations.started(job, ask, places, end_ms)
        self.note_start(job, ask, places, choice)

    def note_start(self, job: Job, ask: GangAsk, places: tuple[ReplicaPlace, ...], choice: int) -> None:
        self.starts.append(start_of(job, (choice, ask, places), self._placement, self.now_ms))
        self.handled.add(job.id)
        if job.spec.ask.elastic:
            self.elastic[job.id] = job
        if job.spec.batch is not None:
            self.batched[job.id] = job


def start_of(job: Job, found: Placed, placement: Mapping[PoolName, str], now_ms: int) -> Start:
    """Return the start of a job that was placed; `placement` is by which strategy, for each pool."""
    choice, ask, places = found
    waited_ms = max(0, now_ms - job.waiting_since_ms)
    number = AttemptNumber(job.last_attempt + 1)
    rule = ask.placement or placement.get(ask.pool, "")
    batch = first_batch(job.spec.batch, ask.replicas) if job.spec.batch is not None else None
    return Start(job.id, number, ask, places, waited_ms, choice, rule, batch)
