"""The scheduling settings of slurm.conf as a whole: priority, backfill, preemption, placement.

Source: https://slurm.schedmd.com/slurm.conf.html, https://slurm.schedmd.com/priority_multifactor.html,
https://slurm.schedmd.com/sched_config.html, https://slurm.schedmd.com/preempt.html
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.core.model.cluster import BackfillRule, PlacementPolicy, PreemptionRule, QueuePolicy, Settings
from penstock.formats.slurm import limit_ms
from penstock.migrate.report import Fate, KeyReader, MigrationReport, SourcePlace
from penstock.migrate.slurm.keys import IGNORED
from penstock.migrate.slurm.lines import PlacedValue, SlurmLine, Values, is_true

WEIGHT_MAX = 2**32
PRIORITY_MAX = 10_000
"""The highest priority of a job in Penstock."""
DAY_MS = 86_400_000
DEFAULT_HALF_LIFE_MS = 7 * DAY_MS
DEFAULT_AGE_MS = 7 * DAY_MS
DEFAULT_JOBS_TESTED = 500
_WEIGHTS = ("Age", "Assoc", "Fairshare", "JobSize", "Partition", "QOS")


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that Penstock supports."""

    settings: Settings
    tree_policy: QueuePolicy
    """Order of sibling queues."""
    leaf_policy: QueuePolicy
    preemption: PreemptionRule
    placement: PlacementPolicy
    backfill: BackfillRule
    qos_weight: int
    """Points of priority that the highest quality of service gives, as Slurm has it: may be above `PRIORITY_MAX`."""


def read_scheduling(lines: Iterable[SlurmLine], report: MigrationReport) -> Scheduling:
    """Return the meaning of the standalone keys; each gets an entry.

    Raises: ImportFault for a value that is no number or time where one is needed.
    """
    given: Values = {}
    for line in lines:
        for field in line.fields:
            if line.kind in _OTHER_KINDS:
                break
            if field.key in IGNORED:
                report.lost(line.place, field.key, field.value, IGNORED[field.key])
                continue
            if field.key in given:
                report.lost(given[field.key].place, field.key, given[field.key].text, "a later line says it again")
            given[field.key] = PlacedValue(field.value, line.place)
    reader = _Settings(given, report)
    multifactor = reader.multifactor()
    scheduling = Scheduling(
        qos_weight=reader.weight("QOS"),
        settings=Settings(**reader.settings(multifactor=multifactor)),
        tree_policy=reader.tree_policy(multifactor=multifactor),
        leaf_policy="priority" if multifactor else "fifo",
        preemption=reader.preemption(),
        placement=reader.placement(),
        backfill=reader.backfill(),
    )
    reader.rest()
    return scheduling


_OTHER_KINDS = ("NodeName", "NodeSet", "PartitionName", "DownNodes", "FrontendName")


