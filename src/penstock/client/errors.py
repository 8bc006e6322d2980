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
    """The server refused; `details` is its answer."""

    code = "api_problem"

    def __init__(self, details: ProblemDetails) -> None:
        super().__init__(details.title, hint=details.hint, problems=details.problems)
        self.details = details
