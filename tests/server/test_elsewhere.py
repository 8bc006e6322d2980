"""A client that knows of several servers of one cluster goes to the one that can answer, and nowhere it should not."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from penstock.client import ApiProblem, Client, ServerNotRunning
from penstock.client.endpoints import Endpoint


class Server:
    """Answers as a server of a cluster does; `leader` is what it says where it does not lead itself."""

    def __init__(self, *, leads: bool = True, leader: str = "", silent: bool = False) -> None:
        self.leads, self.leader, self.asked = leads, leader, []
        self._over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.command, self.headers["Authorization"]))
                if silent:
                    outer._over.wait(20)
                    return
                writes = self.command == "POST" and not outer.leads
                body = outer.problem() if writes else json.dumps({"status": "ok", "version": "1", "ok": True}).encode()
                self.send_response(503 if writes else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer  # noqa: N815 - the names that the library looks for

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def problem(self) -> bytes:
        return json.dumps({"title": "no", "status": 503, "code": "not_leader", "leader": self.leader}).encode()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[type[Server]]:
    made: list[Server] = []

    def make(**how: object) -> Server:
        made.append(Server(**how))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def nobody(serve) -> str:
    """An address at which connections are refused."""
    server = serve()
    server.close()
    server.close = lambda: None
    return server.url


def test_it_goes_where_the_answer_says_that_the_leader_is(serve):
    leader = serve()
    standby = serve(leads=False, leader=leader.url)
    client = Client.at(standby.url, token="t")
    client.cancel(1)
    client.cancel(2)
    assert (len(standby.asked), len(leader.asked)) == (1, 2)
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
    client._timeout_s = 0.2
    with pytest.raises(ServerNotRunning):
        client.cancel(1)
    assert other.asked == []
    client.close()


def test_what_may_be_repeated_is_asked_of_another_when_one_is_silent(serve):
    silent, other = serve(silent=True), serve()
    client = Client.at(f"{silent.url},{other.url}", token="t")
    client._timeout_s = 0.2
    assert client.healthy()
    assert (len(silent.asked), len(other.asked)) == (1, 1)
    client.close()


def test_a_folder_tells_of_all_servers_on_it(serve, nobody, tmp_path):
    standby = serve()
    said = {"host": "127.0.0.1", "tls": False}
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "server.json").write_text(json.dumps(said | {"port": int(nobody.rpartition(":")[2])}))
    (tmp_path / "standby-7.json").write_text(json.dumps(said | {"port": standby.port}))
    (tmp_path / "standby-8.json").write_text("{")
    client = Client.of(tmp_path)
    assert client.healthy()
    client.close()


def test_a_new_leader_is_found_in_the_folder_without_a_new_client(serve, tmp_path):
    first, second = serve(), serve()
    said = {"host": "127.0.0.1", "tls": False}
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "server.json").write_text(json.dumps(said | {"port": first.port}))
    client = Client.of(tmp_path)
    client.cancel(1)
    first.leads = False
    (tmp_path / "server.json").write_text(json.dumps(said | {"port": second.port}))
    client.cancel(2)
    assert [method for method, _ in second.asked] == ["POST"]
    client.close()
