"""Secrets on their way: opened for the node alone, and blotted out of what comes back."""

import random
from types import SimpleNamespace

import pytest

from penstock.core.messages.orders import ThawReplica
from penstock.core.messages.reports import NodeReport, ProgressSeen, ReplicaKey, ReplicaSeen
from penstock.core.model.errors import PenstockError
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.secrets import Secret
from penstock.core.state.secrets import Secrets
from penstock.security.redaction import BLOT, RAY_TOKEN, Redactor, blotted, blotted_piece, unsealed
from tests.engines.agent.builders import start

KEY = ReplicaKey(1, 1, 0)
TOKEN = Secret("TOKEN", owner="ann", sealed="hf_abcdef")
PEM = Secret("PEM", tenant="vision", sealed="-----BEGIN\nMIIEvQ\n--\n")


class Plain:
    """Opens what was not sealed at all; what is empty cannot be opened."""

    def open(self, secret: Secret) -> str:
        if not secret.sealed:
            raise PenstockError(f"the key of {secret.text} is not in secrets.key")
        return secret.sealed

    def token(self, purpose: str) -> str:
        return f"<{purpose}>"


def test_values_are_put_into_an_order_and_nothing_else_changes():
    order = start(secrets=(("HF_TOKEN", TOKEN),), env=(("A", "b"),))
    assert unsealed(order, Plain()) == start(env=(("A", "b"), ("HF_TOKEN", "hf_abcdef")))
    assert unsealed(start(), Plain()) == start()
    assert unsealed(ThawReplica(KEY), Plain()) == ThawReplica(KEY)


def test_places_of_a_ray_cluster_share_a_token_that_no_other_attempt_has():
    tokens = {
        key: dict(unsealed(start(key, runtime="ray"), Plain()).env)[RAY_TOKEN] for key in (KEY, ReplicaKey(1, 2, 0))
    }
    assert list(tokens.values()) == ["<ray 1 1 >", "<ray 1 2 >"]


def test_an_order_whose_secret_cannot_be_opened_does_not_run_without_it():
    lost = Secret("OTHER", owner="ann")
    found = unsealed(start(secrets=(("HF_TOKEN", TOKEN), ("B", lost))), Plain())
    assert (found.secrets, found.env) == ((), ())
    assert found.refused == "the key of secret OTHER of user ann is not in secrets.key"


def censor(*named: str) -> Redactor:
    spec = SimpleNamespace(tenant="vision", secrets=tuple((name, name) for name in named))
    state = SimpleNamespace(jobs={1: SimpleNamespace(spec=spec, user="ann")}, secrets=Secrets([TOKEN, PEM]))
    return Redactor(lambda: state, Plain())


def test_of_a_value_of_many_lines_each_counts_unless_it_says_nothing():
    assert censor("PEM", "TOKEN", "NONE").values_of(1) == (
        "-----BEGIN\nMIIEvQ\n--\n",
        "-----BEGIN",
        "hf_abcdef",
        "MIIEvQ",
    )
    assert censor().values_of(1) == censor("TOKEN").values_of(2) == ()


def test_a_report_is_logged_without_the_values_of_its_jobs():
    why = ProgressSeen(KEY, "checkpoint", 3, why="with hf_abcdef")
    ended = ReplicaSeen(
        KEY,
        "exited",
        exit=ExitInfo(1, note="ValueError: hf_abcdef", problem="hf_abcdef too", last_error="of hf_abcdef"),
    )
    running = ReplicaSeen(ReplicaKey(1, 1, 1), "running")
    stranger = ReplicaSeen(ReplicaKey(2, 1, 0), "exited", exit=ExitInfo(1, note="hf_abcdef"))
    report = NodeReport("n1", "i1", 1, False, (ended, running, stranger), progress=(why,))
    found = censor("TOKEN").report(report)
    assert found.replicas[0].exit == ExitInfo(
        1, note="ValueError: *********", problem="********* too", last_error="of *********"
    )
    assert found.replicas[1:] == (running, stranger)
    assert found.progress[0].why == "with *********"
    assert censor().report(report) == report
    quiet = NodeReport("n1", "i1", 1, False, (running,))
    assert censor("TOKEN").report(quiet) is quiet


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a hf_abcdef b hf_abcdef", "a ********* b *********"),
        ("cut: hf_abc", "cut: ******"),
        ("cut: hf_", "cut: hf_"),
        ("hf_abc and more", "hf_abc and more"),
        ("", ""),
    ],
)
def test_a_text_that_was_cut_in_a_value_shows_no_beginning_of_it(text, shown):
    assert blotted(text, ["hf_abcdef"]) == shown


def test_an_output_read_in_any_pieces_shows_no_part_of_a_value():
    rng = random.Random(5)
    for _ in range(2_000):
        values = [rng.choice(("abcd\u00e9", "secret-1", "secret-12", "key=5")) for _ in range(rng.randint(1, 3))]
        values = sorted(set(values), key=len, reverse=True)
        parts = [rng.choice([*values, "a", "\u00e9", "sec", "\n", "plain"]) for _ in range(rng.randint(0, 12))]
        data = "".join(parts).encode()
        reach = max(len(value.encode()) for value in values) - 1
        shown, at = b"", 0
        while at < len(data):
            end = min(len(data), at + rng.randint(1, 6))
            shown += blotted_piece(data[max(0, at - reach) : at], data[at:end], data[end : end + reach], values)
            at = end
        whole = data
        for value in values:
            whole = whole.replace(value.encode(), BLOT.encode() * len(value.encode()))
        hidden = [place for place, byte in enumerate(whole) if byte == ord(BLOT)]
        assert len(shown) == len(data)
        assert {shown[place] for place in hidden} <= {ord(BLOT)}, (values, data, shown)
        if not any(value.encode()[:4] in data for value in values):
            assert shown == data
