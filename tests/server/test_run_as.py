"""A server that is root runs jobs as the accounts of their users."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client import ApiProblem, Client
from penstock.core.config.cluster import parse_cluster
from penstock.core.model.events import ConfigChanged, JobSubmitted
from penstock.store.sqlite import SqliteStore
from penstock.testing.builders import node
from penstock.testing.harness import World
from tests.server.harness import Jobs, Server, cluster_file, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as other accounts")
USERS = [
    {"name": "ann", "account": "nobody", "tenants": ["default"]},
    {"name": "eve", "account": "daemon", "tenants": ["default"]},
    {"name": "bob", "tenants": ["default"]},
    {"name": "max", "account": "daemon", "tenants": {"default": "tenant_admin"}},
]


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server whose folder other accounts can reach, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-run-as-"))
    folder.chmod(0o711)
    try:
        with Server(folder / "data", cluster_file(1) | {"users": USERS}) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def jobs_of(own_server) -> Iterator[Callable[[str], Jobs]]:
    """Return a function that gives the client of a user."""
    clients: list[Client] = []

    def of(user: str) -> Jobs:
        made = own_server.client.create_token({"user": user})
        clients.append(Client.of(own_server.data.root, token=made.token))
        return Jobs(clients[-1])

    yield of
    for client in clients:
        client.close()


def output(server: Server, job_id: int) -> str:
    return server.http("GET", f"/api/v1/jobs/{job_id}/logs?attempt=1").body.decode()


def test_each_user_is_their_account_and_who_runs_the_server_is_root(own_server, jobs_of):
    who = "id -un; cat $PENSTOCK_CHECKPOINT_DIR/../../../token 2>&1"
    ann, root = jobs_of("ann"), Jobs(own_server.client)
    for jobs, name, kept in ((ann, "nobody", True), (root, "root", False)):
        job = jobs.submit(who)
        jobs.ended(job)
        shown = output(own_server, job)
        assert shown.startswith(f"{name}\n")
        assert ("Permission denied" in shown) == kept


@pytest.fixture
def lent(own_server) -> Iterator[Client]:
    """A client with a token that ann's tenant_admin made for her."""
    admin = own_server.client.create_token({"user": "max", "level": "admin"})
    with_max = Client.of(own_server.data.root, token=admin.token)
    made = with_max.create_token({"user": "ann", "level": "admin"})
    found = Client.of(own_server.data.root, token=made.token)
    yield found
    found.close()
    with_max.close()


def test_a_token_that_somebody_else_made_runs_nothing_as_the_account_of_its_user(lent):
    with pytest.raises(ApiProblem, match="does not run jobs as their account"):
        lent.submit({"command": ["id"]})


def test_such_a_token_reaches_no_own_secrets_and_makes_no_other_token(lent, jobs_of):
    jobs_of("ann").client.set_secret("OWN", "hers")
    for refused, what in (
        (lambda: lent.set_secret("OWN", "mine"), "keep secrets"),
        (lambda: lent.submit({"command": ["env"], "secrets": ["OWN"]}), "account"),
        (lambda: lent.create_token({}), "make tokens"),
    ):
        with pytest.raises(ApiProblem, match=what):
            refused()
    assert lent.secrets() == []
    assert "token_made_for_you" in [alert.code for alert in jobs_of("ann").client.alerts()]


def test_a_secret_in_an_environment_is_not_for_other_accounts(own_server, jobs_of):
    ann, eve = jobs_of("ann"), jobs_of("eve")
    ann.client.set_secret("TOKEN", "tok_aTTx91")
    mine = ann.submit("echo pid $$; exec sleep 60", secrets=["TOKEN"])
    until(lambda: "pid" in output(own_server, mine), "it runs")
    pid = output(own_server, mine).split()[1]
    theirs = eve.submit(f"id -un; cat /proc/{pid}/environ; ls -d /proc/{pid}")
    eve.ended(theirs)
    assert output(own_server, theirs) == f"daemon\ncat: /proc/{pid}/environ: Permission denied\n/proc/{pid}\n"
    assert "tok_aTTx91" in Path(f"/proc/{pid}/environ").read_text()
    ann.close()


