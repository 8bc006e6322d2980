"""Whether a preemption was lawful: the rules of preemption, each with its numbers."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from penstock.core.audit.types import Check
from penstock.core.elastic.reported import RULES, utilisation_of
from penstock.core.elastic.restarts import restarts_lately
from penstock.core.model import events as ev
from penstock.core.model.batching import REBALANCE, ElasticRule
from penstock.core.model.ids import JobId
from penstock.core.model.jobs import Job
from penstock.core.model.plan import Plan, Preemption
from penstock.core.model.quantities import (
    exact_duration,
    format_duration,
    format_milli,
    format_resource,
    listed,
    resource_text,
)
from penstock.core.order.queues import QueueNode, QueueTree
from penstock.core.order.ranks import request_class
from penstock.core.preempt.preemptor import GONE
from penstock.core.preempt.rights import PreemptionRights, attained_device_ms, turn_left_ms, waited_for_place_ms
from penstock.core.state.idleness import idle_for_ms, idle_of, makes_room
from penstock.core.state.snapshot import Snapshot
from penstock.core.state.usage import whole_total

_DEVICES = 0
_RESIZING = ("shrink", "grow", "idle", REBALANCE)
_OWN = ("grow", "idle", "elsewhere", "model", REBALANCE)
"""Rules by which a job leaves for its own sake."""
PlanAgain = Callable[[Snapshot, int], Plan]


def claim_checks(
    event: ev.AttemptStopRequested, plan: Plan, snapshot: Snapshot, again: PlanAgain, *, same: bool
) -> Iterator[Check]:
    """Yield the rules that a planned stop had to keep, on the snapshot of its plan.

    Args:
        plan: the plan that the same inputs give.
        again: plans a changed snapshot in the same way.
        same: the very decision came out again. Rules about queues depend on the order within the plan, which is not
            kept: where the decision is the same, the rule that it names was applied by the same code, and the use of
            queues shown is that before the plan.
    """
    victim = snapshot.running.get(event.job_id)
    beneficiary = _job(event.beneficiary, snapshot)
    if victim is None or beneficiary is None or victim.attempt is None:
        yield Check("known", holds=False, text="the job or the one that it was to leave for did not exist")
        return
    case = _Case(event, plan, snapshot, victim, beneficiary, again, same=same)
    yield Check("preemptible", *case.preemptible())
    if event.rule in _RESIZING:
        yield Check(event.rule, *case.resized())
    else:
        yield Check("min_runtime", *case.ran_enough())
    match event.rule:
        case "lower_priority":
            yield Check("priority", *case.priority())
            yield from case.guarantees()
        case "reclaim":
            yield from case.reclaim()
        case "held_idle":
            yield Check("held_idle", *case.held_idle())
            yield from case.guarantees()
        case "less_service":
            yield Check("less_service", *case.less_service())
            yield Check("turn", *case.had_its_turn())
        case "elsewhere":
            since_ms = victim.attempt.suspended_ms
            text = f"it had been suspended for {format_duration(max(0, event.decided_ms - since_ms))}"
            yield Check("elsewhere", since_ms > 0, text if since_ms else "it was not suspended")
        case "defrag":
            settings = snapshot.config.settings
            yield Check(
                "defrag",
                settings.defrag,
                "jobs that can save may be moved" if settings.defrag else "no job may be moved",
            )
    if event.rule not in _OWN:
        yield Check("needed", *case.needed())


def _job(job_id: JobId | None, snapshot: Snapshot) -> Job | None:
    if job_id is None:
        return None
    running = snapshot.running.get(job_id)
    return running or next((j for _, _, jobs in snapshot.classes for j in jobs if j.id == job_id), None)


Answer = tuple[bool, str]


class _Case:
    """One stop, and the queues as they stood before the plan."""

    def __init__(
        self,
        event: ev.AttemptStopRequested,
        plan: Plan,
        snapshot: Snapshot,
        victim: Job,
        beneficiary: Job,
        again: PlanAgain,
        *,
        same: bool,
    ) -> None:
        self.event, self.plan, self.snapshot = event, plan, snapshot
        self.victim, self.beneficiary = victim, beneficiary
        self._plan, self._same = again, same
        self.now_ms, self.settings = event.decided_ms, snapshot.config.settings
        whole = whole_total(snapshot.free)
        self.tree = QueueTree(snapshot.config).load(snapshot.usage, whole, self.now_ms, snapshot.pool_powers)

    def _part(self, job: Job) -> QueueNode:
        account = self.tree.account(job.spec.queue, job.spec.tenant)
        assert account is not None, "who ran had a queue"
        return account

    def _held(self, job: Job) -> tuple[int, ...]:
        assert job.attempt is not None
        places = [r.place if r.holds else GONE for r in job.attempt.replicas]
        return self.tree.demand_of(job.ask, places, self.snapshot.nodes)

    def _rights(self) -> PreemptionRights:
        key = request_class(self.beneficiary, self.snapshot.config)
        return PreemptionRights(self.beneficiary, key, self._part(self.beneficiary), self.tree.demand(key), self.tree)

    def preemptible(self) -> Answer:
        if self.event.rule in _RESIZING:
            elastic = self.victim.spec.ask.elastic
            return elastic, "it is elastic" if elastic else "it is not elastic"
        if self.victim.protected:
            return False, f"it was protected: {self.victim.protected}"
        allowed = self.victim.spec.preemptible
        return allowed, "it is preemptible" if allowed else "it is not preemptible"

    def ran_enough(self) -> Answer:
        attempt, rule = self.victim.attempt, self.tree.rules.get(self.victim.spec.queue)
        assert attempt is not None
        least_ms = rule.min_runtime_ms if rule is not None else None
        if least_ms is None:
            least_ms = self.settings.min_runtime_before_preemption_ms
        ran_ms = self.now_ms - (attempt.running_ms or attempt.allocated_ms)
        return ran_ms >= least_ms, f"it had run for {exact_duration(ran_ms)}; {exact_duration(least_ms)} are guaranteed"

    def priority(self) -> Answer:
        own, other = self.victim.spec.priority, self.beneficiary.spec.priority
        rule = self.tree.rules.get(self.beneficiary.spec.queue)
        allowed = rule is not None and rule.preemption == "lower_priority"
        text = f"its priority {own} is {'below' if own < other else 'not below'} {other} of job {self.beneficiary.id}"
        return own < other and allowed, text if allowed else f"queue {self.beneficiary.spec.queue} preempts no job"

    def guarantees(self) -> Iterator[Check]:
        """Yield the use and guarantee, before the plan, of the victim's queues that are not the beneficiary's."""
        mine = set(map(id, self._part(self.beneficiary).path()))
        held = self._held(self.victim)
        for branch in self._part(self.victim).path():
            if id(branch) in mine:
                continue
            for column, amount in branch.promised:
                if held[column]:
                    name = self.tree.resources[column]
                    had, takes, promised = (
                        format_resource(name, n) for n in (branch.used[column], held[column], amount)
                    )
                    text = f"queue {branch.name} held {resource_text(name)} {had}, {promised} guaranteed; "
                    text += f"this job has {takes} of them"
                    yield Check("guarantee", self._same or branch.used[column] - held[column] >= amount, text)

    def reclaim(self) -> Iterator[Check]:
        """Yield the guarantee of the beneficiary's queue, and the use of the victim's queues, before the plan."""
        rights = self._rights()
        text = f"with it queue {self.beneficiary.spec.queue}, or one above it, stays within what it is guaranteed"
        yield Check("reclaim", self._same or rights.may_reclaim, text)
        mine = set(map(id, self._part(self.beneficiary).path()))
        lent = rights.lends(self._part(self.victim), self._held(self.victim))
        uses = [
            f"queue {branch.name} holds {format_milli(branch.used[_DEVICES])} devices, "
            f"{format_milli(branch.guaranteed[_DEVICES]) if branch.guaranteed else 0} guaranteed"
            for branch in self._part(self.victim).path()
            if id(branch) not in mine
        ]
        yield Check("borrowed", self._same or lent, "; ".join(uses))

    def less_service(self) -> Answer:
        own = attained_device_ms(self.victim, self.now_ms)
        other = self.beneficiary.served_device_ms
        text = (
            f"it has attained {exact_duration(own)} of device time, job {self.beneficiary.id} {exact_duration(other)}"
        )
        return own > other, text

    def had_its_turn(self) -> Answer:
        attempt = self.victim.attempt
        assert attempt is not None
        waited_ms, ran_ms = waited_for_place_ms(self.victim), attempt.worked_ms(self.now_ms)
        text = f"it had waited {exact_duration(waited_ms)} for its place and run for {exact_duration(ran_ms)}"
        return turn_left_ms(self.victim, self.settings, self.now_ms) <= 0, text

    def held_idle(self) -> Answer:
        idle, rules = idle_of(self.victim, self.now_ms), self.snapshot.config.idle_rules
        own, other = self.victim.spec.priority, self.beneficiary.spec.priority
        if idle is None or not makes_room(self.victim, rules, self.now_ms):
            return False, "it was not said to be idle, or its queue lets idle ones stay"
        lasted = format_duration(idle_for_ms(self.victim, idle, self.now_ms))
        after = exact_duration(rules[self.victim.spec.queue].after_ms)
        text = f"it had been idle for {lasted}, {after} are allowed: it {idle.text}; its priority {own} is "
        return own <= other, text + f"{'not ' if own <= other else ''}above {other} of job {self.beneficiary.id}"

    def resized(self) -> Answer:
        attempt = self.victim.attempt
        assert attempt is not None
        holding = sum(replica.holds for replica in attempt.replicas)
        held, least, most = len(attempt.replicas), self.victim.spec.ask.replicas, self.victim.spec.ask.replicas_max
        if self.event.rule == "shrink":
            return held > least, f"it held {held} replicas and can run with {least}"
        if self.event.rule == "idle":
            return self._idle(held, least)
        if self.event.rule == REBALANCE:
            return self._rebalanced(held, least, most)
        return holding < most, f"it held {holding} replicas and may have {most}"

    def _rebalanced(self, held: int, least: int, most: int) -> Answer:
        per_hour = self.pool_rule().restarts_per_hour
        lately = restarts_lately(self.victim.changes_ms, self.now_ms)
        size = next((len(room.places) for room in self.event.rooms if room.job_id == self.victim.id), 0)
        text = f"it held {held} replicas and gets {size}, of {least} to {most}; "
        text += f"restarted {lately} times in the hour before, {per_hour} are allowed"
        return lately < per_hour and (size == 0 or least <= size <= most), text

    def pool_rule(self) -> ElasticRule:
        pool = self.snapshot.config.pool_by_name.get(self.victim.spec.ask.pool)
        return pool.elastic if pool is not None else ElasticRule()

    def _idle(self, held: int, least: int) -> Answer:
        seen = utilisation_of(self.victim, self.now_ms)
        busy = seen.busy_milli if seen is not None else 1000
        text = f"it held {held} replicas, can run with {least}, and computed {busy // 10} % of the time; "
        text += f"below {RULES.in_below_milli // 10} % counts as idle"
        return self.settings.elastic_shrink_idle and held > least and busy < RULES.in_below_milli, text

    def needed(self) -> Answer:
        """Plan the same cycle with the victim exempt, and return the effect on the beneficiary."""
        kept = replace(self.victim, spec=replace(self.victim.spec, preemptible=False))
        alone = replace(
            self.snapshot,
            running={**self.snapshot.running, kept.id: kept},
            elastic=tuple(i for i in self.snapshot.elastic if i != kept.id),
        )
        plan, other = self._plan(alone, self.now_ms), self.beneficiary.id
        if any(start.job_id == other for start in plan.starts):
            return False, f"left alone: job {other} starts all the same"
        instead = [p for p in plan.preemptions if p.beneficiary == other]
        if not instead:
            return True, f"left alone: job {other} keeps waiting"
        now, then = (format_duration(sum(p.cost for p in some)) for some in (self._asked(), instead))
        who = f"job{'s' if len(instead) > 1 else ''} {listed(p.victim for p in instead)}"
        text = f"left alone: {who} would leave instead, which costs {then} of device time; this costs {now}"
        return True, text

    def _asked(self) -> list[Preemption]:
        return [p for p in self.plan.preemptions if p.beneficiary == self.beneficiary.id]
