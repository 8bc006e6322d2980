"""Routes of the what-if lab: the cluster's own log under other rules, beside the server."""

from typing import Annotated, Any

from fastapi import FastAPI, Path, Request
from starlette.responses import Response

from penstock.api.whatif import WhatIfAsked, WhatIfList, WhatIfView
from penstock.core.model.access import Scope
from penstock.server.backend import Backend
from penstock.server.http.parsing import body_of, json_of, read_body
from penstock.server.http.responses import ApiError, answer
from penstock.server.routes.openapi import returns
from penstock.server.services.whatif import WhatIfService

BODY_MAX_BYTES = 65_536
EXAMPLE = {"set": ["settings.defrag=true"], "policies": ["fair_share+easy"], "since": "30d"}
IdPath = Annotated[str, Path(max_length=40, description="`id` of the answer to POST /whatif")]


def whatif_routes(app: FastAPI, backend: Backend, service: WhatIfService, caller: Any) -> None:
    @app.post(
        "/api/v1/whatif", status_code=202, **returns(WhatIfView, body=WhatIfAsked, example=EXAMPLE, statuses=(202,))
    )
    async def begin_whatif(request: Request, who: caller) -> Response:
        """Replay the cluster's jobs under other rules or on other nodes; ask for the result by its id."""
        allow_lab(who)
        asked = read_body(json_of(await body_of(request, BODY_MAX_BYTES)), WhatIfAsked)
        wanted = await backend.pools.heavy.run(service.check, asked)
        return answer(service.begin(wanted, who.user), 202)

    @app.get("/api/v1/whatif", **returns(WhatIfList))
    async def list_whatifs(who: caller) -> Response:
        """List what-ifs of the last hour, newest first, without their results."""
        allow_lab(who)
        return answer(WhatIfList(service.views()))

    @app.get("/api/v1/whatif/{whatif_id}", **returns(WhatIfView))
    async def show_whatif(who: caller, whatif_id: IdPath) -> Response:
        """Say how far a what-if is, and what it has come to."""
        allow_lab(who)
        return answer(service.view(whatif_id))

    @app.delete("/api/v1/whatif/{whatif_id}", **returns(WhatIfView))
    async def cancel_whatif(who: caller, whatif_id: IdPath) -> Response:
        """Cancel a what-if; one that is done is forgotten."""
        allow_lab(who)
        if service.owner(whatif_id) != who.user and not who.administers:
            raise ApiError("forbidden", "this what-if is another user's", hint="ask them, or an administrator")
        return answer(service.cancel(whatif_id))


def allow_lab(who: Scope) -> None:
    """Raise ApiError unless the caller sees all tenants: jobs of all of them are replayed."""
    if not who.sees_all:
        hint = "ask an administrator for a role in the cluster; POST /plan says what becomes of your own jobs"
        raise ApiError("forbidden", "you may not run what-ifs: they are about jobs of all tenants", hint=hint)
