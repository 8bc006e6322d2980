"""Who answers is proved before a token is sent: by whose process it is, and by the lock that a server holds."""

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import tcp_table
from penstock.client import Client, ServerNotRunning, proof
from penstock.client.endpoints import endpoint_of
from penstock.client.errors import NotProved
from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.server.http import listener as ln
from penstock.server.http.transport import Transport, listen, listen_in
from tests.server.fakes import FakeServer

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")


@contextlib.contextmanager
def stranger() -> Iterator[None]:
    """Be another user for a moment: what is opened meanwhile is theirs."""
    os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def keep() -> Iterator[Callable[[socket.socket], socket.socket]]:
    """Close what was opened when the test is over."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder whose lock this process holds."""
    with tempfile.TemporaryDirectory() as made, (Path(made) / proof.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield Path(made)


def dial(listening: socket.socket) -> socket.socket:
    return socket.create_connection(listening.getsockname()[:2], timeout=10)


# By the user.


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "0.0.0.0", "::1", "::"])
def test_a_server_of_the_callers_own_is_taken(keep, host):
    link = keep(dial(keep(listen(Transport(host, insecure=True)))))
    proof.of_own_user(link)


def test_a_server_of_all_addresses_is_found_behind_one_of_the_older_kind(keep):
    listening = keep(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True))
    link = keep(socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=10))
    proof.of_own_user(link)
    keep(listening.accept()[0])
    proof.of_own_user(link)


@as_root
@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_a_server_of_another_user_is_refused(keep, host):
    with stranger():
        listening = keep(listen(Transport(host)))
    with pytest.raises(NotProved, match=f"a process of user {STRANGER} answers at .*: the token was not sent"):
        proof.of_own_user(keep(dial(listening)))


@as_root
def test_a_stranger_that_listens_no_more_is_known_by_what_it_has_accepted(keep):
    with stranger():
        listening = keep(listen(Transport()))
        link = keep(dial(listening))
        keep(listening.accept()[0])
    address = listening.getsockname()
    listening.close()
    with pytest.raises(NotProved, match="cannot be verified"):
        proof.of_own_user(link)
    keep(socket.create_server(address))
    with pytest.raises(NotProved, match=f"a process of user {STRANGER} answers"):
        proof.of_own_user(link)


@as_root
def test_a_client_of_an_address_sends_nothing_to_another_users_server_unless_told_to(monkeypatch):
    with stranger():
        fake = FakeServer()
    with contextlib.closing(fake):
        for client in (Client.at(fake.url, token="t"), Client("127.0.0.1", fake.port, "t")):
            with pytest.raises(NotProved) as refused:
                client.cancel(1)
            assert (fake.asked, "PENSTOCK_INSECURE=1" in refused.value.hint) == ([], True)
        with contextlib.closing(Client.at(fake.url, token="t", insecure=True)) as told_to:
            told_to.cancel(1)
        assert fake.asked == [("POST", "Bearer t")]


def test_no_client_speaks_in_the_clear_with_another_machine_unless_told_to():
    with pytest.raises(InvalidInput, match="unencrypted"):
        Client("192.0.2.1", 80, "t")
    Client("192.0.2.1", 80, "t", insecure=True)


def test_whether_a_server_is_healthy_is_asked_without_a_token(keep):
    with contextlib.closing(FakeServer()) as fake, contextlib.closing(Client.at(fake.url, token="t")) as client:
        assert client.healthy()
        assert fake.asked == [("GET", None)]


# By the process.


def test_a_process_that_holds_the_folders_lock_and_listens_is_its_server(keep, folder):
    listening = keep(listen(Transport()))
    link = keep(dial(listening))
    proof.of_process(link, folder, os.getpid())
    keep(listening.accept()[0])
    proof.of_process(link, folder, os.getpid())


def test_a_server_that_holds_the_lock_but_does_not_listen_there_is_not_asked(keep, folder):
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
        "sys.stdin.read()"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        link = keep(socket.create_connection(("127.0.0.1", int(other.stdout.readline())), timeout=10))
        with pytest.raises(NotProved, match=r"not the server of .* answers at 127.0.0.1:.*: it was sent nothing"):
            proof.of_process(link, folder, os.getpid())
        other.stdin.close()


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, os.getppid()], ids=["none", "negative", "gone", "another"])
def test_a_process_without_the_lock_is_no_server(keep, folder, pid):
    link = keep(dial(keep(listen(Transport()))))
    with pytest.raises(ServerNotRunning, match="is another program, and was sent nothing"):
        proof.of_process(link, folder, pid)


def test_only_a_lock_that_is_held_on_this_very_file_proves_anything(tmp_path):
    path = tmp_path / proof.LOCK
    with path.open("w") as lock:
        said = [proof.holds_lock(os.getpid(), path)]
        for change, how in ((fcntl.flock, fcntl.LOCK_EX), (fcntl.flock, fcntl.LOCK_UN), (fcntl.lockf, fcntl.LOCK_EX)):
            change(lock, how)
            said.append(proof.holds_lock(os.getpid(), path))
        fcntl.flock(lock, fcntl.LOCK_SH)
        path.rename(tmp_path / "other")
        path.touch()
        said.append(proof.holds_lock(os.getpid(), path))
    assert said == [False, True, False, False, False]


