"""Programs that run as accounts of their own: what these may touch, and that nothing of theirs runs as root."""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.control.config_files import cluster_config
from penstock.core.model.resources import Resources
from penstock.engines.processes import accounts
from penstock.engines.processes.accounts import account_of, cannot_be, one_for_all, private
from penstock.engines.processes.containment import choose
from penstock.engines.processes.sessions import SessionContainment
from penstock.engines.processes.spawn import NEVER_RAN_CODE
from tests.engines.agent.builders import KEY
from tests.engines.processes.processes import SESSIONS, Program
from tests.server.harness import until

OF_LIBC = 3 << 31
"""Signals 32 and 33, which no program sees."""
PRELOAD = "cannot be preloaded"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as other accounts")


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every account can pass through, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-accounts-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def run(reachable: Path) -> Iterator[Callable[..., Program]]:
    """Return a function that starts a gated program as `nobody`."""
    programs: list[Program] = []

    def begin(*command: str, account: str = "nobody", box=None, **fields) -> Program:
        box = box or SESSIONS.box("none", Resources())
        programs.append(Program(box, reachable, command, account=account, **fields))
        return programs[-1]

    yield begin
    for program in programs:
        program.close()


def said(program: Program) -> str:
    assert program.open().status() == 0, program.output()
    return program.output()


@pytest.fixture
def in_a_group() -> Iterator[None]:
    """The agent is in a group that the account is not in."""
    before = os.getgroups()
    os.setgroups([*before, 4])
    yield
    os.setgroups(before)


@root_only
def test_a_program_is_its_account_and_nothing_of_root_is_left(run, in_a_group):
    shown = said(
        run("sh", "-c", "id -ru; id -rg; id -G; grep ^CapEff /proc/self/status; pwd; echo $USER $HOME $LOGNAME")
    )
    nobody = account_of("nobody")
    ids = [str(nobody.uid), str(nobody.gid), str(nobody.gid)]
    assert shown.split("\n")[:3] == ids
    assert "CapEff:\t0000000000000000" in shown
    assert shown.split("\n")[4].endswith(f"/jobs/{KEY.job_id}/work")
    assert shown.split("\n")[5] == f"nobody {nobody.home} nobody"


@pytest.fixture
def unusual() -> Iterator[None]:
    """The agent has limits, masks and priorities that are not for programs of others, as far as this root may."""
    core, umask = resource.getrlimit(resource.RLIMIT_CORE), os.umask(0)
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGUSR2)}
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text()
    resource.setrlimit(resource.RLIMIT_CORE, (core[1], core[1]))
    for more in (lambda: os.setpriority(os.PRIO_PROCESS, 0, -5), lambda: score.write_text("-500")):
        with contextlib.suppress(OSError):
            more()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    yield
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    score.write_text(before)
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, core)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.umask(umask)


LOOK = """
umask; ulimit -S -n; ulimit -H -n; ulimit -S -c; ulimit -r; ulimit -e
cat /proc/self/oom_score_adj; cut -d' ' -f19 /proc/self/stat
grep -E '^(NoNewPrivs|SigBlk|SigIgn|CapInh|CapPrm|CapAmb):' /proc/self/status
"""


@root_only
def test_a_program_begins_alike_however_the_server_was_started(run, unusual):
    shown = said(run("bash", "-c", LOOK)).split("\n")
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1] % 2**64, 524_288)
    assert shown[:8] == ["0022", str(min(hard, 65_536)), str(hard), "0", "0", "0", "0", "0"]
    found = {name: int(value, 16) for name, value in (line.split(":\t") for line in shown[8:-1])}
    found["SigIgn"] &= ~OF_LIBC
    assert found == {**dict.fromkeys(("CapInh", "CapPrm", "CapAmb", "SigBlk", "SigIgn"), 0), "NoNewPrivs": 1}


@root_only
def test_a_program_gets_no_right_from_one_that_would_give_it(run, reachable):
    shutil.copy("/usr/bin/id", reachable / "id")
    (reachable / "id").chmod(0o4755)
    assert said(run(str(reachable / "id"), "-u")) == f"{account_of('nobody').uid}\n"


@root_only
def test_it_writes_checkpoints_and_reports_and_cannot_touch_what_the_agent_writes(run, reachable):
    data = run("true").data
    tries = f"""
        echo saved > $PENSTOCK_CHECKPOINT_DIR/x && echo '{{}}' >> $PENSTOCK_REPORT_FILE && echo work > here || exit 1
        for path in {data.job(KEY.job_id)}/x {data.output(KEY)}.x {data.root}/x; do
            echo bad 2>/dev/null >> $path && exit 2
        done
        mv $PENSTOCK_REPORT_FILE {data.job(KEY.job_id)}/y 2>/dev/null && exit 3
        rm -f {data.output(KEY)} 2>/dev/null && exit 4
        ls {data.job(KEY.job_id)} 2>/dev/null && exit 5
        exit 0
    """
    said(run("sh", "-c", tries))
    assert (data.checkpoints(KEY.job_id) / "x").read_text() == "saved\n"
    assert data.report(KEY).read_text() == "{}\n"


@root_only
def test_a_program_may_open_its_own_output_by_name(run):
    assert said(run("sh", "-c", "echo one; echo two >> /dev/stderr; echo three >> /dev/stdout")) == "one\ntwo\nthree\n"


@root_only
def test_what_an_account_prints_is_not_for_others_of_its_group(run):
    program = run("true")
    assert program.data.output(KEY).stat().st_mode & 0o077 == 0


