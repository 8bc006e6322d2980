"""What `run`, `submit` and `plan` take on the command line, as the job file would say it."""

import re

import pytest

from penstock.cli.errors import UsageError
from penstock.cli.shape import JobShape, device_ask
from penstock.core.model.errors import InvalidInput
from tests.server.harness import Jobs


@pytest.mark.parametrize(
    ("text", "models", "asked"),
    [
        ("2", [], 2),
        ("0.5", [], 0.5),
        ("1g.10gb", [], {"profile": "1g.10gb"}),
        ("4", ["H100", "A100"], {"count": 4, "model": ["H100", "A100"]}),
        ("0.25", ["A100"], {"share": 0.25, "model": ["A100"]}),
        (None, ["A100"], {"count": 1, "model": ["A100"]}),
    ],
)
def test_devices_are_a_number_a_part_or_a_profile(text, models, asked):
    assert device_ask(text, models) == asked


def test_every_option_becomes_its_field():
    shape = JobShape(
        name="a", devices="2", replicas="2..4", array="0-9%4", after_ok=["3,prep", "7"], labels=["k=v"],
        priority="700", preemptible=False, retries=2, grace="60s", topology="same_rack", pool="gpu", workdir="/srv",
        setup=["make", "cp a b"], requirements="needs.txt",
    )  # fmt: skip
    assert shape.fields() == {
        "name": "a", "devices": 2, "replicas": "2..4", "array": "0-9%4", "after_ok": [3, "prep", 7],
        "labels": {"k": "v"}, "priority": 700, "preemptible": False, "retries": 2, "grace": "60s",
        "topology": "same_rack", "pool": "gpu", "workdir": "/srv", "setup": ["make", "cp a b"],
        "python": {"requirements": "needs.txt"},
    }  # fmt: skip


def test_inputs_are_paths_with_an_url_each():
    shape = JobShape(inputs=["data/train=s3://b/train/", "m=https://host/m?a=b"])
    assert shape.fields() == {"inputs": {"data/train": "s3://b/train/", "m": "https://host/m?a=b"}}
    with pytest.raises(InvalidInput, match="--input is 's3://b/x', expected NAME=VALUE"):
        JobShape(inputs=["s3://b/x"]).fields()


def test_a_snapshot_is_a_working_directory_and_there_is_one(tmp_path):
    assert JobShape(snapshot=".").fields() == {"workdir": {"snapshot": "."}}
    with pytest.raises(UsageError, match="name two folders"):
        JobShape(snapshot=".", workdir="/srv").fields()


@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_folder_is_sent_and_the_job_starts_in_it(penstock, server, command):
    (penstock.folder / "hello.sh").write_text("echo hello from the folder")
    told = penstock(command, "--cpus", "1", "--snapshot", ".", "--", "sh", "hello.sh")
    job = int(re.search(r"job (\d+)", told.out + told.err)[1])
    assert Jobs(server.client).ended(job).state == "succeeded"
    assert "hello from the folder" in Jobs(server.client).output(job)


def test_a_submit_takes_them_all(penstock, server):
    words = ("--array", "1-3%2", "-g", "0.5", "--label", "k=v", "--no-preemptible", "--grace", "5s", "--retries", "1")
    told = penstock("submit", "--json", "--cpus", "1", *words, "--", "sh", "-c", "exit 0").json()
    ended = [Jobs(server.client).ended(job["id"]) for job in told["jobs"]]
    assert [job.array_index for job in ended] == [1, 2, 3]
    assert {(job.state, job.preemptible, job.devices_text) for job in ended} == {("succeeded", False, "0.5")}


@pytest.mark.parametrize("command", ["run", "submit", "plan"])
def test_a_script_needs_its_interpreter(penstock, command):
    (penstock.folder / "train.py").write_text("print(1)")
    told = penstock(command, "train.py")
    assert (told.code, "did you mean: -- python train.py" in told.err) == (2, True)


def test_an_option_of_the_program_is_told_to_come_after_the_dashes(penstock):
    told = penstock("submit", "--epochs", "3", "train.py")
    assert (told.code, "words of a command come after --" in told.err) == (2, True)


def test_run_prints_the_ended_job_for_programs(penstock):
    told = penstock("run", "--json", "--cpus", "1", "--", "sh", "-c", "echo out; exit 3")
    assert (told.code, "out\n" in told.err) == (3, True)
    assert '"exit_code": 3' in told.out


def test_waiting_ends_with_the_jobs(penstock):
    good, bad = penstock.job("true"), penstock.job("false")
    told = penstock("wait", str(good), str(bad))
    assert (told.code, f"1 job did not succeed: {bad}" in told.err) == (1, True)
    assert penstock("wait", str(good)).code == 0
    late = penstock.job("sleep", "60")
    told = penstock("wait", str(late), "--timeout", "1s")
    penstock("cancel", str(late))
    assert (told.code, "timeout of 1s reached: 1 job has not ended" in told.err) == (8, True)


def test_a_command_runs_inside_a_job(penstock, server):
    job = penstock.job("sleep", "60")
    Jobs(server.client).state(job, "running")
    told = penstock("exec", str(job), "--", "sh", "-c", "echo $PENSTOCK_JOB_ID; exit 4")
    penstock("cancel", str(job))
    assert (told.code, told.out) == (4, f"{job}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cpus", "nan", "--", "true"), "cpus is nan, expected a number"),
        (("--cpus", "inf", "--", "true"), "cpus is inf, expected a number"),
        (("-g", "nan", "--", "true"), "profile"),
        (("-g", "1e999", "--", "true"), "profile"),
        (("job.yaml",), "jobs[1].cpus is nan, expected a number"),
    ],
    ids=" ".join,
)
def test_what_is_no_finite_number_is_not_left_out(penstock, words, said):
    penstock.file("jobs:\n- {command: 'true'}\n- {command: 'true', cpus: .nan}\n")
    told = penstock("submit", *words)
    assert (told.code, told.out, said in told.err) == (2, "", True), told.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("defaults: [1]\njobs: [{command: 'true'}]\n", "defaults"),
        ("defaults: text\njobs: [{command: 'true'}]\n", "defaults"),
        ("comment: x\njobs: [{command: 'true'}]\n", "comment is not a field"),
        ("jobs: [{command: 'true'}]\nqueue: batch\n", "queue is not a field"),
    ],
)
def test_the_server_sees_all_fields_beside_the_jobs(penstock, text, said):
    told = penstock("submit", penstock.file(text))
    assert (told.code, told.out, said in told.err, "Traceback" in told.err) == (2, "", True, False), told.err


def test_defaults_are_completed_by_the_shell_that_submits(penstock, server):
    file = penstock.file("defaults: {name: a, env: {X: '1'}}\njobs: [{command: 'true'}, {command: 'true', name: b}]\n")
    made = penstock("submit", file, "--cpus", "0.5", "--json").json()["jobs"]
    assert [job["name"] for job in made] == ["a", "b"]
    assert [server.client.job(job["id"]).asks for job in made] == ["0.5 CPUs", "0.5 CPUs"]


def test_a_long_command_is_one_line_in_a_pipe(penstock, server):
    words = [f"--option-{number}=value" for number in range(30)]
    job = penstock.job("true", *words)
    command = f"  command     true {' '.join(words)}"
    assert command in penstock("show", str(job)).out.splitlines()
    assert max(map(len, penstock.at_terminal("show", str(job), columns=80).out.splitlines())) <= 80
