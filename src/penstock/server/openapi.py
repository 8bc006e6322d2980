"""The OpenAPI document: FastAPI's own, with the schemas of our answer types filled in by msgspec."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from penstock.api.types import ProblemDetails
from penstock.core.jobfile import request_schema

_REF = "#/components/schemas/{name}"
_answers: list[Any] = [ProblemDetails]


def returns(kind: Any, *, body: str = "", media: str = "application/json") -> dict[str, Any]:
    """Return route options that document the answer as `kind` (a msgspec type; None: any) and all errors."""
    schema: dict[str, Any] = {}
    if kind is not None:
        _answers.append(kind)
        (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    error = {"application/problem+json": {"schema": {"$ref": _REF.format(name="ProblemDetails")}}}
    options: dict[str, Any] = {
        "response_model": None,
        "responses": {
            200: {"description": "done", "content": {media: {"schema": schema}}},
            "4XX": {"description": "refused; nothing was done", "content": error},
            "5XX": {"description": "could not be done now; nothing was done", "content": error},
        },
    }
    if body:
        options["responses"][201] = options["responses"][200]
        content = {"application/json": {"schema": {"$ref": _REF.format(name="JobRequest")}}}
        options["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return options


def describe(app: FastAPI) -> None:
    """Make `app.openapi()` return the whole document, made once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, routes=app.routes, openapi_version="3.1.0")
            _, components = msgspec.json.schema_components(_answers, ref_template=_REF)
            schemas = made.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(components)
            schemas["JobRequest"] = _request_component()
            for path in made["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _request_component() -> dict[str, Any]:
    schema = request_schema()
    job = schema.pop("$defs")["job"]
    schema.pop("$schema")
    text = msgspec.json.encode(schema).replace(b'"#/$defs/job"', b'"#/components/schemas/JobRequest/$defs/job"')
    found: dict[str, Any] = msgspec.json.decode(text)
    found["$defs"] = {"job": job}
    return found
