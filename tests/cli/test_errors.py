"""Errors end a command with a code that means something and a message that says what to do next."""

import json

import pytest

CYCLE = "jobs:\n- {name: a, command: x, after_ok: b}\n- {name: b, command: x, after_ok: a}\n"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("comand: python train.py\n", 2, ["comand is not a field", "did you mean 'command'?"]),
        ("command: x\npriority: hihg\n", 2, ["hihg", "did you mean 'high'?"]),
        (
            "command: x\ndevices: 5\n",
            2,
            ["can hold this job (5 devices", "the largest node of pool"],
        ),
        (CYCLE, 2, ["these jobs wait for each other: ", "a -> b -> a"]),
        ("command: x\nqueue: defualt\n", 2, ["there is no queue 'defualt'", "did you mean 'default'?"]),
        ("command: x\nafter_ok: 999999\n", 2, ["job 999999 does not exist"]),
        ("command: [unclosed\n", 2, ["job.yaml is no YAML: line 2, column 1: "]),
        ("- just\n- words\n", 2, ["expected a mapping of job fields"]),
    ],
    ids=["field", "word", "never", "cycle", "queue", "dependency", "yaml", "shape"],
)
def test_a_bad_job_file_is_told_what_is_wrong(penstock, text, code, words):
    told = penstock("submit", penstock.file(text))
    assert (told.code, told.out) == (code, "")
    assert [w for w in words if w not in told.err] == []
    assert "Traceback" not in told.err


def test_an_empty_job_file_is_told_to_be_one(penstock):
    told = penstock("submit", penstock.file(""))
    assert told.code == 2
    assert "the body is not JSON" not in told.err


def test_every_problem_of_a_file_is_listed(penstock):
    told = penstock("submit", penstock.file("comand: x\ndevices: -1\n"))
    assert told.err.count("  - ") == 3


def test_errors_are_told_to_programs_as_json(penstock):
    told = penstock("submit", penstock.file("command: x\nqueue: defualt\n"), "--json")
    found = json.loads(told.err)
    assert (told.code, found["code"], found["problems"][0]["code"]) == (2, "invalid_input", "unknown_queue")


def test_a_missing_file_is_named(penstock):
    told = penstock("submit", "nowhere.yaml")
    assert told.code == 2
    assert "the job file nowhere.yaml cannot be read: No such file or directory" in told.err


def test_a_file_that_is_no_text_is_named(penstock):
    (penstock.folder / "job.yaml").write_bytes(b"\xff\xfe")
    assert "it is no UTF-8 text" in penstock("submit", "job.yaml").err


@pytest.mark.parametrize("words", [("show",), ("explain",), ("cancel",), ("logs",), ("logs", "-f"), ("save",)])
def test_an_unknown_job_has_a_code_of_its_own(penstock, words):
    told = penstock(*words, "999999")
    assert told.code == 5
    assert "there is no job 999999" in told.err


def test_an_unknown_node_has_the_same_code(penstock):
    assert penstock("drain", "nowhere").code == 5


@pytest.mark.parametrize("words", [("ps",), ("nodes",), ("queue",), ("submit", "--", "true"), ("show", "1"), ("down",)])
def test_without_a_server_it_is_said_how_to_start_one(alone, words):
    told = alone(*words)
    assert told.code == 3
    assert "no server runs on" in told.err
    assert "hint" in told.err


def test_a_server_that_died_is_not_waited_for(alone):
    (alone.folder / "data").mkdir()
    (alone.folder / "data" / "server.json").write_text('{"host": "127.0.0.1", "port": 9}')
    (alone.folder / "data" / "token").write_text("t")
    told = alone("ps")
    assert told.code == 3
    assert "does not answer" in told.err


@pytest.mark.parametrize("words", [("ps",), ("submit", "--", "true"), ("nodes",)])
def test_a_wrong_token_has_a_code_of_its_own(penstock, words):
    told = penstock(*words, PENSTOCK_TOKEN="wrong")
    assert told.code == 4
    assert "the token is not valid" in told.err


def test_logs_uses_the_token_that_is_given(penstock):
    assert penstock("logs", "1", PENSTOCK_TOKEN="wrong").code == 4


@pytest.mark.parametrize("words", [("nonsense",), ("ps", "--nonsense"), ("show", "x"), ("cancel", "x"), ("run",)])
def test_a_wrong_command_line_is_told_so(penstock, words):
    told = penstock(*words)
    assert told.code == 2
    assert "Traceback" not in told.err


def test_a_checkpoint_that_cannot_be_asked_for_is_explained(penstock):
    job = penstock.job("sleep", "60")
    told = penstock("save", str(job))
    penstock("cancel", str(job))
    assert told.code == 2
    assert "error: job" in told.err


def test_output_into_a_closed_pipe_is_no_error(penstock):
    process = penstock.begin("ps", "-a", "--json", "--limit", "1000")
    process.stdout.close()
    process.wait(30)
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


HOSTILE = {
    "lists": "[" * 200_000,
    "mappings": "".join(" " * n + "a:\n" for n in range(2_000)),
    "date": "a: 2026-13-45\n",
    "itself": "a: &a [*a]\n",
    "open": "a: [1\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("words", [("submit",), ("plan",), ("apply", "-f")], ids=" ".join)
def test_no_yaml_file_ends_a_command_without_a_message(penstock, words, text):
    told = penstock(*words, penstock.file(text))
    assert (told.code, told.out, "error: " in told.err, "Traceback" in told.err) == (2, "", True, False)
