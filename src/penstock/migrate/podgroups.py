"""Penstock's jobs as Volcano's PodGroups, with the priority classes that these name.

A PodGroup says how many pods start together and what these need. The pods, which somebody else makes, name it in
`scheduling.k8s.io/group-name` and carry all that is about single nodes.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.core.model import cluster as c
from penstock.core.model.gang import GangAsk
from penstock.core.model.jobs import JobSpec
from penstock.core.model.quantities import exact_duration
from penstock.core.model.resources import ReplicaAsk
from penstock.formats.names import ObjectNames
from penstock.migrate.manifests import device_resource
from penstock.migrate.report import MigrationReport, SourcePlace
from penstock.migrate.tovolcano import CPU, MEMORY, STORAGE, VERSION, Json, Sums, VolcanoQueues, quantities

GROUPS_MAX = 10_000
PREEMPTABLE = "volcano.sh/preemptable"
_OF_PODS = "it belongs to the pods"
_LOST = {
    "alternatives": "Volcano knows one shape of a job",
    "time_limit_ms": "activeDeadlineSeconds of the pods",
    "max_wait_ms": "Volcano lets a job wait for ever; annotation volcano.sh/sla-waiting-time asks for haste",
    "retries_max": "what makes the pods starts them again",
}
"""Fields of a job, and why they are left out."""
_WORDS = {
    "time_limit_ms": "time_limit",
    "max_wait_ms": "max_wait",
    "retries_max": "retries",
    "labels_wanted": "node_labels",
    "labels_shunned": "node_labels",
    "label_terms": "node_labels",
}
"""Fields as job files have them, where that is another word."""
_LOST_OF_ASKS = {
    "topology": "networkTopology needs HyperNodes: name the tier in the PodGroup where there are some",
    "labels_wanted": f"{_OF_PODS}: nodeSelector",
    "labels_shunned": f"{_OF_PODS}: affinity",
    "label_terms": f"{_OF_PODS}: affinity",
    "tolerations": f"{_OF_PODS}: tolerations",
    "placement": "how the scheduler places is its own configuration",
}


class SourceJob(NamedTuple):
    """A job that is to be a PodGroup, or as many as its array has members."""

    key: str
    """What the report calls it."""
    place: SourcePlace
    spec: JobSpec
    indexes: range = range(1)
    array: bool = False
    after: int = 0
    """How many jobs it waits for, beside those in its spec."""


def pod_groups(
    jobs: Iterable[SourceJob], queues: VolcanoQueues, report: MigrationReport, *, namespace: str, device: str
) -> list[Json]:
    """Return priority classes and PodGroups, of each member of an array one.

    Args:
        device: the resource of devices whose vendor a job does not name.
    Raises: ImportFault for a queue that there is not, and above `GROUPS_MAX` groups.
    """
    names, classes, found = ObjectNames(), dict[str, Json](), list[Json]()
    for job in jobs:
        if len(found) + len(job.indexes) > GROUPS_MAX:
            raise job.place.fault(job.key, len(job.indexes), f"at most {GROUPS_MAX} PodGroups", "export a part of them")
        if job.spec.queue not in queues.names:
            raise job.place.fault(f"{job.key}.queue", job.spec.queue, f"one of {', '.join(sorted(queues.names)[:20])}")
        _note(job, queues, report)
        named, needs = _priority_class(job.spec, classes), quantities(_sums(job.spec.ask, device))
        spec = {
            "minMember": job.spec.ask.replica_total,
            **({"minResources": needs} if needs else {}),
            "queue": queues.names[job.spec.queue],
            "priorityClassName": named,
        }
        for index in job.indexes:
            wish = f"{job.spec.name or 'job'}-{index}" if job.array else job.spec.name or "job"
            name = names.plain(wish)
            if name != wish:
                report.approximated(job.place, f"{job.key}.name", wish, f"the PodGroup is called '{name}'")
            meta = {"name": name, "namespace": namespace}
            meta["annotations"] = {PREEMPTABLE: "true" if job.spec.preemptible else "false"}  # type: ignore[assignment]
            found.append({"apiVersion": VERSION, "kind": "PodGroup", "metadata": meta, "spec": spec})
    return [*(classes[name] for name in sorted(classes)), *found]


def _priority_class(spec: JobSpec, classes: dict[str, Json]) -> str:
    """Return the name of the class of a job's priority, which is added where it is not there yet."""
    name = f"penstock-{spec.priority}" if spec.preempts else f"penstock-{spec.priority}-never"
    classes.setdefault(
        name,
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": spec.priority,
            "preemptionPolicy": "PreemptLowerPriority" if spec.preempts else "Never",
        },
    )
    return name


