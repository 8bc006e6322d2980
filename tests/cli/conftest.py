"""The command line as people use it: real processes against a server of their own."""

import fcntl
import gc
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from tests.cli.terminals import plain, written
from tests.server.harness import Server, environment, sweep, until

TIMEOUT_S = 60


class Told:
    """What one command said and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def _over(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _become(words: tuple[str, ...], folder: Path, variables: dict[str, str], files: tuple[Any, ...]) -> None:
    """Be the program, in a child of the test; never returns."""
    code: Any = 70
    gc.freeze()  # what the test's process has to clear away may wait for threads that are not here
    try:
        for descriptor, file in enumerate(files):
            os.dup2(file.fileno(), descriptor)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        sys.argv = ["penstock", *words]
        main()
        code = 0
    except SystemExit as left:
        code = left.code or 0
    except BaseException:  # noqa: BLE001 - whatever it is, the test sees it as the program's end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _dialogue(terminal: int, typed: str, command: str) -> str:
    """Return what a program writes to its terminal until it ends; its question gets an answer."""
    text = ""
    for text in written(terminal, command, TIMEOUT_S):
        if typed and plain(text).endswith("[y/N]: "):
            os.write(terminal, typed.encode())
            typed = ""
    return text


class Terminal:
    """Runs commands in one folder, on one data folder."""

    def __init__(self, folder: Path, data: Path, root: Path) -> None:
        self.folder, self.data, self._root = folder, data, root

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "penstock.cli.main", *words]

    def _environment(self, given: dict[str, str]) -> dict[str, str]:
        return environment(self._root, PENSTOCK_HOME=str(self.data), COLUMNS="200", **given)

    def __call__(self, *words: str, stdin: str = "", **variables: str) -> Told:
        """Run one command in a process forked from this one, which has loaded everything already."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            pid = os.fork()
            if pid == 0:
                _become(words, self.folder, self._environment(variables), (given, out, err))
            ended = until(lambda: os.waitpid(pid, os.WNOHANG)[1:] if _over(pid) else None, f"{words} ends", TIMEOUT_S)
            out.seek(0)
            err.seek(0)
            return Told(os.waitstatus_to_exitcode(ended[0]), out.read().decode(), err.read().decode())

    def at_terminal(self, *words: str, columns: int = 80, typed: str = "") -> Told:
        """Run one command at a terminal of a width, and answer its question; styles are taken out of what it wrote."""
        main_end, own_end = os.openpty()
        fcntl.ioctl(own_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        variables = {name: value for name, value in self._environment({"TERM": "xterm"}).items() if name != "COLUMNS"}
        pid = os.fork()
        if pid == 0:
            os.close(main_end)
            with open(own_end, "r+b", buffering=0) as terminal:
                _become(words, self.folder, variables, (terminal, terminal, terminal))
        os.close(own_end)
        try:
            text = _dialogue(main_end, typed, " ".join(words))
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            os.close(main_end)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return Told(code, plain(text), "")

    def anew(self, *words: str) -> Told:
        """Run one command in a fresh interpreter, as a shell does."""
        done = subprocess.run(
            self._command(words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self.folder,
            env=self._environment({}),
        )
        return Told(done.returncode, done.stdout, done.stderr)

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command and return at once; the caller waits for it."""
        return subprocess.Popen(
            self._command(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self._environment({}),
        )

    def file(self, text: str, name: str = "job.yaml") -> str:
        (self.folder / name).write_text(text)
        return name

    def job(self, *words: str) -> int:
        """Submit a command and return its number."""
        return int(self("submit", "--json", "--cpus", "1", "--", *words).json()["jobs"][0]["id"])


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("cli") / "data") as running:
        yield running


@pytest.fixture
def penstock(server: Server, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, server.data.root, server.root)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Terminal]:
    """A terminal without a server; whatever it starts is ended."""
    folder = tmp_path / "alone"
    folder.mkdir()
    yield Terminal(folder, folder / "data", folder)
    sweep(folder)
