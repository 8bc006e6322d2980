"""A gang as the engine keeps it: the slots of its job, the pods in them, and what the server was asked about it.

A slot is a rank of the job. Pods come and go in it: one that its controller makes anew takes the place of the one
before, on the same node, as long as the job's attempt holds that place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.core.messages.reports import ReplicaKey
from penstock.core.messages.requests import NewJob
from penstock.core.model.cluster import DEFAULT_POOL
from penstock.core.model.gang import GangAsk, GroupAsk
from penstock.core.model.ids import AttemptNumber, JobId, NodeName, PoolName, QueueName, TenantName
from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import ReplicaAsk
from penstock.engines.kubernetes.gangs.workloads import Elastic, PodSet, Workload, set_of
from penstock.engines.kubernetes.names import (
    ATTEMPT_LABEL,
    JOB_LABEL,
    POOL_LABEL,
    PREEMPTIBLE_LABEL,
    QUEUE_LABEL,
    RANK_LABEL,
)
from penstock.engines.kubernetes.objects.pods import Pod

SIZE_MAX = 10_000
"""Pods of one gang."""
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
COMMAND = ("kubernetes", "pod")
"""Stands where a job of an agent has its command: the pod says itself what runs."""
GANG_JOB_LABEL = "penstock.dev/gang"
"""On a job: the gang that it is of, as `NAMESPACE/KIND/NAME`."""

GangId = tuple[str, str]
"""Namespace, and the gang's name there: `KIND/NAME`."""
AskOf = Callable[[Pod], ReplicaAsk]


class Refused(NamedTuple):
    """Why pods are not placed, as a condition says it."""

    reason: str
    text: str
    again: bool = False
    """The server is only busy: it may take them later."""
    soon: bool = False
    """What is missing is about to come: it is said only if it does not."""


class Facts(NamedTuple):
    """What a gang says of itself beside its pods' asks."""

    size: int = 1
    """How many of its pods start together."""
    queue: str = ""
    priority: int | None = None
    """None: that of its pods."""
    near: str | None = None
    """The label of nodes of which all have to have one value; None: any nodes."""


class Terms(NamedTuple):
    """What a job of a gang cannot be edited in while it waits: where these change, another job takes its place."""

    queue: str
    priority: int
    preemptible: bool
    adopted: bool = False
    """It is that of the log: a queue that was not named has its name by now."""


class Slot(msgspec.Struct, eq=False):
    """One rank."""

    ask: ReplicaAsk
    pod: str = ""
    """The name of the pod in it; empty: none."""
    key: ReplicaKey | None = None
    """The replica that it is while an attempt of the job holds a place for it."""
    node: NodeName = NodeName("")
    devices: tuple[int, ...] = ()
    waits: bool = False
    """It has a place, and waits for a pod until `ends_s` (of the loop's clock)."""
    ends_s: float = 0.0
    template: str = ""
    """Of which of its workload's templates its pods are."""

    @property
    def vacant(self) -> bool:
        """Whether a pod may come into it: it has none, and what it was before has ended."""
        return not self.pod and (self.key is None or self.waits)


