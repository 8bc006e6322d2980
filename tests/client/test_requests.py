"""Requests of commands and job files: their own values, then the options, then the surroundings of this process."""

import os

import pytest

from penstock.client.requests import file_request, with_surroundings
from penstock.core.model.errors import InvalidInput


@pytest.fixture(autouse=True)
def _few_variables(monkeypatch):
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/bin")


def test_a_job_starts_here_unless_it_says_where():
    assert with_surroundings({}, {}) == {"workdir": os.getcwd(), "env": {"PATH": "/bin"}}
    assert with_surroundings({"workdir": "/srv"}, {})["workdir"] == "/srv"


@pytest.mark.parametrize("field", ["python", "conda"])
def test_a_job_with_an_environment_of_its_own_gets_nothing_of_the_present_one(monkeypatch, field):
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "/here")
    assert set(with_surroundings({field: "x"}, {})["env"]) == {"PATH", "LD_LIBRARY_PATH"}


def test_variables_of_options_come_before_those_of_the_job_and_of_this_process():
    made = with_surroundings({"env": {"PATH": "/own", "A": "job"}}, {"A": "option"})
    assert made["env"] == {"PATH": "/own", "A": "option"}


def test_what_is_no_mapping_is_left_for_the_server_to_report():
    assert with_surroundings({"env": ["A=1"]}, {"A": "1"}) == {"env": ["A=1"]}


def test_fields_come_before_those_of_each_job_in_a_file(tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text("defaults: {cpus: 1, workdir: /a}\njobs: [{command: x, cpus: 2}, {command: y}, junk]\n")
    first, second, junk = file_request(str(path), {"workdir": "/b"}, {"A": "1"})["jobs"]
    assert (first["cpus"], second["cpus"], junk) == (2, 1, "junk")
    assert {job["workdir"] for job in (first, second)} == {"/b"}
    assert first["env"]["A"] == "1"


def test_a_file_without_jobs_is_named(tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_text("")
    with pytest.raises(InvalidInput, match=f"the job file {path} is empty"):
        file_request(str(path), {}, {})
