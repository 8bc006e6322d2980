"""What all use together is never used up by one caller: places of queues, secrets, tokens, keys of requests."""

from msgspec.structs import replace

from penstock.core.lifecycle import secrets, tokens
from penstock.core.lifecycle.orders import start_order
from penstock.core.lifecycle.requests import NewJob, Submit, submit
from penstock.core.messages.access import IssueToken, SecretDone, SetSecret, TokenDone
from penstock.core.messages.requests import Refusal, Submitted
from penstock.core.model.access import Token, User
from penstock.core.model.cluster import Queue, Tenant
from penstock.core.model.secrets import Secret
from penstock.core.state import idempotency
from penstock.core.state.tokens import scope_of
from penstock.testing.builders import job_spec, node
from penstock.testing.harness import World

TENANTS = (Tenant("red"), Tenant("blue"))
USERS = (User("ann", tenants=(("red", "tenant_admin"),)), User("bob", tenants=(("red", "member"),)),
         User("eve", tenants=(("blue", "tenant_admin"),)))  # fmt: skip


def world() -> World:
    return World(node(), tenants=TENANTS, users=USERS, queues=(Queue("default", max_waiting=16),))


def ask(w: World, user: str, tenant: str = "red", count: int = 1, **fields: object):
    entry = NewJob(job_spec(tenant=tenant), array=count)
    return w.commit(lambda tx: submit(tx, Submit((entry,), user, **fields), {}))


def code_of(reply: object) -> str:
    return reply.problems[0].code if isinstance(reply, Refusal) else type(reply).__name__


def test_one_tenant_leaves_places_of_a_queue_to_another():
    w = world()
    assert [code_of(ask(w, "ann", count=10)), code_of(ask(w, "bob"))] == ["Submitted", "share_used_up"]
    assert [code_of(ask(w, "eve", "blue", 4)), code_of(ask(w, "eve", "blue"))] == ["Submitted", "share_used_up"]


def test_one_user_leaves_places_of_a_queue_to_another_of_the_same_tenant():
    w = World(node(), tenants=(Tenant("red"),), users=USERS[:2], queues=(Queue("default", max_waiting=16),))
    assert [code_of(ask(w, "ann", count=11)), code_of(ask(w, "ann", count=10))] == ["share_used_up", "Submitted"]
    assert [code_of(ask(w, "ann")), code_of(ask(w, "bob"))] == ["share_used_up", "Submitted"]


def test_who_is_alone_and_who_keeps_the_cluster_may_have_all_places():
    alone = World(node(), queues=(Queue("default", max_waiting=16),))
    assert isinstance(ask(alone, "ann", "default", 16), Submitted)
    w = world()
    assert isinstance(ask(w, "otto", count=16, administrator=True), Submitted)
    assert code_of(ask(w, "otto", administrator=True)) == "queue_full"


def test_secrets_of_one_holder_leave_room_for_others_and_a_reserve_for_administrators(monkeypatch):
    monkeypatch.setattr(secrets, "SECRETS_MAX", 8)
    w = world()

    def put(name: str, administrator: bool = False, **holder: str) -> str:
        made = SetSecret(Secret(name, **holder, sealed="s"), administrator)
        return code_of(w.commit(lambda tx: secrets.decide(tx, made)))

    assert [put(f"A{i}", owner="ann") for i in range(5)] == ["SecretDone"] * 4 + ["share_used_up"]
    assert [put(f"R{i}", tenant="red") for i in range(3)] == ["SecretDone"] * 2 + ["share_used_up"]
    assert put("A0", owner="ann") == "SecretDone"  # another value takes no more room
    assert [put(f"O{i}", True, owner="otto") for i in range(3)] == ["SecretDone"] * 3
    monkeypatch.setattr(secrets, "RESERVE", 1)
    assert put("O3", True, owner="otto") == "too_many_secrets"


