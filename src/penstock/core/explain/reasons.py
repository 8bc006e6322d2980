"""The codes of explanations and alerts, with meaning and remedy. `docs/reasons.md` is generated from here."""

from typing import NamedTuple

from penstock.core.model.resources import EXTENDED_SHORT
from penstock.core.model.stop_rules import STOP_RULES as STOP_RULES
from penstock.core.place.fit import REASON_TEXT


class Reason(NamedTuple):
    """One code in words, and how explanations treat it."""

    meaning: str
    remedy: str
    untimed: str = ""
    """Why no time is known at which it ends; empty where one may be known."""
    settled: bool = False
    """No edit is searched for: the job starts without one, or cannot start."""
    timed: bool = False
    """Time alone ends it: it says nothing about capacity."""
    shortage: bool = False
    """A lack of capacity on the nodes."""


CONSTRAINTS: dict[str, Reason] = {
    "dependency": Reason(
        "jobs that it depends on have not ended", "wait, or cancel those that are not needed", settled=True, timed=True
    ),
    "backing_off": Reason(
        "it failed, and its next attempt has to wait", "nothing: it resolves itself", settled=True, timed=True
    ),
    "held": Reason("a user holds it", "penstock release JOB", untimed="it is held", settled=True),
    "array_turn": Reason(
        "its array is at its limit (`%N`) of jobs that run or have their turn",
        "wait, or submit arrays with a larger `%N`",
        untimed="it is not its turn in its array yet",
        settled=True,
    ),
    "tenant_held": Reason(
        "its tenant has used up its credit, a hard budget or its device-hours", "add credit, or raise the limit"
    ),
    "next_cycle": Reason("it fits: the next cycle starts it", "nothing", settled=True),
    "decided_elsewhere": Reason(
        "in a shadow: Penstock would decide for it now, and the scheduler of the cluster has not",
        "ask that scheduler: its events say more",
        untimed="another scheduler decides",
        settled=True,
    ),
    "making_room": Reason(
        "others have been asked to save and leave for it", "nothing: their grace is bounded", settled=True
    ),
    "cycle_full": Reason(
        "the cycle has started as many jobs as it may",
        "nothing, or a higher `starts_per_cycle_max`",
        untimed="the cycle has started as many as it may",
        settled=True,
        timed=True,
    ),
    "no_queue": Reason(
        "its queue is not in the tree",
        "declare the queue and its parents",
        untimed="its queue is not in the tree",
        settled=True,
    ),
    "never": Reason("it could not start even if nothing ran", "see the alerts below: what to change is said there"),
    "quota": Reason("a maximum of a queue above it is reached", "a smaller request, another queue, a higher `max`"),
    "power_cap": Reason(
        "the devices of its pool would be expected to draw more together than the pool's `power_limit`",
        "fewer devices, or wait; or a higher `power_limit`",
    ),
    "not_lent": Reason("idle capacity is guaranteed to sibling queues that do not lend it", "a higher `lend` there"),
    "reserve": Reason(
        "the pool keeps a reserve for preemptible jobs",
        "`preemptible: true`, or a smaller `reserve`",
        untimed="the pool's reserve is in its way",
    ),
    "admission": Reason(
        "its queue lets jobs take turns, and as many as allowed do",
        "wait, or a higher `admission` (0: no limit)",
        untimed="it is not its turn yet",
    ),
    "expected_demand": Reason(
        "room is kept for jobs of higher priority that are expected, as keeping it has paid before",
        "a `time_limit` that ends before the room is needed, a higher priority, or wait; `predictive_share: 0`: none",
        untimed="room is kept for jobs that are expected",
        timed=True,
    ),
    "nowhere": Reason(
        "no node of its pool may take it, and none of the others has room", "open or add nodes", shortage=True
    ),
    "devices_short": Reason("too few devices are free where they are needed", "fewer devices, or wait", shortage=True),
    "share_short": Reason("no device has so large a share free", "a smaller share", shortage=True),
    "profile_short": Reason(
        "no device has room for another instance of the profile", "a smaller profile", shortage=True
    ),
    "device_closed": Reason(
        "devices that it could use are closed: they failed, or a user closed them",
        "nothing where they open by rule; else penstock devices open NODE INDEX",
        shortage=True,
    ),
    "device_taken": Reason(
        "devices that it could use are used by programs that Penstock did not start",
        "wait until these have ended, or end them",
        shortage=True,
    ),
    "device_links": Reason("enough devices are free, but not joined as required", "a farther `link`", shortage=True),
    "cpu_short": Reason("too little CPU is free where it is needed", "fewer `cpus`", shortage=True),
    "memory_short": Reason("too little memory is free where it is needed", "less `memory`", shortage=True),
    "storage_short": Reason("too little storage is free where it is needed", "less `storage`", shortage=True),
    "bandwidth_short": Reason("too little bandwidth is free where it is needed", "less `bandwidth`", shortage=True),
    "extended_short": Reason(
        "too little of an extended resource is free where it is needed", "ask for less of it", shortage=True
    ),
    "combination": Reason("each resource is free, but not together on the same nodes", "see the edits", shortage=True),
    "topology": Reason(
        "it would fit, but not as close together as required", "a wider or preferred `topology`", shortage=True
    ),
    "label": Reason("nodes with room do not have the labels wanted", "fewer `node_labels`", shortage=True),
    "taint": Reason("nodes with room have a taint that it does not tolerate", "a toleration for it", shortage=True),
    "checkpoint": Reason(
        "nodes with room do not reach the checkpoint that it continues from",
        "a node on the storage where its checkpoint lies",
        shortage=True,
    ),
    "anti_affinity": Reason(
        "nodes with room hold, or are near, replicas that it may not stand with", "a narrower rule", shortage=True
    ),
    "affinity": Reason(
        "nodes with room are not near the replicas that it has to stand with", "a wider domain", shortage=True
    ),
    "spread": Reason(
        "nodes with room would have too many more of its kind than others", "a larger `maxSkew`", shortage=True
    ),
    "virtualization": Reason("the pool does not give out such parts of devices", "ask for whole ones, or another pool"),
    "vendor": Reason("nodes with room have devices of another vendor", "no `vendor`", shortage=True),
    "model": Reason("nodes with room have no device of an accepted model", "accept more models", shortage=True),
    "device_memory": Reason(
        "nodes with room have devices with too little memory", "a smaller `memory` of devices", shortage=True
    ),
    "capability": Reason("nodes with room have devices of too low capability", "a lower `capability`", shortage=True),
    "mig_mode": Reason(
        "nodes with room have devices with MIG mode on, which give out MIG instances alone",
        "a MIG profile; or an administrator switches MIG mode off, and starts the node again",
        shortage=True,
    ),
    "isolation": Reason(
        "nodes with room isolate parts of devices less than it requires",
        "a weaker `isolation`, a pool with `virtualization: mps`, or a MIG profile",
        shortage=True,
    ),
    "node_lost": Reason("nodes with room are lost", "bring them back", shortage=True),
    "node_joining": Reason("nodes with room are joining", "nothing: they report soon", shortage=True),
    "node_draining": Reason("nodes with room are being drained", "open them again", shortage=True),
    "node_shut_to_tenant": Reason(
        "jobs of its tenant claimed that nodes with room fail; they are to be checked",
        "nothing: a check that they pass opens them again",
        shortage=True,
    ),
    "reserved": Reason(
        "nodes with room are reserved for another tenant", "wait for the end of the window", shortage=True
    ),
    "kept_back": Reason(
        "room is kept for a job that comes first",
        "a `time_limit` that ends before it starts",
        untimed="capacity is kept for other jobs first",
    ),
    "no_fit": Reason("the cycle found no room for it", "see the edits"),
    "preempt_never": Reason(
        "its queue, or it itself, never asks others to leave, or three attempts were lost before it ever ran",
        "another `preemption` rule of the queue",
    ),
    "no_lower_priority": Reason("no job that may be preempted runs in its pool", "a higher priority"),
    "min_runtime": Reason("jobs that may be asked have a guaranteed run time left", "wait until it is over"),
    "disruption_budget": Reason(
        "who may be asked is protected by a disruption budget", "wait until the budget allows it"
    ),
    "victims_short": Reason("it does not fit even without all jobs that may be preempted", "see the edits"),
    "guarantee": Reason("who would have to leave is protected by a guarantee", "see the edits"),
    "behind": Reason("other jobs of its queue come first", "a higher priority"),
}
"""Codes of `Constraint`, in the order in which an explanation lists them."""

