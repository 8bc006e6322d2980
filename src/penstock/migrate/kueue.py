"""Kueue's objects to Penstock's: cluster queues and cohorts to the queue tree, flavours to device models.

A queue may hold its nominal quota and borrowed quota, reclaims its nominal quota, and lends up to its lending limit:
Penstock's `guaranteed`, `max` and `lend` mean the same. Source: https://kueue.sigs.k8s.io/docs/concepts/ and the API
types v1beta1 and v1beta2, https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta2/
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from penstock.core.model.cluster import DEFAULT_POOL, BackfillRule, Pool, PreemptionRule, Settings, Tenant
from penstock.core.model.ids import TenantName
from penstock.formats.quantities import kubernetes_quantity
from penstock.migrate.fields import Fields
from penstock.migrate.kueuequota import FLAVOURS_MAX, read_groups
from penstock.migrate.located import LocatedTable
from penstock.migrate.manifests import Object, objects, priority_class, read_documents, text_pairs
from penstock.migrate.model import Amount, Flavour, Imported, MigrationSource, SourceQueue
from penstock.migrate.names import Names
from penstock.migrate.nodeobjects import Level, read_nodes
from penstock.migrate.report import MigrationReport
from penstock.migrate.toconfig import to_config

GROUP = "kueue.x-k8s.io"
CONFIG_GROUP = "config.kueue.x-k8s.io"
HOST_LABEL = "kubernetes.io/hostname"
MODEL_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/class",
    "amd.com/gpu.product-name",
    "accelerator",
)
"""Node labels whose value names the device model."""
_ELSEWHERE = {
    "AdmissionCheck": "Penstock starts a job as soon as it fits; nothing is asked first",
    "MultiKueueCluster": "Penstock plans one cluster",
    "MultiKueueConfig": "Penstock plans one cluster",
    "ProvisioningRequestConfig": "Penstock adds no nodes",
    "Workload": "jobs are not imported",
}


class _Reading:
    """Objects read so far."""

    def __init__(self, report: MigrationReport) -> None:
        self.report = report
        self.queues: list[SourceQueue] = []
        self.flavours: dict[str, Flavour] = {}
        self.tenants: dict[str, Tenant] = {}
        self.cohorts: dict[str, Object] = {}
        self.levels: list[Level] = []
        self.strict = False
        self.tenant_names = Names()


def read(paths: Iterable[Path]) -> Imported:
    """Return Penstock's equivalent of Kueue's objects in these YAML files, and the outcome of each field.

    Read are ClusterQueue, Cohort, LocalQueue, ResourceFlavor, WorkloadPriorityClass, Topology, the configuration of
    Kueue and nodes (`kubectl get nodes -o yaml`); order does not matter.
    Raises: ImportFault for a file that is not this, for slips in names of fields, cycles and doubles.
    """
    report = MigrationReport()
    found = objects(read_documents(paths), report)
    reading = _Reading(report)
    for one in sorted(found, key=lambda o: o.kind not in ("Topology", "ResourceFlavor", "Configuration")):
        _READERS.get((one.group, one.kind), _other)(reading, one)
    _cohorts_that_are_only_named(reading)
    nodes = read_nodes([one for one in found if (one.group, one.kind) == ("", "Node")], reading.levels, report)
    backfill: BackfillRule = "easy" if reading.strict else "none"
    source = MigrationSource(
        queues=tuple(reading.queues),
        flavours=tuple(reading.flavours.values()),
        pools=(Pool(DEFAULT_POOL, backfill=backfill),),  # a workload that does not fit blocks no others
        tenants=tuple(reading.tenants.values()),
        settings=Settings(wait_bonus_max=0, size_penalty_per_device=0),  # priority, then age; nothing else counts
        root_policy="capacity",
        nodes=tuple(nodes),
    )
    return to_config(source, report)


def _flavor(reading: _Reading, one: Object) -> None:
    spec, name = one.spec(), one.named()
    labels_at = spec.inner("nodeLabels")
    labels = dict(text_pairs(labels_at))
    model = next((labels[key] for key in MODEL_LABELS if labels.get(key)), "")
    if model:
        reading.report.mapped(one.place, "metadata.name", name, f"device model '{model}', from the flavour's labels")
    else:
        how = f"its devices count as model '{name}'; nodes have to name their devices so"
        reading.report.approximated(one.place, "metadata.name", name, how)
    spec.approximated("nodeLabels", "jobs choose devices by model, not by flavour; say `model` or `node_labels`")
    spec.lost("nodeTaints", "Penstock has no taints; keep such nodes in a pool of their own")
    spec.lost("tolerations", "Penstock has no taints and needs no tolerations")
    spec.approximated("topologyName", "jobs say `topology: same_rack` or `same_switch`; nodes carry rack and switch")
    spec.done()
    if name in reading.flavours:
        raise one.place.fault("metadata.name", name, "each ResourceFlavor once")
    if len(reading.flavours) >= FLAVOURS_MAX:
        raise one.place.fault("metadata.name", name, f"at most {FLAVOURS_MAX} flavours")
    reading.flavours[name] = Flavour(name, model or name)


def _cluster_queue(reading: _Reading, one: Object) -> None:
    spec, name = one.spec(), one.named()
    cohort_key = "cohortName" if spec.has("cohortName") else "cohort"
    spec.skip("cohort", "cohortName")
    cohort = spec.text(cohort_key)
    spec.mapped(cohort_key, f"parent of queue '{name}'")
    amounts = read_groups(spec, reading.flavours, own=f"queue '{name}'", may_borrow=bool(cohort))
    strategy = spec.word("queueingStrategy", ("BestEffortFIFO", "StrictFIFO"), "BestEffortFIFO")
    if strategy == "StrictFIFO":
        reading.strict = True
        how = "policy priority; later jobs of the pool start only where they do not delay the first (backfill easy)"
        spec.approximated("queueingStrategy", how)
    else:
        spec.mapped("queueingStrategy", "policy priority without waiting bonus; backfill none if no queue is strict")
    if _stopped(spec):
        amounts = [*(a for a in amounts if a.resource != "jobs"), _nothing_starts()]
    reading.queues.append(
        SourceQueue(
            key=f"queue/{name}",
            name=name,
            parent=f"cohort/{cohort}" if cohort else "",
            place=one.place,
            weight=_weight(reading, spec),
            amounts=tuple(amounts),
            sealed=not cohort,
            only_named=True,
            policy="priority",
            preemption=_preemption(spec),
        )
    )
    _queue_leftovers(spec)


def _nothing_starts() -> Amount:
    """Return the maximum of a queue in which nothing starts."""
    return Amount("jobs", max=0)


def _queue_leftovers(spec: Fields) -> None:
    why = "who may submit where is not part of the cluster file; a job names its tenant and queue"
    spec.lost("namespaceSelector", why)
    spec.lost("flavorFungibility", "a job lists the models it accepts in order of preference")
    spec.lost("admissionChecks", "Penstock starts a job as soon as it fits; nothing is asked first")
    spec.lost("admissionChecksStrategy", "Penstock starts a job as soon as it fits; nothing is asked first")
    spec.lost("admissionScope", "past use counts in all queues alike: setting fair_share_half_life")
    spec.lost("concurrentAdmissionPolicy", "a job starts once; `alternatives` are tried in order")
    spec.done()


def _stopped(spec: Fields) -> bool:
    policy = spec.word("stopPolicy", ("None", "Hold", "HoldAndDrain"), "None")
    if policy == "None":
        spec.mapped("stopPolicy", "jobs start")
    elif policy == "Hold":
        spec.mapped("stopPolicy", "max jobs 0: nothing starts, running jobs continue")
    else:
        spec.approximated("stopPolicy", "max jobs 0: nothing starts; what runs is not stopped, cancel it")
    return policy != "None"


def _weight(reading: _Reading, spec: Fields) -> Fraction:
    fair = spec.inner("fairSharing")
    if fair is None:
        return Fraction(1)
    weight = fair.quantity("weight", kubernetes_quantity, "1 or 0.5") if fair.has("weight") else Fraction(1)
    how = "weight; in Kueue it divides what is borrowed, with fair sharing on; in Penstock whole shares, always"
    fair.approximated("weight", how)
    fair.done()
    return weight


def _preemption(spec: Fields) -> PreemptionRule:
    rules = spec.inner("preemption") or Fields(LocatedTable(spec.place, ()), spec.path("preemption"), spec.report)
    reclaim = rules.word("reclaimWithinCohort", ("Never", "LowerPriority", "Any"), "Never")
    within = rules.word("withinClusterQueue", ("Never", "LowerPriority", "LowerOrNewerEqualPriority"), "Never")
    found: PreemptionRule = "never"
    if within != "Never":
        found = "lower_priority"
    elif reclaim != "Never":
        found = "reclaim"
    if within == "Never":
        rules.mapped("withinClusterQueue", f"preemption {found}")
    else:
        how = "preemption lower_priority: also of other queues, never of equal priority; includes reclaim"
        rules.approximated("withinClusterQueue", how)
    if reclaim == "LowerPriority":
        how = f"preemption {found}: lent quota is reclaimed regardless of priority"
        rules.approximated("reclaimWithinCohort", how)
    elif reclaim == "Never" and found == "lower_priority":
        rules.approximated("reclaimWithinCohort", "preemption lower_priority, which includes reclaim")
    else:
        rules.mapped("reclaimWithinCohort", f"preemption {found}")
    borrow = rules.inner("borrowWithinCohort")
    if borrow is not None:
        policy = borrow.word("policy", ("Never", "LowerPriority"), "Never")
        if policy == "Never":
            borrow.mapped("policy", "who reclaims stays within its guarantee")
        else:
            borrow.lost("policy", "who reclaims stays within its guarantee; lower_priority knows no borrowing")
        borrow.lost("maxPriorityThreshold", "Penstock has no threshold: `preemptible: false` protects a job")
        borrow.done()
    rules.done()
    return found


def _cohort(reading: _Reading, one: Object) -> None:
    spec, name = one.spec(), one.named()
    if name in reading.cohorts:
        raise one.place.fault("metadata.name", name, "each Cohort once")
    reading.cohorts[name] = one
    key = "parentName" if spec.has("parentName") else "parent"
    spec.skip("parent", "parentName")
    parent = spec.text(key)
    spec.mapped(key, f"parent of queue '{name}'")
    amounts = read_groups(spec, reading.flavours, own=f"cohort '{name}'", may_borrow=bool(parent))
    weight = _weight(reading, spec)
    spec.done()
    reading.queues.append(
        SourceQueue(
            key=f"cohort/{name}",
            name=name,
            parent=f"cohort/{parent}" if parent else "",
            place=one.place,
            weight=weight,
            amounts=tuple(amounts),
            adds=True,
            sealed=not parent,
            policy="capacity",
        )
    )


def _cohorts_that_are_only_named(reading: _Reading) -> None:
    """Add undeclared cohorts: Kueue takes them for cohorts without quota, limits and parent."""
    known = {queue.key for queue in reading.queues}
    for queue in tuple(reading.queues):
        if queue.parent and queue.parent not in known:
            known.add(queue.parent)
            name = queue.parent.removeprefix("cohort/")
            reading.queues.append(
                SourceQueue(
                    key=queue.parent,
                    name=name,
                    place=queue.place,
                    adds=True,
                    sealed=True,
                    policy="capacity",
                )
            )
            reading.report.mapped(queue.place, "cohort", name, "a queue that is promised what those below it are")


def _local_queue(reading: _Reading, one: Object) -> None:
    spec, name = one.spec(), one.named()
    tenant = one.namespace or "default"
    if tenant not in reading.tenants:
        plain = reading.tenant_names.plain(tenant)
        reading.tenants[tenant] = Tenant(TenantName(plain), f"namespace {tenant}")
    target = spec.required("clusterQueue")
    note = f"tenant '{reading.tenants[tenant].name}'; its jobs name queue '{target}', not '{name}'"
    spec.approximated("clusterQueue", note)
    if spec.word("stopPolicy", ("None", "Hold", "HoldAndDrain"), "None") != "None":
        spec.lost("stopPolicy", "Penstock stops queues, not a tenant's part of one")
    else:
        spec.mapped("stopPolicy", "jobs start")
    spec.lost("fairSharing", "tenants of one queue have no weights in Penstock")
    spec.done()


def _priority_class(_: _Reading, one: Object) -> None:
    priority_class(one)


def _topology(reading: _Reading, one: Object) -> None:
    spec = one.spec()
    labels = []
    for level in spec.items("levels"):
        labels.append((level.required("nodeLabel"), level))
    for field, (label, level) in zip(_level_names([label for label, _ in labels]), labels, strict=True):
        if field:
            reading.levels.append(Level(label, field))
            level.mapped("nodeLabel", f"`{field}` of nodes that carry the label")
        else:
            level.lost("nodeLabel", "Penstock knows rack, switch and node; the levels nearest to the node are taken")
        level.done()
    spec.done()


def _level_names(labels: Sequence[str]) -> list[str]:
    """Return the node field of each level, from the widest to the narrowest; the last may be the node itself."""
    names = ["rack", "switch", *(["name"] if labels[-1:] == [HOST_LABEL] else [])]
    return [*[""] * len(labels), *names][len(names) :]


def _configuration(reading: _Reading, one: Object) -> None:
    fair = one.top.inner("fairSharing")
    if fair is not None:
        fair.flag("enable", default=True)
        fair.approximated("enable", "policy capacity: guarantees first, then the lowest weighted share")
        fair.lost("preemptionStrategies", "who gives way is chosen by cost, see docs/policies.md")
        fair.done()
    for key in one.top.names():
        if key not in ("apiVersion", "kind", "metadata", "fairSharing"):
            one.top.lost(key, "Kueue's own setting")


def _other(reading: _Reading, one: Object) -> None:
    if (one.group, one.kind) == ("", "Node"):
        return
    why = _ELSEWHERE.get(one.kind, "no object that this importer reads")
    reading.report.lost(one.place, "kind", one.kind, why)


_READERS = {
    (GROUP, "ClusterQueue"): _cluster_queue,
    (GROUP, "Cohort"): _cohort,
    (GROUP, "LocalQueue"): _local_queue,
    (GROUP, "ResourceFlavor"): _flavor,
    (GROUP, "WorkloadPriorityClass"): _priority_class,
    (GROUP, "Topology"): _topology,
    (CONFIG_GROUP, "Configuration"): _configuration,
}
