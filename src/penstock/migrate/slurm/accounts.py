"""Slurm's accounts to tenants and queues, and the outcome of users and qualities of service.

Each account is a queue in the tree, and a tenant of its own; its users may submit there.
Source: https://slurm.schedmd.com/accounting.html, https://slurm.schedmd.com/resource_limits.html
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

from penstock.core.model.cluster import Tenant
from penstock.core.model.ids import TenantName
from penstock.migrate.model import Amount, Flavour, SourceQueue
from penstock.migrate.names import Names
from penstock.migrate.report import Fate, MigrationReport, SourcePlace, fates
from penstock.migrate.slurm.dump import Association
from penstock.migrate.slurm.listing import QOS_MAX, read_table
from penstock.migrate.slurm.settings import PRIORITY_MAX, Scheduling
from penstock.migrate.slurm.tres import read_tres

ROOT = "root"
FAIRSHARE_OF_PARENT = ("parent", "2147483647")
"""How `Fairshare=parent` is written: in words, and as `sacctmgr dump` has it."""
FAIRSHARE_MAX = 2**31 - 1
JOBS_MAX = 2**31
QOS_PRIORITY_MAX = 10**10 - 1
_JOB_WHY = "a limit per job or user; Penstock's quotas are of queues"
_JOB_LIMIT = Fate("not mapped", _JOB_WHY)
_ACCOUNT_FATES = {
    **fates("mapped", {"the tenant's description": "Description", "parent of the queue": "Parent"}),
    **fates("not mapped", {
        "every waiting job gains by its age": "GrpJobsAccrue",
        "Penstock has no budget over time in its queues": "GrpTRESMins GrpTRESRunMins GrpCPUMins GrpCPURunMins GrpWall",
        "Penstock has no quota of nodes: only of devices, cpus, memory and jobs": "GrpNodes",
        "an account adds nothing to a job's priority": "Priority",
        "a job says its `priority`; who may take which is not part of the cluster file": "QOS",
        "a job that says nothing has priority medium (500)": "DefaultQOS",
        "a tenant has a description only": "Organization",
        "who may do what is not part of the cluster file": "Coordinator",
        "a job names its pool; the association of one partition alone is not kept apart": "Partition",
    }),
}  # fmt: skip
_USER_FATES = fates("not mapped", {
    "a job names its tenant and queue": "DefaultAccount",
    "who may do what is not part of the cluster file": "AdminLevel",
    "users of one account have no shares: its jobs go by its own policy": "Fairshare",
    "a job names its pool": "Partition",
})  # fmt: skip
_OLD_LIMITS = {"GrpCPUs": "cpu", "GrpMemory": "mem"}
"""Options of Slurm before 15.08, and the resource that they limit."""
_QUOTAS = ("Fairshare", "Shares", "GrpTRES", "GrpJobs", "GrpSubmitJobs", *_OLD_LIMITS)
"""Options of accounts that become a quota or weight."""


class SlurmAccounts:
    """Tenants, queues and device models, read of associations."""

    def __init__(self, scheduling: Scheduling, models: Iterable[str], report: MigrationReport) -> None:
        """Take the models of the nodes' devices: limits may spell them otherwise, for Slurm knows no case there."""
        self._scheduling, self._report = scheduling, report
        self._spelt = {model.lower(): model for model in models}
        self.queues: list[SourceQueue] = []
        self.tenants: list[Tenant] = []
        self.models: dict[str, Flavour] = {}
        self._names = Names()

    def read(self, associations: Sequence[Association]) -> None:
        """Read accounts and users. Raises: ImportFault for bad numbers, and when two clusters are in one file."""
        clusters = list(dict.fromkeys(a.cluster for a in associations if a.cluster))
        if len(clusters) > 1:
            place = next(a.place for a in associations if a.cluster == clusters[1])
            raise place.fault("Cluster", clusters[1], f"one cluster; '{clusters[0]}' is before it")
        parents = {a.parent for a in associations if not a.user}
        with_users = {a.account for a in associations if a.user}
        for found in associations:
            if found.user:
                self._user(found)
            elif found.account == ROOT:
                self._root(found)
            else:
                self._account(found, has_queues=found.account in parents, has_users=found.account in with_users)

    def _root(self, found: Association) -> None:
        for field in found.options:
            why = "Penstock's root has no quotas: what there is follows from the nodes"
            self._report.lost(found.place, f"root {field.key}", field.value, why)

    def _account(self, found: Association, *, has_queues: bool, has_users: bool) -> None:
        name = found.account
        tenant = self._names.plain(name)
        self.tenants.append(Tenant(TenantName(tenant), found.get("Description")))
        self._report.mapped(found.place, "Account", name, f"tenant '{tenant}' and a queue")
        if has_queues and has_users:
            how = "it has jobs of its own and queues below it; its own count as one beside these"
            self._report.approximated(found.place, "Account", name, how)
        max_waiting = self._number(found, "GrpSubmitJobs")
        amounts = self._amounts(found, max_waiting)
        weight = self._weight(found)
        for field in found.options:
            if field.key not in _QUOTAS:
                self._report.add(found.place, field.key, field.value, _ACCOUNT_FATES.get(field.key, _JOB_LIMIT))
        scheduling = self._scheduling
        self.queues.append(
            SourceQueue(
                key=name,
                name=name,
                parent="" if found.parent in ("", ROOT) else found.parent,
                place=found.place,
                weight=weight,
                amounts=tuple(amounts),
                policy=scheduling.tree_policy if has_queues else scheduling.leaf_policy,
                preemption=scheduling.preemption,
                max_waiting=max_waiting,
            )
        )

    def _weight(self, found: Association) -> Fraction:
        text = found.get("Fairshare") or found.get("Shares")
        if not text:
            return Fraction(1)
        if text.lower() in FAIRSHARE_OF_PARENT:
            how = "weight 1: a queue of its own beside the others; in Slurm its users count in the account above"
            self._report.approximated(found.place, "Fairshare", text, how)
            return Fraction(1)
        expected = f"a whole number up to {FAIRSHARE_MAX}, or parent"
        weight = found.place.whole("Fairshare", text, FAIRSHARE_MAX, expected)
        self._report.mapped(found.place, "Fairshare", text, "weight")
        return Fraction(weight)

    def _number(self, found: Association, key: str) -> int | None:
        text = found.get(key)
        if text in ("", "-1"):
            return None
        number = found.place.whole(key, text, JOBS_MAX, f"a whole number up to {JOBS_MAX}, or -1")
        if key == "GrpSubmitJobs":
            how = "max_waiting and max jobs, each separately; in Slurm waiting and running jobs count together"
            self._report.approximated(found.place, key, text, how)
        return number

    def _amounts(self, found: Association, submitted: int | None) -> list[Amount]:
        """Return the maxima; no more jobs run than may be `submitted`."""
        amounts: list[Amount] = []
        jobs = self._number(found, "GrpJobs")
        if jobs is not None:
            self._report.mapped(found.place, "GrpJobs", found.get("GrpJobs"), "max jobs")
        limits = [limit for limit in (jobs, submitted) if limit is not None]
        if limits:
            amounts.append(Amount("jobs", max=min(limits)))
        text = found.get("GrpTRES") or _old_limits(found)
        if not text:
            return amounts
        tres = read_tres(found.place, "GrpTRES", text)
        for model in tres.models:
            self.models.setdefault(model, Flavour(model, self._spelt.get(model, model)))
        if tres.rest:
            how = f"max; without {', '.join(tres.rest)}: Penstock has quotas of devices, cpus, memory and jobs"
            self._report.approximated(found.place, "GrpTRES", text, how)
        else:
            self._report.mapped(found.place, "GrpTRES", text, "max")
        return [*amounts, *tres.limits]

    def _user(self, found: Association) -> None:
        why = f"users are who they are; a job of '{found.user}' names queue and tenant '{found.account}'"
        self._report.lost(found.place, "User", found.user, why)
        for field in found.options:
            self._report.add(found.place, f"User {field.key}", field.value, _USER_FATES.get(field.key, _JOB_LIMIT))


