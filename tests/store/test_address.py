"""Addresses of stores: what they name means the same wherever the server works."""

import pytest

from penstock.store.address import address_of, anchored


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://h/d?sslmode=verify-full&sslrootcert=ca.pem", "?sslmode=verify-full&sslrootcert={here}/ca.pem"),
        ("postgresql://h/d?sslkey=a%20b&sslcert=/x/c.pem", "?sslkey={here}/a%20b&sslcert=/x/c.pem"),
        ("postgresql://h/d?sslrootcert=system", "?sslrootcert=system"),
        ("postgresql://h/d?application_name=a+b&passfile=", "?application_name=a+b&passfile="),
        ("sqlite", "sqlite"),
    ],
)
def test_files_of_an_address_are_absolute(tmp_path, monkeypatch, given, named):
    monkeypatch.chdir(tmp_path)
    wanted = named.format(here=tmp_path)
    assert anchored(given) == (wanted if not wanted.startswith("?") else given.partition("?")[0] + wanted)


def test_an_address_that_is_given_names_its_files_absolutely(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = address_of(tmp_path, "postgresql://h/d?sslrootcert=ca.pem", tmp_path / "store.url")
    assert found.url == f"postgresql://h/d?sslrootcert={tmp_path}/ca.pem"
