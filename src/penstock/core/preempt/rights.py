"""The right to preempt a victim for a beneficiary: by priority, by reclaim of a guarantee, or by less service."""

from collections.abc import Iterable, Sequence

from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import Job, RequestClass
from penstock.core.model.plan import PreemptionRuleName
from penstock.core.order.queues import QueueNode, QueueTree
from penstock.core.order.ranks import service_above


class PreemptionRights:
    """The beneficiary of a preemption, and the rules that give it a right to others' places."""

    def __init__(self, job: Job, key: RequestClass, leaf: QueueNode, demand: tuple[int, ...], tree: QueueTree) -> None:
        self.job, self.key, self.leaf, self.demand, self._tree = job, key, leaf, demand, tree
        rule = tree.rules.get(job.spec.queue)
        self._rule = rule.preemption if rule is not None and key.preempts else "never"
        self._policy = rule.policy if rule is not None else "fifo"
        self._path = list(leaf.path())
        self._owner = lowest_within_guarantee(leaf, demand)
        promised = self._owner.guaranteed if self._owner is not None else ()
        self._wanted = [i for i, amount in enumerate(promised) if amount and demand[i] and i not in tree.unlent_columns]
        """Columns of the owner's guarantee that the job asks for."""

    @property
    def may_preempt(self) -> bool:
        return self._rule != "never"

    @property
    def may_reclaim(self) -> bool:
        return self.may_preempt and self._owner is not None

    def may_ask_in(self, branch: QueueNode, lowest_priority: int) -> bool:
        """Rule out a whole queue, whose attempts have at least this priority: False if none of them could be asked."""
        lower = lowest_priority < self.job.spec.priority and self._rule == "lower_priority"
        if lower and not any(self._at_guarantee(at) for at in self._others(branch)):
            return True
        if self._policy == "least_attained" and branch.name == self.job.spec.queue:
            return True
        return self.may_reclaim and self.lends(branch)

    def _at_guarantee(self, branch: QueueNode) -> bool:
        """Return whether a queue holds no more than its guarantee of a resource that the job asks for."""
        return any(self.demand[i] and branch.used[i] <= amount for i, amount in branch.promised)

    def rule_for(
        self, victim: Job, branch: QueueNode, demand: Sequence[int], settings: Settings, now_ms: int
    ) -> PreemptionRuleName | None:
        """Return the rule that gives the right to ask `victim`, which holds `demand`, to leave, or None.

        Reclaim comes first: it is the stronger right, for it may take the last gang that a queue borrowed for.
        """
        if self.may_reclaim and self.lends(branch, demand):
            return "reclaim"
        if victim.spec.priority < self.job.spec.priority and self._rule == "lower_priority":
            return "lower_priority"
        return "less_service" if self.less_service_in_ms(victim, settings, now_ms) == 0 else None

    def less_service_in_ms(self, victim: Job, settings: Settings, now_ms: int) -> int | None:
        """Return after how long the job may take the place of `victim` for having been served less: 0 now, None never.

        By then the level of the victim, which runs on, is higher, and its turn is over. Time alone brings this about,
        so a plan has to name the moment.
        """
        if self._policy != "least_attained" or victim.spec.queue != self.job.spec.queue or not self.may_preempt:
            return None
        lacking = service_above(self.key.rank, settings) - attained_device_ms(victim, now_ms)
        return max(0, -(-lacking // _width(victim)), turn_left_ms(victim, settings, now_ms))

    def may_take_idle(self, priority: int) -> bool:
        """Return whether an idle attempt of this priority makes room for the job: only one of no higher priority.

        A higher one could take the place back at once.
        """
        return priority <= self.job.spec.priority

    def lends(self, branch: QueueNode, demand: Sequence[int] | None = None) -> bool:
        """Return whether a place is borrowed: each queue above it, but not above the job, exceeds its guarantee.

        The resources of the owner's guarantee count; for a victim that holds none of them, the others that the job asks
        for. Inside the owner no job borrows from it. Without `demand`: whether any place of the queue may be borrowed.
        """
        others = self._others(branch)
        if not others or any(at is self._owner for at in branch.path()):
            return False
        columns = [i for i in self._wanted if demand and demand[i]]
        unlent = self._tree.unlent_columns
        asked = (i for i, n in enumerate(self.demand) if n and i not in unlent)
        columns = columns or [i for i in asked if not demand or demand[i]]
        if demand and self._tree.bound_columns and any(self._keeps(at, demand) for at in others):
            return False
        return all(any(at.used[i] > _promised(at, i) for i in columns) for at in others)

    def _keeps(self, branch: QueueNode, demand: Sequence[int]) -> bool:
        """Return whether places in a pool are within a queue's guarantee there: guarantees of all pools yield to it.

        Otherwise both would take the same places from each other for ever.
        """
        bound = self._tree.bound_columns
        return any(i in bound and demand[i] and branch.used[i] <= amount for i, amount in branch.promised)

    def somebody_lends(self) -> bool:
        """Return whether any place may be borrowed: then a sibling of the owner, or of a queue above it, lends.

        Of such a sibling nothing is above the job, so its own guarantee decides; this runs for each class that claims.
        """
        unlent = self._tree.unlent_columns
        columns = [i for i, n in enumerate(self.demand) if n and i not in unlent]
        at = self._owner
        while at is not None and at.parent is not None:
            for other in at.parent.children:
                if other is not at:
                    used, promised = other.used, other.guaranteed
                    for i in columns:
                        if used[i] > (promised[i] if promised else 0):
                            return True
            at = at.parent
        return False

    def _others(self, branch: QueueNode) -> list[QueueNode]:
        """Return the queues from `branch` up that are not above the beneficiary too."""
        return [at for at in branch.path() if at not in self._path]

    def lawful(self, victims: Iterable[tuple[PreemptionRuleName, QueueNode, tuple[int, ...]]]) -> bool:
        """Return whether all these may leave together.

        Reclaim takes from a queue only what it holds beyond its guarantee; preempting attempts of lower priority, or
        idle ones, in another queue never takes that queue below its guarantee. So a victim can never reclaim its place:
        there is no ping-pong.
        """
        charged: list[tuple[QueueNode, tuple[int, ...]]] = []
        try:
            for rule, branch, demand in victims:
                if rule == "reclaim" and not self.lends(branch, demand):
                    return False
                self._tree.charge(branch, demand, -1)
                charged.append((branch, demand))
                if rule in ("lower_priority", "held_idle") and any(_below(at, demand) for at in self._others(branch)):
                    return False
            return True
        finally:
            for branch, demand in charged:
                self._tree.charge(branch, demand)

    def unblocked(self, victims: Iterable[tuple[QueueNode, tuple[int, ...]]]) -> bool:
        """Return whether no maximum keeps the job from starting once these have left."""
        with self._tree.without(victims):
            return self._tree.exceeded(self.leaf, self.demand) is None


def lowest_within_guarantee(leaf: QueueNode, demand: Sequence[int]) -> QueueNode | None:
    """Return the lowest queue above a job of this demand that would stay within its guarantee with it."""
    for branch in leaf.path():
        promised, within = False, True
        for i, amount in branch.promised:
            if demand[i]:
                promised = True
                within = within and branch.used[i] + demand[i] <= amount
        if promised and within:
            return branch
    return None


def attained_device_ms(job: Job, now_ms: int) -> int:
    """Return the service a running job has attained, the present attempt included (device-milliseconds)."""
    attempt = job.attempt
    if attempt is None or not attempt.running_ms:
        return job.served_device_ms
    return job.served_device_ms + _width(job) * attempt.worked_ms(now_ms)


def _width(job: Job) -> int:
    return max(1, job.ask.device_total, len(job.attempt.replicas) if job.attempt is not None else 0)


TURN_LEAST_MS = 60_000
"""Else a job that has to start could be started and stopped again at one moment, for ever."""


def turn_left_ms(job: Job, settings: Settings, now_ms: int) -> int:
    """Return how long a running job still has its turn, in which no job with less service takes its place.

    0 or less: it is over. A job runs as long as it waited, so the long and wide ones get on while new ones come, and
    the oldest, which room is kept for, does not lose its place as soon as it has it. Figures: docs/policies.md.
    Source: after Tiresias (NSDI'19), where a job that waits for a multiple of its run time is served first again.
    """
    attempt = job.attempt
    if attempt is None or not settings.least_attained_turn_milli:
        return 0
    turn_ms = max(TURN_LEAST_MS, waited_for_place_ms(job) * settings.least_attained_turn_milli // 1000)
    return turn_ms - attempt.worked_ms(now_ms)


def waited_for_place_ms(job: Job) -> int:
    """Return how long a job waited for its present attempt; 0 where it has none."""
    return max(0, job.attempt.allocated_ms - job.waiting_since_ms) if job.attempt is not None else 0


def _promised(branch: QueueNode, column: int) -> int:
    return branch.guaranteed[column] if branch.guaranteed else 0


def _below(branch: QueueNode, demand: Sequence[int]) -> bool:
    """Return whether a queue has less than its guarantee of a resource in `demand`."""
    return any(demand[i] and branch.used[i] < amount for i, amount in enumerate(branch.guaranteed))
