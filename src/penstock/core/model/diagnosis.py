"""What the log says about why a job failed, hangs or started again."""

from typing import Literal

import msgspec

Cause = Literal[
    "", "program", "memory", "device_memory", "not_found", "import", "permission", "disk", "communication", "device",
    "killed", "crash", "node", "time_limit", "hang", "idle", "cancelled", "moved", "start",
]  # fmt: skip
"""The kind of cause; empty where nothing is wrong."""


class Evidence(msgspec.Struct, frozen=True):
    """One record that speaks for it."""

    time_ms: int
    seq: int
    text: str


class Diagnosis(msgspec.Struct, frozen=True):
    """One job."""

    job: int
    state: str
    cause: Cause
    summary: str
    evidence: list[Evidence]
    """Oldest first."""
    suggestions: list[str]
    left_out: int = 0
    """Older evidence."""
