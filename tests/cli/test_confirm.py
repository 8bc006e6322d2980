"""Nothing is changed unless the user agrees: at a terminal, or by --yes."""

import pytest

from tests.server.harness import Jobs, until

CHANGES = [
    ("admin", "set", "queue.default.weight=7"),
    ("admin", "add", "queue", "asked"),
    ("admin", "set", "settings.suspended_max=2h"),
    ("apply", "-f", "cluster.yaml"),
    ("cancel", "--all"),
]


def declared(penstock):
    return penstock("admin", "show").out


@pytest.fixture(scope="module")
def full(server):
    """Take all devices of the cluster, so that jobs wait."""
    blocker = server.client.submit({"command": "sleep 600", "devices": 4, "replicas": 2, "cpus": 1}).jobs[0].id
    until(lambda: server.client.job(blocker).state == "running", "the devices are taken")
    yield
    server.client.cancel(blocker)
    Jobs(server.client).ended(blocker)


@pytest.fixture
def held(full, penstock, server):
    """A job that waits."""
    made = server.client.submit({"command": "true", "devices": 4, "cpus": 1, "name": "asked"}).jobs[0].id
    (penstock.folder / "cluster.yaml").write_text("queues: [{name: default, weight: 9}]\n")
    yield made
    server.client.cancel(made)


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["plain", "json"])
@pytest.mark.parametrize("stdin", ["", "n\n", "y\n"], ids=["empty", "no", "yes"])
def test_without_a_terminal_nothing_is_changed(penstock, server, held, words, more, stdin):
    before = declared(penstock)
    told = penstock(*words, *more, stdin=stdin)
    assert told.code == 2
    assert ("nothing was changed" in told.err, "--yes" in told.err) == (True, True)
    assert declared(penstock) == before
    assert server.client.job(held).state == "waiting"


def test_at_a_terminal_it_is_asked(penstock, server, held):
    no = penstock.at_terminal("cancel", "--name", "asked", typed="n\n")
    assert (no.code, "Cancel 1 job" in no.out, server.client.job(held).state) == (2, True, "waiting")
    yes = penstock.at_terminal("cancel", "--name", "asked", typed="y\n")
    assert (yes.code, f"cancel requested for job {held}" in yes.out) == (0, True)
    assert server.client.job(held).state == "cancelled"


def test_the_end_of_input_is_no_yes(penstock, server, held):
    told = penstock.at_terminal("cancel", "--name", "asked", typed="\x04")
    assert (told.code, server.client.job(held).state) == (1, "waiting")


def test_a_dry_run_needs_no_answer(penstock, server, held):
    told = penstock("cancel", "--name", "asked", "--dry-run")
    assert (told.code, told.out) == (0, f"would cancel job {held}\n")
    assert server.client.job(held).state == "waiting"