@as_root
def test_the_lock_in_the_hands_of_another_user_proves_nothing(keep, folder):
    os.chown(folder, STRANGER - 1, STRANGER - 1)
    with stranger():
        listening = keep(listen(Transport()))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with (folder / proof.LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            os.setuid(STRANGER)
            os.write(write, b"!")
            os.read(os.pipe()[0], 1)
    try:
        os.read(read, 1)
        with pytest.raises(NotProved, match="not the server of"):
            proof.of_process(keep(dial(listening)), folder, child)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_a_server_without_a_socket_of_its_folder_is_proved_by_its_process(folder):
    with contextlib.closing(FakeServer()) as fake:
        info = {"host": "127.0.0.1", "port": fake.port, "pid": os.getpid()}
        for pid, asked in ((os.getppid(), []), (os.getpid(), [("POST", "Bearer t")])):
            client = Client._to(endpoint_of({**info, "pid": pid}, folder), "t")
            with contextlib.closing(client), contextlib.suppress(ServerNotRunning):
                client.cancel(1)
            assert fake.asked == asked


# By the socket in the folder.


def test_the_socket_of_a_folder_is_its_owners_alone_however_long_the_path(keep, tmp_path):
    deep = tmp_path / ("x" * 150)
    deep.mkdir()
    listening, path = listen_in(deep)
    keep(listening)
    assert (path.stat().st_mode & 0o777, path.parent) == (0o600, deep)
    keep(proof.opened(path, 10.0))


@as_root
def test_a_socket_of_another_user_is_refused(keep, tmp_path):
    listening = keep(socket.socket(socket.AF_UNIX))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "api.sock"
        listening.bind(str(path))
        with stranger():
            listening.listen()
        with pytest.raises(NotProved, match=f"a process of user {STRANGER} listens on"):
            proof.opened(path, 10.0)
        os.chown(folder, STRANGER, STRANGER)  # then it is the server of the folder
        keep(proof.opened(path, 10.0))


def test_sockets_of_killed_servers_are_removed_and_those_of_living_ones_stay(keep, tmp_path):
    killed, left = listen_in(tmp_path)
    killed.close()
    assert left.exists()
    with pytest.raises(ServerNotRunning, match=f"no server runs on {tmp_path}: no server listens on {left.name}"):
        proof.opened(left, 10.0)
    lives, path = listen_in(tmp_path)
    keep(lives)
    other, beside = listen_in(tmp_path)
    keep(other)
    assert sorted(tmp_path.iterdir()) == sorted([path, beside])


@pytest.fixture
def busy(keep, tmp_path) -> tuple[socket.socket, Path]:
    """A server that takes no further connection for now."""
    listening, path = listen_in(tmp_path)
    keep(listening).listen(0)
    keep(proof.opened(path, 10.0))
    return listening, path


def test_a_server_that_takes_no_more_is_not_waited_for_longer_than_told(busy):
    with pytest.raises(TimeoutError, match="timed out"):
        proof.opened(busy[1], 0.01)


def test_a_server_that_is_busy_for_a_moment_is_waited_for(keep, busy):
    listening, path = busy
    with ThreadPoolExecutor(1) as beside:
        waits = beside.submit(proof.opened, path, 30.0)
        with contextlib.suppress(TimeoutError):
            waits.result(0.05)
        keep(listening.accept()[0])
        keep(waits.result(30))


def test_the_socket_of_a_server_that_is_busy_is_not_removed(keep, busy, tmp_path):
    keep(listen_in(tmp_path)[0])
    assert busy[1].exists()


def test_a_file_system_without_sockets_is_no_fault():
    assert listen_in(Path("/sys")) is None


def test_however_many_connections_others_have_the_owner_gets_in():
    doors = ln.Doors(2)
    assert [doors.enter(object(), "127.0.0.1") for _ in range(3)] == [True, True, False]
    assert [doors.enter(object(), ln.OWNER) for _ in range(ln.OWNER_CONNECTIONS + 1)][-2:] == [True, False]


def test_the_kernels_table_is_read_as_it_is_written():
    words = struct.pack(">4I", 0, 0, 0xFFFF, 0x7F000001)
    cell = "".join(f"{struct.unpack('=I', words[i : i + 4])[0]:08X}" for i in range(0, 16, 4))
    assert [str(part) for part in tcp_table.decoded(f"{cell}:1F90")] == ["127.0.0.1", "8080"]


@as_root
def test_nobody_has_root_send_a_token_of_roots_by_a_link_in_their_folder(tmp_path):
    (tmp_path / "of-root").write_text("roots-own")
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "server.json").write_text(json.dumps({"host": "127.0.0.1", "port": 1, "socket": "api-1.sock"}))
    (data / "token").symlink_to(tmp_path / "of-root")
    for path in (data, data / "server.json"):
        os.chown(path, STRANGER, STRANGER)
    with pytest.raises(PenstockError, match=r"the token .* cannot be read"):
        Client.of(data)
    (data / "token").unlink()
    (data / "token").write_text("theirs")
    os.chown(data / "token", STRANGER, STRANGER)
    assert Client.of(data)._token == "theirs"


def test_a_token_of_ones_own_may_be_a_link(tmp_path, folder):
    (tmp_path / "kept").write_text("own")
    (folder / "server.json").write_text(json.dumps({"host": "127.0.0.1", "port": 1, "socket": "api-1.sock"}))
    (folder / "token").unlink(missing_ok=True)
    (folder / "token").symlink_to(tmp_path / "kept")
    assert Client.of(folder)._token == "own"
