"""`penstock sim` as its user meets it."""

import json
import subprocess
import sys

import pytest

from penstock.cli import options
from penstock.core.model.cluster import Queue, Tenant
from penstock.testing.builders import config
from penstock.traces import KINDS, write_csv
from tests.sim.replay.builders import job, trace


def penstock(*args, **options):
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *map(str, args)], capture_output=True, text=True, **options
    )


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    path = tmp_path_factory.mktemp("traces") / "jobs.csv"
    write_csv(trace(*(job(i * 60, 300 + 20 * (i % 7), 1 + i % 4) for i in range(60))), path)
    return path


def test_it_compares_policies_in_the_terminal_and_on_a_page(jobs, tmp_path):
    done = penstock("sim", jobs, "-P", "fifo+none", "-P", "fifo+strict", "--seeds", 2, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "t: 60 jobs on 1 nodes with 4 devices"
    assert any(line.startswith("wait, mean") and "±" in line for line in lines)
    assert "against fifo+none" in done.stdout
    assert (tmp_path / "out" / "sim.html").read_text().startswith("<!doctype html>")
    assert len(json.loads((tmp_path / "out" / "sim.json").read_text())["results"]) == 4


def test_json_says_the_same_each_time(jobs):
    first, again = (penstock("sim", jobs, "-P", "as_is", "--json", "--mtbf", "30m", "--repair", "1m") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["results"][0]["measures"]["whole"]["jobs"] == 60
    assert first.stdout == again.stdout


def test_run_times_are_learned_from_an_earlier_trace_first(jobs):
    done = penstock("sim", jobs, "-P", "as_is", "--history", jobs)
    assert done.returncode == 0, done.stderr
    assert "note: history: 53 runs of t; 7 jobs that had not run and ended before the first submit" in done.stdout
    missing = penstock("sim", jobs, "--history", "nothing.csv")
    assert (missing.returncode != 0, "nothing.csv" in missing.stderr) == (True, True)


def test_a_trace_is_found_below_the_folder_of_traces(jobs):
    done = penstock("sim", jobs.name, "-P", "as_is", env={"PENSTOCK_TRACES": str(jobs.parent), "PATH": ""})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nothing.csv",), "nothing.csv"),
        (("-P", "fifoo"), "there is no policy 'fifoo'"),
        (("--nodes", "none"), "nodes is 'none'"),
        (("--nodes", "4xH100"), "for 4 nodes say their devices, too: 4x8xH100"),
        (("--nodes", "4x8:cpu=4"), "did you mean 'cpus'?"),
        (("--save", "soon"), "save is 'soon'"),
        (("--mtbf", "soon"), "mtbf is 'soon'"),
        (("--kind", "heliox"), "heliox"),
        (("--cluster", "nothing.yaml"), "nothing.yaml cannot be read"),
        (("--load", "0"), "load is 0, expected more than 0"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(jobs, tmp_path, args, said):
    given = args if args[0].endswith(".csv") else (jobs, *args)
    done = penstock("sim", *given, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_cluster_is_given_in_words_and_jobs_that_it_could_never_hold_are_named(jobs):
    done = penstock("sim", jobs, "-P", "as_is", "--nodes", "1x3xA100:cpus=8:memory=16GiB")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "t: 60 jobs on 1 nodes with 3 devices"
    assert "note: cluster: 1 node x 3 A100, 8 CPUs, 16 GiB each, as given" in lines
    (said,) = [line for line in lines if "can never start" in line]
    assert said == (
        "note: 15 jobs can never start on these nodes; of the first, j180: pool 'default' cannot hold "
        "1 replica of 3 devices and 0.75 CPUs, plus 1 replica of 1 device and 0.25 CPUs together, even when empty"
    )


def test_notes_of_jobs_that_can_never_start_are_in_the_json_too(jobs):
    done = penstock("sim", jobs, "-P", "as_is", "--nodes", "1x3xA100:cpus=8:memory=16GiB", "--json")
    assert any("15 jobs can never start" in note for note in json.loads(done.stdout)["notes"])


@pytest.mark.parametrize("option", ["--cluster", "-P"])
def test_queues_and_tenants_that_a_cluster_file_lacks_are_as_in_the_trace(tmp_path, option):
    rules = config(queues=(Queue("red"),), tenants=(Tenant("ann"),))
    given = trace(*(job(i, 60, queue="red", tenant="ann") for i in range(3)), rules=rules)
    write_csv(given, tmp_path / "jobs.csv")
    (tmp_path / "c.yaml").write_text("queues: [{name: mine}]\n")
    done = penstock("sim", "jobs.csv", option, "c.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "never ended" not in done.stdout
    note = "note: c.yaml: 1 queue and 1 tenant of the trace that it does not declare: they are as in the trace"
    assert note in done.stdout.splitlines()


def test_the_help_names_every_kind_of_trace():
    assert sorted(options.KINDS.replace(" or ", ", ").split(", ")) == sorted(KINDS)
