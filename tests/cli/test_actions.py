"""Actions on selections of jobs, one request for any number."""

import pytest

from penstock.core.model.actions import JobChange
from penstock.core.model.events import JobEdited
from tests.server.harness import Jobs, until


@pytest.fixture
def waiting(server):
    """The numbers of an array of five that waits: the devices are taken."""
    client = server.client
    # No gang: its port may be in use by another test, and one of the five would start before its second attempt.
    takers = client.submit({"command": "sleep 600", "devices": 4, "cpus": 1, "array": 2, "priority": "high"}).jobs
    made = client.submit({"command": "true", "devices": 4, "cpus": 1, "array": 5, "name": "many", "labels": {"k": "v"}})
    until(lambda: all(client.job(job.id).state == "running" for job in takers), "the devices are taken")
    yield [job.id for job in made.jobs]
    client.act("cancel", {"all": True})
    for job in takers:
        Jobs(client).ended(job.id)


def test_members_are_named_by_their_index(penstock, server, waiting):
    made = server.client.submit({"command": "true", "devices": 4, "cpus": 1, "array": "10-12", "name": "more"})
    numbers = [job.id for job in made.jobs]
    assert penstock("cancel", f"{numbers[0]}[11]", "--yes").code == 0
    assert states(server, numbers) == ["waiting", "cancelled", "waiting"]


def states(server, numbers):
    return [server.client.job(number).state for number in numbers]


@pytest.mark.parametrize(
    ("select", "hit"),
    [
        (lambda n: [str(n[0])], [0]),
        (lambda n: [f"{n[1]}-{n[2]}", "-y"], [1, 2]),
        (lambda n: [f"{n[0]}[]", "-y"], [0, 1, 2, 3, 4]),
        (lambda n: [f"{n[0]}[0,3-4]", "-y"], [0, 3, 4]),
        (lambda n: ["--name", "man*", "-y"], [0, 1, 2, 3, 4]),
        (lambda n: ["--label", "k=v", "--state", "waiting", "-y"], [0, 1, 2, 3, 4]),
        (lambda n: ["--mine", "--queue", "default", "--name", "many", "-y"], [0, 1, 2, 3, 4]),
    ],
    ids=["number", "range", "array", "members", "name", "label", "mine"],
)
def test_a_selection_is_cancelled_and_nothing_else(penstock, server, waiting, select, hit):
    told = penstock("cancel", *select(waiting))
    assert (told.code, told.err) == (0, "")
    wanted = ["cancelled" if i in hit else "waiting" for i in range(5)]
    assert states(server, waiting) == wanted, Jobs(server.client).situation(waiting[0])


def test_jobs_are_held_edited_and_released(penstock, server, waiting):
    number = str(waiting[0])
    assert penstock("hold", number).out == f"job {number} held\n"
    assert f"penstock release {number}" in penstock("explain", number).out
    assert penstock("edit", number, "--priority", "low", "--set-label", "a=b").out == f"job {number} changed\n"
    assert server.client.job(waiting[0]).priority == 100
    assert penstock("release", number).out == f"job {number} released\n"
    told = penstock("release", number)
    assert (told.code, told.err) == (2, f"error: job {number} is not held\n")


def test_jobs_are_suspended_and_resumed_whether_they_run_or_wait(penstock, server, waiting):
    runs = server.client.submit({"command": "sleep 600", "cpus": 1, "name": "many"}).jobs[0].id
    until(lambda: server.client.job(runs).state == "running", "it runs")
    numbers = [str(runs), str(waiting[0])]
    told = penstock("suspend", *numbers)
    assert (told.code, told.err) == (0, "")
    assert told.out == f"suspension requested for 2 jobs ({waiting[0]}, {runs})\n"
    until(lambda: all(server.client.explain(int(n)).code == "held" for n in numbers), "both are held")
    assert penstock("suspend", "--name", "many", "--dry-run").out.startswith("would suspend 4 jobs")
    assert penstock("resume", str(runs)).out == f"job {runs} resumed\n"
    until(lambda: server.client.job(runs).attempt == 2, "it runs again, as another attempt")
    assert server.client.explain(waiting[0]).code == "held"


def test_why_is_another_word_for_explain(penstock, waiting):
    number = str(waiting[0])
    assert penstock("why", number, "--json").json()["code"] == penstock("explain", number, "--json").json()["code"]


def test_a_job_that_is_over_is_said_to_be(penstock, server):
    number = penstock.job("true")
    Jobs(server.client).ended(number)
    told = penstock("cancel", str(number))
    assert (told.code, told.out, told.err) == (2, "", f"error: job {number} is over (succeeded)\n")


