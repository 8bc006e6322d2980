"""Client errors: no server, or its refusal."""

from penstock.api.types import ProblemDetails
from penstock.core.model.errors import PenstockError


class ServerNotRunning(PenstockError):
    code = "server_not_running"


class NotTrusted(PenstockError):
    """The peer is not verified as the server: no trusted authority has signed its certificate, or otherwise."""

    code = "not_trusted"


class NotProved(NotTrusted):
    """A peer in the clear is not proved to be the server's own process; nothing was sent to it."""


class ApiProblem(PenstockError):
    """The server refused; `details` is its answer, and `retry_after_s` when to try again, where it said so."""

    code = "api_problem"

    def __init__(self, details: ProblemDetails, *, retry_after_s: float | None = None) -> None:
        super().__init__(details.title, hint=details.hint, problems=details.problems)
        self.details = details
        self.retry_after_s = retry_after_s


class JobFailed(PenstockError):
    """A job that was waited for has failed, or was cancelled."""

    code = "job_failed"

    def __init__(self, message: str, job_id: int, state: str, *, output: str = "") -> None:
        super().__init__(message, hint=f"penstock logs {job_id}")
        self.job_id = job_id
        self.state = state
        """`failed` or `cancelled`."""
        self.output = output
        """Its last lines."""


class CallFailed(PenstockError):
    """A function in a job has ended without a value, and without an exception that can be raised here."""

    code = "call_failed"

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output
        """Its traceback, or what else is known."""


class NotVerified(PenstockError):
    """The output of a job has no result that the job is known to have made: nothing was unpickled."""

    code = "not_verified"
