"""Submitting over HTTP: all or nothing, once, and every problem named."""

import http.client
import json

import pytest

from penstock.client import ApiProblem
from penstock.server.http.parsing import BODY_MAX_BYTES

JOBS = "/api/v1/jobs"
WAITS = {"command": "true", "devices": 4, "replicas": 2}


def post(server, body: object, **headers: str):
    return server.http("POST", JOBS, body if isinstance(body, bytes) else json.dumps(body).encode(), **headers)


@pytest.fixture
def nothing_was_done(server):
    before = len([e for e in server.client.all_events() if type(e.event).__name__ == "JobSubmitted"])
    yield
    after = len([e for e in server.client.all_events() if type(e.event).__name__ == "JobSubmitted"])
    assert after == before


def test_a_submit_is_answered_with_number_and_name(server, jobs):
    answer = post(server, {"command": "true", "name": "one"})
    (ref,) = answer.json()["jobs"]
    assert (answer.status, ref["name"], answer.json()["repeated"]) == (201, "one", False)
    assert jobs.ended(ref["id"]).state == "succeeded"


@pytest.mark.usefixtures("nothing_was_done")
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'"\\ud800"', b"[" * 100_000, b'{"command": "true"} x'])
def test_what_is_no_json_is_a_bad_request(server, body):
    answer = post(server, body)
    assert (answer.status, answer.json()["code"]) == (400, "not_json")


@pytest.mark.usefixtures("nothing_was_done")
@pytest.mark.parametrize("body", [None, 5, "x", [], {}, {"jobs": []}, {"jobs": 5}, [5]], ids=str)
def test_what_is_no_job_is_refused_with_a_reason(server, body):
    answer = post(server, body)
    assert (answer.status, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["problems"]


@pytest.mark.usefixtures("nothing_was_done")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("command", []),
        ("command", "a\0b"),
        ("command", {"a": 1}),
        ("devices", 1.5),
        ("priority", 10**30),
        ("after_ok", 10**30),
        ("name", "y" * 70_000),
        ("env", {"A": {"B": 1}}),
        ("labels", {"a": [[]] * 50}),
        ("cpus", -1),
    ],
    ids=lambda v: str(v)[:20],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(server, field, value):
    answer = post(server, {"command": "true"} | {field: value})
    assert answer.status == 422
    assert {p["field"].split(".")[0] for p in answer.json()["problems"]} == {field}


@pytest.mark.usefixtures("nothing_was_done")
def test_all_that_is_wrong_is_said_at_once_with_the_nearest_right_word(server):
    answer = post(server, {"comand": "true", "priority": "hihg", "devices": -1})
    problems = {p["field"]: p for p in answer.json()["problems"]}
    assert (answer.status, sorted(problems)) == (422, ["comand", "command", "devices", "priority"])
    assert problems["comand"]["hint"] == "did you mean 'command'?"
    assert answer.json()["title"].endswith("(and 3 more problems)")


@pytest.mark.usefixtures("nothing_was_done")
def test_of_many_jobs_all_are_taken_or_none(server):
    answer = post(server, [{"command": "true"}, {"command": "true", "queue": "nowhere"}])
    assert (answer.status, answer.json()["problems"][0]["field"]) == (422, "jobs[1].queue")


@pytest.mark.usefixtures("nothing_was_done")
def test_a_number_of_any_size_in_any_of_many_jobs_is_refused(server):
    answer = post(server, [{"command": "true"}, {"command": "true", "priority": 10**30}])
    assert (answer.status, answer.json()["problems"][0]["field"]) == (422, "jobs[1].priority")


@pytest.mark.usefixtures("nothing_was_done")
def test_what_no_node_could_ever_hold_is_refused_at_once(server):
    answer = post(server, {"command": "true", "devices": 5})
    assert (answer.status, answer.json()["problems"][0]["code"]) == (422, "never_fits")


