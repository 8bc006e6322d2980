"""Leases, and shells where they are."""

import time

import pytest

from tests.server.harness import Jobs, until


def held(penstock, *words):
    told = penstock("lease", "1", *words, "--json")
    assert told.code == 0, told.err
    return told.json()


def test_a_lease_holds_devices_until_its_time_is_over(penstock, server):
    shown = held(penstock, "--for", "2s")
    assert (shown["state"], shown["devices"], shown["preemptible"]) == ("running", 1, False)
    ended = Jobs(server.client).ended(shown["id"])
    assert (ended.state, ended.reason) == ("succeeded", "its time was over")
    assert ended.finished_ms - ended.started_ms >= 2_000


def test_a_shell_has_the_environment_of_its_lease_and_ends_with_it(penstock, server):
    lease = held(penstock, "--for", "1m")
    told = penstock.anew("shell", str(lease["id"]), "--", "sh", "-c", "echo job $PENSTOCK_JOB_ID; exit 7")
    assert (told.code, told.out) == (7, f"job {lease['id']}\n")
    running = penstock.begin("shell", str(lease["id"]), "--", "sh", "-c", "echo begun; exec sleep 60")
    assert running.stdout.readline() == "begun\n"
    begun = time.monotonic()
    server.client.cancel(lease["id"])
    assert running.wait(20) != 0
    assert time.monotonic() - begun < 15
    running.stdout.close()
    running.stderr.close()


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("nosuchprog", 127, "there is no program 'nosuchprog' in the job's PATH"),
        ("/no/such/prog", 127, "there is no program '/no/such/prog'"),
        ("/etc", 126, "'/etc' cannot be run: Permission denied"),
        ("", 2, "the command is empty"),
    ],
)
def test_a_shell_says_in_a_line_that_a_program_cannot_be_run(penstock, server, word, code, said):
    lease = held(penstock, "--for", "1m")
    told = penstock("shell", str(lease["id"]), "--", word)
    assert (told.code, told.out, told.err) == (code, "", f"error: {said}\n")
    server.client.cancel(lease["id"])


def test_a_shell_needs_a_job_that_runs(penstock, server):
    job = penstock.job("true")
    Jobs(server.client).ended(job)
    told = penstock("shell", str(job))
    assert (told.code, f"job {job} is succeeded" in told.err) == (2, True)


def test_nobody_has_to_wait_for_a_lease(penstock, server):
    nodes = [node.name for node in server.client.nodes()]
    for name in nodes:
        server.client.drain(name)
    try:
        told = penstock("lease", "1", "--for", "1m", "--no-wait", "--json")
        lease = told.json()["id"]
        assert told.json()["state"] == "waiting"
    finally:
        for name in nodes:
            server.client.drain(name, on=False)
    until(lambda: server.client.job(lease).state == "running", "the lease is there")
    server.client.cancel(lease)
    assert Jobs(server.client).ended(lease).state == "cancelled"
