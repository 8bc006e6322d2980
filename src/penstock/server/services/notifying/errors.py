"""Why a message could not be sent."""

from penstock.core.model.errors import PenstockError


class NotSent(PenstockError):
    """A message did not arrive; its message names no secret.

    Args:
        again: it may help to try again.
    """

    code = "not_sent"

    def __init__(self, message: str, *, hint: str = "", again: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.again = again
