"""Questions that pages ask first are asked before anyone does, and what is known of them is not worked out in vain."""

import asyncio
from urllib.request import Request, urlopen

from starlette.responses import Response

from penstock.core.model.access import Scope
from penstock.server.http.kept import max_stale_ms
from penstock.server.services import standing
from penstock.server.services.standing import StandingQuestions
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer


def test_all_questions_are_asked_as_a_viewer_of_everything_who_accepts_what_is_known():
    asked = []

    async def ask(who: Scope) -> Response:
        asked.append((who.sight, who.level, max_stale_ms.get()))
        return Response()

    questions = StandingQuestions()
    for _ in range(3):
        questions.add(ask)
    asyncio.run(questions.look())
    assert asked == [(None, "read", 1_000 * standing.EVERY_S)] * 3


def test_what_the_pages_ask_first_is_known_before_they_do():
    cluster = cluster_file(1, 1) | {"billing": {"prices": [{"resource": "cpu", "per_hour": 1}]}}
    with InProcessServer(cluster) as server:
        server._loop.run(server._backend.standing.look()).result(30)
        server.submit({"command": "true"})  # what was worked out before is stale now
        for path in ("/usage?by=tenant&since=30d", "/waste?by=tenant&since=30d", "/bill?summed=true"):
            headers = {"Authorization": f"Bearer {server.token}", "Cache-Control": "max-stale=3600"}
            with urlopen(Request(f"{server.url}/api/v1{path}", headers=headers)) as answer:
                assert answer.headers["Age"] is not None, path
