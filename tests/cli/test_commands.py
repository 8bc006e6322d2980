"""Every command, for people and for programs."""

import json
import re
import signal

import pytest

from penstock.cli import commands
from tests.server.harness import Jobs, until

COMMANDS = [
    *(name for name, entry in commands.TOP.items() if not entry.hidden),
    *(f"{group} {name}" for group, members in commands.GROUPS.items() for name in members),
]


@pytest.fixture
def ended(penstock, server):
    job = penstock.job("sh", "-c", "echo hello; exit 3")
    Jobs(server.client).ended(job)
    return job


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(penstock, command):
    told = penstock(*command.split(), "--help")
    assert (told.code, told.err) == (0, "")
    assert re.match(rf"Usage: .*penstock {command} ", told.out)


def test_the_program_starts_in_a_fresh_interpreter(penstock):
    assert penstock.anew("ps", "--json").json()["jobs"] == penstock("ps", "--json").json()["jobs"]


def test_every_command_is_listed(penstock):
    listed = penstock("--help").out
    assert [name for name in commands.TOP if f"  {name} " not in listed] == ["jobs", "why"]
    assert [title for title in commands.PANELS if f"{title}:" not in listed] == []
    assert [title for title in commands.GROUPS["money"] if f"  {title} " not in penstock("money").out] == []
    assert penstock("--version").out.startswith("penstock ")


def test_jobs_are_listed_for_programs(penstock, ended):
    assert ended in [job["id"] for job in penstock("ps", "--all", "--json").json()["jobs"]]
    assert ended not in [job["id"] for job in penstock("ps", "--json").json()["jobs"]]


def test_a_job_is_shown_for_programs(penstock, ended):
    found = penstock("show", str(ended), "--json").json()
    assert (found["job"]["exit_code"], found["events"][0]["event"]["type"]) == (3, "JobSubmitted")


@pytest.mark.parametrize(
    ("words", "key"),
    [(("nodes",), "nodes"), (("queue",), "queues"), (("drain", "n1", "--off"), "node")],
    ids=str,
)
def test_the_cluster_is_shown_for_programs(penstock, words, key):
    assert key in penstock(*words, "--json").json()


def test_an_end_is_explained_for_programs(penstock, ended):
    assert penstock("explain", str(ended), "--json").json()["text"] == "failed: exit 3"


def test_cancelling_is_answered_for_programs(penstock, ended):
    told = penstock("cancel", str(ended), "--json")
    assert (told.code, json.loads(told.out)["unchanged"][0]["code"]) == (2, "over")


def test_the_report_is_written_and_summed_up_for_programs(penstock, ended):
    told = penstock("report", "--out", "found", "--json")
    assert told.json() == json.loads((penstock.folder / "found" / "summary.json").read_text())
    assert "<html" in (penstock.folder / "found" / "report.html").read_text()


def test_the_schema_of_job_files_is_printed(penstock):
    assert penstock("schema").json()["$schema"]
    assert "queues" in penstock("schema", "cluster").json()["properties"]


@pytest.mark.parametrize("words", [("ps", "-a"), ("nodes",), ("queue",)])
def test_tables_are_printed_for_people(penstock, ended, words):
    told = penstock(*words)
    assert (told.code, told.err) == (0, "")
    assert told.out.strip()


def test_a_story_is_printed_for_people(penstock, ended):
    told = penstock("show", str(ended))
    assert f"job {ended} sh  failed" in told.out
    parts = (
        "submitted by",
        "attempt 1 was placed on n",
        "replica 0 ended: exit 3",
        "attempt 1 failed",
        "failed: exit 3",
    )
    assert [part for part in parts if part not in told.out] == []
    assert [inner for inner in ("Gauges(", "decided_ms", "basis", "not preemptible") if inner in told.out] == []
    assert "sh -c 'echo hello; exit 3'" in told.out


def test_output_is_printed_as_it_was_written(penstock, ended):
    assert penstock("logs", str(ended)).out == "hello\n"


def test_output_of_several_replicas_carries_their_rank(penstock, server):
    job = penstock("submit", "--json", "-n", "2", "--", "sh", "-c", "echo from $RANK").json()["jobs"][0]["id"]
    Jobs(server.client).ended(job)
    assert sorted(penstock("logs", str(job)).out.splitlines()) == ["[0] from 0", "[1] from 1"]
    assert penstock("logs", str(job), "--rank", "1").out == "from 1\n"


