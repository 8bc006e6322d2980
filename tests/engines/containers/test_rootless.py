"""Rootless Podman, as another user: the keeper does there what it does for root."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.model.containers import Mount
from penstock.engines.containers import keeper
from penstock.engines.containers.commands import Container, Runtime, plan, removed
from penstock.engines.containers.probe import WITHOUT_QUEUES
from penstock.engines.processes import procfs
from tests.engines.containers import images
from tests.server.harness import until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")]
USER = "penstock-rootless"


class Rootless:
    """A user of the machine with subordinate ids, with the image in a Podman of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", USER], check=True, capture_output=True)
        self.account = pwd.getpwnam(USER)
        folder.chmod(0o755)
        self.own = folder / "own"
        self.own.mkdir()
        os.chown(self.own, self.account.pw_uid, self.account.pw_gid)
        shutil.copy(keeper.__file__, folder / "keeper.py")
        self.run(["podman", "import", "--quiet", "-", images.NAME], input=images.archive())
        shared = ("--ipc=host",) if Path("/dev/mqueue").exists() else WITHOUT_QUEUES
        self.runtime = Runtime("podman", "podman", options=("--runtime", "runc"), shared=shared, rootless=True)

    def run(self, words: list[str], **more) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(words, check=True, capture_output=True, **self.as_user(), **more)

    def as_user(self) -> dict:
        variables = {"USER": USER, "HOME": self.account.pw_dir, "PATH": os.environ["PATH"] + ":/usr/sbin"}
        return {"user": USER, "group": self.account.pw_gid, "extra_groups": [], "env": variables, "cwd": self.own}

    def close(self) -> None:
        storage = f"{self.account.pw_dir}/.local"
        subprocess.run(["podman", "unshare", "rm", "-rf", storage], capture_output=True, check=False, **self.as_user())
        for pid in procfs.all_pids():  # Podman leaves a process that holds its namespace
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{pid}").st_uid == self.account.pw_uid:
                    os.kill(pid, signal.SIGKILL)
        subprocess.run(["userdel", "--force", "--remove", USER], check=False, capture_output=True)


@pytest.fixture(scope="module")
def rootless() -> Iterator[Rootless]:
    images.need("podman", "runc", "newuidmap", "useradd")
    folder = Path(tempfile.mkdtemp(prefix="penstock-rootless-"))
    made = Rootless(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


class Kept:
    """A program in a container, and its keeper."""

    def __init__(self, rootless: Rootless, name: str, command: tuple[str, ...]) -> None:
        self._rootless, self.name, own = rootless, f"penstock-test-{name}", rootless.own
        self.output, self.unknown, file = own / f"{name}.log", own / f"{name}.unknown", own / f"{name}.json"
        container = Container(self.name, "test", images.NAME, command, str(own), (Mount(str(own), str(own)),),
                              environment_file=f"{own}/{name}.env", pid_file=f"{own}/{name}.pid",
                              conmon_file=f"{own}/{name}.conmon")  # fmt: skip
        way = plan(rootless.runtime, container, file=str(file), unknown=str(self.unknown), grouped=False)
        file.write_text(json.dumps(way))
        file.chmod(0o644)
        variables = own / f"{name}.variables"
        variables.write_bytes(b"TEXT=hello\0")
        keeps = ["/usr/bin/python3", "-I", "-S", str(rootless.folder / "keeper.py"), str(file)]
        words = ["sh", "-c", f'exec "$@" 4<{variables}', "sh", *keeps]
        with self.output.open("ab") as output:
            streams = {"stdout": output, "stderr": output}
            self.process = subprocess.Popen(words, **streams, start_new_session=True, **rootless.as_user())

    def said(self, text: str) -> None:
        until(lambda: text in self.output.read_text(), f"{self.name} says {text}")

    def pid(self, of: str) -> int:
        return int((self._rootless.own / f"{self.name.removeprefix('penstock-test-')}.{of}").read_text())

    def ended(self) -> int:
        code = self.process.wait(30)
        listed = self._rootless.run(["podman", "ps", "--all", "--quiet", "--filter", f"name={self.name}"])
        assert listed.stdout == b""
        return code


@pytest.fixture
def kept(rootless: Rootless, request: pytest.FixtureRequest) -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def begin(*command: str) -> Kept:
        made.append(Kept(rootless, f"{request.node.name.replace('[', '-').rstrip(']')[:40]}", command))
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.process.wait()
        rootless.run(removed(rootless.runtime, one.name))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("sh", "-c", 'echo "$TEXT $(id -u)"; exit 7'), 7),
        (("no-such-program",), 127),
        (("sh", "-c", "sh -c 'kill -9 $$'; exit $?"), 137),
    ],
    ids=["own", "missing", "killed"],
)
def test_programs_end_as_they_end_without_a_container(kept, rootless, command, code):
    program = kept(*command)
    assert program.ended() == code
    if code == 7:
        assert program.output.read_text() == f"hello {rootless.account.pw_uid}\n"


def test_a_first_process_without_a_handler_obeys_the_stop_signal_all_the_same(kept):
    program = kept("sh", "-c", "echo ready; sleep 60")
    program.said("ready")
    os.kill(program.process.pid, signal.SIGTERM)
    assert program.ended() == 143


def test_a_program_that_heeds_the_stop_may_save_and_leave(kept):
    program = kept("sh", "-c", "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    program.said("ready")
    os.kill(program.process.pid, signal.SIGTERM)
    assert program.ended() == 5
    program.said("saved")


def test_a_killed_conmon_costs_neither_the_program_nor_its_exit(kept, rootless):
    program = kept("sh", "-c", "echo ready; while [ ! -e go ]; do sleep 0.05; done; exit 7")
    program.said("ready")
    os.kill(program.pid("conmon"), signal.SIGKILL)
    (rootless.own / "go").touch()
    assert program.ended() == 7
