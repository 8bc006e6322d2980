"""The route of changed views, and the sums that they begin with."""

from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Request
from starlette.responses import Response

from penstock.api.changes import TOPICS, Changes, Counts, Topic
from penstock.core.model.errors import Problem, nearest
from penstock.server.backend import Backend
from penstock.server.http.door import scope_of_token, token_of
from penstock.server.http.limits import CountedStream
from penstock.server.http.parsing import invalid
from penstock.server.http.responses import answer
from penstock.server.http.turns import caller_of
from penstock.server.routes.openapi import returns
from penstock.server.services.changes import ChangeFeed, counts_of


def change_routes(app: FastAPI, backend: Backend, feed: ChangeFeed, caller: Any) -> None:
    @app.get("/api/v1/changes", **returns(Changes, media="text/event-stream"))
    async def follow_changes(
        request: Request,
        who: caller,
        topics: Annotated[str, Query(max_length=100, description="some of jobs,nodes,counts")] = "counts",
        after: Annotated[str, Query(max_length=30, description="id of the last message")] = "",
        last_event_id: Annotated[str, Header(max_length=30)] = "",
    ) -> Response:
        """Follow changed views as server-sent events: the latest of each job and node, gathered for half a second.

        Without `after` or Last-Event-ID from now on. `jobs_anew` and `nodes_anew` say that too much has changed, or
        that the server does not know the message named: then ask for what is shown again.
        """
        wanted, token = _topics(topics), token_of(request.headers)
        messages = feed.follow(lambda: scope_of_token(backend, token), wanted, last_event_id or after)
        return CountedStream(backend.gate.streams, caller_of(who), messages, media_type="text/event-stream")

    @app.get("/api/v1/counts", **returns(Counts))
    async def show_counts(who: caller) -> Response:
        """Sum up the cluster, and the jobs that the caller sees by state and by why they wait."""
        question = ("counts", who.sight, backend.state.seq)
        return await backend.kept.of(question, lambda: backend.pools.reads.run(lambda: answer(counts_of(backend, who))))


def _topics(text: str) -> frozenset[Topic]:
    """Return the topics that a query names. Raises: ApiError."""
    wanted: set[Topic] = set()
    for name in filter(None, text.split(",")):
        known = next((topic for topic in TOPICS if topic == name), None)
        if known is None:
            said = f"topics has '{name[:20]}', expected some of {', '.join(TOPICS)}"
            raise invalid([Problem("bad_value", "topics", said, name[:20], nearest(name, TOPICS))])
        wanted.add(known)
    return frozenset(wanted)