def _parts(ask: GangAsk) -> Iterator[tuple[int, ReplicaAsk]]:
    yield ask.replicas, ask.each
    for group in ask.others:
        yield group.replicas, group.each


def _sums(ask: GangAsk, device: str) -> Sums:
    """Return what the least size of a gang needs."""
    found: Sums = {}

    def add(resource: str, amount: int) -> None:
        if amount:
            found[resource] = found.get(resource, 0) + amount

    for count, each in _parts(ask):
        host = each.host
        add(CPU, count * host.cpu_milli)
        add(MEMORY, count * host.memory_bytes)
        add(STORAGE, count * host.storage_bytes)
        for name, amount in host.extended:
            add(name, count * amount)
        if each.devices is not None:
            of = each.devices
            profile = f"nvidia.com/mig-{of.profile}" if of.profile else ""
            add(profile or device_resource(of.vendor) or device, count * of.count)
    return found


def _note(job: SourceJob, queues: VolcanoQueues, report: MigrationReport) -> None:
    """Report what a PodGroup does not say of a job."""
    spec, ask, usual = job.spec, job.spec.ask, JobSpec((), job.spec.ask)

    def lost(field: str, value: object, why: str) -> None:
        report.lost(job.place, f"{job.key}.{_WORDS.get(field, field)}", value, why)

    if spec.queue in queues.parents:
        lost("queue", spec.queue, "Volcano starts nothing in a queue that has queues below it: name one of these")
    if after := job.after + len(spec.after):
        lost("after", after, "Volcano knows no order of jobs but that of tasks of one job")
    for field, why in _LOST.items():
        value = getattr(spec, field)
        if value != getattr(usual, field):
            shown = exact_duration(value) if field.endswith("_ms") else value
            lost(field, len(value) if isinstance(value, tuple) else shown, why)
    for field, why in _LOST_OF_ASKS.items():
        value = getattr(ask, field)
        if value:
            lost(field, len(value) if isinstance(value, tuple) else getattr(value, "scope", value), why)
    if ask.pool != c.DEFAULT_POOL:
        lost("pool", ask.pool, f"{_OF_PODS}: the label of its nodes as nodeSelector")
    if ask.elastic:
        how = f"minMember {ask.replicas}: what makes the pods decides how many more there are"
        report.approximated(job.place, f"{job.key}.replicas", ask.replicas_max, how)
    if ask.others:
        how = f"minMember {ask.replica_total}: pods of all groups count"
        report.approximated(job.place, f"{job.key}.groups", len(ask.others), how)
    for _, each in _parts(ask):
        _note_devices(job, each, report)


def _note_devices(job: SourceJob, each: ReplicaAsk, report: MigrationReport) -> None:
    of = each.devices
    if each.host.bandwidth_bps:
        report.lost(job.place, f"{job.key}.bandwidth", each.host.bandwidth_bps, "Volcano counts no bandwidth")
    if each.affinity:
        report.lost(job.place, f"{job.key}.affinity", len(each.affinity), f"{_OF_PODS}: affinity")
    if of is None:
        return
    if not of.whole and not of.profile:
        how = f"{of.count} whole: parts of devices need a device plugin that has them as resources"
        report.approximated(job.place, f"{job.key}.devices", of.milli / 1000, how)
    if of.models or of.memory_min_bytes or of.link is not None or of.capability_min != (0, 0):
        value = ", ".join(of.models) or "memory, link or capability"
        report.lost(job.place, f"{job.key}.devices", value, f"{_OF_PODS}: node affinity to the labels of its devices")
