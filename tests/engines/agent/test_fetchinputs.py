"""The program that reads URLs, and the agent's side of the talk with it."""

import os
import subprocess
import threading
from collections.abc import Iterator

import pytest

from penstock import starts
from penstock.engines.agent.fetchinputs import judged
from penstock.engines.agent.inputlink import Failed, InputLink
from tests.engines.agent.webfiles import WebFiles

FIRST = {"account": None, "env": {}, "protocols": ["http", "file", "s3"], "hosts": []}


class Program:
    """The program with a link to it; `env` is that of the job, beside the test's own."""

    def __init__(self) -> None:
        self.links: list[InputLink] = []

    def link(self, *hosts: str, env: dict[str, str] | None = None) -> InputLink:
        def run(name: str) -> object:
            words = starts.python("penstock.engines.agent.fetchinputs", name)
            return subprocess.run(words, env={**os.environ, "TOKEN": "of the agent"}, cwd="/", check=False).returncode

        first = {**FIRST, "env": {**os.environ, **(env or {})}, "hosts": hosts}
        self.links.append(InputLink(run, first, lambda: None))
        return self.links[-1]


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    yield made
    for link in made.links:
        link.close()
        link._thread.join(20)
        assert not link._thread.is_alive()


@pytest.fixture
def link(program: Program) -> InputLink:
    return program.link()


@pytest.fixture
def web() -> Iterator[WebFiles]:
    made = WebFiles()
    yield made
    made.close()


def test_a_file_of_the_web_is_read_from_an_offset_on_whether_or_not_its_server_knows_ranges(link, web):
    web.files["/a.bin"] = bytes(range(256)) * 8_000
    url = f"{web.url}/a.bin"
    (one,) = link.look(url).files
    assert (one.name, one.size, bool(one.version)) == ("", 2_048_000, True)
    assert b"".join(link.read(url, one, 0)) == web.files["/a.bin"]
    for web.ranges in (True, False):
        assert b"".join(link.read(url, one, 1_500_001)) == web.files["/a.bin"][1_500_001:]
    assert [asked for _, asked, _ in web.asked] == ["", "", "bytes=1500001-", "bytes=1500001-"]


@pytest.mark.parametrize(
    ("status", "passing", "word"),
    [
        (404, False, "not found"),
        (403, False, "forbidden"),
        (401, False, "forbidden"),
        (503, True, "503"),
        (429, True, "429"),
    ],
)
def test_what_passes_by_itself_is_told_from_what_does_not(link, web, status, passing, word):
    web.files["/a"] = b"x"
    web.statuses = [status]
    with pytest.raises(Failed, match=word) as caught:
        link.look(f"{web.url}/a")
    assert caught.value.passing is passing


def test_a_transfer_that_breaks_and_a_server_that_is_not_there_may_pass(link, web):
    web.files["/a"] = b"x" * 100_000
    (one,) = link.look(f"{web.url}/a").files
    web.breaks = [70_000]
    with pytest.raises(Failed) as caught:
        list(link.read(f"{web.url}/a", one, 0))
    assert caught.value.passing
    web.close()
    with pytest.raises(Failed) as caught:
        link.look(f"{web.url}/a")
    assert caught.value.passing


def test_content_that_changed_since_it_was_looked_at_is_not_read(link, web):
    web.files["/a"] = b"x" * 10
    (one,) = link.look(f"{web.url}/a").files
    web.files["/a"] = b"y" * 10
    with pytest.raises(Failed, match="changed"):
        list(link.read(f"{web.url}/a", one, 0))


def test_redirections_to_hosts_that_are_not_allowed_are_not_followed(program, web):
    web.files["/b"] = b"b"
    web.moved = {"/a": "/b", "/out": f"http://localhost:{web.url.rpartition(':')[2]}/b"}
    link = program.link("127.*")
    assert link.look(f"{web.url}/a").files[0].size == 1
    with pytest.raises(Failed, match="leads to localhost") as caught:
        link.look(f"{web.url}/out")
    assert not caught.value.passing
    with pytest.raises(Failed, match="not a host"):
        link.look(f"http://localhost:{web.url.rpartition(':')[2]}/b")


