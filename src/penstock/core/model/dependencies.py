"""What a job waits for: other jobs, alone or in runs of consecutive numbers, such as the members of an array; what it
takes from elsewhere; and whom it tells."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from penstock.core.model.ids import JobId

JobChannel = Literal["own", "webhook", "slack", "command"]
DependencyKind = Literal["after_ok", "after_any", "after_failed"]
JobRun = tuple[JobId, int]
"""Jobs with consecutive numbers: the first, and how many they are."""


class Dependency(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of the `count` jobs from `job_id` on, and how they have to end."""

    job_id: JobId
    kind: DependencyKind
    count: int = 1

    @property
    def run(self) -> JobRun:
        return self.job_id, self.count

    @property
    def jobs(self) -> range:
        return range(self.job_id, self.job_id + self.count)


def compacted(after: tuple[Dependency, ...]) -> tuple[Dependency, ...]:
    """Return the same dependencies, single jobs of one kind that follow one another as one value; in order.

    A value of several jobs stays as it is, so that doing it again changes nothing, and jobs that wait for the same
    array wait for the same run.
    """
    found: list[Dependency] = []
    first: Dependency | None = None
    count = 0
    for one in after:
        if first is not None and one.count == 1 and one.kind == first.kind and one.job_id == first.job_id + count:
            count += 1
            continue
        if first is not None:
            found.append(first if count == 1 else Dependency(first.job_id, first.kind, count))
        first, count = (one, 1) if one.count == 1 else (None, 0)
        if first is None:
            found.append(one)
    if first is not None:
        found.append(first if count == 1 else Dependency(first.job_id, first.kind, count))
    return tuple(found) if len(found) < len(after) else after


def runs_of(jobs: Iterable[JobRun]) -> list[JobRun]:
    """Return runs in the same order, with adjacent ones merged."""
    found: list[JobRun] = []
    for first, count in jobs:
        if found and sum(found[-1]) == first:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((first, count))
    return found


class Input(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file or folder that a job takes from elsewhere."""

    path: str
    """Below `PENSTOCK_INPUTS_DIR`, with `/` between its parts."""
    url: str
    sha256: str = ""
    """Of the content of a file, in hexadecimal digits; empty: whatever is there."""


class JobDestination(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where events of one job go besides: to a destination of its user, a declared command, or a URL."""

    events: tuple[str, ...]
    channel: JobChannel
    to: str = ""
    """Name of the user's notification or of the command, or the URL; empty where `secret` has the URL."""
    secret: str = ""
    signed_by: str = ""
    """The secret with the keys that sign its messages, of a webhook; empty: as its tenant or user says."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that it needs, by name."""
        return tuple(name for name in (self.secret, self.signed_by) if name)