def test_following_output_goes_on_until_the_job_has_ended(penstock):
    job = penstock.job("sh", "-c", "for n in 1 2 3; do echo $n; sleep 0.2; done")
    assert penstock("logs", "-f", str(job)).out == "1\n2\n3\n"


def test_run_shows_the_output_and_ends_like_the_job(penstock):
    told = penstock("run", "--cpus", "1", "--", "sh", "-c", "echo out; exit 7")
    assert (told.code, told.out) == (7, "out\n")
    assert "exit 7" in told.err


def test_run_ends_with_128_and_the_signal(penstock):
    assert penstock("run", "--", "sh", "-c", "kill -SEGV $$").code == 139


def test_interrupting_run_cancels_its_job(penstock, server):
    process = penstock.begin("run", "--", "sh", "-c", "echo ready; sleep 60")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, "is being cancelled" in said) == (130, True)
    job = int(said.split("job ")[1].split()[0])
    assert Jobs(server.client).ended(job).state == "cancelled"


def test_a_job_runs_where_and_with_what_it_was_submitted(penstock, server):
    told = penstock("run", "--env", "A=b", "--env", "C", "--", "sh", "-c", "pwd; echo $A $C $SECRET", C="d", SECRET="s")
    assert told.out == f"{penstock.folder}\nb d\n"


def test_a_job_file_is_submitted_and_options_outweigh_it(penstock, server):
    file = penstock.file("command: echo from file\nname: filed\npriority: low\n")
    job = penstock("submit", file, "--priority", "high", "--json").json()["jobs"][0]
    shown = Jobs(server.client).ended(job["id"])
    assert (job["name"], shown.priority, shown.state) == ("filed", 1000, "succeeded")


def test_a_job_file_may_come_from_standard_input(penstock):
    told = penstock("submit", "-", "--json", stdin="jobs:\n- {command: 'true'}\n- {command: 'true'}\n")
    assert len(told.json()["jobs"]) == 2


def test_the_same_key_submits_once(penstock):
    first, again = (penstock("submit", "--key", "cli-key", "--json", "--", "true").json() for _ in range(2))
    assert (first["jobs"][0]["id"], again["repeated"]) == (again["jobs"][0]["id"], True)
    assert "(submitted before under this key)" in penstock("submit", "--key", "cli-key", "--", "true").out


def test_many_jobs_are_said_in_one_line(penstock):
    assert penstock("submit", "--array", "9", "--", "true").out.rstrip().endswith("(9 jobs)")


def test_a_drain_is_seen_by_everybody(penstock):
    penstock("drain", "n2", "--reason", "new disk")
    try:
        assert "draining: new disk" in penstock("nodes").out
    finally:
        assert penstock("drain", "n2", "--off").out == "node n2 is open again\n"


def test_names_cannot_paint_the_terminal(penstock, server):
    file = penstock.file("command: 'true'\nname: \"[red]x\\e[31m\"\n")
    job = penstock("submit", file, "--json").json()["jobs"][0]["id"]
    Jobs(server.client).ended(job)
    assert "\x1b" not in penstock("ps", "-a").out
    assert "[red]x" in penstock("ps", "-a").out


def test_a_waiting_job_is_explained_to_people(penstock, server):
    jobs = Jobs(server.client)
    for _ in range(2):
        jobs.state(jobs.submit("sleep 60", devices=4), "running")
    waiting = jobs.submit("true", devices=4)
    until(lambda: jobs.client.explain(waiting).code == "no_fit", "the cycle has seen it")
    told = penstock("explain", str(waiting))
    jobs.close()
    assert f"job {waiting} waiting: " in told.out
    assert "0 free in all" in told.out
    assert "  needs 1 x 4 devices; best node n1 has 0 free; short by 4 on n1 (devices_short)\n" in told.out
    assert "  2 nodes have too few devices free\n" in told.out
    assert "would start now: job " in told.out
    assert "no latest start: 2 running jobs have no time limit" in told.out


def test_a_way_out_by_preemption_and_a_bound_are_told_apart(penstock, server):
    jobs = Jobs(server.client)
    for _ in range(2):
        jobs.state(jobs.submit("sleep 60", devices=4, priority=600, time_limit="1h"), "running")
    waiting = jobs.submit("true", devices=4)
    until(lambda: jobs.client.explain(waiting).code == "no_fit", "the cycle has seen it")
    told = penstock("explain", str(waiting))
    jobs.close()
    assert "would make room now: priority: 601 instead of 500 would preempt job " in told.out
    assert re.search(r"starts in (1h 0m|59m \d+s) at the latest, if jobs keep to their time limits", told.out)