@root_only
def test_one_account_sees_nothing_of_another(run):
    first = run("sh", "-c", "echo mine > $PENSTOCK_CHECKPOINT_DIR/x; sleep 60").open()
    saved = first.data.checkpoints(KEY.job_id) / "x"
    until(saved.exists, "the first has saved")
    look = "id -ru; cat $1 2>&1; cat /proc/$2/environ 2>&1; for x in $3; do cat $x 2>&1; done; exit 0"
    paths = (str(saved), str(first.pid), f"{first.data.report(KEY)} {first.data.output(KEY)}")
    other = run("sh", "-c", look, "look", *paths, account="daemon", key=KEY.__class__(KEY.job_id + 1, 1, 0))
    shown = said(other)
    assert shown.startswith(f"{account_of('daemon').uid}\n")
    assert shown.count("Permission denied") == 4
    assert "mine" not in shown


@root_only
def test_what_waits_to_become_the_program_has_nothing_of_its_environment(run):
    given = (("LD_PRELOAD", "/nonexistent/evil.so"), ("PYTHONPATH", "/nonexistent"), ("TOKEN", "hidden"))
    program = run("true", env=given)
    shown = Path(f"/proc/{program.pid}/environ").read_bytes()
    until(lambda: b"run_as" in Path(f"/proc/{program.pid}/cmdline").read_bytes(), "the gate is there")
    assert b"hidden" not in shown + Path(f"/proc/{program.pid}/cmdline").read_bytes()
    assert b"LD_PRELOAD" not in shown
    assert said(program).count(PRELOAD) == 1, "only the program itself has tried to load it"


KEYS = """
import ctypes, os, sys
call, number = ctypes.CDLL(None).syscall, {"x86_64": 250}.get(os.uname().machine, 219)
held = ctypes.create_string_buffer(64)
call(number, 11, int(sys.argv[1]), held, 64)  # KEYCTL_READ
print(held.value.decode())
"""


@root_only
def test_keys_that_root_holds_in_the_kernel_stay_behind(run):
    call = ctypes.CDLL(None).syscall
    join, add = ((250, 1), 248) if os.uname().machine == "x86_64" else ((219, 1), 217)
    child = os.fork()
    if child == 0:  # in a session keyring that ends with it
        code = 2
        try:
            call(*join, None)
            key = call(add, b"user", b"penstock-test", b"of-root", 7, -3)
            code = 3 if key <= 0 else int(said(run("/usr/bin/python3", "-c", KEYS, str(key))) != "\n")
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 3:
        pytest.skip("this kernel keeps no keys")
    assert code == 0


@root_only
def test_it_is_in_its_box_before_it_runs(run):
    containment = choose("penstock-test-accounts")
    if isinstance(containment, SessionContainment):
        pytest.skip("no control groups can be written here")
    box = containment.box("n1.x", Resources())
    program = run("sleep", "60", box=box).open()
    until(lambda: Path(f"/proc/{program.pid}/cmdline").read_bytes().startswith(b"sleep"), "it runs")
    assert program.pid in box.pids()
    program.close()
    until(lambda: not box.pids(), "it has ended")
    box.remove()
    containment.close()


@root_only
def test_a_gate_that_is_never_opened_leaves_a_note_and_has_run_nothing(run):
    program = run("sh", "-c", "echo ran")
    os.close(program.gate._write_end)
    assert program.status() == NEVER_RAN_CODE
    assert program.data.never_ran(KEY).exists()
    assert program.output() == ""
    program.gate._write_end = os.open(os.devnull, os.O_WRONLY)


@root_only
@pytest.mark.parametrize(
    ("command", "workdir", "code", "text"),
    [
        ("true", "/root", 126, "PermissionError: nobody cannot use /root: Permission denied"),
        ("true", "/nonexistent", 126, "PermissionError: nobody cannot use /nonexistent: No such file or directory"),
        ("/nonexistent/program", "", 127, "FileNotFoundError: /nonexistent/program: No such file or directory"),
        ("/etc/passwd", "", 126, "PermissionError: /etc/passwd: Permission denied"),
    ],
)
def test_what_cannot_be_run_is_told(run, command, workdir, code, text):
    if workdir == "/root" and Path("/root").stat().st_mode & 0o001:
        pytest.skip("everybody may enter /root here")
    program = run(command, workdir=workdir).open()
    assert program.status() == code
    assert text in program.output()


@root_only
@pytest.mark.parametrize("workdir", ["", "/"])
def test_a_folder_that_the_account_cannot_reach_is_told(run, reachable, workdir):
    program = run("true", workdir=workdir)
    reachable.chmod(0o700)
    assert program.open().status() == 126
    assert "PermissionError: nobody cannot use" in program.output()


@root_only
def test_an_unknown_account_is_told_with_the_nearest():
    assert cannot_be("nobodi") == "the machine has no account 'nobodi': did you mean 'nobody'?"
    assert cannot_be("nobody") == ""


def test_who_is_not_root_does_not_pretend_to_switch(monkeypatch):
    monkeypatch.setattr(accounts.os, "geteuid", lambda: 1000)
    assert cannot_be("nobody") == "only root starts programs as nobody"


@pytest.mark.parametrize(
    ("declared", "root", "warned"),
    [
        ({}, False, False),
        ({"tenants": ["vision"]}, False, True),
        ({"users": [{"name": "ann"}]}, False, True),
        ({"tenants": ["vision"]}, True, False),
    ],
)
def test_tenants_who_share_an_account_are_warned_of_each_other(declared, root, warned):
    said = one_for_all(cluster_config(declared), root=root)
    assert ("jobs of all tenants run as one account" in said) == warned


def test_a_private_folder_is_closed_to_others_also_when_it_was_open(tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    assert private(tmp_path / "open").stat().st_mode & 0o777 == 0o700
    assert private(tmp_path / "new", 0o711).stat().st_mode & 0o777 == 0o711
