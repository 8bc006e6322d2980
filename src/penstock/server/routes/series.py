"""The route of series over time: from the log and from what the server measures of itself."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import FastAPI, Query
from starlette.responses import Response

from penstock.api.history import SeriesList, SeriesView
from penstock.core.ledger.levels import CLUSTER, Key
from penstock.core.ledger.rings import Points, grid
from penstock.core.model.access import Scope
from penstock.core.model.errors import Problem, nearest
from penstock.core.model.prices import HOUR_MS
from penstock.core.model.quantities import parse_duration_ms
from penstock.server.backend import Backend
from penstock.server.http.kept import KeptAnswers
from penstock.server.http.parsing import allow, invalid
from penstock.server.http.responses import answer
from penstock.server.routes.history import DAY_MS, KEPT_MS, Time, window_of
from penstock.server.routes.openapi import returns
from penstock.server.selecting import check_names
from penstock.server.services.history import WAITING_BY_REASON, Asked, Grid, HistoryService

POINTS_MAX = 1_000
SERIES_MAX = 100
WINDOW_MAX_MS = 90 * DAY_MS
NOBODY = "\0"
"""A holder of nothing: of callers who are in no tenant."""
LEVELS = ("devices_held", "jobs_waiting", "jobs_running", WAITING_BY_REASON)
COUNTS = ("starts", "ends", "preemptions")
OF_CLUSTER = (
    "cluster_devices_held", "cluster_devices_free", "cluster_devices_unhealthy", "cluster_jobs_waiting",
    "cluster_jobs_running",
)  # fmt: skip
MEASURED = {"cycle_time": "control_cycle_s", "submit_latency": "submit_s"}
NAMES = (*OF_CLUSTER, *LEVELS, *COUNTS, *MEASURED)
DEFAULT = ",".join(OF_CLUSTER)


class _Wanted(NamedTuple):
    """One series of an answer, and where it is from."""

    name: str
    labels: dict[str, str]
    asked: Asked


def series_routes(app: FastAPI, backend: Backend, history: HistoryService, caller: Any) -> None:
    kept = KeptAnswers(backend.clock, KEPT_MS)

    @app.get("/api/v1/series", **returns(SeriesList))
    async def series(
        who: caller,
        names: Annotated[str, Query(max_length=400, description=f"some of {', '.join(NAMES)}")] = DEFAULT,
        since: Annotated[Time, Query(alias="from", description="by default an hour before its end")] = "",
        until: Annotated[Time, Query(description="by default now")] = "",
        step: Annotated[str, Query(max_length=20, description="such as 15m; by default as short as there is")] = "",
        tenant: Annotated[str, Query(max_length=200, description="its alone, of what is not of the cluster")] = "",
    ) -> Response:
        """Return how something changed over time: of the cluster, or of the tenants that the caller sees.

        At most 1,000 points: steps of 10 s for the last hour, of a minute for a day, of 15 minutes for 90 days.
        """
        wanted, now_ms = _names(names), backend.clock.unix_ms()
        allow(who.sees_all or not MEASURED.keys() & set(wanted), "see how long the server takes")
        if tenant and not who.sees(tenant):
            check_names(who, backend.state.config, tenant=tenant)
        from_ms, until_ms = window_of(since, until, now_ms, HOUR_MS, WINDOW_MAX_MS)
        laid = grid(from_ms, until_ms, _step(step), now_ms, POINTS_MAX)

        def compute() -> Response:
            holders = (tenant,) if tenant else _holders(who)
            return answer(_series(history, wanted, holders, Grid(*laid, now_ms)))

        question = ("series", wanted, who.sight, tenant, laid)
        return await kept.of(question, lambda: backend.pools.heavy.run(compute))


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a query, each once. Raises: ApiError for one that there is not."""
    found = dict.fromkeys(name.strip() for name in text.split(","))
    for name in found:
        if name not in NAMES:
            said = f"names has '{name}', expected some of {', '.join(NAMES)}"
            raise invalid([Problem("unknown_series", "names", said, name, nearest(name, NAMES))])
    return tuple(found)


def _step(text: str) -> int:
    try:
        step_ms = parse_duration_ms(text) if text else 0
    except (ValueError, OverflowError):
        step_ms = -1
    if not 0 <= step_ms <= WINDOW_MAX_MS:
        raise invalid([Problem("bad_value", "step", f"step is '{text}', expected a duration such as 15m", text)])
    return step_ms


def _holders(who: Scope) -> tuple[str, ...]:
    return (CLUSTER,) if who.sight is None else tuple(sorted(who.sight)) or (NOBODY,)


def _series(history: HistoryService, names: Sequence[str], holders: tuple[str, ...], at: Grid) -> SeriesList:
    known = history.keys()
    wanted = [one for name in names for one in _wanted(name, holders, known)]
    course = history.course([one.asked for one in wanted[:SERIES_MAX]], at)
    shown = [_view(one, points) for one, points in zip(wanted, course.series, strict=False)]
    left_out = max(0, len(wanted) - SERIES_MAX)
    return SeriesList(at.from_ms, at.step_ms, at.points, shown, left_out, course.seq, course.complete, course.since_ms)


def _wanted(name: str, holders: tuple[str, ...], known: Sequence[Key]) -> Iterator[_Wanted]:
    """Yield all together, then each model or reason."""
    if name in MEASURED:
        keys = tuple(Key(CLUSTER, MEASURED[name], part) for part in ("sum", "count"))
        yield _Wanted(name, {}, Asked(keys, "measured", sampled=True))
        return
    inner = name.removeprefix("cluster_")
    of = (CLUSTER,) if inner != name else holders
    if name in COUNTS:
        yield _Wanted(name, {}, Asked(tuple(Key(holder, inner) for holder in of), "count", sampled=False))
        return
    sampled, label = inner == WAITING_BY_REASON, "model" if inner.startswith("devices_") else "reason"
    parts = sorted({key.part for key in known if key.name == inner and key.holder in frozenset(of)} - {""})
    for part in parts if sampled else ("", *parts):
        keys = tuple(Key(holder, inner, part) for holder in of)
        yield _Wanted(name, {label: part} if part else {}, Asked(keys, "level", sampled=sampled))


def _view(one: _Wanted, points: Points) -> SeriesView:
    inner = one.name.removeprefix("cluster_")
    unit = "ms" if one.name in MEASURED else "events" if one.name in COUNTS else inner.partition("_")[0]
    unit = "jobs" if one.name == WAITING_BY_REASON else unit
    scale = {"devices": 0.001, "ms": 1000.0}.get(unit, 1.0)
    values, lowest, highest = ([v if v is None else round(v * scale, 3) for v in each] for each in points)
    return SeriesView(one.name, unit, values, lowest, highest, one.labels)
