"""Inputs of jobs: what a job file may name, what the cluster allows, and what its nodes are given to fetch."""

import pytest

from penstock.core.config.job import parse_request
from penstock.core.lifecycle.orders import start_order
from penstock.core.lifecycle.requests import NewJob, Submit, submit
from penstock.core.messages.orders import Inputs
from penstock.core.messages.requests import Refusal
from penstock.core.model import inputs
from penstock.core.model.jobs import Input
from penstock.testing.builders import job_spec, node
from penstock.testing.harness import World

SHA = "ab" * 32
TRAIN = Input("data/train", "s3://bucket/train/")
MODEL = Input("model.bin", "https://Hub.example.org:8443/m?sig=x", SHA)


def problems_of(given: object) -> list[tuple[str, str]]:
    return [(one.field, one.message) for one in parse_request({"command": "x", "inputs": given})[1]]


def test_inputs_are_read_by_path_with_an_url_alone_or_with_the_sha256_of_its_content():
    given = {"model.bin": {"url": MODEL.url, "sha256": SHA.upper()}, "data/train/": TRAIN.url}
    entries, problems = parse_request({"command": "x", "inputs": given})
    assert (problems, entries[0].spec.inputs) == ([], (TRAIN, MODEL))


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({}, "inputs", "1 to 64 paths"),
        ([], "inputs", "1 to 64 paths"),
        ({str(n): "s3://b/a" for n in range(65)}, "inputs", "65 inputs"),
        ({"a": 3}, "inputs.a", "an URL of up to 2048 characters"),
        ({"a": "train/"}, "inputs.a", "such as s3://bucket/train/"),
        ({"a": "s3://"}, "inputs.a", "such as s3://bucket/train/"),
        ({"a": "s3://b/" + "x" * 2_048}, "inputs.a", "up to 2048"),
        ({"a": "https://ann:pass@host/x"}, "inputs.a", "give them by `secrets`"),
        ({"a": "simplecache::s3://b/x"}, "inputs.a", "such as s3://"),
        ({"a": "zip://x::s3://b/x.zip"}, "inputs.a", "one URL"),
        ({"a": "file://etc/passwd"}, "inputs.a", "file:///data/train/"),
        ({"a": "file:///data/../etc"}, "inputs.a", "file:///data/train/"),
        ({"a": {}}, "inputs.a.url", "such as s3://"),
        ({"a": {"url": "s3://b/x", "sha": "1"}}, "inputs.a.sha", "is not a field"),
        ({"a": {"url": "s3://b/x", "sha256": "abc"}}, "inputs.a.sha256", "64 hexadecimal digits"),
        ({"a": {"url": "s3://b/x/", "sha256": SHA}}, "inputs.a.sha256", "none for a folder"),
        ({"../a": "s3://b/x"}, "inputs", "a path is relative"),
        ({"/a": "s3://b/x"}, "inputs", "a path is relative"),
        ({"a": "s3://b/x", "a/b/c": "s3://b/y"}, "inputs", "'a/b/c' lies in 'a'"),
    ],
)
def test_what_cannot_be_fetched_is_said_with_what_was_expected(given, field, expected):
    (found,) = problems_of(given)
    assert found[0] == field
    assert expected in found[1]


def test_a_password_is_not_repeated():
    assert "pass" not in problems_of({"a": "https://ann:pass@host/x?sig=pass"})[0][1].partition("expected")[0]


def asked(w: World, *items: Input):
    return w.commit(lambda tx: submit(tx, Submit((NewJob(job_spec(inputs=items)),), "ann"), {}))


@pytest.mark.parametrize(
    ("settings", "url", "said", "hint"),
    [
        ({}, "htps://host/x", "protocol 'htps': it is not known", "did you mean 'https'?"),
        ({"input_protocols": "s3, https"}, "gs://bucket/x", "this cluster does not allow it", "s3, https"),
        ({"input_protocols": "file"}, "s3://bucket/x", "this cluster does not allow it", "file"),
        ({"input_hosts": "*.example.org bucket"}, "https://x.org/x?sig=1", "a host that this cluster allows", "hosts"),
    ],
)
def test_what_the_cluster_does_not_allow_is_refused_at_submit(settings, url, said, hint):
    w = World(node(), **settings)
    refused = asked(w, Input("data/x", url))
    assert isinstance(refused, Refusal)
    (problem,) = refused.problems
    assert (problem.field, said in problem.message, hint in problem.hint) == ("inputs.data/x", True, True)
    assert "sig=" not in problem.message


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"input_hosts": "*.example.org"}, "https://Hub.Example.org:8443/x"),
        ({"input_hosts": "data"}, "s3://data/x"),
        ({"input_hosts": "data"}, "file:///data/x"),
        ({"input_protocols": "S3,new"}, "new://x/y"),
    ],
)
def test_what_the_cluster_allows_is_accepted(settings, url):
    assert not isinstance(asked(World(node(), **settings), Input("a", url)), Refusal)


def test_a_node_is_given_the_inputs_and_the_bounds_of_the_cluster():
    w = World(node(), input_max_bytes=7, inputs_kept_bytes=8, inputs_kept_ms=9, input_hosts="a b")
    asked(w, Input("data/train", "s3://a/x/"), Input("model.bin", "https://b/m"))
    w.cycle()
    job = w.state.jobs[1]
    given = start_order(w.state, job, job.attempt, job.attempt.replicas[0]).inputs
    assert given == Inputs(job.spec.inputs, 7, 8, 9, ("a", "b"))


def test_what_is_shown_of_an_url_has_no_signature():
    assert inputs.public_url(MODEL.url) == "https://Hub.example.org:8443/m"
    assert inputs.host_of(MODEL.url) == "hub.example.org"
    assert inputs.public_url("https://ann:pass@host/x#y") == "https://host/x"