ALERTS: dict[str, Reason] = {
    "log_disk": Reason("the log of the server cannot be written: nothing that happens is noted, nothing starts",
                       "free room on its disk; the server continues when it can write"),
    "token_made_for_you": Reason(
        "another user issued a token for the caller", "revoke it unless it was agreed"
    ),
    "dependency_cycle": Reason("jobs wait for each other in a circle", "cancel one of them"),
    "behind_stuck": Reason("a job waits for one that can never start", "settle that one"),
    "no_queue": Reason("a job waits in a queue that is not in the tree", "declare the queue and its parents"),
    "quota_never": Reason("a job asks for more than a queue above it may have", "raise the maximum, or ask for less"),
    "power_never": Reason("a job's devices alone would draw more than the `power_limit` of its pool",
                          "raise the limit, or ask for fewer devices"),
    "reserve_never": Reason("a job that is not preemptible would take of the pool's reserve even when all is idle",
                            "make it preemptible, or lower the reserve"),
    "never_fits": Reason("no known nodes could hold a job, even when empty", "ask for less, or add nodes"),
    "nodes_away": Reason("a job fits only on nodes that are lost or drained, or on devices that are closed",
                         "bring them back, or ask for less"),
    "nodes_reserved": Reason("a job fits only on nodes reserved for another tenant", "shorten the reservation"),
    "reserved_without_end": Reason("capacity is reserved for a job, with no known start time", "declare time limits"),
    "tenant_held": Reason("jobs wait because their tenant has used up its credit, a hard budget or its device-hours",
                          "add credit, or raise the budget or the device-hours"),
    "hung": Reason("a running program makes no step", "see what its ranks do: penstock show"),
    "no_report": Reason("a running program has reported no step in this attempt, as it did in an earlier one",
                        "see its output: penstock logs"),
    "loss_not_finite": Reason("the loss of a training is NaN or infinite", "resume from an earlier checkpoint"),
    "slow_steps": Reason("a step takes at least twice as long as the fastest noted at this size", "look at its nodes"),
    "starved": Reason("a job with devices waits for data more than half of its time", "more loader workers, or CPUs"),
    "untouched": Reason("a program has run for 20 minutes and never used some of its devices, as nodes measured",
                        "ask for fewer devices, or let the program use them"),
    "node_closed": Reason("a node failed repeatedly", "look at the node, then open it"),
    "agent_version": Reason("a node's agent is of another version than the server, and is not replaced",
                            "install the server's version there, then: penstock node join"),
    "node_disk": Reason("the disk of a node is full, or cannot be written",
                        "free room there; the node then opens automatically"),
    "device_closed": Reason("devices of a node failed, or a user closed them",
                            "look at the node; penstock devices open NODE INDEX"),
    "gang_in_part": Reason("a gang holds part of what it needs", "a bug: please report it"),
}  # fmt: skip
"""Codes of `Alert`."""


