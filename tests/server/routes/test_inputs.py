"""Inputs of jobs over HTTP: refused where no agent could fetch them, with the place of the problem."""

import pytest

from penstock.client import ApiProblem
from penstock.testing.server import InProcessServer

JOB = {"command": "train", "inputs": {"data/train": "s3://bucket/train/"}}


@pytest.fixture(scope="module")
def server():
    with InProcessServer() as running:
        yield running


def test_a_job_keeps_its_inputs_and_hears_no_warning_where_nodes_share_storage(server):
    made = server.client.submit_request({**JOB, "devices": 1})
    assert made.warnings == ()
    assert [one.path for one in server.service.controller.state.jobs[made.jobs[0].id].spec.inputs] == ["data/train"]


def test_a_server_of_pods_refuses_inputs(server, monkeypatch):
    monkeypatch.setattr(server._backend, "snapshots", None)
    with pytest.raises(ApiProblem) as caught:
        server.client.submit_request({"jobs": [{"command": "x"}, JOB]})
    (problem,) = caught.value.problems
    assert (problem.field, "pods of this server get none" in problem.message) == ("jobs[1].inputs", True)