def test_a_job_that_is_asked_to_stop_is_told_why(penstock, server):
    jobs = Jobs(server.client)
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    low = [jobs.submit(stubborn, devices=4, priority="low", grace="8s") for _ in range(2)]
    for job in low:
        jobs.said(job, "ready")
    high = jobs.submit("true", devices=4, priority="high")
    victim = until(lambda: [j for j in low if jobs.client.job(j).state == "stopping"], "one is asked")[0]
    told = penstock("explain", str(victim))
    jobs.close()
    assert f"preempted for job {high}, by rule lower_priority: it has the lower priority; it costs " in told.out
    assert re.search(r"it has [0-9.]+s left to save", told.out)
    assert f"held by / waits for: job {high}" in told.out


def test_the_dry_run_of_defrag_says_who_would_move_for_whom(penstock, server):
    told = penstock("defrag").out
    assert told.startswith("nothing to gain: ")
    jobs = Jobs(server.client)
    held = []
    assert penstock("admin", "set", "settings.predict_run_times=false", "-y").code == 0  # all others here are short
    try:
        for closed in ("n2", "n1"):
            server.client.drain(closed)
            held.append(jobs.submit("sleep 60", devices=2, checkpoint={"request_signal": "SIGUSR1"}))
            jobs.state(held[-1], "running")
            server.client.drain(closed, on=False)
        wide = jobs.submit("true", devices=4)
        (found,) = penstock("defrag", "--json").json()["found"]
        told = penstock("defrag").out.splitlines()
    finally:
        for name in ("n1", "n2"):
            server.client.drain(name, on=False)
        penstock("admin", "set", "settings.predict_run_times=true", "-y")
        jobs.close()
    (move,) = found["moves"]
    assert (found["beneficiary"], found["nodes"][0]) == (wide, f"n{held.index(move['job']) + 1}")
    assert told[0] == f"job {wide} would start on {found['nodes'][0]}"
    assert told[1].startswith(f"  if these saved and moved: {move['job']} (")
    assert told[2] == "nothing was moved; the setting `defrag: true` lets the scheduler do it"


def test_alerts_are_listed_and_counted_where_an_operator_looks(penstock, server):
    assert penstock("alerts").out == "no alerts\n"
    assert penstock("alerts", "--json").json() == {"alerts": []}
    jobs = Jobs(server.client)
    for name in ("n1", "n2"):
        server.client.drain(name)
    job = jobs.submit("true")
    try:
        told, queues = penstock("alerts").out, penstock("queue").out
    finally:
        for name in ("n1", "n2"):
            server.client.drain(name, on=False)
        jobs.close()
    assert told.splitlines() == [
        f"nodes_away: 1 job: {job}",
        "  fits only on nodes that take no work now: n1 (draining), n2 (draining)",
        "  to resolve it: bring these nodes back, or ask for less",
    ]
    assert "1 job can never start as things are: penstock alerts" in queues


def test_what_a_program_tells_of_itself_is_shown_and_watched(penstock, server):
    """It tells its steps, and a loss that is no number."""
    line = '{"kind":"progress","step":%d,"total":100000,"time_ms":%d,"loss":null,"not_finite":["loss"]}\\n'
    script = f"for i in $(seq 1 400); do printf '{line}' $i $(date +%s%3N) >> $PENSTOCK_REPORT_FILE; sleep 0.05; done"
    jobs = Jobs(server.client)
    job = jobs.submit(script, devices=1)
    try:
        until(lambda: "loss_not_finite" in penstock("alerts").out, "its program tells of its loss")
        told = penstock("show", str(job)).out
        alerts = penstock("alerts").out
    finally:
        jobs.close()
    assert re.search(r"ends +in about \d+", told)
    assert f"loss_not_finite: 1 job: {job}" in alerts
    assert "can never start" not in penstock("queue").out


def test_a_success_is_said_once(penstock, server):
    job = penstock.job("true")
    Jobs(server.client).ended(job)
    assert penstock("explain", str(job)).out == f"job {job} succeeded\n"