def test_who_has_no_account_runs_nothing(own_server, jobs_of):
    bob = jobs_of("bob")
    with pytest.raises(ApiProblem, match="bob has no account of the machines to run jobs as") as refused:
        bob.submit("true")
    assert refused.value.details.status == 403
    assert not [r for r in own_server.client.events() if isinstance(r.event, JobSubmitted) and r.event.user == "bob"]


def test_one_account_for_all_who_have_none(own_server, jobs_of):
    own_server.client.configure({"set": ["settings.job_account=nobody"]})
    bob = jobs_of("bob")
    job = bob.submit("id -un")
    bob.ended(job)
    assert output(own_server, job) == "nobody\n"
    own_server.client.configure({"set": ["settings.job_account="]})


def test_an_account_that_the_machine_lacks_cannot_be_declared(own_server):
    change = {"set": ["user.bob.account=nobodi"]}
    found = own_server.http("POST", "/api/v1/config", json.dumps(change).encode())
    (problem,) = found.json()["problems"]
    assert (found.status, problem["field"]) == (422, "users.bob.account")
    assert "no account 'nobodi': did you mean 'nobody'?" in problem["message"]


def test_a_job_that_waits_keeps_its_account_and_its_user(own_server, jobs_of):
    ann = jobs_of("ann")
    first = ann.submit("sleep 60", devices=4)
    ann.state(first, "running")
    second = ann.submit("id -un", devices=4)
    with pytest.raises(ApiProblem, match="users: 'ann' is missing, and live jobs belong to it"):
        own_server.client.configure({"remove": ["user.ann"]})
    own_server.client.configure({"set": ["user.ann.account=daemon", "user.ann.disabled=true"]})
    jobs = Jobs(own_server.client)
    own_server.client.cancel(first)
    assert jobs.ended(second).state == "succeeded"
    assert output(own_server, second) == "nobody\n"
    accounts = {r.event.account for r in own_server.client.job_events(second) if isinstance(r.event, JobSubmitted)}
    assert accounts == {"nobody"}


def test_a_checkpoint_is_saved_and_taken_up_as_the_account(own_server, jobs_of):
    eve = jobs_of("eve")
    saving = (
        "trap 'echo saved > $PENSTOCK_CHECKPOINT_DIR/x; exit 0' TERM; "
        "if [ -e $PENSTOCK_CHECKPOINT_DIR/x ]; then cat $PENSTOCK_CHECKPOINT_DIR/x; exit 0; fi; "
        "echo ready; while :; do sleep 0.05; done"
    )
    job = eve.submit(saving, devices=4, priority="low")
    until(lambda: "ready" in output(own_server, job), "it runs")
    urgent = Jobs(own_server.client).submit("true", devices=4, priority="high")
    Jobs(own_server.client).ended(urgent)
    assert eve.ended(job).state == "succeeded"
    assert own_server.http("GET", f"/api/v1/jobs/{job}/logs?attempt=2").body == b"saved\n"


def test_a_job_from_before_the_server_was_root_is_not_run_as_root():
    folder = Path(tempfile.mkdtemp(prefix="penstock-run-as-"))
    given = cluster_file(1) | {"users": [*USERS, {"name": "adm", "role": "admin"}]}
    world = World(node("n1", 4))
    world.emit(ConfigChanged(parse_cluster(given)[0].config, "operator"))
    made = {user: world.submit(user=user) for user in ("bob", "ann", "adm", "root")}
    store = SqliteStore(folder / "data" / "log")
    store.append(world.records, (), store.acquire_epoch())
    store.close()
    try:
        with Server(folder / "data", given) as running:
            jobs = Jobs(running.client)
            ended = {user: jobs.ended(job) for user, job in made.items()}
            assert {user: job.state for user, job in ended.items()} == {
                **dict.fromkeys(("bob", "ann"), "failed"),
                **dict.fromkeys(("adm", "root"), "succeeded"),
            }
            assert "bob submitted it to a server that was not root" in ended["bob"].reason
    finally:
        shutil.rmtree(folder)