def table() -> str:
    """Return the page on all codes, in Markdown."""
    lines = ["# Reasons", "", "From `core/explain/reasons.py` by `make docs`. Codes are stable.", ""]
    lines += ["## Why a job waits (`penstock explain JOB`)", "", "| code | meaning | what helps |", "|---|---|---|"]
    lines += [f"| `{code}` | {r.meaning} | {r.remedy} |" for code, r in CONSTRAINTS.items()]
    lines += ["", "## Alerts (`penstock alerts`)", ""]
    lines += [
        "| code | meaning | what helps |",
        "|---|---|---|",
        *(f"| `{code}` | {r.meaning} | {r.remedy} |" for code, r in ALERTS.items()),
    ]
    lines += ["", "## Why a node is ruled out", "", "| code | such nodes |", "|---|---|"]
    texts = {code: text.format("of the resource NAME") for code, text in REASON_TEXT.items()}
    lines += [f"| `{code}{':NAME' if code == EXTENDED_SHORT else ''}` | {text} |" for code, text in texts.items()]
    lines += ["", "## Why a running job was asked to leave", "", "| rule | meaning |", "|---|---|"]
    lines += [f"| `{rule}` | {meaning} |" for rule, meaning in STOP_RULES.items()]
    return "\n".join(lines) + "\n"
