"""Errors raised by commands, beside those of the client."""

from penstock.core.model.errors import PenstockError


class NotThere(PenstockError):
    """Something was named that does not exist."""

    code = "not_found"


class NotConfirmed(PenstockError):
    """A change was not confirmed: nothing was done."""

    code = "not_confirmed"


class UsageError(PenstockError):
    """The command line cannot be read."""

    code = "usage"


class JobsFailed(PenstockError):
    """Jobs that were waited for did not succeed."""

    code = "job_failed"


class NotRunning(PenstockError):
    """Only a live job can be followed or entered."""

    code = "conflict"


class TimedOut(PenstockError):
    code = "timed_out"
