"""What a job does to harm others, one way each: programs for the machine's own Python, run as the account of the job.

Each prints `ready` once it is at it, and goes on until it is killed. `ROOT` is the data folder, `VICTIM` a folder of
root's that holds a secret, `OTHER` a folder of another account.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

PYTHON = "/usr/bin/python3"
_BEGIN = """
import ctypes, fcntl, glob, os, resource, signal, socket, struct, sys, time
from pathlib import Path
work, checkpoints = os.environ["PENSTOCK_SCRATCH_DIR"], os.environ["PENSTOCK_CHECKPOINT_DIR"]
report, root, victim = os.environ["PENSTOCK_REPORT_FILE"], os.environ["ROOT"], os.environ["VICTIM"]
other = os.environ["OTHER"]
def ready():
    print("ready", flush=True)
def forever(deed, pause=0.0):
    ready()
    while True:
        try:
            deed()
        except (OSError, ValueError, MemoryError):
            pass
        time.sleep(pause)
"""


class Deed(NamedTuple):
    program: str
    fields: Mapping[str, Any] = MappingProxyType({})
    """Of its job."""

    @property
    def command(self) -> list[str]:
        return [PYTHON, "-c", _BEGIN + self.program]


DEEDS: dict[str, Deed] = {
    "holds leases on its output and report": Deed("""
signal.signal(signal.SIGIO, signal.SIG_IGN)
held = []
for path in (report, os.readlink("/proc/self/fd/1")):
    for mode in (os.O_RDWR, os.O_RDONLY):
        try:
            held.append(os.open(path, mode))
            fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            pass
forever(lambda: None, 0.5)
"""),
    "puts pipes and links where its folders were made": Deed(
        """
def deed():
    for home in glob.glob(f"{root}/*/*/**/daemon", recursive=True):
        os.chmod(home, 0o700)
        for name in os.listdir(home):
            try:
                os.rename(f"{home}/{name}", f"{home}/moved-{time.monotonic_ns()}")
                (os.mkfifo if time.monotonic_ns() % 2 else lambda path: os.symlink(victim, path))(f"{home}/{name}")
            except OSError:
                pass
        for number in range(8):
            try:
                os.mkfifo(f"{home}/pipe-{number}")
                os.symlink(victim, f"{home}/link-{number}")
            except OSError:
                pass
deed()
forever(deed, 0.01)
""",
        {"setup": ["mkdir -p $PENSTOCK_SETUP_DIR/a/b; touch $PENSTOCK_SETUP_DIR/a/c"]},
    ),
    "makes a deep tree where its steps work": Deed(
        "forever(lambda: None, 1)",
        {"setup": ["cd $PENSTOCK_SETUP_DIR; i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; mkfifo p"]},
    ),
    "exchanges its folders and files for links": Deed("""
def deed():
    for folder in (work, checkpoints):
        for name in ("attempt", "batch", "x", "manifest.json", ".penstock-job"):
            path = f"{folder}/{name}"
            try:
                os.unlink(path)
            except OSError:
                pass
            os.symlink(f"{victim}/secret", path)
            os.rename(path, path + ".moved")
            os.mkfifo(path)
    for path in (work, checkpoints, report):
        try:
            os.rename(path, path + ".moved")
        except OSError:
            pass
deed_or = deed
forever(deed_or, 0.001)
"""),
    "makes folders with many entries": Deed("""
def deed():
    for number in range(40_000):
        open(f"{work}/{number}", "w").close()
        os.mkdir(f"{checkpoints}/{number}")
forever(deed, 1)
"""),
    "forks without end": Deed(
        """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def deed():
    if os.fork() == 0:
        os.setsid()
forever(deed)
""",
        {"memory": "256MiB"},
    ),
    "prints without end": Deed("""
block = b"x" * 65_535 + b"\\n"
ready()
while True:
    os.write(1, block)
"""),
    "reports without end": Deed("""
line = b'{"kind": "progress", "step": 1, "time_ms": 1}\\n' * 1_000
wrong = b"\\0" * 70_000 + b"\\n{" + b"[" * 5_000 + b"\\n"
descriptor = os.open(report, os.O_WRONLY | os.O_APPEND)
total = [0]
def deed():
    if total[0] < 256 << 20:
        total[0] += os.write(descriptor, line + wrong)
    else:
        time.sleep(1)
forever(deed)
"""),
    "keeps connections to all ports of the machine": Deed("""
held = []
def deed():
    for port in [int(line.split()[1].split(":")[1], 16) for line in open("/proc/net/tcp") if line.split()[3] == "0A"]:
        if len(held) > 400:
            held.pop(0).close()
        one = socket.socket()
        one.settimeout(0.2)
        held.append(one)
        one.connect(("127.0.0.1", port))
        one.send(b"\\x16\\x03\\x01" + os.urandom(300))
forever(deed, 0.01)
"""),
    "signals and traces whatever it can name": Deed("""
libc = ctypes.CDLL(None)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def deed():
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            for number in (signal.SIGSTOP, signal.SIGKILL):
                try:
                    os.kill(int(name), number)
                except OSError:
                    pass
            libc.ptrace(16, int(name), 0, 0)
forever(deed, 0.05)
"""),
    "takes memory without end": Deed(
        """
def deed():
    held = []
    while True:
        held.append(bytearray(b"1") * (8 << 20))
forever(deed)
""",
        {"memory": "128MiB", "retries": 3},
    ),
    "takes half of the ports of gangs": Deed("""
held = []
for port in range(21_000, 21_100):
    try:
        one = socket.socket()
        one.bind(("0.0.0.0", port))
        one.listen()
        held.append(one)
    except OSError:
        pass
forever(lambda: None, 1)
"""),
    "leaves daemons that ignore every signal": Deed("""
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "600"], {})
        os._exit(0)
forever(lambda: None, 1)
"""),
    "reads what others have": Deed("""
def deed():
    for top in (root, victim, other):
        for where, folders, names in os.walk(top):
            for name in names:
                try:
                    with open(f"{where}/{name}", "rb") as file:
                        text = file.read(4096)
                    if b"SECRET" in text:
                        print("FOUND", where, name, text[:99], flush=True)
                except OSError:
                    pass
    for name in os.listdir("/proc"):
        try:
            text = Path(f"/proc/{name}/environ").read_bytes()
            if b"SECRET" in text:
                print("FOUND", name, flush=True)
        except OSError:
            pass
forever(deed, 0.2)
"""),
    "writes where others look": Deed("""
def deed():
    for top in (root, victim, other, "/tmp"):
        for where, folders, names in os.walk(top):
            for name in names:
                if top == "/tmp" and not where.startswith(root):
                    continue
                try:
                    with open(f"{where}/{name}", "ab") as file:
                        if not where.startswith((work, checkpoints)) and f"{where}/{name}" != report:
                            print("WROTE", where, name, flush=True)
                except OSError:
                    pass
forever(deed, 0.2)
"""),
}
"""By what it does."""
