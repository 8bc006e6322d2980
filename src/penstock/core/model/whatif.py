"""What a what-if has to say: one's own jobs replayed under the rules in force and under others."""

import msgspec


class GroupOutcome(msgspec.Struct, frozen=True):
    """Some of the replayed jobs; times in milliseconds."""

    jobs: int
    wait_mean_ms: int
    wait_p50_ms: int
    wait_p95_ms: int
    completion_p50_ms: int
    """From submit to end."""
    completion_p95_ms: int
    starts: int
    """Of attempts."""
    preemptions: int
    unfinished: int
    """Jobs that nothing could let start."""
    device_hours: float
    cost: str = ""
    """In the currency, as it would be billed; empty without prices."""


class WhatIfOutcome(msgspec.Struct, frozen=True):
    """One replay."""

    name: str
    whole: GroupOutcome
    by_tenant: dict[str, GroupOutcome]
    utilisation: float
    """Held over available device time, from the first submit to the last; to the last end where there is but one."""
    makespan_ms: int


class JobDifference(msgspec.Struct, frozen=True):
    """A job that waits longer or shorter than under the rules in force; 0 where it never starts or ends."""

    job: int
    name: str
    tenant: str
    user: str
    wait_before_ms: int
    wait_after_ms: int
    ended_before_ms: int
    """Unix ms."""
    ended_after_ms: int
    preemptions_before: int
    preemptions_after: int


class WhatIfChange(msgspec.Struct, frozen=True):
    """What a change of the rules comes to."""

    outcome: WhatIfOutcome
    sooner: int
    """Jobs that start sooner."""
    later: int
    most_affected: list[JobDifference]
    """Those whose wait changes most, most first."""


class WhatIfResult(msgspec.Struct, frozen=True, tag=True):
    """The replay of the jobs of a log, submitted in [from_ms, until_ms] (unix ms)."""

    from_ms: int
    until_ms: int
    jobs: int
    currency: str
    waited_p50_ms: int
    """As it really was: how far it is from `before` says how much to trust the rest."""
    waited_p95_ms: int
    before: WhatIfOutcome
    after: list[WhatIfChange]
    notes: list[str]