def issue(w: World, number: int, user: str, by: str = "", **fields: object) -> str:
    """Return what comes of a token for a user, made by themselves or by another."""
    by = by or user
    maker = scope_of(next(one for one in USERS if one.name == by), Token("t", "s", by, "admin"))
    made = IssueToken(Token(f"{user}{number}", f"{user}{number}", user, by=by, **fields), maker)
    return code_of(w.commit(lambda tx: tokens.decide(tx, made)))


def test_tokens_of_one_user_leave_room_for_others_and_a_reserve_for_administrators(monkeypatch):
    monkeypatch.setattr(tokens, "TOKENS_MAX", 8)
    w = world()
    assert [issue(w, i, "ann") for i in range(5)] == ["TokenDone"] * 4 + ["share_used_up"]
    assert [issue(w, i, "eve") for i in range(3)] == ["TokenDone"] * 2 + ["share_used_up"]
    by_server = [IssueToken(Token(f"o{i}", f"o{i}", "bob")) for i in range(4)]
    assert [w.commit(lambda tx, one=one: tokens.decide(tx, one)) for one in by_server] == [TokenDone()] * 4


def test_tokens_that_one_user_makes_for_others_leave_room_like_their_own(monkeypatch):
    monkeypatch.setattr(tokens, "TOKENS_MAX", 8)
    w = world()
    made = [issue(w, i, user, by="ann") for i in range(3) for user in ("bob", "eve")]
    assert made == ["TokenDone"] * 4 + ["share_used_up"] * 2
    assert issue(w, 9, "bob") == "TokenDone"


def test_tokens_that_have_expired_use_up_nothing(monkeypatch):
    monkeypatch.setattr(tokens, "TOKENS_MAX", 8)
    w = world()
    for i, user in enumerate(("ann", "bob") * 4):
        made = IssueToken(Token(f"x{i}", f"x{i}", user, by=user, expires_ms=w.now + 1))
        assert w.commit(lambda tx, one=made: tokens.decide(tx, one)) == TokenDone()
    w.now += 1
    assert [issue(w, i, "ann") for i in range(5)] == ["TokenDone"] * 4 + ["share_used_up"]
    assert (issue(w, 0, "eve"), len(w.state.tokens.by_hash)) == ("TokenDone", 8)


def test_the_keys_of_one_user_push_out_no_others(monkeypatch):
    monkeypatch.setattr(idempotency, "IDEMPOTENCY_KEPT_MAX", 3)
    w = World(node())
    for key in ("eve/1", "ann/1", "ann/2", "ann/3", "ann/4"):
        ask(w, key.partition("/")[0], "default", idempotency_key=key, digest=key)
    assert list(w.state.idempotency) == ["eve/1", "ann/3", "ann/4"]


def test_what_a_token_made_by_somebody_else_submits_gets_no_own_secret():
    w = world()
    assert w.commit(lambda tx: secrets.decide(tx, SetSecret(Secret("KEY", owner="bob", sealed="o")))) == SecretDone()
    entry = NewJob(replace(job_spec(tenant="red"), secrets=(("KEY", "KEY"),)))
    own = Submit((entry,), "bob")
    assert isinstance(w.commit(lambda tx: submit(tx, own, {})), Submitted)
    refused = w.commit(lambda tx: submit(tx, replace(own, delegated=True), {}))
    assert code_of(refused) == "unknown_secret"


def test_an_own_secret_that_comes_later_reaches_no_job_of_such_a_token_either():
    w = world()
    put = [Secret("KEY", tenant="red", sealed="shared"), Secret("KEY", owner="bob", sealed="own")]
    for secret in put:
        w.commit(lambda tx, one=secret: secrets.decide(tx, SetSecret(one)))
    entry = NewJob(replace(job_spec(tenant="red"), secrets=(("KEY", "KEY"),)))
    made = [w.commit(lambda tx, d=d: submit(tx, Submit((entry,), "bob", delegated=d), {})).job_ids[0] for d in (0, 1)]
    given = []
    for job_id in made:
        w.run(job_id)
        job = w.job(job_id)
        given.append(start_order(w.state, job, job.attempt, job.attempt.replicas[0]).secrets[0][1].sealed)
    assert given == ["own", "shared"]