def _old_limits(found: Association) -> str:
    return ",".join(f"{name}={found.get(key)}" for key, name in _OLD_LIMITS.items() if found.get(key))


def read_qos(path: Path, scheduling: Scheduling, report: MigrationReport) -> None:
    """Report qualities of service: the parts that a job sets itself, and the parts that Penstock lacks.

    Raises: ImportFault for a table that is none, and for a priority that is no number.
    """
    rows = read_table(path, "Name", rows_max=QOS_MAX)
    priorities = [
        place.whole("Priority", row.get("Priority") or "0", QOS_PRIORITY_MAX, "a whole number") for place, row in rows
    ]
    most = max(priorities, default=0)
    weight = min(scheduling.qos_weight, PRIORITY_MAX)
    said = "PriorityWeightQOS" if weight == scheduling.qos_weight else f"{weight} points, the most there are,"
    for (place, row), priority in zip(rows, priorities, strict=True):
        name = row["Name"]
        points = weight * priority // most if most else 0
        how = f"its jobs say `priority: {points}`: {said} × {priority} ÷ {most}"
        report.approximated(place, f"QOS {name} Priority", str(priority), how)
        for key, cell in row.items():
            if cell and key not in ("Name", "Priority"):
                report.lost(place, f"QOS {name} {key}", cell, _qos_why(key))


def _qos_why(key: str) -> str:
    if key.startswith("Grp"):
        return "Penstock has no quota across queues: give the queues of these jobs a max"
    if key in ("Preempt", "PreemptMode"):
        return "whom a job may displace follows from priority and the queue's preemption rule"
    if key == "GraceTime":
        return "the grace before a stop is the job's own: `grace`"
    if key == "PreemptExemptTime":
        return "a queue has `min_runtime`; a quality of service is no queue"
    if key.startswith(("Max", "Min")):
        return _JOB_WHY
    return "Slurm's own setting"


def partition_queues(
    names: Iterable[tuple[str, SourcePlace]], scheduling: Scheduling, report: MigrationReport
) -> list[SourceQueue]:
    """Return a queue for each partition: used where no accounts are given."""
    found = []
    for name, place in names:
        how = f"queue '{name}': no accounts were given"
        report.approximated(place, "PartitionName", name, how)
        found.append(
            SourceQueue(
                key=name,
                name=name,
                place=place,
                policy=scheduling.leaf_policy,
                preemption=scheduling.preemption,
            )
        )
    return found
