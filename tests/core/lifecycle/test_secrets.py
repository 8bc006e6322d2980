"""Secrets: who may use which, what the log keeps of them, and what a job needs of them stays."""

import pytest

from penstock.core.config.job import parse_request
from penstock.core.lifecycle import secrets
from penstock.core.lifecycle.declaring import declared
from penstock.core.lifecycle.orders import start_order
from penstock.core.lifecycle.requests import NewJob, Submit, submit
from penstock.core.messages.access import RemoveSecret, ResealSecrets, SecretDone, SetSecret
from penstock.core.messages.requests import Refusal
from penstock.core.model import events as ev
from penstock.core.model.access import User
from penstock.core.model.cluster import Tenant
from penstock.core.model.secrets import Secret
from penstock.core.state.secrets import Secrets
from penstock.core.state.state import State, fold
from penstock.testing.builders import config, job_spec, node
from penstock.testing.harness import World

TENANTS = (Tenant("default"), Tenant("vision"))
USERS = (User("ann"), User("bob"))
SHARED, OWN = Secret("KEY", tenant="vision", sealed="s"), Secret("KEY", owner="ann", sealed="o")


def begun(*known: Secret) -> World:
    w = World(node(), tenants=TENANTS, users=USERS)
    for secret in known:
        assert w.commit(lambda tx, one=secret: secrets.decide(tx, SetSecret(one))) == SecretDone()
    return w


def job(user: str = "ann", tenant: str = "vision", *named: str) -> Submit:
    spec = job_spec(tenant=tenant, secrets=tuple((name, name) for name in named or ("KEY",)))
    return Submit((NewJob(spec),), user)


def ask(w: World, request: Submit):
    return w.commit(lambda tx: submit(tx, request, {}))


def test_a_users_own_secret_comes_before_the_one_that_their_tenant_shares():
    known = Secrets([SHARED, OWN])
    assert known.of("vision", "ann", "KEY") == OWN
    assert known.of("vision", "bob", "KEY") == SHARED
    assert known.of("speech", "ann", "KEY") == OWN
    assert known.of("speech", "bob", "KEY") is None
    assert known.of("vision", "ann", "OTHER") is None
    assert known.names("vision", "bob") == ["KEY"]


def test_the_keys_in_use_are_told_while_another_thread_sets_secrets():
    known = Secrets([SHARED])

    class Overtaken:
        """While it is looked at, the control thread sets a secret."""

        @property
        def key_id(self) -> str:
            known.apply(ev.SecretSet(OWN))
            return "k1"

    known.by_holder["vision", "", "OTHER"] = Overtaken()
    assert known.key_ids() == {"", "k1"}


@pytest.mark.parametrize("user", ["", "vision"])
def test_nobody_gets_a_secret_by_being_called_like_its_holder(user):
    assert Secrets([SHARED]).of("", user, "KEY") is None
    assert Secrets([OWN]).of("ann", "bob", "KEY") is None


def test_a_job_may_name_only_what_it_may_use():
    w = begun(SHARED, Secret("TOKEN", owner="bob"))
    assert not isinstance(ask(w, job("ann")), Refusal)
    refused = ask(w, job("ann", "vision", "KEY", "TOKEN", "KEYS"))
    assert [(p.code, p.field, p.hint) for p in refused.problems] == [
        ("unknown_secret", "secrets.TOKEN", "known: KEY; penstock secret set TOKEN"),
        ("unknown_secret", "secrets.KEYS", "penstock secret set KEYS"),
    ]
    (alone,) = ask(w, job("ann", "vision", "KEYS")).problems
    assert alone.hint == "did you mean 'KEY'?"
    assert "of ann or of tenant vision" in refused.problems[0].message
    assert isinstance(ask(w, job("ann", "default")), Refusal)


def test_what_a_live_job_needs_is_not_removed():
    w = begun(SHARED, OWN)
    for user in ("ann", "bob", "bob", "bob", "bob"):
        ask(w, job(user))

    def remove(secret: Secret, by: str = "ann"):
        return w.commit(lambda tx: secrets.decide(tx, RemoveSecret(secret.tenant, secret.owner, secret.name, by)))

    refused = remove(SHARED)
    assert refused.code == "conflict"
    assert refused.problems[0].message == "secret KEY of tenant vision is needed by job 2, 3, 4 and others"
    assert remove(OWN) == SecretDone()  # what the tenant shares is there instead
    assert remove(OWN) == SecretDone(found=False)
    assert "job 1, 2, 3 and others" in remove(SHARED).problems[0].message


