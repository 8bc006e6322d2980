"""What has changed lately, for pages that show the present state. Times are unix milliseconds."""

from typing import Literal

import msgspec

from penstock.api.types import JobView, NodeView

Topic = Literal["jobs", "nodes", "counts"]
TOPICS: tuple[Topic, ...] = ("jobs", "nodes", "counts")
Stale = Literal["config", "money", "tokens"]
STALE: tuple[Stale, ...] = ("config", "money", "tokens")
"""What has changed without being sent: ask for it again where it is shown."""


class JobCounts(msgspec.Struct, frozen=True):
    """Jobs of the tenants that the caller sees."""

    by_state: dict[str, int]
    """Live ones."""
    by_reason: dict[str, int]
    """Waiting ones, by why the last cycle left them waiting; `not_in_line` are those that it did not look at."""


class Counts(msgspec.Struct, frozen=True):
    """Sums of the whole cluster, and of the jobs that the caller sees."""

    nodes_ready: int
    nodes: int
    devices: int
    devices_held: int
    devices_unhealthy: int
    jobs: JobCounts
    jobs_succeeded: int
    """Of all tenants, since the log began."""
    jobs_not_succeeded: int


class Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Latest views of what has changed since the message before; a topic that was not asked for is absent."""

    time_ms: int
    seq: int
    """The last record of the log that is in them."""
    jobs: list[JobView] = []
    jobs_anew: bool = False
    """Too much has changed: ask for the jobs that are shown again."""
    nodes: list[NodeView] = []
    nodes_anew: bool = False
    nodes_gone: list[str] = []
    counts: Counts | None = None
    stale: list[Stale] = []
