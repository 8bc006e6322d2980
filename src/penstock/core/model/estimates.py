"""Estimates of when waiting jobs start."""

import msgspec

from penstock.core.model.ids import JobId

Times = tuple[int, int, int]
"""An early, a likely and a late time (unix ms; 0: not known): 1, 5 and 9 of 10 starts should come before them."""


class StartEstimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """When one waiting job starts."""

    job_id: JobId
    given: Times
    """The published estimate."""
    sampled: Times
    """The estimate from samples of the future alone: `given` is this, corrected by the past errors of such samples."""
