"""Actions of users on live jobs, and the reasons why one leaves a job as it is."""

from typing import Literal

import msgspec
from msgspec.structs import replace

from penstock.core.model.gang import GangAsk
from penstock.core.model.ids import QueueName
from penstock.core.model.jobs import LABELS_MAX, JobSpec

JobAction = Literal["cancel", "save", "hold", "release", "requeue", "requeue_hold", "edit"]
ActionRefusal = Literal[
    "over", "cancel_requested", "not_running", "cannot_checkpoint", "held_already", "not_held", "not_waiting",
    "waiting", "stopping", "same", "fixed_while_running", "never_starts", "queue_full", "lease_limit",
    "too_many_labels", "unknown_queue", "share_used_up",
]  # fmt: skip
"""Why an action leaves a job as it is."""
Unchanged = ActionRefusal | Literal["no_right", "not_found"]

_NO_SIGNAL = "not say which signal makes {} save and carry on (checkpoint.request_signal)"
REFUSAL_TEXT: dict[ActionRefusal, tuple[str, str]] = {
    "over": ("is over", "are over"),
    "cancel_requested": ("is being cancelled already", "are being cancelled already"),
    "not_running": ("is not running, so there is nothing to save", "are not running, so there is nothing to save"),
    "held_already": ("is held already", "are held already"),
    "not_held": ("is not held", "are not held"),
    "not_waiting": (
        "is running; only waiting jobs are held: penstock requeue stops it, then hold it",
        "are running; only waiting jobs are held: penstock requeue stops them, then hold them",
    ),
    "waiting": ("is waiting already", "are waiting already"),
    "stopping": (
        "is being stopped already; try again once it waits",
        "are being stopped already; try again once they wait",
    ),
    "same": ("has these values already", "have these values already"),
    "fixed_while_running": (
        "is running: queue, max_wait and preemptible=false can only be set while it waits",
        "are running: queue, max_wait and preemptible=false can only be set while they wait",
    ),
    "queue_full": (
        "does not fit into the queue: it holds as many waiting jobs as it may",
        "do not fit into the queue: it holds as many waiting jobs as it may",
    ),
    "lease_limit": ("is a lease, which needs a time limit", "are leases, which need a time limit"),
    "too_many_labels": (
        f"would have more labels than the {LABELS_MAX} that a job may have",
        f"would have more labels than the {LABELS_MAX} that a job may have",
    ),
    "unknown_queue": ("cannot wait there: the queue was removed", "cannot wait there: the queue was removed"),
    "share_used_up": (
        "does not fit into the queue: its free places are kept for other users and tenants",
        "do not fit into the queue: its free places are kept for other users and tenants",
    ),
    "never_starts": (
        "could never start with these values: its queue may not hold as much",
        "could never start with these values: their queue may not hold as much",
    ),
    "cannot_checkpoint": ("does " + _NO_SIGNAL.format("it"), "do " + _NO_SIGNAL.format("them")),
}
"""What each says of one job, and of several, after `job 3` or `2 jobs`."""


class JobChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """New values of a live job's fields; None leaves a field as it is. Durations in milliseconds."""

    name: str | None = None
    queue: QueueName | None = None
    priority: int | None = None
    preemptible: bool | None = None
    time_limit_ms: int | None = None
    max_wait_ms: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    """Labels that are set."""
    labels_removed: tuple[str, ...] = ()
    ask: GangAsk | None = None
    """What it asks for: an engine's own, whose pods were changed or made anew; nothing that users may write."""

    @property
    def of_waiting_only(self) -> bool:
        """Whether it changes what is fixed once a job has a place: there it was checked against queue and reserve."""
        fixed = self.queue is not None or self.max_wait_ms is not None or self.ask is not None
        return fixed or self.preemptible is False

    def of(self, spec: JobSpec) -> JobSpec:
        """Return the spec with the new values; the same object where nothing differs."""
        labels = {**dict(spec.labels), **dict(self.labels)}
        kept = tuple(sorted((name, text) for name, text in labels.items() if name not in self.labels_removed))
        fields = ("name", "queue", "priority", "preemptible", "time_limit_ms", "max_wait_ms", "ask")
        given = {name: value for name in fields if (value := getattr(self, name)) is not None}
        new = replace(spec, labels=kept if kept != tuple(sorted(spec.labels)) else spec.labels, **given)
        return spec if new == spec else new
