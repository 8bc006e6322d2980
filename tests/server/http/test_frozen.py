"""`/api/v1` is frozen: what the committed document promises stays."""

import copy
import json
from pathlib import Path

import pytest

from penstock.testing.openapi import incompatible

FROZEN = Path(__file__).parents[3] / "docs" / "schema" / "openapi-v1.json"


@pytest.fixture(scope="module")
def frozen():
    return json.loads(FROZEN.read_bytes())


@pytest.fixture
def changed(frozen):
    return copy.deepcopy(frozen)


def test_the_server_keeps_what_the_document_of_v1_promises(server, frozen):
    now = server.http("GET", "/api/v1/openapi.json").json()
    assert incompatible(frozen, now) == [], "clients of v1 would break: add, do not change"
    assert now["paths"].keys() == frozen["paths"].keys(), "make docs"


def jobs(document):
    return document["paths"]["/api/v1/jobs"]


def parameter(document, name):
    return next(one for one in jobs(document)["get"]["parameters"] if one["name"] == name)


def accepted(document, name):
    return parameter(document, name)["schema"]


def schema(document, name):
    return document["components"]["schemas"][name]


def bare(document):
    """Require a field of an answer no longer."""
    schema(document, "JobView")["required"].remove("id")


BREAKS = {
    "GET /api/v1/jobs is gone": lambda d: jobs(d).pop("get"),
    "GET /api/v1/jobs: parameter search is gone": lambda d: jobs(d)["get"]["parameters"].remove(parameter(d, "search")),
    "GET /api/v1/jobs: parameter name is required now": lambda d: parameter(d, "name").update(required=True),
    "GET /api/v1/jobs: parameter more is required now": lambda d: jobs(d)["get"]["parameters"].append(
        {"name": "more", "in": "query", "required": True, "schema": {"type": "string"}}
    ),
    "GET /api/v1/jobs: name: the longest was 200, is 100": lambda d: parameter(d, "name")["schema"].update(
        maxLength=100
    ),
    "GET /api/v1/jobs: sort: -name not accepted any more": lambda d: parameter(d, "sort")["schema"]["enum"].remove(
        "-name"
    ),
    "GET /api/v1/jobs: finished was boolean, is integer": lambda d: parameter(d, "finished")["schema"].update(
        type="integer"
    ),
    "JobView.name is gone": lambda d: schema(d, "JobView")["properties"].pop("name"),
    "JobView.id was integer, is string": lambda d: schema(d, "JobView")["properties"]["id"].update(type="string"),
    "JobView.id may be missing now": bare,
    "NewToken.note is gone": lambda d: schema(d, "NewToken")["properties"].pop("note"),
    "NewToken.note is required now": lambda d: schema(d, "NewToken").setdefault("required", []).append("note"),
    "error code conflict was 409, is gone": lambda d: d["x-error-codes"].pop("conflict"),
    "POST /api/v1/jobs: answer 201 is gone": lambda d: jobs(d)["post"]["responses"].pop("201"),
}


@pytest.mark.parametrize("text", BREAKS)
def test_what_clients_would_miss_is_found(frozen, changed, text):
    BREAKS[text](changed)
    assert incompatible(frozen, changed) == [text]


def test_what_is_added_breaks_nobody(frozen, changed):
    changed["paths"]["/api/v1/more"] = {"get": {"responses": {"200": {"description": "done"}}}}
    schema(changed, "JobView")["properties"]["more"] = {"type": "string"}
    schema(changed, "JobView")["required"].append("more")
    schema(changed, "NewToken")["properties"]["more"] = {"type": "string", "default": ""}
    parameter(changed, "sort")["schema"]["enum"].append("more")
    parameter(changed, "name")["schema"]["maxLength"] += 1
    changed["x-error-codes"]["more"] = 400
    assert incompatible(frozen, changed) == []
    assert incompatible(changed, frozen) != []
