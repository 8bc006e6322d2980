"""The OpenAPI document: FastAPI's own, with the schemas of our answer types filled in by msgspec."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.responses import Response

from penstock.api.types import ProblemDetails
from penstock.core.config.job import request_schema
from penstock.server.http.responses import ERROR_CODES

_REF = "#/components/schemas/{name}"
EXAMPLE = {"name": "train", "command": "python train.py", "devices": 1, "time_limit": "2h"}
"""A request that submits a job."""
MADE = (201, 200)
"""Statuses of what is made by the first of equal requests."""
_SUPPLIES = {
    ("/api/v1/jobs", "post", "201"): ("job_id", "$response.body#/jobs/0/id"),
    ("/api/v1/invoices", "get", "200"): ("number", "$response.body#/invoices/0/number"),
    ("/api/v1/tokens", "post", "201"): ("token_id", "$response.body#/id"),
}
"""Source of the values that paths need."""
_TEXT = {"type": "string"}
BEARER = "HTTPBearer"
_answers: list[Any] = [ProblemDetails]


def returns(
    kind: Any,
    *,
    body: Any = None,
    example: Any = None,
    media: str = "application/json",
    statuses: Sequence[int] = (200,),
    documents: Sequence[str] = (),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return route options that document the answer as `kind` (a msgspec type; None: any) and all errors.

    Args:
        body: type of the request's body, or `job_request`; `example` is one that is accepted.
        statuses: those of good answers.
        documents: other media types that it can be had as.
        headers: headers of good answers, each with what it says.
    """
    schema: dict[str, Any] = {}
    if kind is not None:
        _answers.append(kind)
        (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    error = {"application/problem+json": {"schema": {"$ref": _REF.format(name="ProblemDetails")}}}
    content: dict[str, Any] = {media: {"schema": schema}} | {other: {"schema": {}} for other in documents}
    good: dict[str, Any] = {"description": "done", "content": content}
    if headers:
        good["headers"] = {name: {"description": text, "schema": _TEXT} for name, text in headers.items()}
    options: dict[str, Any] = {
        "response_model": None,
        "responses": {
            **dict.fromkeys(statuses, good),
            "4XX": {"description": "refused; nothing was done", "content": error},
            "5XX": {"description": "could not be done now; nothing was done", "content": error},
        },
    }
    if body:
        sent: dict[str, Any] = {"$ref": _REF.format(name="JobRequest")}
        if body != "job_request":
            _answers.append(body)
            (sent,), _ = msgspec.json.schema_components([body], ref_template=_REF)
        content = {"application/json": {"schema": sent, "example": example}}
        options["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return options


def declared_types() -> tuple[Any, ...]:
    """Return the types of all answers and bodies of the routes that were made so far."""
    return tuple(_answers)


def describe(app: FastAPI) -> None:
    """Make `app.openapi()` return the whole document, made once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes, openapi_version="3.1.0")
            _, components = msgspec.json.schema_components(_answers, ref_template=_REF)
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(components)
            schemas["JobRequest"] = _request_component()
            made["components"]["securitySchemes"] = {BEARER: {"type": "http", "scheme": "bearer"}}
            _secure(app, made["paths"])
            for path in made["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            _link(made["paths"])
            made["x-error-codes"] = {code: one.status for code, one in ERROR_CODES.items()}
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _secure(app: FastAPI, paths: dict[str, dict[str, Any]]) -> None:
    """Say which operations need a token: those that depend on their caller. The door reads it, not FastAPI."""
    for route in app.routes:
        if isinstance(route, APIRoute) and route.dependant.dependencies:
            for method in route.methods or ():
                paths[route.path_format][method.lower()]["security"] = [{BEARER: []}]


def document_route(app: FastAPI) -> None:
    """Serve the document, needing no token; it is made and encoded once, beside the loop."""
    encoded: list[bytes] = []

    @app.get("/api/v1/openapi.json", include_in_schema=False)
    async def openapi_document() -> Response:
        if not encoded:
            encoded.append(await asyncio.to_thread(lambda: msgspec.json.encode(app.openapi())))
        return Response(encoded[0], media_type="application/json")


def _link(paths: dict[str, dict[str, Any]]) -> None:
    """Link answers that name something to the operations that use it."""
    for (path, method, status), (name, where) in _SUPPLIES.items():
        users = [op for at, ops in paths.items() if f"{{{name}}}" in at for op in ops.values()]
        links = {op["operationId"]: {"operationId": op["operationId"], "parameters": {name: where}} for op in users}
        paths[path][method]["responses"][status]["links"] = links


def _request_component() -> dict[str, Any]:
    schema = request_schema()
    schema.pop("$schema")
    text = msgspec.json.encode(schema).replace(b'"#/$defs/', b'"#/components/schemas/JobRequest/$defs/')
    found: dict[str, Any] = msgspec.json.decode(text)
    return found
