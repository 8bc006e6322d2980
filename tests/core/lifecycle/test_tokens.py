"""Tokens: decisions about them, and that log, state and snapshot know the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.lifecycle import tokens
from penstock.core.lifecycle.declaring import declared
from penstock.core.lifecycle.transaction import Transaction
from penstock.core.messages.access import IssueToken, RevokeToken, TokenDone
from penstock.core.messages.requests import Refusal
from penstock.core.model import events as ev
from penstock.core.model.access import Token, User
from penstock.core.model.accounts import Lot
from penstock.core.model.cluster import ClusterConfig, Tenant
from penstock.core.state.accounts import MoneyImage
from penstock.core.state.state import State, fold
from penstock.core.state.tokens import Tokens, local_scope, scope_of

NOW = 1_000_000
CONFIG = ClusterConfig(
    tenants=(Tenant("vision"), Tenant("speech")),
    users=(
        User("ann", "", (("vision", "member"),)),
        User("otto", "operator"),
        User("nora"),
        User("dora", disabled=True),
    ),
)


def begun() -> Transaction:
    state = State()
    state.apply(ev.Record(1, NOW, ev.ConfigChanged(CONFIG, "root")))
    return Transaction(state, NOW)


def token(number: int = 1, user: str = "ann", **fields) -> Token:
    return Token(f"t{number}", f"{number:064x}", user, **fields)


def issue(tx: Transaction, wanted: Token) -> TokenDone | Refusal:
    return tokens.decide(tx, IssueToken(wanted))


def problem_of(wanted: Token):
    tx = begun()
    refused = issue(tx, wanted)
    assert isinstance(refused, Refusal)
    assert (refused.code, tx.records, tx.state.tokens.by_hash) == ("invalid_input", [], {})
    (found,) = refused.problems
    return found.code, found.field, found.message, found.hint


def test_a_token_is_one_event_and_known_by_its_hash():
    tx, wanted = begun(), token(level="read", tenants=("vision",), expires_ms=NOW + 1, by="otto", note="for ci")
    assert issue(tx, wanted) == TokenDone()
    kept = replace(wanted, created_ms=NOW)
    assert [record.event for record in tx.records] == [ev.TokenIssued(kept)]
    assert tx.state.tokens.by_hash == {wanted.sha256: kept}
    assert tx.state.tokens.find("t1") == kept


def test_a_token_for_somebody_unknown_is_refused_with_the_nearest_name():
    said = "unknown_user", "user", "there is no user 'anne'", "did you mean 'ann'?"
    assert problem_of(token(user="anne")) == said


def test_where_nobody_is_declared_the_next_step_is_said():
    tx = Transaction(State(), NOW)
    refused = issue(tx, token())
    assert isinstance(refused, Refusal)
    assert "declare users in the cluster file" in refused.problems[0].hint


@pytest.mark.parametrize(
    ("user", "tenant", "hint"),
    [("ann", "speech", "known: vision"), ("ann", "visoin", "did you mean 'vision'?"), ("nora", "vision", "")],
)
def test_a_token_is_limited_to_tenants_of_its_user(user, tenant, hint):
    text = f"user '{user}' has no role in tenant '{tenant}'"
    assert problem_of(token(user=user, tenants=(tenant,))) == ("unknown_tenant", "tenants", text, hint)


def test_of_several_tenants_each_is_looked_at():
    assert problem_of(token(tenants=("vision", "speech")))[0] == "unknown_tenant"


def test_who_has_a_role_in_the_cluster_may_limit_a_token_to_any_tenant():
    tx = begun()
    assert issue(tx, token(user="otto", tenants=("speech", "vision"))) == TokenDone()
    assert isinstance(issue(tx, token(2, user="otto", tenants=("nowhere",))), Refusal)


@pytest.mark.parametrize("expires_ms", [1, NOW - 1, NOW])
def test_a_token_that_has_expired_is_not_issued(expires_ms):
    code, field, message, _ = problem_of(token(expires_ms=expires_ms))
    assert (code, field) == ("bad_value", "expires")
    assert "expected a later time than now" in message


@pytest.mark.parametrize("expires_ms", [0, NOW + 1])
def test_a_token_that_never_expires_or_later_is(expires_ms):
    assert issue(begun(), token(expires_ms=expires_ms)) == TokenDone()


def test_a_disabled_user_may_get_one_for_when_they_are_not():
    assert issue(begun(), token(user="dora")) == TokenDone()


def test_when_it_was_made_is_not_for_the_caller_to_say():
    tx = begun()
    issue(tx, token(created_ms=5))
    assert tx.state.tokens.find("t1").created_ms == NOW


def test_a_note_is_cut():
    tx = begun()
    issue(tx, token(note="x" * 5_000))
    assert tx.state.tokens.find("t1").note == "x" * tokens.NOTE_MAX


def test_there_are_no_more_than_so_many(monkeypatch):
    monkeypatch.setattr(tokens, "TOKENS_MAX", 2)
    monkeypatch.setattr(tokens, "RESERVE", 0)
    tx = begun()
    assert [issue(tx, token(number)) for number in (1, 2)] == [TokenDone()] * 2
    refused = issue(tx, token(3))
    assert isinstance(refused, Refusal)
    assert (refused.problems[0].code, len(tx.state.tokens.by_hash)) == ("too_many_tokens", 2)
    tokens.decide(tx, RevokeToken("t1", "ann"))
    assert issue(tx, token(3)) == TokenDone()


def test_revoking_twice_says_that_it_is_gone_and_writes_nothing():
    tx = begun()
    issue(tx, token())
    issue(tx, token(2))
    assert tokens.decide(tx, RevokeToken("t1", "otto")) == TokenDone(found=True)
    assert tx.records[-1].event == ev.TokenRevoked("t1", "otto")
    written = len(tx.records)
    assert tokens.decide(tx, RevokeToken("t1", "otto")) == TokenDone(found=False)
    assert tokens.decide(tx, RevokeToken("never", "otto")) == TokenDone(found=False)
    assert (len(tx.records), list(tx.state.tokens.by_hash)) == (written, [token(2).sha256])


def declare(tx: Transaction, *names: str) -> list[ev.AnyEvent]:
    """Declare users of these names; return what was written."""
    before = len(tx.records)
    users = tuple(user for user in CONFIG.users if user.name in names)
    declared(tx, replace(CONFIG, users=users), "otto")
    return [record.event for record in tx.records[before:]]


def test_tokens_of_a_user_who_is_removed_stay_dead_when_the_name_is_declared_anew():
    tx = begun()
    for wanted in (token(), token(2, "otto"), token(3)):
        issue(tx, wanted)
    written = declare(tx, "otto", "nora")
    assert written[1:] == [ev.TokenRevoked("t1", "otto"), ev.TokenRevoked("t3", "otto")]
    assert len(declare(tx, "ann", "otto")) == 1
    assert [found.id for found in tx.state.tokens.by_hash.values()] == ["t2"]


def test_what_a_former_version_left_of_removed_users_is_revoked_though_nothing_else_changes():
    tx = begun()
    issue(tx, token())
    tx.emit(ev.ConfigChanged(replace(CONFIG, users=()), "otto"))
    assert declare(tx) == [ev.TokenRevoked("t1", "otto")]
    assert declare(tx) == []


@pytest.mark.parametrize(
    ("fields", "beyond"),
    [
        ({"level": "read", "tenants": ("vision",), "expires_ms": NOW + 9}, ""),
        ({"level": "write", "tenants": ("vision",), "expires_ms": NOW + 1}, ""),
        ({"level": "admin", "tenants": ("vision",), "expires_ms": NOW + 9}, "level"),
        ({"level": "read", "tenants": ("vision", "speech"), "expires_ms": NOW + 9}, "tenants"),
        ({"level": "read", "expires_ms": NOW + 9}, "tenants"),
        ({"level": "read", "tenants": ("vision",), "expires_ms": NOW + 10}, "expires"),
        ({"level": "read", "tenants": ("vision",)}, "expires"),
    ],
)
def test_a_token_reaches_no_further_than_the_one_it_is_made_with(fields, beyond):
    tx, made = begun(), token(user="otto", **fields)
    maker = scope_of(CONFIG.users[1], token(9, "otto", level="write", tenants=("vision",), expires_ms=NOW + 9))
    answer = tokens.decide(tx, IssueToken(made, maker))
    assert (answer == TokenDone()) == (not beyond)
    if beyond:
        assert [(one.code, one.field) for one in answer.problems] == [("beyond_own_token", beyond)]
        assert tx.records == []


def test_the_token_of_the_data_folder_makes_any():
    assert tokens.decide(begun(), IssueToken(token(level="admin"), local_scope("root"))) == TokenDone()


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=30))
def test_the_fold_knows_what_was_issued_and_not_revoked(steps):
    tx, expected = begun(), {}
    for made, number in steps:
        if made:
            issue(tx, token(number, note=str(len(tx.records))))
            expected[f"t{number}"] = str(len(tx.records) - 1)
        else:
            assert tokens.decide(tx, RevokeToken(f"t{number}", "ann")).found == (f"t{number}" in expected)
            expected.pop(f"t{number}", None)
    assert {found.id: found.note for found in tx.state.tokens.by_hash.values()} == expected
    assert_same_after_a_snapshot_and_a_fold(tx)


def assert_same_after_a_snapshot_and_a_fold(tx: Transaction) -> None:
    begin = ev.Record(1, NOW, ev.ConfigChanged(CONFIG, "root"))
    for state in (State.from_image(tx.state.image()), fold([begin, *tx.records])):
        assert state.tokens.by_hash == tx.state.tokens.by_hash
        assert state.image() == tx.state.image()


def test_a_snapshot_keeps_tokens_and_accounts():
    tx = begun()
    issue(tx, token(expires_ms=NOW + 5, tenants=("vision",)))
    issue(tx, token(2))
    tokens.decide(tx, RevokeToken("t2", "ann"))
    tx.emit(ev.CreditAdded("vision", "r1", 500, "payment", by="otto", note="n"))
    tx.emit(ev.UsagePosted("vision", 0, NOW, 120))
    image = tx.state.image()
    assert [found.id for found in image.tokens] == ["t1"]
    assert image.money.ledger == (("cash", 500), ("credit:vision", -380), ("income", -120))
    (account,) = State.from_image(image).money.of.values()
    assert (account.tenant, account.lots) == ("vision", (Lot("r1", 380, "payment", added_ms=NOW),))
    assert_same_after_a_snapshot_and_a_fold(tx)


def test_a_snapshot_from_before_there_were_tokens_and_accounts_has_none():
    image = replace(State().image(), tokens=(), money=MoneyImage())
    found = State.from_image(image)
    assert (found.tokens.by_hash, dict(found.money.of)) == ({}, {})


def test_what_has_expired_is_kept_until_it_is_revoked():
    known = Tokens([token(expires_ms=1)])
    assert known.find("t1") == token(expires_ms=1)
    known.revoked("t1")
    assert known.find("t1") is None


def test_looking_through_tokens_while_one_is_revoked_sees_them_as_they_were():
    known = Tokens([token(1), token(2)])
    looked = known.of_user(token(1).user)
    known.revoked("t1")
    assert (len(looked), len(known.of_user(token(1).user))) == (2, 1)


def test_tokens_whose_time_is_over_make_room_the_longest_first(monkeypatch):
    monkeypatch.setattr(tokens, "TOKENS_MAX", 3)
    monkeypatch.setattr(tokens, "RESERVE", 0)
    tx = begun()
    for number, expires_ms in ((1, NOW + 20), (2, NOW + 10), (3, NOW + 30)):
        issue(tx, token(number, expires_ms=expires_ms))
    assert isinstance(issue(tx, token(4)), Refusal)
    later = Transaction(tx.state, NOW + 25)
    assert issue(later, token(4)) == issue(later, token(5)) == TokenDone()
    assert isinstance(issue(later, token(6)), Refusal)
    assert {one.id for one in tx.state.tokens.by_hash.values()} == {"t3", "t4", "t5"}
    assert [r.event.token_id for r in later.records if isinstance(r.event, ev.TokenRevoked)] == ["t2", "t1"]
