"""The `notifications` section of a cluster file, and events as people name them."""

import pytest

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.config.job import parse_request
from penstock.core.model.notifications import EVENTS, MAIL_TYPES, NOTHING, MailServer, Notifications, expanded

MAIL = {"host": "mail.example.org", "sender": "penstock@example.org", "domains": ["example.org"]}


def problems(**notifications):
    return [(one.field, one.code) for one in parse_cluster({"notifications": notifications})[1]]


def test_what_is_declared_is_read_and_written_alike():
    raw = {
        "server_url": "https://penstock.example.org:8443/base",
        "email": MAIL
        | {"port": 465, "security": "tls", "user": "p", "password_secret": "SMTP", "password_owner": "root"},
        "webhooks": {"hosts": ["*", "*.example.org", "a.example.org:8443"], "internal": ["127.0.0.1:80", "[::1]:80"]},
        "commands": [{"name": "pager", "path": "/usr/bin/page", "open_to": "everyone"}],
    }
    found, wrong = parse_cluster({"notifications": raw})
    assert wrong == []
    assert declaration(found.config)["notifications"] == raw
    assert parse_cluster({})[0].config.notifications == Notifications(email=MailServer())


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        ({"server_url": "ftp://x"}, "server_url"),
        ({"email": {**MAIL, "host": "a b"}}, "email.host"),
        ({"email": {**MAIL, "sender": "a@b\r\nX: y"}}, "email.sender"),
        ({"email": {**MAIL, "domains": []}}, "email.domains"),
        ({"email": {**MAIL, "domains": ["@x"]}}, "email.domains"),
        ({"email": {**MAIL, "user": "p"}}, "email.user"),
        ({"webhooks": {"hosts": ["https://x"]}}, "webhooks.hosts[0]"),
        ({"webhooks": {"hosts": ["10.0.0.1"]}}, "webhooks.hosts[0]"),
        ({"webhooks": {"hosts": ["x:0"]}}, "webhooks.hosts[0]"),
        ({"webhooks": {"internal": ["ok", "*.internal"]}}, "webhooks.internal[1]"),
        ({"webhooks": {"internal": ["*"]}}, "webhooks.internal[0]"),
        ({"commands": [{"name": "x", "path": "page"}]}, "commands[0].path"),
        ({"commands": [{"name": "x y", "path": "/p"}]}, "commands[0].name"),
        ({"commands": [{"name": "x", "path": "/p"}, {"name": "x", "path": "/q"}]}, "commands[1].name"),
    ],
)
def test_bad_declarations_name_their_field(declared, field):
    assert f"notifications.{field}" in [name for name, _ in problems(**declared)]


def test_a_password_never_crosses_the_network_in_the_clear():
    login = {"user": "p", "password_secret": "SMTP", "password_owner": "root", "security": "none"}
    assert problems(email=MAIL | login) == [("notifications.email.security", "bad_value")]


@pytest.mark.parametrize(
    "value", ["budget", "strat", "TIME_LIMIT", "FAIL,end", [], [1], ["none", "end"], "x" * 100_000]
)
def test_a_job_is_told_which_events_there_are(value):
    _, wrong = parse_request({"command": "true", "notify": value})
    assert [one.field for one in wrong] == ["notify"]


@pytest.mark.parametrize(
    ("value", "field", "said"),
    [
        ({"end": 1}, "notify.end", "is not a field"),
        ({"on": "end"}, "notify", "names no destination"),
        ({"to": "mail", "command": "pager"}, "notify", "names to and command"),
        ([{"on": "ends", "to": "mail"}], "notify[0].on", "expected one of"),
        ([{"on": "none", "to": "mail"}], "notify[0].on", "expected one of"),
        ([{"on": "budget", "to": "mail"}], "notify[0].on", "expected one of"),
        (["end", {"command": "rm -rf"}], "notify[1].command", "a command that an administrator declared"),
        ([{"to": "x" * 64}], "notify[0].to", "one of your notifications"),
        ([{"webhook": "ftp://x"}], "notify[0].webhook", "a URL of at most 2000 characters"),
        ([{"slack": "https://x/" + "a" * 2_000}], "notify[0].slack", "a URL of at most 2000 characters"),
        ([{"webhook": {"secret": "a b"}}], "notify[0].webhook.secret", "the name of a secret"),
        ([{"webhook": {"secret": "A", "url": "https://x"}}], "notify[0].webhook", "a URL"),
        ([{"webhook": "https://x", "signing_key": {"secret": "a b"}}], "notify[0].signing_key", "expected {secret"),
        ([{"webhook": "https://x", "signing_key": "whsec_AAAA"}], "notify[0].signing_key", "expected {secret: NAME}"),
        ([{"slack": "https://x", "signing_key": {"secret": "A"}}], "notify[0].signing_key", "only what goes to a web"),
        (["wrong", {"to": "mail"}], "notify", "expected one of"),
        ([{"to": f"n{index}"} for index in range(5)], "notify", "at most 4"),
    ],
)
def test_a_destination_of_a_job_is_read_field_by_field(value, field, said):
    _, wrong = parse_request({"command": "true", "notify": value})
    assert any(one.field == field and said in one.message for one in wrong), wrong


def test_a_key_in_a_job_file_is_not_repeated_by_what_is_wrong():
    for key in ("whsec_AAAA", {"secret": "whsec_AAAA=="}, {"key": "whsec_AAAA"}):
        _, wrong = parse_request({"command": "true", "notify": {"webhook": "https://x", "signing_key": key}})
        assert wrong
        assert "whsec_AAAA" not in str(wrong)


def test_every_word_of_slurm_is_said_in_ours():
    assert all(expanded(words) == words for words in MAIL_TYPES.values())
    assert {event for words in MAIL_TYPES.values() for event in words} <= {*EVENTS, NOTHING}
