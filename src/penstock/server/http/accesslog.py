"""Refused callers and replaced keys, summed up so that no flood of attempts becomes a flood of records.

Memory is bounded: `SUBJECTS_MAX` subjects of each kind, short texts, one record a minute and kind. Secrets stay
out: no token, no part of one.
"""

from collections.abc import Iterable
from threading import Lock
from typing import Any, NamedTuple

from starlette.requests import Request

from penstock.core.model.access import Scope
from penstock.core.model.access_events import AccessEntry, AccessKind, AccessNoted
from penstock.core.state.state import State
from penstock.ports import Clock, Metrics
from penstock.server.http.auth import refused_title
from penstock.server.http.limits import network_of
from penstock.server.http.responses import ApiError

SUBJECTS_MAX = 32
"""Of one kind in one record; the rest is counted together."""
OTHERS = "others"
USER = "penstock.user"
TEXT_MAX_CHARS = 100
PERIOD_MS = 60_000
"""At most one record of a kind within this time."""
READING = ("GET", "HEAD", "OPTIONS")
AT_ONCE: frozenset[AccessKind] = frozenset({"secret_key_rotated", "authority_replaced", "certificate_replaced"})
"""Kinds that only administrators bring about: each is written when it is seen."""


class _Seen(NamedTuple):
    times: int
    first_ms: int
    last_ms: int


class AccessLog:
    """Gathers what `due` gives out as events. Any thread."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock, self._metrics = clock, metrics
        self._lock = Lock()
        self._kept: dict[AccessKind, dict[tuple[str, str], _Seen]] = {}
        self._written_ms: dict[AccessKind, int] = {}
        """When a record of a kind was last given out (monotonic)."""

    def came(self, request: Request, scope: Scope | None, token: str, state: State) -> None:
        """Note the user of a request; without a valid token, count a failed login from its address."""
        request.scope[USER] = scope.user if scope is not None else ""
        if scope is None:
            why = refused_title(token, state, self._clock.unix_ms()) if token else "no token was sent"
            self.note("login_failed", network_of(request.client.host if request.client else ""), why)

    def answered(self, request: Request, error: ApiError) -> None:
        """Count a change that the caller may not make. Refused reads are not counted."""
        if error.details.code == "forbidden" and request.method not in READING:
            route: Any = request.scope.get("route")
            path = getattr(route, "path", "")
            self.note("act_refused", request.scope.get(USER, ""), f"{request.method} {path}: {error.details.title}")

    def replaced(self, what: str) -> None:
        """Take note of another `authority` or `certificate` of the server that was taken up."""
        self.note("authority_replaced" if what == "authority" else "certificate_replaced", "server", f"another {what}")

    def note(self, kind: AccessKind, subject: str, what: str) -> None:
        """Count one more attempt."""
        self._metrics.count("access_notes", kind=kind)
        now_ms = self._clock.unix_ms()
        with self._lock:
            self._add(kind, (_cut(subject), _cut(what)), _Seen(1, now_ms, now_ms))

    def _add(self, kind: AccessKind, key: tuple[str, str], seen: _Seen) -> None:
        kept = self._kept.setdefault(kind, {})
        if key not in kept and len(kept) >= SUBJECTS_MAX:
            key = (OTHERS, "")
        known = kept.get(key, seen)
        times = seen.times + (known.times if key in kept else 0)
        kept[key] = _Seen(times, min(known.first_ms, seen.first_ms), max(known.last_ms, seen.last_ms))

    def due(self, *, all_kinds: bool = False) -> tuple[AccessNoted, ...]:
        """Return the records that are due, and forget them; `all_kinds`: those not yet due, too."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            ripe = [kind for kind in sorted(self._kept) if all_kinds or self._is_ripe(kind, now_ms)]
            self._written_ms.update(dict.fromkeys(ripe, now_ms))
            return tuple(AccessNoted(kind, _entries(self._kept.pop(kind))) for kind in ripe)

    def _is_ripe(self, kind: AccessKind, now_ms: int) -> bool:
        last_ms = self._written_ms.get(kind)
        return kind in AT_ONCE or last_ms is None or now_ms - last_ms >= PERIOD_MS

    def not_written(self, events: Iterable[AccessNoted]) -> None:
        """Take back what could not be written."""
        with self._lock:
            for event in events:
                for one in event.entries:
                    self._add(event.kind, (one.subject, one.what), _Seen(one.count, one.first_ms, one.last_ms))


def _entries(kept: dict[tuple[str, str], _Seen]) -> tuple[AccessEntry, ...]:
    return tuple(AccessEntry(*key, *seen) for key, seen in sorted(kept.items()))


def _cut(text: str) -> str:
    """Return a text on one line, of bounded length."""
    return "".join(c if c.isprintable() else "?" for c in text[:TEXT_MAX_CHARS])