class Gang(msgspec.Struct, eq=False):
    """Pods that start together. A pod of its own is a gang of one."""

    namespace: str
    name: str
    facts: Facts = Facts()
    members: dict[str, Pod] = {}
    """Pods that could be placed, by name."""
    workload: Workload | None = None
    """The object that is started and makes the pods then; None where pods come first."""
    slots: list[Slot] = []
    """By rank, once it was submitted."""
    job_id: JobId | None = None
    held: bool = False
    """It lacks pods, and its job does not start until they are there again."""
    started: AttemptNumber | None = None
    """The attempt of its job for which its workload was started last; `suspended`: for which it was suspended."""
    suspended: AttemptNumber | None = None
    hold_asked: bool = False
    """Its job was to be held once its attempt had ended: whether that was so has yet to be seen."""
    asked: bool = False
    """The server was asked about it, and has not answered."""
    refused: bool = False
    """The server takes no such job, until its pods change."""
    again_s: float = 0.0
    """The server is not asked before (of the loop's clock)."""
    learned: dict[str, ReplicaAsk] = {}
    """What pods of a workload really ask for, by template, where that is not what the template says."""
    done: dict[str, str] = {}
    """Names and uids of pods that are there and have succeeded; `done_before`: of those that are gone by now."""
    done_before: dict[str, str] = {}
    edited: bool = False
    """Its pods ask for something else than its job: the server has to be told."""
    terms: Terms | None = None
    """Those of its job."""
    renewed: bool = False
    """It has other terms than its job by now."""
    ended_job: JobId | None = None
    """The job that it was: it becomes no other one."""
    left_job: JobId | None = None
    """A job that was given up for another one, which has other terms."""

    @property
    def made_elsewhere(self) -> bool:
        """Whether the controller of its workload makes its pods, and makes them anew."""
        return self.workload is not None and self.workload.elastic is None

    @property
    def elastic(self) -> Elastic | None:
        return self.workload.elastic if self.workload is not None else None

    @property
    def id(self) -> GangId:
        return self.namespace, self.name

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def size(self) -> int:
        """How many pods have to be there before it starts: those that have succeeded need no place any more."""
        if self.workload is not None:
            return self.workload.size
        return max(1, self.facts.size - self.done_count)

    @property
    def done_count(self) -> int:
        return len({*self.done.values(), *self.done_before.values()})

    @property
    def left(self) -> int | None:
        """How many pods of its workload have yet to succeed; None where that does not count."""
        if self.workload is None or self.workload.completions is None:
            return None
        return max(0, self.workload.completions - max(self.workload.done, self.done_count))

    @property
    def lacks_ranks(self) -> bool:
        """Whether its job has ranks for which no pod comes although all its pods are there: some have succeeded."""
        if self.workload is not None:
            return self.elastic is None and self.workload.size != len(self.slots)
        return any(not slot.pod for slot in self.slots)

    @property
    def complete(self) -> bool:
        """Whether nothing that the gang itself has to bring keeps it from being placed."""
        if self.workload is not None:
            paused = self.elastic is not None and self.elastic.paused
            return not self.workload.over and not paused and self.workload.size > 0 and self.left != 0
        return sum(not pod.leaving for pod in self.members.values()) >= self.size

    @property
    def deserted(self) -> bool:
        """Whether nothing of it is left: no pod, and nothing that would make one."""
        return not self.members and self.workload is None

    @property
    def placed(self) -> bool:
        """Whether an attempt of its job holds places."""
        return any(slot.key is not None for slot in self.slots)

    def slot_of(self, key: ReplicaKey) -> Slot | None:
        slot = self.slots[key.rank] if key.rank < len(self.slots) else None
        return slot if slot is not None and slot.key == key else None

    def slot_with(self, pod: str) -> Slot | None:
        return next((slot for slot in self.slots if slot.pod == pod), None)

    def first_of(self, template: str) -> list[Pod]:
        """Return the members that were made from a template of its workload and do not leave, in the order of ranks."""
        made = [pod for pod in self.members.values() if not pod.leaving and set_of(pod) == template]
        return sorted(made, key=order_of)

    def first(self) -> list[Pod]:
        """Return the members that start together, in the order of ranks."""
        return sorted((pod for pod in self.members.values() if not pod.leaving), key=order_of)[: self.size]


def order_of(pod: Pod) -> tuple[int, int, str]:
    """Ranks follow the index of an Indexed Job, else the names: `worker-2` before `worker-10`."""
    index = pod.metadata.labels.get(INDEX_LABEL, "")
    if index.isdecimal():
        return 0, int(index), pod.metadata.name
    stem, _, number = pod.metadata.name.rpartition("-")
    return (1, int(number), stem) if number.isdecimal() else (2, 0, pod.metadata.name)


def slots_of(gang: Gang, ask_of: AskOf) -> list[Slot]:
    """Return a slot for each rank, with the pod that is there for it now; equal asks follow one another.

    Raises: BadAmount.
    """
    if gang.workload is not None:
        found = [Slot(ask, template=one.name) for one in gang.workload.sets for ask in _asks_of(gang, one, ask_of)]
    else:
        found = [Slot(ask_of(pod), pod.metadata.name) for pod in gang.first()]
    groups: dict[ReplicaAsk, list[Slot]] = {}
    for slot in found:
        groups.setdefault(slot.ask, []).append(slot)
    return [slot for slots in groups.values() for slot in slots]


def _asks_of(gang: Gang, one: PodSet, ask_of: AskOf) -> list[ReplicaAsk]:
    """Return what the pods of a template ask for; where that turned out otherwise, each that is there for itself.

    Their volumes may be in several zones: what one of them asks for is nothing for another.
    """
    learned = gang.learned.get(one.name)
    if learned is None:
        return [ask_of(one.pod)] * one.count
    there = [pod for pod in gang.first_of(one.name) if not pod.spec.node_name]
    own = [ask_of(pod) for pod in there[: one.count]]
    return own + [learned] * (one.count - len(own))


def pods_of(gang: Gang) -> list[Pod]:
    """Return the pods that a gang has, or is to have by its templates."""
    return [one.pod for one in gang.workload.sets] if gang.workload is not None else list(gang.members.values())


def gang_ask(asks: Sequence[ReplicaAsk], pool: str = "", elastic: Elastic | None = None) -> GangAsk:
    """Return the ask of a gang whose ranks ask for these, equal ones together; an elastic one may run with fewer."""
    groups: list[tuple[ReplicaAsk, int]] = []
    for ask in asks:
        if groups and groups[-1][0] == ask:
            groups[-1] = ask, groups[-1][1] + 1
        else:
            groups.append((ask, 1))
    (first, count), *others = groups
    least = elastic.least if elastic is not None else count
    return GangAsk(
        least,
        first,
        pool=PoolName(pool) if pool else DEFAULT_POOL,
        replicas_max=count if least < count else 0,
        others=tuple(GroupAsk(number, ask) for ask, number in others),
    )


