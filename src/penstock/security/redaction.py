"""Secrets in transit: opened when an order goes to its node, blotted out of reports."""

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec.structs import replace

from penstock.core.messages.orders import Order, StartReplica
from penstock.core.messages.reports import EXIT_TEXTS, NodeReport, ProgressSeen, ReplicaSeen, with_texts
from penstock.core.model.errors import PenstockError
from penstock.core.model.ids import JobId, TenantName, UserName
from penstock.core.model.secrets import Secret
from penstock.core.state.state import State

BLOT = "*"
_BLOT = BLOT.encode()
RAY_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
SHORTEST = 4
"""Shorter values stay: they would match everywhere, and reveal little."""


class Opener(Protocol):
    def open(self, secret: Secret) -> str:
        """Return the value. Raises: PenstockError."""
        ...

    def token(self, purpose: str) -> str:
        """Return a token of this server's own, the same for one purpose. Raises: PenstockError."""
        ...


def unsealed(order: Order, opener: Opener) -> Order:
    """Return an order with the values of its secrets among its variables, as the node needs it.

    The places of an attempt that form a Ray cluster get a token, so that it is theirs alone.
    """
    if not isinstance(order, StartReplica) or not (order.secrets or order.runtime):
        return order
    try:
        opened = tuple((variable, opener.open(secret)) for variable, secret in order.secrets)
        if order.runtime:
            opened += ((RAY_TOKEN, opener.token(f"ray {order.key.job_id} {order.key.attempt} {order.mark}")),)
    except PenstockError as error:
        return replace(order, secrets=(), refused=error.message)
    return replace(order, secrets=(), env=(*order.env, *opened))


class Redactor:
    """Blots the values of secrets out of texts. Those of a job are opened when it sends a text."""

    def __init__(self, state: Callable[[], State], opener: Opener) -> None:
        self._state, self._opener = state, opener

    def report(self, report: NodeReport) -> NodeReport:
        """Return a node's report as it may be logged: what ended a program is often the last line it printed."""
        if not any(seen.exit is not None for seen in report.replicas) and not report.progress:
            return report
        return replace(
            report,
            replicas=tuple(map(self._seen, report.replicas)),
            progress=tuple(map(self._progress, report.progress)),
        )

    def values_of(self, job_id: JobId) -> tuple[str, ...]:
        """Return the present values of a live job's secrets."""
        job = self._state().jobs.get(job_id)
        return self.values(job.spec.tenant, job.user, job.spec.secrets) if job and job.spec.secrets else ()

    def values(self, tenant: TenantName, user: UserName, named: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Return the values behind some names, and each line of them; unreadable ones are left out."""
        found: set[str] = set()
        known = self._state().secrets
        for _, name in named:
            secret = known.of(tenant, user, name)
            if secret is None:
                continue
            try:
                value = self._opener.open(secret)
            except PenstockError:
                continue
            found.update(part for part in (value, *value.splitlines()) if len(part) >= SHORTEST)
        return tuple(sorted(found, key=len, reverse=True))

    def _seen(self, seen: ReplicaSeen) -> ReplicaSeen:
        info = seen.exit
        if info is None or not any(getattr(info, name) for name in EXIT_TEXTS):
            return seen
        values = self.values_of(seen.key.job_id)
        return replace(seen, exit=with_texts(info, lambda text: blotted(text, values)))

    def _progress(self, seen: ProgressSeen) -> ProgressSeen:
        values = self.values_of(seen.key.job_id) if seen.why else ()
        return replace(seen, why=blotted(seen.why, values)) if values else seen


def blotted(text: str, values: Iterable[str]) -> str:
    """Return the text without the values, nor the beginning of one where the text was cut."""
    for value in values:
        text = text.replace(value, BLOT * len(value))
        for length in range(min(len(value) - 1, len(text)), SHORTEST - 1, -1):
            if text.endswith(value[:length]):
                text = text[:-length] + BLOT * length
                break
    return text


def blotted_piece(before: bytes, piece: bytes, after: bytes, values: Iterable[str]) -> bytes:
    """Return a piece of an output without the values that lie in it, wholly or in part; its length stays.

    Args:
        before: bytes before it, as far as the longest value may reach; `after`: bytes after it, as far as they exist.
    """
    data = before + piece + after
    for value in values:
        word = value.encode()
        data = data.replace(word, _BLOT * len(word))
        for length in range(min(len(word) - 1, len(data)), SHORTEST - 1, -1):
            if data.endswith(word[:length]):  # the rest may be on its way
                data = data[:-length] + _BLOT * length
                break
    return data[len(before) : len(before) + len(piece)]
