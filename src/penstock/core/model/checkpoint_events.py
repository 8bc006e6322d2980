"""Events about what jobs have saved."""

from penstock.core.model.event import Event
from penstock.core.model.ids import AttemptNumber, JobId


class CheckpointSaved(Event, tag=True, frozen=True, omit_defaults=True):
    """The program reported a checkpoint that is complete."""

    job_id: JobId
    attempt: AttemptNumber
    step: int
    size_bytes: int = 0
    why: str = ""


class CheckpointAbandoned(Event, tag=True, frozen=True, omit_defaults=True):
    """No node that reaches what the waiting job has saved has lived for long: its next attempt starts without it."""

    job_id: JobId
    step: int = 0
    """Of its newest checkpoint; 0: it has reported none."""
    storage: str = ""
    """Where that lies (`NodeSpec.storage`)."""