def new_job(gang: Gang, ask_of: AskOf, *, tenant_known: bool) -> NewJob:
    """Return the job that a whole gang is, and give it its slots. Raises: BadAmount."""
    gang.slots = slots_of(gang, ask_of)
    lead = gang.workload.sets[0].pod if gang.workload is not None else gang.members[gang.slots[0].pod]
    said, terms = _said(gang, lead), terms_of(gang, lead)
    gang.terms = terms
    spec = JobSpec(
        command=COMMAND,
        ask=gang_ask([slot.ask for slot in gang.slots], said.get(POOL_LABEL, ""), gang.elastic),
        name=gang.name.partition("/")[2],
        priority=terms.priority,
        preemptible=terms.preemptible,
        preempts=lead.spec.preemption_policy != "Never",
        grace_ms=1000 * lead.spec.termination_grace_period_seconds,
        labels=((GANG_JOB_LABEL, gang.label),),
    )
    if gang.elastic is not None:
        retries_max, limit_ms = gang.elastic.retries_max, gang.elastic.time_limit_ms
        spec = msgspec.structs.replace(spec, retries_max=retries_max, time_limit_ms=limit_ms)
    unnamed: list[str] = []
    if tenant_known:
        spec = msgspec.structs.replace(spec, tenant=TenantName(gang.namespace))
    else:
        unnamed.append("tenant")
    if terms.queue:
        spec = msgspec.structs.replace(spec, queue=QueueName(terms.queue))
    else:
        unnamed.append("queue")
    return NewJob(spec, unnamed=tuple(unnamed))  # type: ignore[arg-type]


def terms_of(gang: Gang, lead: Pod) -> Terms:
    """Return the terms of a gang with this first pod."""
    said, facts = _said(gang, lead), gang.facts
    return Terms(
        facts.queue or said.get(QUEUE_LABEL, ""),
        lead.spec.priority if facts.priority is None else facts.priority,
        said.get(PREEMPTIBLE_LABEL, "true") != "false",
    )


def _said(gang: Gang, lead: Pod) -> Mapping[str, str]:
    """Return the labels that say something of the whole gang: those of its workload come before its pods'."""
    return {**lead.metadata.labels, **(gang.workload.labels if gang.workload is not None else {})}


def fill(gang: Gang, pods: Iterable[Pod], ask_of: AskOf) -> Iterator[tuple[Slot, Pod]]:
    """Put pods without a slot into slots without a pod: one with a place first, the same index, any with the same ask.

    Pods of a workload go to a slot of their template, whatever they ask for: see `differs`. Raises: BadAmount.
    Yields: what came together, where the slot has a place already: to be bound there.
    """
    if gang.elastic is not None:
        yield from _fill_elastic(gang, pods)
        return
    waiting = [pod for pod in pods if not pod.leaving and gang.slot_with(pod.metadata.name) is None]
    for pod in sorted(waiting, key=order_of):
        vacant = [(rank, slot) for rank, slot in enumerate(gang.slots) if slot.vacant]
        if gang.workload is not None:
            vacant = [(rank, slot) for rank, slot in vacant if slot.template == set_of(pod)]
        else:
            ask = ask_of(pod)
            vacant = [(rank, slot) for rank, slot in vacant if slot.ask == ask]
        vacant = [one for one in vacant if one[1].key is not None] or vacant
        index = order_of(pod)[1] if INDEX_LABEL in pod.metadata.labels else -1
        slot = next((slot for rank, slot in vacant if rank == index), vacant[0][1] if vacant else None)
        if slot is not None:
            slot.pod, slot.waits = pod.metadata.name, False
            if slot.key is not None:
                yield slot, pod


def _fill_elastic(gang: Gang, pods: Iterable[Pod]) -> Iterator[tuple[Slot, Pod]]:
    """Put pods into the slots of the replicas that they were made as."""
    for pod in pods:
        rank = pod.metadata.labels.get(RANK_LABEL, "")
        slot = gang.slots[int(rank)] if rank.isdecimal() and len(rank) < 6 and int(rank) < len(gang.slots) else None
        if slot is not None and slot.waits and slot.key is not None and not pod.leaving and is_of(pod, slot.key):
            slot.pod, slot.waits = pod.metadata.name, False
            yield slot, pod


def replica_labels(key: ReplicaKey) -> dict[str, str]:
    """Return the labels of a pod that is made as this replica of an ElasticJob."""
    return {JOB_LABEL: str(key.job_id), ATTEMPT_LABEL: str(key.attempt), RANK_LABEL: str(key.rank)}


def is_of(pod: Pod, key: ReplicaKey) -> bool:
    """Return whether a pod of an ElasticJob was made as this replica."""
    return replica_labels(key).items() <= pod.metadata.labels.items()


def differs(ask: ReplicaAsk, planned: ReplicaAsk) -> bool:
    """Return whether a pod asks for something else than was planned; who else looks at it is no part of that."""
    return (ask.host, ask.devices, ask.affinity, ask.label_terms, ask.tolerations) != (
        planned.host,
        planned.devices,
        planned.affinity,
        planned.label_terms,
        planned.tolerations,
    )
