"""What the OpenAPI document says is what the server does: every answer fits the schema of its operation."""

import json
import re

import jsonschema
import pytest

API = "/api/v1"


@pytest.fixture(scope="module")
def document(server):
    return server.http("GET", f"{API}/openapi.json").json()


@pytest.fixture(scope="module")
def example(server):
    """One job that has ended, so that every route has something to show."""
    from tests.server.harness import Jobs

    jobs = Jobs(server.client)
    job = jobs.submit("echo hello", devices=1)
    jobs.ended(job)
    return job


def check(document, operation: dict, answer) -> None:
    """Hold an answer against what its operation declares for its status."""
    responses = operation["responses"]
    declared = responses.get(str(answer.status)) or responses[f"{answer.status // 100}XX"]
    media = answer.headers["content-type"].split(";")[0]
    schema = declared["content"][media]["schema"]
    if media.endswith("json"):
        validator = jsonschema.Draft202012Validator({**schema, "components": document["components"]})
        assert [e.message for e in validator.iter_errors(answer.json())] == []


def filled(path: str, job_id: int, number: str) -> str:
    """Return a path without its gaps: a job, an invoice, or something that there is none of."""
    path = path.replace("{job_id}", str(job_id)).replace("{number}", number).replace("{node}", "n1")
    path = path.replace("{index}", "0")
    return re.sub("{[a-z_]+}", "nowhere", path)


def operations(document) -> list[tuple[str, str, dict]]:
    found = [(m.upper(), path, op) for path, ops in document["paths"].items() for m, op in ops.items()]
    return [entry for entry in found if not entry[1].endswith(("/stream", "/changes"))]


def test_the_document_is_one_of_openapi_3_1(document):
    assert document["openapi"] == "3.1.0"
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_good_answer_fits_its_schema(document, server, example):
    for method, path, operation in operations(document):
        if method == "GET":
            query = "?attempt=1&q=hello" if "/logs" in path else ""
            answer = server.http(method, filled(path, example, "INV-000001") + query)
            # There are no prices and no schedules, and nothing was tried.
            none = any(gap in path for gap in ("{number}", "{whatif_id}", "/schedules/{name}"))
            assert answer.status == (404 if none else 200), path
            check(document, operation, answer)


def test_every_refusal_fits_its_schema(document, server):
    for method, path, operation in operations(document):
        address = filled(path, 999_999, "INV-000009")
        for token in ("", server.token):
            answer = server.http(method, address, b"[", token=token)
            if answer.status >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                check(document, operation, answer)


def test_the_answer_to_a_submit_fits_its_schema(document, server):
    operation = document["paths"][f"{API}/jobs"]["post"]
    for status, body in ((201, {"command": "true"}), (422, {"comand": "true"})):
        answer = server.http("POST", f"{API}/jobs", json.dumps(body).encode())
        assert answer.status == status
        check(document, operation, answer)


def test_the_schema_of_job_files_takes_what_the_server_takes(server):
    schema = server.http("GET", f"{API}/schema/job").json()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"command": "true", "devices": 1, "priority": "high"})
    assert validator.is_valid({"jobs": [{"command": ["a", "b"]}], "defaults": {"cpus": 1}})
    assert not validator.is_valid({"comand": "true"})


def test_the_schema_of_cluster_files_takes_what_the_server_declares(server):
    schema = server.http("GET", f"{API}/schema/cluster").json()
    declared = {"pools": ["gpus"], "queues": [{"name": "q", "max": {"devices": 4}}], "settings": {"lease_ttl": "30s"}}
    assert jsonschema.Draft202012Validator(schema).is_valid(declared)


def test_every_operation_says_what_it_is_for(document):
    assert [path for _, path, operation in operations(document) if not operation.get("description")] == []