@pytest.mark.usefixtures("nothing_was_done")
def test_a_body_over_the_limit_is_refused_before_it_is_read(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("POST", JOBS)
    connection.putheader("Authorization", f"Bearer {server.token}")
    connection.putheader("Content-Length", str(BODY_MAX_BYTES + 1))
    connection.endheaders()
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    assert (answer.status, found["code"]) == (413, "too_large")


@pytest.mark.usefixtures("nothing_was_done")
def test_a_body_of_unknown_length_has_the_same_limit(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    pieces = (b" " * 2**20 for _ in range(BODY_MAX_BYTES // 2**20 + 2))
    connection.request("POST", JOBS, pieces, {"Authorization": f"Bearer {server.token}"}, encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (413, "too_large")
    connection.close()


def test_many_jobs_come_back_in_order_with_their_names(server, jobs):
    made = jobs.client.submit({"defaults": {"cpus": 1}, "jobs": [{"command": "true", "name": n} for n in "abc"]}).jobs
    assert [ref.name for ref in made] == ["a", "b", "c"]
    assert [ref.id for ref in made] == list(range(made[0].id, made[0].id + 3))
    assert {jobs.ended(ref.id).state for ref in made} == {"succeeded"}


def test_an_array_knows_itself_and_its_indexes(server, jobs):
    first = jobs.submit('echo "$PENSTOCK_ARRAY_ID $PENSTOCK_ARRAY_INDEX"', array=3)
    for index in range(3):
        assert jobs.ended(first + index).array_index == index
        assert jobs.output(first + index) == f"{first} {index}\n"


def test_the_same_request_under_one_key_makes_its_jobs_once(server, jobs):
    body = [{"command": "true"}, {"command": "true"}]
    first, again = (post(server, body, Idempotency_Key="k-once") for _ in range(2))
    assert (first.status, again.status) == (201, 200)
    ids = [[ref["id"] for ref in answer.json()["jobs"]] for answer in (first, again)]
    assert ids[0] == ids[1]
    assert (first.json()["repeated"], again.json()["repeated"]) == (False, True)
    jobs.ended(first.json()["jobs"][1]["id"])


def test_the_key_is_remembered_after_its_jobs_have_ended(server, jobs):
    first = post(server, {"command": "true"}, Idempotency_Key="k-ended").json()["jobs"][0]["id"]
    jobs.ended(first)
    assert post(server, {"command": "true"}, Idempotency_Key="k-ended").json()["jobs"][0]["id"] == first


def test_a_repeated_answer_is_the_same_after_its_jobs_have_ended(server, jobs):
    first = post(server, {"command": "true", "name": "one"}, Idempotency_Key="k-named").json()["jobs"]
    jobs.ended(first[0]["id"])
    assert post(server, {"command": "true", "name": "one"}, Idempotency_Key="k-named").json()["jobs"] == first


def test_another_request_under_the_same_key_is_a_conflict(server, jobs):
    first = post(server, {"command": "true"}, Idempotency_Key="k-other").json()["jobs"][0]["id"]
    answer = post(server, {"command": "false"}, Idempotency_Key="k-other")
    assert (answer.status, answer.json()["code"]) == (409, "conflict")
    assert answer.json()["problems"][0]["code"] == "idempotency_key_reused"
    jobs.ended(first)


def test_a_refused_request_does_not_use_up_its_key(server, jobs):
    assert post(server, {"command": "true", "queue": "x"}, Idempotency_Key="k-refused").status == 422
    answer = post(server, {"command": "true"}, Idempotency_Key="k-refused")
    assert answer.status == 201
    jobs.ended(answer.json()["jobs"][0]["id"])


def test_a_key_may_be_long_but_not_endless(server):
    assert post(server, {"command": "true"}, Idempotency_Key="k" * 201).status == 422


def test_the_client_raises_what_the_server_said(jobs):
    with pytest.raises(ApiProblem) as refused:
        jobs.submit(queue="defualt")
    assert (refused.value.details.status, refused.value.problems[0].hint) == (422, "did you mean 'default'?")


def test_dependencies_by_name_run_in_order(jobs):
    entries = [{"command": "true", "name": "b", "after_ok": "a"}, {"command": "false", "name": "a"}]
    made = {ref.name: ref.id for ref in jobs.client.submit(entries).jobs}
    assert made["a"] < made["b"]
    assert (jobs.ended(made["a"]).state, jobs.ended(made["b"]).state) == ("failed", "cancelled")
