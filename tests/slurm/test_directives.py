"""`#SBATCH` lines and options are read as sbatch reads them; which wins, and what it refuses."""

import pytest

from penstock.slurm.directives import Options, check_script, directives, from_variables
from penstock.slurm.options import OPTIONS, STEP_OPTIONS, VARIABLES, Given, Unknown, option_of, read_words


def given(text: str) -> dict[str, str]:
    return {one.name: one.value for one in directives("#!/bin/bash\n" + text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#SBATCH --time=10:00\n", {"time": "10:00"}),
        ("#SBATCH --time 10:00 -n 4\n", {"time": "10:00", "ntasks": "4"}),
        ("#SBATCH -n4 -c 2   # two each\n", {"ntasks": "4", "cpus-per-task": "2"}),
        ("#SBATCH\t-J 'my job'\n", {"job-name": "my job"}),
        ("#SBATCH --job-name=\"a b\"\n", {"job-name": "a b"}),
        ("#SBATCH -Hv\n", {"hold": "", "verbose": ""}),
        ("#SBATCH --exclusive\n#SBATCH --exclusive=user\n", {"exclusive": "user"}),
        ("#SBATCH --exclusive -n 2\n", {"exclusive": "", "ntasks": "2"}),
        ("#SBATCH --job=short --err=e\n", {"job-name": "short", "error": "e"}),
        ("\n# a comment\n\n#SBATCH -n 2\necho\n#SBATCH -n 3\n", {"ntasks": "2"}),
        ("##SBATCH -n 2\n# SBATCH -n 3\n #SBATCH -n 4\n#SBATCHx -n 5\n", {}),
    ],
)  # fmt: skip
def test_directives_before_the_first_command_are_options(text, expected):
    assert given(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#SBATCH --tiem=5\n", "line 2: there is no option --tiem; did you mean --time?"),
        ("#SBATCH -n\n", "line 2: -n (--ntasks) needs a value"),
        ("#SBATCH -Y\n", "line 2: there is no option -Y"),
        ("#SBATCH --nodes\n", "line 2: --nodes needs a value"),
        ("#SBATCH --hold=yes\n", "line 2: --hold takes no value"),
        ("#SBATCH --mem- 3\n", "line 2: --mem- is short for several options: --mem-per-cpu, --mem-per-gpu, --mem-bind"),
        ("#SBATCH ntasks=4\n", "line 2: 'ntasks=4' is no option"),
        ("#SBATCH -J 'open\n", "line 2: no closing quotation"),
        ("#SBATCH hetjob\n", "line 2: a job has one component here: no hetjob"),
    ],
)
def test_an_unknown_option_names_its_line_and_the_nearest(text, said):
    with pytest.raises(Unknown) as error:
        given(text)
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("echo hi\n", "begin with #!"),
        ("#!/bin/sh\r\necho\r\n", "CRLF"),
        ("#!/bin/sh\n\0", "NUL"),
        ("#!\necho\n", "no interpreter"),
    ],
)
def test_what_is_no_batch_script_is_refused(text, said):
    with pytest.raises(Unknown, match=said):
        check_script(text, "job.sh")


def test_the_command_line_wins_over_variables_and_these_over_directives():
    lines = directives("#!/bin/sh\n#SBATCH -t 1 -n 1 -J line --mem=4G --requeue\n")
    variables = from_variables({"SBATCH_TIMELIMIT": "2", "SBATCH_JOB_NAME": "variable", "SBATCH_NO_REQUEUE": "1"})
    words, rest = read_words(["-t", "3", "--mem-per-cpu=1G", "job.sh", "-n", "9"], "command line")
    options = Options(lines, variables, words)
    assert rest == ["job.sh", "-n", "9"]
    assert [options.get(name) for name in ("time", "job-name", "ntasks", "mem-per-cpu")] == ["3", "variable", "1", "1G"]
    assert ("mem" in options, "requeue" in options, "no-requeue" in options) == (False, False, True)


def test_a_flag_variable_that_says_no_is_none():
    assert from_variables({"SBATCH_REQUEUE": "0", "SBATCH_WAIT": "yes"}) == [Given("wait", "", "SBATCH_WAIT")]


def test_each_option_without_a_meaning_is_named_once_with_its_place():
    options = Options(directives("#!/bin/sh\n#SBATCH --hint=nomultithread -L a@b\n#SBATCH --hint=compute_bound\n"))
    left = options.left_out()
    assert [line.partition(":")[0] for line in left] == [
        "--hint=compute_bound (line 3) is left out", "--licenses=a@b (line 2) is left out"]  # fmt: skip


def test_options_that_would_change_what_a_job_is_are_refused():
    options = Options(directives("#!/bin/sh\n#SBATCH --begin=16:00 --uid=root\n"))
    assert [line.partition(" ")[0] for line in options.refusals()] == ["--begin", "--uid"]


@pytest.mark.parametrize("options", [OPTIONS, STEP_OPTIONS], ids=["sbatch", "srun"])
def test_option_names_and_letters_are_unique(options):
    names, letters = [one.name for one in options], [one.short for one in options if one.short]
    assert (len(names), len(letters)) == (len(set(names)), len(set(letters)))


def test_variables_stand_for_options_that_exist():
    assert all(option_of(name) for name in VARIABLES.values())
