"""A PostgreSQL of the tests' own, on a socket in a folder of its own; started when it is first asked for.

Its programs are those of the system, or of the wheel `pgserver`. Where there are none a test is skipped, with the
reason; in CI (CI=true) it fails instead.
"""

import contextlib
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.sharedservice import SharedService

START_WAIT_S = 30.0
PR_SET_PDEATHSIG = 1
ORDINARY_USER = "nobody"
"""Who runs it where the tests are run by root: PostgreSQL refuses to be."""


def programs() -> Path | None:
    """Return the folder of initdb and postgres, the newest of the system first."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found.sort(key=lambda path: int(path.parent.name) if path.parent.name.isdigit() else 0, reverse=True)
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path).resolve().parent)
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.origin is not None:
        found.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return next((path for path in found if (path / "postgres").exists()), None)


def need() -> Path:
    """Return the folder of the programs, or skip the test that asks; in CI it fails."""
    found = programs()
    if found is not None and importlib.util.find_spec("psycopg") is not None:
        return found
    reason = "PostgreSQL and psycopg are missing: apt-get install postgresql, or pip install pgserver"
    assert os.environ.get("CI") != "true", reason
    return pytest.skip(reason)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


class Postgres:
    """One database server. `start`, `kill` and `stop` may follow each other as often as you like."""

    def __init__(self, *, sync: bool = False, settings: Sequence[str] = ()) -> None:
        self._programs = need()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
        self._user = ORDINARY_USER if os.geteuid() == 0 else None
        if self._user:
            entry = pwd.getpwnam(self._user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = [f"fsync={'on' if sync else 'off'}", *settings]
        initdb = [self._programs / "initdb", "-D", self.folder / "data", "-U", "penstock", "-A", "trust", "--no-sync"]
        self._last = 0
        try:
            self._run([*map(str, initdb), "-E", "UTF8", "--locale=C", "--no-instructions"])
        except BaseException:
            self.remove()
            raise

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, user=self._user, capture_output=True, text=True, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://penstock@/{database}?host={self.folder}"

    def start(self) -> None:
        given = ["listen_addresses=", f"unix_socket_directories={self.folder}", "max_connections=100", *self._settings]
        words = [word for setting in given for word in ("-c", setting)]
        with (self.folder / "log").open("ab") as log, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of preexec_fn beside threads
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - a test run that is killed leaves no database behind
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_WAIT_S
        while not self._answers():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(), connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT ends every session first, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def database(self) -> str:
        """Return the URL of a new, empty database."""
        self._last += 1
        name = f"d{self._last}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, query: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(query.encode())

    def remove(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


_shared = SharedService(Postgres)
shared, end_shared = _shared.get, _shared.end


@contextlib.contextmanager
def own(*, sync: bool = False, settings: Sequence[str] = ()) -> Iterator[Postgres]:
    """Run a server that may be stopped and killed."""
    made = Postgres(sync=sync, settings=settings)
    try:
        made.start()
        yield made
    finally:
        made.remove()