class _Settings(KeyReader):
    def __init__(self, given: Values, report: MigrationReport) -> None:
        self._given, self._report = given, report
        self._said: set[str] = set()

    def _value(self, key: str, default: str = "") -> str:
        return self._given[key].text if key in self._given else default

    def say(self, key: str, fate: Fate) -> None:
        if key in self._given and key not in self._said:
            self._said.add(key)
            self._report.add(self._given[key].place, key, self._given[key].text, fate)

    def number(self, key: str, default: int, most: int = WEIGHT_MAX) -> int:
        return self._given[key].place.whole(key, self._given[key].text, most) if key in self._given else default

    def time_ms(self, key: str, default: int) -> int:
        """Return a time in ms; one without an end is 0."""
        if key not in self._given:
            return default
        try:
            return limit_ms(self._value(key))
        except ValueError:
            raise self._given[key].place.fault(key, self._value(key), "a time such as 5, 1:30:00 or 7-0") from None

    def flag(self, key: str) -> bool:
        return is_true(self._value(key))

    def weight(self, factor: str) -> int:
        return self.number(f"PriorityWeight{factor}", 0)

    def multifactor(self) -> bool:
        """Return whether priorities have factors. Without the key Slurm's versions differ: weights decide."""
        kind = self._value("PriorityType")
        if not kind:
            return any(self.weight(factor) for factor in _WEIGHTS)
        if kind == "priority/basic":
            self.mapped("PriorityType", "policy fifo")
        elif kind == "priority/multifactor":
            self.approximated("PriorityType", "policy priority: a job's own number and its age; see the weights")
        else:
            self.approximated("PriorityType", "not a type that is known; taken for priority/multifactor")
        return kind != "priority/basic"

    def tree_policy(self, *, multifactor: bool) -> QueuePolicy:
        if not multifactor:
            return "fifo"
        if not self.weight("Fairshare"):
            self.mapped("PriorityWeightFairshare", "0: queues are compared by priority, not by use")
            return "priority"
        how = "policy fair_share: use orders the queues; it is not added to a job's priority"
        self.approximated("PriorityWeightFairshare", how)
        return "fair_share"

    def settings(self, *, multifactor: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if multifactor:
            found.update(self._priority())
        if "KillWait" in self._given:
            found["grace_default_ms"] = self.number("KillWait", 30, 65_535) * 1000
            self.mapped("KillWait", "grace_default: from the stop signal to the kill")
        exempt = self.time_ms("PreemptExemptTime", 0) if self._value("PreemptExemptTime") != "-1" else 0
        if exempt:
            found["min_runtime_before_preemption_ms"] = exempt
        self.mapped("PreemptExemptTime", "min_runtime_before_preemption")
        found["backfill_depth_max"] = self._jobs_tested()
        return found

    def _priority(self) -> dict[str, Any]:
        """Return how a job's priority changes: with its age, and with its size."""
        half_life = self.time_ms("PriorityDecayHalfLife", DEFAULT_HALF_LIFE_MS)
        if half_life:
            self.mapped("PriorityDecayHalfLife", "fair_share_half_life")
        else:
            how = "only present use counts; in Slurm past use never fades then"
            self.approximated("PriorityDecayHalfLife", how)
        if "PriorityDecayHalfLife" not in self._given:
            note = "fair_share_half_life 7d: Slurm's default"
            self._report.mapped(self._anywhere(), "PriorityDecayHalfLife", "7-0 (default)", note)
        age, qos = self.weight("Age"), self.weight("QOS")
        if qos > PRIORITY_MAX:
            age = age * PRIORITY_MAX // qos
            how = f"wait_bonus_max {age}: made smaller as PriorityWeightQOS is, of which {PRIORITY_MAX} points are left"
            self.approximated("PriorityWeightAge", how)
        self.mapped("PriorityWeightAge", "wait_bonus_max: points that a job gains by waiting")
        self.mapped("PriorityMaxAge", "wait_bonus_horizon")
        small = self.flag("PriorityFavorSmall")
        size = "not by size" if small else "larger jobs are not preferred"
        self.lost("PriorityWeightJobSize", f"size_penalty_per_device 0: {size}; set it to prefer small jobs")
        self.lost("PriorityFavorSmall", "see PriorityWeightJobSize")
        how = f"jobs say `priority` as a number up to {PRIORITY_MAX}: see the entries of each QOS"
        self.approximated("PriorityWeightQOS", how)
        for factor in ("Assoc", "Partition"):
            self.lost(f"PriorityWeight{factor}", "jobs say `priority` themselves; accounts and pools add nothing")
        self.lost("PriorityWeightTRES", "a job's priority does not grow with what it asks for")
        return {
            "fair_share_half_life_ms": half_life,
            "wait_bonus_max": age,
            "wait_bonus_horizon_ms": self.time_ms("PriorityMaxAge", DEFAULT_AGE_MS) or DEFAULT_AGE_MS,
            "size_penalty_per_device": 0,
        }

    def _anywhere(self) -> SourcePlace:
        """Return the place of keys that the file leaves out: line 0."""
        first = next(iter(self._given.values()), None)
        return SourcePlace(first.place.file if first else "slurm.conf")

    def preemption(self) -> PreemptionRule:
        kind = self._value("PreemptType", "preempt/none")
        if kind == "preempt/none":
            self.mapped("PreemptType", "preemption never")
        else:
            basis = "QOS" if kind == "preempt/qos" else "PriorityTier of partitions"
            how = f"preemption lower_priority: by the jobs' priority; in Slurm by {basis}"
            self.approximated("PreemptType", how)
        how = "victims are asked to save and go back into their queue (requeue); Penstock suspends nothing"
        requeues = self._value("PreemptMode", "OFF").upper() in ("OFF", "REQUEUE")
        self.say("PreemptMode", Fate("mapped" if requeues else "approximated", how))
        self.lost("PreemptParameters", "victims are chosen by what their stop costs")
        self.lost("SchedulerTimeSlice", "Penstock does not take turns on one device (no gang scheduling by time)")
        return "never" if kind == "preempt/none" else "lower_priority"

    def placement(self) -> PlacementPolicy:
        words = {word.upper() for word in self._value("SelectTypeParameters").split(",")}
        found: PlacementPolicy = "worst_fit" if "CR_LLN" in words else "best_fit"
        counts_memory = any("MEMORY" in word for word in words)
        linear = self._value("SelectType").endswith("linear")
        if linear:
            how = "jobs share nodes; a job that wants a whole one asks for all of it"
            self.approximated("SelectType", how)
        self.mapped("SelectType", "CPUs, memory and devices are counted")
        if counts_memory:
            self.mapped("SelectTypeParameters", f"memory is counted; placement {found}")
        else:
            how = f"placement {found}; memory is counted, too: without it Slurm would not"
            self.approximated("SelectTypeParameters", how)
        return found

    def _parameter(self, name: str, default: int, most: int = 1_000_000) -> int:
        match = re.search(rf"(?:^|,)\s*{name}=([^,]*)", self._value("SchedulerParameters"), re.IGNORECASE)
        if match is None:
            return default
        return self._given["SchedulerParameters"].place.whole(f"SchedulerParameters {name}", match[1], most)

    def _jobs_tested(self) -> int:
        return max(1, self._parameter("bf_max_job_test", DEFAULT_JOBS_TESTED))

    def backfill(self) -> BackfillRule:
        kind = self._value("SchedulerType", "sched/backfill")
        reserved = self._parameter("bf_job_part_count_reserve", 0, 100_000)
        found: BackfillRule = "easy" if reserved == 1 else "conservative"
        if kind == "sched/backfill":
            how = f"backfill {found}: reservations for the first {self._jobs_tested()} jobs that do not fit"
            how = f"backfill {found}: one reservation" if found == "easy" else how
        else:
            found, how = "strict", "backfill strict: as in Slurm, no job passes the first one that does not fit"
        self.approximated("SchedulerType", how)
        how = f"backfill_depth_max {self._jobs_tested()} (bf_max_job_test); the other parameters are Slurm's own"
        self.approximated("SchedulerParameters", how)
        return found

    def rest(self) -> None:
        """Report every key that has no entry yet."""
        for key in self._given:
            self.lost(key, _REST.get(key, "Slurm's own setting"))


_REST = {
    "AccountingStorageEnforce": "quotas of queues always hold",
    "FairShareDampeningFactor": "shares are compared as they are",
    "GresTypes": "devices are named where nodes list them",
    "JobRequeue": "whether a job starts again is its own: `retries`",
    "MaxJobCount": "each queue has a `max_waiting` of its own (200,000)",
    "PriorityCalcPeriod": "priorities are worked out in every cycle",
    "PriorityFlags": "variants of Slurm's priorities",
    "PriorityParameters": "variants of Slurm's priorities",
    "PriorityUsageResetPeriod": "past use fades, it is not forgotten at once",
    "TopologyParam": "see topology.conf",
    "TopologyPlugin": "see topology.conf; jobs say `topology: same_switch` or `same_rack`",
}
for _factor in _WEIGHTS:
    _REST.setdefault(f"PriorityWeight{_factor}", "priority/basic knows no weights")