def test_some_of_several_numbers_may_be_unknown(penstock, waiting):
    told = penstock("cancel", str(waiting[0]), "999999")
    assert (told.code, told.out) == (5, f"cancel requested for job {waiting[0]}\n")
    assert "999999" in told.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "no jobs are named"),
        (("--name", "nobody*", "-y"), 5, "no live job matches"),
        (("--state", "wating", "-y"), 2, "did you mean 'waiting'?"),
        (("3..5",), 2, "expected: a number (3), a range (5-9)"),
        (("--label", "k", "-y"), 2, "--label is 'k', expected NAME=VALUE"),
    ],
    ids=["none", "no match", "state", "form", "label"],
)
def test_a_selection_that_says_nothing_is_refused(penstock, words, code, said):
    told = penstock("cancel", *words)
    assert (told.code, said in told.err) == (code, True), told.err


def test_every_field_that_may_be_edited_is_an_option(penstock, server, waiting):
    number = str(waiting[0])
    words = ("--priority", "7", "--time-limit", "2h", "--max-wait", "1d", "--no-preemptible", "--rename", "large")
    assert penstock("edit", number, *words, "--set-label", "a=b", "--unset-label", "k").out == f"job {number} changed\n"
    edited = [record.event.change for record in server.client.job_events(waiting[0]) if type(record.event) is JobEdited]
    assert edited == [
        JobChange("large", None, 7, False, 7_200_000, 86_400_000, labels=(("a", "b"),), labels_removed=("k",))
    ]


@pytest.mark.parametrize("words", [("--set-label", "a=b", "--unset-label", "a"), ("--unset-label", "a=b")])
def test_a_label_is_set_or_removed(penstock, waiting, words):
    assert penstock("edit", str(waiting[0]), *words).code == 2


def test_an_edit_needs_something_to_change(penstock, waiting):
    assert "nothing to change is given" in penstock("edit", str(waiting[0])).err


def test_lists_fold_arrays_and_open_them(penstock, waiting):
    first = waiting[0]
    folded = penstock("ps", "--name", "many").out
    assert f"{first}[]" in folded
    assert "5 waiting" in folded
    opened = penstock("ps", "--array", str(first), "--sort", "id").out.splitlines()
    assert [line.split()[0] for line in opened[2:7]] == [str(number) for number in waiting]


def test_a_list_goes_on_where_the_page_before_ended(penstock, waiting):
    words, seen = ("ps", "--array", str(waiting[0]), "--limit", "2"), []
    cursor = ()
    while True:
        page = penstock(*words, *cursor, "--json").json()
        seen += [job["id"] for job in page["jobs"]]
        if not page["next_cursor"]:
            break
        cursor = ("--cursor", page["next_cursor"])
    assert sorted(seen) == waiting


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_numbers_and_names_are_whole_at_any_width(penstock, server, waiting, columns):
    name = "pretraining-of-a-model-with-a-long-name-日本"
    made = server.client.submit({"command": "true", "devices": 4, "cpus": 1, "name": name}).jobs[0].id
    shown = penstock.at_terminal("ps", columns=columns).out
    row = next(line for line in shown.splitlines() if name in line)
    assert row.split()[0] == str(made)
    assert penstock.at_terminal("show", str(made), columns=columns).out.count(name) == 1


ASKED = {
    "confirmed": ("--yes",),
    "for programs": ("--yes", "--json"),
    "neither": (),
    "programs, unconfirmed": ("--json",),
}


@pytest.mark.parametrize("more", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry run"])
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("cancel", "--name", "nobody*"), 5, "no live job matches"),
        (("release", "--name", "many"), 2, "5 jobs are not held"),
        (("release", "{0}"), 2, "job {0} is not held"),
        (("cancel", "999999"), 5, "there is no job 999999"),
    ],
    ids=["none matches", "none changes", "the named one does not change", "unknown"],
)
def test_an_action_that_changes_nothing_ends_with_one_code_however_it_is_asked(
    penstock, waiting, words, code, said, dry, more
):
    told = penstock(*(word.format(*waiting) for word in words), *dry, *more)
    assert (told.code, said.format(*waiting) in told.out + told.err) == (code, True)


def test_some_jobs_that_stay_as_they_were_are_no_failure_of_a_condition(penstock, waiting):
    penstock("hold", str(waiting[0]))
    for more in ((), ("--json",)):
        told = penstock("hold", "--name", "many", "--dry-run", *more)
        assert (told.code, told.err) == (0, "")
    assert told.json()["changed"] == 4


def test_a_dry_run_says_what_would_be_done(penstock, waiting):
    said = penstock("save", "--name", "many", "--dry-run").out + penstock("cancel", str(waiting[0]), "--dry-run").out
    assert said.endswith(f"would cancel job {waiting[0]}\n")
    assert penstock("edit", "--name", "many", "--priority", "low", "--dry-run").out.startswith("would change 5 jobs (")