def order(w: World, job_id: int = 1):
    w.cycle()
    found = w.state.jobs[job_id]
    return start_order(w.state, found, found.attempt, found.attempt.replicas[0])


def test_an_order_has_the_newest_value_sealed_and_says_what_is_missing():
    w = begun(SHARED)
    ask(w, job("bob"))
    newer = Secret("KEY", tenant="vision", sealed="newer")
    w.commit(lambda tx: secrets.decide(tx, SetSecret(newer)))
    made = order(w)
    assert [(variable, secret.sealed) for variable, secret in made.secrets] == [("KEY", "newer")]
    assert (made.refused, dict(made.env).get("KEY")) == ("", None)
    w.emit(ev.SecretRemoved("vision", "", "KEY"))
    found = w.state.jobs[1]
    assert start_order(w.state, found, found.attempt, found.attempt.replicas[0]).refused == (
        "there is no secret KEY any more"
    )


def test_secrets_go_with_their_users_and_tenants():
    w = begun(SHARED, OWN)
    w.commit(lambda tx: declared(tx, config(tenants=TENANTS, users=(User("bob"),)), "root"))
    assert list(w.state.secrets.by_holder.values()) == [w.state.secrets.of("vision", "bob", "KEY")]
    w.commit(lambda tx: declared(tx, config(users=(User("bob"),)), "root"))
    assert w.state.secrets.by_holder == {}
    w.commit(lambda tx: declared(tx, config(tenants=TENANTS, users=USERS), "root"))
    assert w.state.secrets.by_holder == {}


def test_the_secrets_of_who_runs_the_server_stay():
    w = begun(Secret("KEY", owner="root"))
    w.commit(lambda tx: declared(tx, config(users=(User("bob"),)), "root"))
    assert len(w.state.secrets.by_holder) == 1


def test_sealing_anew_leaves_what_was_changed_meanwhile():
    w = begun(SHARED, OWN)
    former = tuple(w.state.secrets.by_holder.values())
    newer = Secret("KEY", tenant="vision", sealed="newer")
    w.commit(lambda tx: secrets.decide(tx, SetSecret(newer)))
    anew = tuple(Secret(s.name, s.tenant, s.owner, "k2", f"again {s.sealed}") for s in former)
    assert w.commit(lambda tx: secrets.decide(tx, ResealSecrets(former, anew))) == SecretDone()
    assert {s.sealed for s in w.state.secrets.by_holder.values()} == {"newer", "again o"}


def test_a_secret_of_an_unknown_tenant_is_refused_and_their_number_is_bounded(monkeypatch):
    w = begun(SHARED)
    refused = w.commit(lambda tx: secrets.decide(tx, SetSecret(Secret("KEY", tenant="vison"))))
    assert [(p.code, p.hint) for p in refused.problems] == [("unknown_tenant", "did you mean 'vision'?")]
    monkeypatch.setattr(secrets, "SECRETS_MAX", 1)
    assert isinstance(w.commit(lambda tx: secrets.decide(tx, SetSecret(OWN))), Refusal)
    assert w.commit(lambda tx: secrets.decide(tx, SetSecret(SHARED))) == SecretDone()


def test_log_and_snapshot_know_the_same():
    w = begun(SHARED, OWN)
    assert fold(w.records).secrets.by_holder == w.state.secrets.by_holder
    assert State.from_image(w.state.image()).secrets.by_holder == w.state.secrets.by_holder


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"secrets": ["A B"]}, "secrets"),
        ({"secrets": ["1A"]}, "secrets"),
        ({"secrets": ["PENSTOCK_RANK"]}, "secrets"),
        ({"secrets": "KEY"}, "secrets"),
        ({"secrets": {"A": ""}}, "secrets.A"),
        ({"secrets": {"A": {"b": "c"}}}, "secrets.A"),
        ({"secrets": {"A": "../x"}}, "secrets.A"),
        ({"secrets": ["A"], "env": {"A": "plain"}}, "secrets.A"),
    ],
)
def test_a_bad_name_is_told_with_its_field(fields, field):
    _, problems = parse_request({"command": "true", **fields})
    assert [p.field for p in problems] == [field]
