"""`penstock shell` by root: nothing that a tenant's job says or has is run, read or reached as root."""

import contextlib
import fcntl
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Client
from tests.cli.conftest import Terminal
from tests.server.harness import Jobs, Server, cluster_file, environment

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as other accounts")
USERS = [{"name": "ann", "account": "nobody", "tenants": ["default"]}]
PENSTOCK = (sys.executable, "-P", "-m", "penstock.cli.main")
TRAP = '#!/bin/sh\n/usr/bin/id -u >> {note}\nexec /bin/sh "$@"\n'


@pytest.fixture(scope="module")
def reachable() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-shell-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def own_server(reachable: Path) -> Iterator[Server]:
    with Server(reachable / "data", cluster_file(1) | {"users": USERS}) as running:
        yield running


@pytest.fixture
def root(own_server: Server, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, own_server.data.root, own_server.root)


@pytest.fixture
def ann(own_server: Server) -> Iterator[Jobs]:
    token = own_server.client.create_token({"user": "ann"}).token
    client = Client.of(own_server.data.root, token=token)
    jobs = Jobs(client)
    yield jobs
    jobs.close()
    client.close()


@pytest.fixture
def hostile(ann: Jobs, reachable: Path) -> tuple[int, Path]:
    """A running job of a tenant, whose environment and folder set traps; and where they note who fell into them."""
    folder = Path(tempfile.mkdtemp(dir=reachable))
    shutil.chown(folder, "nobody")
    note = folder / "note"
    for name in ("sh", "id", "python3"):
        (folder / name).write_text(TRAP.format(note=note))
        (folder / name).chmod(0o755)
    variables = {"PATH": f"{folder}:.:/usr/bin:/bin", "LD_PRELOAD": "/nonexistent/evil.so", "PYTHONPATH": str(folder)}
    job = ann.submit(["/bin/sleep", "60"], env=variables, workdir=str(folder))
    ann.state(job, "running")
    return job, note


def test_root_is_the_account_before_it_reads_what_the_job_says(root, hostile):
    job, note = hostile
    told = root.anew(
        "shell",
        str(job),
        "--",
        "sh",
        "-c",
        "/usr/bin/id -u; /usr/bin/id -G; pwd; grep -E '^(CapEff|NoNew)' /proc/self/status",
    )
    assert (told.code, told.out.split()) == (
        0,
        ["65534", "65534", str(note.parent), "CapEff:", "0000000000000000", "NoNewPrivs:", "1"],
    )
    assert "evil.so" in told.err
    assert set(note.read_text().split()) == {"65534"}


def test_the_shell_is_in_the_groups_of_the_job_and_ends_with_it(root, own_server, hostile):
    job, _ = hostile
    running = root.begin("shell", str(job), "--", "/bin/sh", "-c", "echo; cat /proc/self/cgroup; exec sleep 60")
    assert running.stdout.readline() == "\n"
    inside = running.stdout.readline()
    own_server.client.cancel(job)
    assert running.wait(30) == 128 + 9 or running.returncode == 128 + 15
    assert f"n1.{job}.1.0" in inside + running.stdout.read() or not Path("/sys/fs/cgroup/freezer").exists()
    running.stdout.close()
    running.stderr.close()


def test_what_is_left_of_the_caller_is_closed(root, own_server, hostile):
    job, _ = hostile
    with tempfile.TemporaryFile() as secret:
        secret.write(b"for root alone")
        secret.seek(0)
        look = f"for n in $(seq 3 99); do test -e /proc/$$/fd/$n && echo LEFT $n; done; env; cat <&{secret.fileno()}"
        done = subprocess.run(
            [*PENSTOCK, "shell", str(job), "--", "/bin/sh", "-c", look],
            pass_fds=(secret.fileno(),),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment(own_server.root, PENSTOCK_HOME=str(own_server.data.root), SSH_AUTH_SOCK="/s", SECRET="s"),
        )
    assert "LEFT" not in done.stdout
    assert "for root alone" not in done.stdout
    assert "HOME=/nonexistent" in done.stdout
    own = ("SSH_AUTH_SOCK", "SECRET", "PENSTOCK_HOME")
    assert not [line for line in done.stdout.splitlines() if line.startswith(own)]


PROBE = """
import fcntl, os, termios
print('TTY', os.ttyname(0), flush=True)
try:
    fcntl.ioctl(0, termios.TIOCSTI, b'#')
except OSError as error:
    pass
print('FDS', sorted({os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)}), flush=True)
print('SAID', input(), flush=True)
"""


def shown(master: int, wanted: bytes, found: bytes = b"") -> bytes:
    """Read from a terminal until something was shown."""
    while wanted not in found:
        assert select.select([master], [], [], 30)[0], found
        found += os.read(master, 4096)
    return found


def test_a_job_gets_a_terminal_of_its_own_and_nothing_of_roots(own_server, hostile):
    job, _ = hostile
    master, slave = os.openpty()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.login_tty(os.dup(slave))
            words = [*PENSTOCK, "shell", str(job), "--", "/usr/bin/python3", "-c", PROBE]
            os.execve(words[0], words, environment(own_server.root, PENSTOCK_HOME=str(own_server.data.root)))
        os._exit(70)
    found = shown(master, b"FDS")
    os.write(master, b"typed\n")
    found = shown(master, b"SAID ", found)
    shown(master, b"typed", found.rpartition(b"SAID ")[2])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    theirs = [line.split()[1] for line in found.decode().splitlines() if line.startswith("TTY")]
    assert (len(theirs), os.ttyname(slave) in found.decode()) == (1, False)
    os.set_blocking(slave, False)
    tty.setraw(slave, termios.TCSANOW)
    with pytest.raises(BlockingIOError):
        os.read(slave, 1)  # what root's shell would read as typed
    os.close(master)
    os.close(slave)


def test_the_terminal_of_root_is_as_it_was(own_server, hostile):
    job, _ = hostile
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    words = [*PENSTOCK, "shell", str(job), "--", "/bin/stty", "-a"]
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    with subprocess.Popen(
        words,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(own_server.root, PENSTOCK_HOME=str(own_server.data.root)),
    ) as running:
        assert b"rows 33; columns 77" in shown(master, b"columns 77")
        assert running.wait(30) == 0
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)
