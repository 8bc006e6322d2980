"""Certificates from the command line, and a server that is reached over a network."""

import json

import pytest

from penstock.security.keeper import CertificateKeeper
from tests.server.harness import cluster_file


def test_certificates_are_shown_for_people_and_for_programs(penstock, server):
    told = penstock("certificates").out
    assert [
        word for word in ("authority", "server", "penstock-server", "n1", "n2", "renewed from") if word not in told
    ] == []
    found = penstock("certificates", "--json").json()
    assert found["trusted"] == str(server.data.trusted)
    assert [one["kind"] for one in found["certificates"]] == ["authority", "server", "node", "node"]
    assert all(one["not_before_ms"] < one["renewed_from_ms"] < one["not_after_ms"] for one in found["certificates"])


def test_nothing_that_is_shown_holds_a_key(penstock):
    assert "PRIVATE" not in penstock("certificates", "--json").out


def test_a_rotation_says_until_when_clients_have_time_and_a_drop_that_it_is_over(penstock, server):
    told = penstock("certificates", "--rotate")
    assert "former authority" in told.out
    assert f"clients elsewhere need the new {server.data.trusted} by 20" in told.out
    assert penstock("ps").code == 0
    told = penstock("certificates", "--drop-former")
    assert "1 former authorities are trusted no more" in told.out
    assert len(CertificateKeeper(server.data.certificates).shown({})) == 2
    assert penstock("ps").code == 0


def test_without_a_folder_or_certificates_the_hint_says_who_makes_them(alone):
    told = alone("certificates")
    assert (told.code, "penstock up makes it" in told.err) == (2, True)
    alone.data.mkdir()
    told = alone("certificates", "--rotate")
    assert (told.code, "penstock up makes them" in told.err) == (2, True)


def test_a_server_over_https_is_started_used_and_ended(alone):
    file = alone.file(json.dumps(cluster_file(1)), "cluster.yaml")
    up = alone.anew(
        "up", "--cluster", file, "--host", "0.0.0.0", "--tls", "--name", "penstock.example", "--json"
    ).json()
    assert up["url"].startswith("https://127.0.0.1:")
    assert alone("run", "--", "echo", "over TLS").out == "over TLS\n"
    assert "penstock.example" in alone("certificates").out
    assert alone("down").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "0.0.0.0"), "add --tls"),
        (("--host", "0.0.0.0", "--tls", "--insecure"), "contradict"),
        (("--certificate", "x"), "needs its key"),
    ],
)
def test_what_would_not_be_safe_is_refused_before_anything_is_made(alone, words, said):
    told = alone("up", *words)
    assert (told.code, said in told.err, alone.data.exists()) == (2, True, False)


def test_limits_are_taken_over_and_a_wrong_one_is_named(alone):
    told = alone("up", "--limits", alone.file("request_per_s: 5\n", "limits.yaml"))
    assert (told.code, "request_per_s" in told.err, "requests_per_s" in told.err) == (2, True, True)
