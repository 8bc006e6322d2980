"""What a case is: one operation, asked in the most expensive way that its limits allow, or just beyond them."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.server.costs.world import Sent

GOOD = frozenset({200, 201})
REFUSED = frozenset({400, 401, 403, 404, 405, 409, 413, 414, 422, 431, 501, 503})
EITHER = GOOD | REFUSED
"""Where a limit may lie on either side of an input: what counts is what it costs."""


class Case(NamedTuple):
    operation: str
    """As the document has it, such as `GET /jobs`."""
    name: str
    """What makes it expensive."""
    caller: str
    """Whose token (`past.CALLERS`); '' sends none."""
    make: Callable[[], list[Sent]]
    """Made when it is sent: bodies are large."""
    statuses: frozenset[int] = GOOD
    beyond: bool = False
    """Whether it is refused for what it asks: then the budget is that of refusals."""
    renews: bool = False
    """Whether the server is begun anew after it."""

    @property
    def id(self) -> str:
        return f"{self.operation}: {self.name} ({self.caller or 'nobody'})".replace("/", "|")


def get(path: str, **headers: str) -> Callable[[], list[Sent]]:
    return lambda: [Sent("GET", path, b"", headers)]


def sending(method: str, path: str, body: Callable[[], Any], **headers: str) -> Callable[[], list[Sent]]:
    """Return what sends a body as JSON, or as it is where it is bytes."""

    def make() -> list[Sent]:
        made = body()
        data = made if isinstance(made, bytes) else json.dumps(made).encode()
        return [Sent(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})]

    return make
