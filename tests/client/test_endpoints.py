"""A client that knows of several servers of one cluster goes to the one that can answer, and nowhere it should not."""

import datetime as dt
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import ApiProblem, Client, ServerNotRunning
from penstock.client.endpoints import Endpoint
from penstock.client.errors import NotProved, NotTrusted
from penstock.security.keeper import CertificateKeeper
from tests.server.fakes import FakeServer


@pytest.fixture
def serve() -> Iterator[type[FakeServer]]:
    made: list[FakeServer] = []

    def make(**how: object) -> FakeServer:
        made.append(FakeServer(**how))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder with a token, whose path is short enough for the sockets of fakes."""
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "token").write_text("t\n")
        yield Path(made)


def says(folder: Path, file: str, **what: object) -> None:
    """Let a server say something of itself, as one does that listens on a Unix socket."""
    told = {"host": "127.0.0.1", "port": 1, "tls": False, "socket": "leader.sock", **what}
    (folder / file).write_text(json.dumps(told))


@pytest.fixture
def nobody(serve) -> str:
    """An address at which connections are refused."""
    server = serve()
    server.close()
    server.close = lambda: None
    return server.url


@pytest.fixture
def authorities(tmp_path: Path) -> Path:
    """A file with one authority."""
    CertificateKeeper(tmp_path).ensure(["127.0.0.1"], {}, dt.datetime.now(dt.UTC))
    return tmp_path / "trusted.pem"


def test_of_several_addresses_it_goes_to_the_one_that_is_said_to_lead(serve):
    leader, other = serve(), serve()
    standby = serve(leads=False, leader=leader.url)
    client = Client.at(f"{standby.url},{other.url},{leader.url}", token="t")
    client.cancel(1)
    client.cancel(2)
    assert (len(standby.asked), len(other.asked), len(leader.asked)) == (1, 0, 2)
    client.close()


def test_no_token_goes_in_the_clear_to_where_a_server_says_that_the_leader_is(serve):
    leader = serve()
    standby = serve(leads=False, leader=leader.url)
    client = Client.at(standby.url, token="t")
    with pytest.raises(ApiProblem) as refused:
        client.cancel(1)
    client.close()
    assert leader.asked == []
    assert "name it in PENSTOCK_URL" in refused.value.hint


@pytest.mark.parametrize("leader", ["http://127.0.0.1:x", "http://[", "https://127.0.0.1", "unix:/tmp/x", "//x:1"])
def test_a_leader_with_no_address_is_nowhere(serve, leader):
    standby = serve(leads=False, leader=leader)
    client = Client.at(standby.url, token="t")
    with pytest.raises(ApiProblem, match="no"):
        client.cancel(1)
    client.close()


def test_of_several_addresses_it_takes_one_that_is_not_refused(serve, nobody):
    server = serve()
    client = Client.at(f"{nobody}, {server.url}", token="t")
    client.cancel(1)
    assert server.asked == [("POST", "Bearer t")]
    client.close()


def test_where_nobody_leads_it_says_so_and_asks_nobody_twice(serve, nobody):
    first = serve(leads=False, leader=nobody)
    second = serve(leads=False, leader=first.url)
    client = Client.at(f"{first.url},{second.url}", token="t")
    with pytest.raises(ApiProblem) as refused:
        client.cancel(1)
    assert refused.value.details.code == "not_leader"
    assert (len(first.asked), len(second.asked)) == (1, 1)
    client.close()


def test_where_all_refuse_the_last_is_named(nobody):
    client = Client.at(nobody, token="t")
    with pytest.raises(ServerNotRunning, match="does not answer"):
        client.cancel(1)


def test_a_token_that_was_sent_by_tls_is_never_sent_in_the_clear(serve):
    leader = serve()
    client = Client("127.0.0.1", 1, "t")
    client._at = Endpoint("127.0.0.1", 1, security=object())
    assert client._leading(leader.url) == []
    assert client._leading(leader.url.replace("http:", "https:"))[0].security is client._at.security


def test_what_may_have_been_done_is_not_asked_of_another(serve):
    silent, other = serve(silent=True), serve()
    client = Client.at(f"{silent.url},{other.url}", token="t")
    client.timeout_s = 0.2
    with pytest.raises(ServerNotRunning):
        client.drain("n1")
    assert other.asked == []
    client.close()


def test_what_may_be_repeated_is_asked_of_another_when_one_is_silent(serve):
    silent, other = serve(silent=True), serve()
    client = Client.at(f"{silent.url},{other.url}", token="t")
    client.timeout_s = 0.2
    assert client.healthy()
    assert (len(silent.asked), len(other.asked)) == (1, 1)
    client.close()


def test_a_folder_tells_of_all_servers_on_it(serve, folder):
    left_by_a_killed_one = socket.socket(socket.AF_UNIX)
    left_by_a_killed_one.bind(str(folder / "leader.sock"))
    left_by_a_killed_one.close()
    standby = serve(unix=folder / "standby.sock")
    says(folder, "server.json")
    says(folder, "standby-7.json", socket="standby.sock")
    (folder / "standby-8.json").write_text("{")
    client = Client.of(folder)
    client.cancel(1)
    assert standby.asked == [("POST", "Bearer t")]
    client.close()


def test_a_new_leader_is_found_in_the_folder_without_a_new_client(serve, folder):
    first, second = serve(unix=folder / "leader.sock"), serve(unix=folder / "next.sock")
    says(folder, "server.json")
    client = Client.of(folder)
    client.cancel(1)
    first.leads = False
    says(folder, "server.json", socket="next.sock")
    client.cancel(2)
    assert [method for method, _ in second.asked] == ["POST"]
    client.close()


def test_a_server_of_the_folder_that_leads_elsewhere_is_asked_only_by_tls_and_the_folders_authorities(
    serve, folder, authorities
):
    leader = serve()
    serve(unix=folder / "leader.sock", leads=False, leader=leader.url)
    says(folder, "server.json", tls=True, ca=str(authorities), server_name="127.0.0.1")
    client = Client.of(folder)
    with pytest.raises(ApiProblem, match="no"):
        client.cancel(1)
    client.close()
    (found,) = client._leading(leader.url.replace("http:", "https:"))
    assert (leader.asked, len(found.security.get_ca_certs())) == ([], 1)


def test_a_server_of_the_folder_that_has_no_certificate_vouches_for_none(serve, folder):
    says(folder, "server.json")
    assert Client.of(folder)._leading("https://127.0.0.1:1") == []


@pytest.mark.parametrize("name", ["../other.sock", "/tmp/other.sock", "sub/other.sock", "..", 7])
def test_a_socket_outside_of_the_folder_is_none_of_its_server(folder, name):
    says(folder, "server.json", socket=name)
    with pytest.raises(NotProved, match="nothing was sent"):
        Client.of(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_what_others_have_written_is_not_the_word_of_a_server(serve, folder):
    stranger = serve(unix=folder / "standby.sock")
    says(folder, "server.json", socket="gone.sock")
    says(folder, "standby-7.json", socket="standby.sock")
    os.chown(folder / "standby-7.json", 65534, 65534)
    client = Client.of(folder)
    with pytest.raises(ServerNotRunning, match=r"no server listens on gone\.sock"):
        client.cancel(1)
    assert stranger.asked == []
    os.chown(folder / "server.json", 65534, 65534)
    with pytest.raises(NotTrusted, match="user 65534 has written it"):
        Client.of(folder)


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_to_says_nothing(folder, mode):
    says(folder, "server.json")
    folder.chmod(mode)
    with pytest.raises(NotTrusted, match="others than its owner may write"):
        Client.of(folder)
