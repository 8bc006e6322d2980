"""The server that a program talks to is the one that the command line would."""

import pytest

from penstock.client import Client, ServerNotRunning
from penstock.core.model.errors import InvalidInput
from penstock.privatefiles import NotPrivate

NAMES = ("PENSTOCK_URL", "PENSTOCK_TOKEN", "PENSTOCK_CA", "PENSTOCK_HOME", "PENSTOCK_INSECURE")


@pytest.fixture(autouse=True)
def _no_server_is_named(monkeypatch, tmp_path):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_an_address_in_the_environment_needs_a_token(monkeypatch):
    monkeypatch.setenv("PENSTOCK_URL", "https://penstock.example:8443")
    with pytest.raises(InvalidInput, match="there is no token for the server elsewhere"):
        Client.connect()
    monkeypatch.setenv("PENSTOCK_TOKEN", "t")
    assert Client.connect().address == "penstock.example:8443"


def test_plain_http_elsewhere_is_refused(monkeypatch):
    with pytest.raises(InvalidInput, match="would send the token unencrypted"):
        Client.connect("http://penstock.example:8080", token="t")


def test_a_named_folder_comes_before_the_address_of_the_environment(monkeypatch, server):
    monkeypatch.setenv("PENSTOCK_URL", "https://penstock.example:8443")
    with Client.connect(data=server.data.root) as client:
        assert client.healthy()


def test_the_folder_of_the_environment_is_the_server_else_the_users_own(monkeypatch, server, tmp_path):
    with pytest.raises(ServerNotRunning, match=f"no server runs on {tmp_path}/.local/share/penstock"):
        Client.connect()
    monkeypatch.setenv("PENSTOCK_HOME", str(server.data.root))
    with Client.connect() as client:
        assert client.me().level == "admin"
        assert client.patience_s > 0


def test_a_folder_that_others_could_have_filled_is_refused(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(NotPrivate):
        Client.connect(data=folder)