def test_folders_are_listed_by_name_and_read_file_by_file(link, tmp_path):
    (tmp_path / "d" / "sub").mkdir(parents=True)
    for name, data in {"b": b"bb", "a": b"", "sub/c": b"ccc"}.items():
        (tmp_path / "d" / name).write_bytes(data)
    remote = link.look(f"file://{tmp_path}/d/")
    assert (remote.folder, [(one.name, one.size) for one in remote.files]) == (True, [("a", 0), ("b", 2), ("sub/c", 3)])
    assert b"".join(link.read(f"file://{tmp_path}/d/", remote.files[2], 1)) == b"cc"
    with pytest.raises(Failed, match="not found"):
        link.look(f"file://{tmp_path}/none")
    with pytest.raises(Failed, match="expected a folder"):
        link.look(f"file://{tmp_path}/d/b/")


def test_credentials_come_from_the_environment_and_are_in_no_message(program, web):
    web.files["/a"] = b"x"
    token = "token-of-someone-else-1234"
    config = f'{{"client_kwargs": {{"headers": {{"Authorization": "Bearer {token}"}}}}}}'
    link = program.link(env={"FSSPEC_HTTP": config, "TOKEN": token})
    link.look(f"{web.url}/a")
    assert web.asked[-1][2] == f"Bearer {token}"
    with pytest.raises(Failed) as caught:
        link.look(f"http://127.0.0.1:1/{token}?sig=abc")
    assert token not in caught.value.message
    assert "sig=" not in caught.value.message


def test_long_values_of_the_environment_are_in_no_message(monkeypatch):
    monkeypatch.setenv("TOKEN", "token-of-someone-else-1234")
    error = OSError("https://host/a?sig=1 refused token-of-someone-else-1234")
    assert judged(error, "https://host/a") == {"problem": "OSError: https://host/a refused [TOKEN]", "passing": True}


def test_a_missing_package_is_named(program):
    link = program.link()
    with pytest.raises(Failed, match=r"needs the package gcsfs.*pip install gcsfs") as caught:
        link.look("gs://bucket/a")
    assert not caught.value.passing


def test_a_link_listens_to_its_account_alone_and_ends_when_nobody_waits():
    done = threading.Event()
    link = InputLink(lambda name: _connect(name, done), {}, lambda: done.is_set() and _raise(Gone()), uid=7)
    with pytest.raises(Gone):
        link.look("file:///etc/passwd")
    link.close()


@pytest.mark.parametrize(
    "said", [b"no json\n", b"[1]\n", b'{"files": [["a"]]}\n', b'{"files": [["a", -2, ""]]}\n', b"x" * (2**20 + 2)]
)
def test_what_the_program_should_not_say_is_refused(said):
    link = InputLink(lambda name: _connect(name, threading.Event(), said), {}, lambda: None)
    with pytest.raises(Failed, match="says") as caught:
        link.look("file:///a")
    assert not caught.value.passing
    link.close()


def test_a_program_that_ends_may_be_started_again():
    link = InputLink(lambda _: "exit 1", {}, lambda: None)
    with pytest.raises(Failed, match="ended exit 1") as caught:
        link.look("file:///a")
    assert caught.value.passing
    link.close()


class Gone(Exception):
    pass


def _raise(error: Exception) -> None:
    raise error


def _connect(name: str, done: threading.Event, said: bytes = b"") -> str:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(b"\0" + name.encode())
        if not said:
            assert link.recv(1) == b""  # hung up on
            done.set()
            return ""
        link.recv(100)
        link.sendall(said)
    return ""


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    env = {**keys, "FSSPEC_S3_ENDPOINT_URL": f"http://{host}:{port}"}
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "s3", endpoint_url=env["FSSPEC_S3_ENDPOINT_URL"], aws_access_key_id="key", aws_secret_access_key="secret"
    )
    client.create_bucket(Bucket="data")
    client.put_object(Bucket="data", Key="train/part-0", Body=b"0" * 10)
    client.put_object(Bucket="data", Key="train/deep/part-1", Body=bytes(range(256)) * 70_000)
    yield env
    server.stop()


def test_objects_of_a_bucket_are_read_in_several_parts_at_a_time(program, bucket):
    link = program.link(env=bucket)
    remote = link.look("s3://data/train/")
    assert [(one.name, one.size) for one in remote.files] == [("deep/part-1", 17_920_000), ("part-0", 10)]
    assert b"".join(link.read("s3://data/train/", remote.files[0], 3)) == (bytes(range(256)) * 70_000)[3:]
    assert link.look("s3://data/train") == remote
    with pytest.raises(Failed, match="not found") as caught:
        link.look("s3://data/none")
    assert not caught.value.passing
