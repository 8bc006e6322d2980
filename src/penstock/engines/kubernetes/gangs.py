"""Pods that wait, as gangs: whole ones are submitted as jobs; one that loses a pod before it starts is withdrawn."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from penstock.core.messages.requests import NewJob
from penstock.core.model.gang import GangAsk, GroupAsk
from penstock.core.model.ids import JobId, QueueName, TenantName
from penstock.core.model.jobs import JobSpec
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.engines.kubernetes.amounts import BadAmount
from penstock.engines.kubernetes.objects import Pod
from penstock.engines.kubernetes.pods import GANG_LABEL, GANG_SIZE_LABEL, QUEUE_LABEL, alike, unsupported

SIZE_MAX = 10_000
"""Pods of one gang."""
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
COMMAND = ("kubernetes", "pod")
"""Stands where a job of an agent has its command: the pod says itself what runs."""
GANG_JOB_LABEL = "penstock.dev/gang"

NOTHING = ReplicaAsk(Resources())

PodKey = str
"""Namespace and name, as `Pod.key`."""


class Refused(NamedTuple):
    """Why pods are not placed, as a condition says it."""

    reason: str
    text: str
    again: bool = False
    """The server is only busy: it may take them later."""


class Gang(msgspec.Struct, eq=False):
    """Pods that start together. A pod of its own is a gang of one."""

    namespace: str
    name: str
    size: int
    members: dict[str, Pod] = {}
    """Pods that could be placed, by name."""
    ranks: tuple[Pod, ...] = ()
    """As submitted, by rank; empty before."""
    asks: tuple[GangAsk, ...] = ()
    """What each of them asks for."""
    job_id: JobId | None = None
    held: bool = False
    """It lacks pods, and its job does not start until they are there again."""
    asked: bool = False
    """The server was asked about it, and has not answered."""
    refused: bool = False
    """The server takes no such job, until its pods change."""
    again_s: float = 0.0
    """The server is not asked before (of the loop's clock)."""

    @property
    def complete(self) -> bool:
        return len(self.members) >= self.size

    def pod_of(self, rank: int) -> Pod | None:
        """Return the pod of a rank as it is now, None where it is gone."""
        return self.members.get(self.ranks[rank].metadata.name) if rank < len(self.ranks) else None

    def identity(self) -> str:
        """Names these pods: a submit that is repeated after a restart makes no second job."""
        uids = ",".join(sorted(pod.metadata.uid for pod in self.ranks))
        return f"kubernetes-{hashlib.blake2s(uids.encode(), digest_size=16).hexdigest()}"


def gang_of(pod: Pod) -> tuple[tuple[str, str], int]:
    """Return the gang that a pod belongs to, by namespace and name, and its size.

    Raises: ValueError when its size is no number from 1 to `SIZE_MAX`.
    """
    told = {**pod.metadata.annotations, **pod.metadata.labels}
    name = told.get(GANG_LABEL, "")
    if not name:
        return (pod.metadata.namespace, f"pod/{pod.metadata.name}"), 1
    size = told.get(GANG_SIZE_LABEL, "")
    if not size.isdecimal() or not 1 <= int(size) <= SIZE_MAX:
        raise ValueError(f"{GANG_SIZE_LABEL} is '{size}', expected a number from 1 to {SIZE_MAX:,}")
    return (pod.metadata.namespace, f"gang/{name}"), int(size)


def refusal(pod: Pod) -> Refused | None:
    """Return why a pod can never be placed as it is, or None."""
    try:
        found = list(unsupported(pod))
        gang_of(pod)
    except BadAmount as error:
        return Refused("InvalidAmount", str(error))
    except ValueError as error:
        return Refused("InvalidGang", str(error))
    if not found:
        return None
    return Refused("Unsupported", "; ".join(f"{one.field}: {one.text}" for one in found))


def ranked(gang: Gang) -> dict[GangAsk, list[Pod]]:
    """Give the members their ranks, and return them by what they ask. Raises: BadAmount."""
    asks = {name: alike(pod) for name, pod in gang.members.items()}
    chosen = sorted(gang.members.values(), key=_order)[: gang.size]
    groups: dict[GangAsk, list[Pod]] = {}
    for pod in chosen:
        groups.setdefault(asks[pod.metadata.name], []).append(pod)
    gang.ranks = tuple(pod for members in groups.values() for pod in members)
    gang.asks = tuple(ask for ask, members in groups.items() for _ in members)
    return groups


def new_job(gang: Gang, *, tenant_known: bool) -> NewJob | Refused:
    """Return the job that a whole gang is, or why it cannot be one. Raises: BadAmount."""
    (first, pods), *others = ranked(gang).items()
    bare = _where(first)
    if any(_where(ask) != bare for ask, _ in others):
        return Refused("Unsupported", "the pods of a gang choose their nodes by different rules")
    lead = gang.ranks[0]
    spec = JobSpec(
        command=COMMAND,
        ask=msgspec.structs.replace(
            first, replicas=len(pods), others=tuple(GroupAsk(len(members), ask.each) for ask, members in others)
        ),
        name=gang.name.partition("/")[2],
        priority=lead.spec.priority,
        grace_ms=1000 * lead.spec.termination_grace_period_seconds,
        labels=((GANG_JOB_LABEL, f"{gang.namespace}/{gang.name}"),),
    )
    unnamed: list[str] = []
    if tenant_known:
        spec = msgspec.structs.replace(spec, tenant=TenantName(gang.namespace))
    else:
        unnamed.append("tenant")
    if queue := lead.metadata.labels.get(QUEUE_LABEL, ""):
        spec = msgspec.structs.replace(spec, queue=QueueName(queue))
    else:
        unnamed.append("queue")
    return NewJob(spec, unnamed=tuple(unnamed))  # type: ignore[arg-type]


def _where(ask: GangAsk) -> GangAsk:
    """Return the ask without its amounts: what it says of nodes."""
    return msgspec.structs.replace(ask, each=NOTHING)


def _order(pod: Pod) -> tuple[int, int, str]:
    """Ranks follow the index of an Indexed Job, else the names: `worker-2` before `worker-10`."""
    index = pod.metadata.labels.get(INDEX_LABEL, "")
    if index.isdecimal():
        return 0, int(index), ""
    stem, _, number = pod.metadata.name.rpartition("-")
    return (1, int(number), stem) if number.isdecimal() else (2, 0, pod.metadata.name)


class Gangs:
    """The gangs of all pods that wait or run here."""

    def __init__(self) -> None:
        self._gangs: dict[tuple[str, str], Gang] = {}
        self._of_pod: dict[PodKey, Gang] = {}
        self._of_job: dict[JobId, Gang] = {}
        self._changed: dict[tuple[str, str], Gang] = {}
        """Gangs about which the server may have to be asked."""

    def put(self, pod: Pod) -> Gang:
        """Add a pod that could be placed, or its newer version. Raises: ValueError."""
        key, size = gang_of(pod)
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key[0], key[1], size)
        gang.members[pod.metadata.name] = pod
        self._changed[key] = gang
        self._of_pod[pod.key] = gang
        if gang.job_id is None:
            gang.size, gang.refused = size, gang.refused and gang.size == size
        return gang

    def take(self, pod: Pod) -> Gang | None:
        """Remove a pod that is gone or over, and return its gang; None where it was in none."""
        gang = self._of_pod.pop(pod.key, None)
        if gang is not None:
            gang.members.pop(pod.metadata.name, None)
            self._changed[gang.namespace, gang.name] = gang
            if not gang.members and gang.job_id is None:
                self.forget(gang)
        return gang

    def submitted(self, gang: Gang, job_id: JobId) -> None:
        gang.job_id = job_id
        self._of_job[job_id] = gang
        self._changed[gang.namespace, gang.name] = gang  # its pods may have changed meanwhile

    def reform(self, gang: Gang) -> None:
        """Forget the job of a gang: its pods form a new one."""
        members = tuple(gang.members.values())
        self.forget(gang)
        for pod in members:
            self.put(pod)

    def forget(self, gang: Gang) -> None:
        """Forget a gang and its job."""
        if gang.job_id is not None:
            self._of_job.pop(gang.job_id, None)
        for pod in gang.members.values():
            self._of_pod.pop(pod.key, None)
        if self._gangs.get((gang.namespace, gang.name)) is gang:
            del self._gangs[gang.namespace, gang.name]

    def of_job(self, job_id: JobId) -> Gang | None:
        return self._of_job.get(job_id)

    def reconsider(self) -> None:
        """Let gangs that the server refused be submitted again."""
        for key, gang in self._gangs.items():
            if gang.refused:
                gang.refused = False
                self._changed[key] = gang

    def unsettled(self, now_s: float) -> Iterator[Gang]:
        """Yield gangs about which the server is to be asked."""
        for key, gang in tuple(self._changed.items()):
            if gang.asked or gang.again_s > now_s:
                continue
            submits = gang.job_id is None and gang.complete and not gang.refused
            if self._gangs.get(key) is gang and (submits or (gang.job_id is not None and gang.complete == gang.held)):
                yield gang
            else:
                del self._changed[key]
