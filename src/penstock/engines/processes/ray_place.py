"""One place of a job with `runtime: ray`: its part of the job's Ray cluster, and at the first place the program.

Started as `python -I -S ray_place.py --cpus=N --devices=N --memory=BYTES --store=BYTES -- COMMAND` by the job's user;
nothing of Penstock is imported here. The first place starts Ray's head, tells the others its port over the rendezvous
port of the attempt, starts the program when Ray shows all nodes, and ends as the program ends; the others end then.
Stop signals reach the program alone, so that it saves while its cluster still works.

The scheduler gave out the rendezvous port, the kernel all others. `ray stop` is never used: it ends the processes of
every cluster on the machine.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

START_S = 300.0
"""For all places to join; an environment on shared storage is slow to load."""
HANDSHAKE_S, POLL_S = 10.0, 0.1
END_S = 3.0
"""For Ray's processes here to end by themselves; what is left the agent kills with the replica."""
FOLDER_MAX = 40
"""Characters of Ray's folder: its sockets lie 66 deeper, and their paths have 107 at most."""
LINE_MAX = 4_096
CONNECTIONS_EXTRA = 16
"""Of strangers at a time, beside one of each place."""
STORE_MIN, STORE_MAX = 80 * 2**20, 4 * 2**30
"""Object store of a place that no request limits (bytes)."""
STORE_SHARE = 0.3
FOLDERS, OPENED = "penstock-ray-", "r"
"""Ray lets everybody write to its folder: it lies, as the second, in one that nobody else may enter."""
OWN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables of the place, not of programs on the cluster: those would form a gang with processes that are none."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
KERNEL_PORTS = ("--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0")
"""All others are the kernel's by default, but that of the head."""
OUTSIDE = "import sys; sys.path[:] = [one for one in sys.path if one]\n"
"""A folder `ray` where the job starts is not Ray."""
HAS_RAY = OUTSIDE + "import importlib.util; sys.exit(importlib.util.find_spec('ray') is None)"
START = OUTSIDE + "from ray.scripts.scripts import main; sys.exit(main())"
ALL_ALIVE = f"""{OUTSIDE}import time
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
state = GlobalState()
options = GcsClientOptions.create(sys.argv[1], None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
state._initialize_global_state(options)
while sum(node["Alive"] for node in state.node_table()) < int(sys.argv[2]):
    time.sleep(0.05)
"""
"""What `ray.nodes()` shows, without a driver that would count as a job."""


class Failed(Exception):
    """Why the cluster was not formed, or has gone."""


class Place:
    """What is known of this place."""

    def __init__(self, options: dict[str, str]) -> None:
        known = os.environ
        self.rank, self.world = int(known.get("RANK", "0")), int(known.get("WORLD_SIZE", "1"))
        self.local_rank = int(known.get("LOCAL_RANK", "0"))
        self.master, self.port = known.get("MASTER_ADDR") or "127.0.0.1", int(known.get("MASTER_PORT") or "0")
        self.token = known.get("RAY_AUTH_TOKEN") or secrets.token_hex(32)
        self.cpus, self.devices = int(options["--cpus"]), int(options["--devices"])
        self.memory = int(options["--memory"])
        self.store = int(options["--store"]) or _store_bytes(self.memory)

    @property
    def folder(self) -> Path:
        """Where Ray's folder and logs lie; one for all places of the attempt on a machine."""
        return short_path(FOLDERS + hashlib.sha256(self.token.encode()).hexdigest()[:8])


def main() -> int:
    """Be one place of the job. Returns: the exit code, where no signal ended the program."""
    words = sys.argv[1:]
    end = words.index("--")
    place, command = Place(dict(word.split("=", 1) for word in words[:end])), words[end + 1 :]
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with _folder(place) as folder:
            ray = Ray(place, folder)
            try:
                return _lead(place, ray, command, stopped) if place.rank == 0 else _follow(place, ray)
            finally:
                ray.end()
    except Failed as failed:
        if stopped.is_set():
            _end_by(signal.SIGTERM)
        sys.stderr.write(f"penstock: {failed}\n")
        return 1


def _store_bytes(memory: int) -> int:
    """Return the size of an object store: a part of what the place may use, and of what the machine can hold."""
    part = int(memory * STORE_SHARE) if memory else STORE_MAX
    with contextlib.suppress(OSError):
        shared = os.statvfs("/dev/shm")  # noqa: S108 - where Ray keeps it
        part = min(part, int(shared.f_bavail * shared.f_frsize * 0.8))
    return max(STORE_MIN, part)


@contextlib.contextmanager
def _folder(place: Place) -> Iterator[Path]:
    """Make Ray's folder, for this account alone; the last place that leaves removes it. Raises: Failed."""
    folder = place.folder
    _sweep(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    known = folder.lstat()
    if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.getuid() or known.st_mode & 0o077:
        raise Failed(f"{folder} is not a private folder of this account")
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield folder
    finally:
        _remove_unused(folder, lock)
        os.close(lock)


def _remove_unused(folder: Path, lock: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what places of this account left behind that were killed."""
    for folder in parent.glob(f"{FOLDERS}????????"):
        with contextlib.suppress(OSError):
            lock = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if folder.lstat().st_uid == os.getuid():
                    _remove_unused(folder, lock)
            finally:
                os.close(lock)


class Ray:
    """Ray's processes of this place, in a session of their own: stop signals do not reach them."""

    def __init__(self, place: Place, folder: Path) -> None:
        self._place, self.folder = place, folder / OPENED
        self._log = folder / f"place-{place.rank}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.python = _python()

    def start(self, *words: str) -> None:
        """Start the head, or a node of the cluster at an address."""
        place = self._place
        limits = [f"--num-cpus={place.cpus}", f"--num-gpus={place.devices}", f"--object-store-memory={place.store}"]
        limits += [f"--memory={max(1, place.memory - place.store)}"] if place.memory else []
        logs = f"--include-log-monitor={'false' if place.local_rank else 'true'}"  # one for each machine
        command = [self.python, "-c", START, "start", "--block", *words, *KERNEL_PORTS, *limits, logs]
        command += [f"--temp-dir={self.folder}", "--disable-usage-stats"]
        threads = str(place.cpus)  # as the agent set it: Ray gives each task those that it asks for
        environment = {n: v for n, v in self.environment().items() if n not in THREADS or v != threads}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - Ray, as the job brings it
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
                cwd=os.getcwd(),  # tasks start there
            )

    def environment(self, address: str = "") -> dict[str, str]:
        """Return the environment of programs on this cluster, and on no other one."""
        kept = {n: v for n, v in os.environ.items() if n not in (*OWN, "RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH")}
        kept |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._place.token, "RAY_USAGE_STATS_ENABLED": "0"}
        return {**kept, "RAY_ADDRESS": address} if address else kept

    def check(self) -> None:
        """Raises: Failed when Ray's processes here have ended, with what they said last."""
        if self._process is not None and (status := self._process.poll()) is not None:
            said = self._log.read_text(errors="replace").strip().splitlines()[-8:]
            raise Failed(f"Ray has ended here (exit {status}):\n" + "\n".join(f"  {line}" for line in said))

    def end(self) -> None:
        if (process := self._process) is None:
            return
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def short_path(name: str) -> Path:
    """Return the path of a temporary folder below which Ray's sockets have paths that are not too long."""
    temporary = Path(tempfile.gettempdir()) / name
    return temporary if len(str(temporary / OPENED)) <= FOLDER_MAX else Path("/tmp") / name  # noqa: S108 - made private


def head_port(folder: Path) -> int | None:
    """Return the port of the head whose temporary folder this is, once it is written down whole (not as `.tmp`)."""
    for path in folder.glob("session_2*/gcs_server_port_*[0-9a-f]"):
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text())
    return None


def _python() -> str:
    """Return a Python that has Ray: that of the job's PATH, else the agent's own. Raises: Failed."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    for python in (*(f"{folder}/{name}" for name in ("python3", "python") for folder in folders), sys.executable):
        with contextlib.suppress(OSError):
            done = subprocess.run([python, "-c", HAS_RAY], check=False, capture_output=True, cwd="/")  # noqa: S603
            if done.returncode == 0:
                return python
    raise Failed("no Python here has Ray: a job with `runtime: ray` brings it, for example in its environment")


def _until(true: Callable[[], Any], ray: Ray, stopped: threading.Event, what: str) -> Any:
    """Return what is true, once it is. Raises: Failed when that takes too long, Ray ends, or the job is stopped."""
    deadline = time.monotonic() + START_S
    while not (found := true()):
        ray.check()
        if stopped.is_set():
            raise Failed("stopped before the program started")
        if time.monotonic() > deadline:
            raise Failed(f"waited {START_S:.0f} s for {what}")
        time.sleep(POLL_S)
    return found


def _lead(place: Place, ray: Ray, command: list[str], stopped: threading.Event) -> int:
    """Form the cluster, run the program, and end as it does. Raises: Failed."""
    gate = Gate(place) if place.world > 1 else None
    ray.start("--head", f"--node-ip-address={place.master}", "--port=0", "--include-dashboard=false")
    port = _until(lambda: head_port(ray.folder), ray, stopped, "the head")
    if gate is not None:
        gate.open(port)
    address = f"{place.master}:{port}"
    watch = subprocess.Popen(  # noqa: S603 - the Python of the job
        [ray.python, "-c", ALL_ALIVE, address, str(place.world)], env=ray.environment(), start_new_session=True, cwd="/"
    )
    try:
        joined = _until(lambda: watch.poll() is not None, ray, stopped, f"{place.world} nodes of Ray")
        if not joined or watch.returncode:
            raise Failed("Ray does not say which nodes it has")
    finally:
        watch.kill()
        watch.wait()
    try:
        program = subprocess.Popen(command, env=ray.environment(address), cwd=os.getcwd())  # noqa: S603 - the job's own
    except OSError as error:
        sys.stderr.write(f"penstock: {command[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126
    status = _outlive(program, ray)
    if gate is not None:
        gate.over()
    ray.end()
    sys.stdout.flush()
    if status < 0:
        _end_by(-status)
    return status


def _outlive(program: "subprocess.Popen[bytes]", ray: Ray) -> int:
    """Wait for the program; end it where its cluster has gone. Returns: its status as `subprocess` says it."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return program.wait(1.0)
        try:
            ray.check()
        except Failed as failed:
            sys.stderr.write(f"penstock: {failed}\n")
            program.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(END_S)
            program.kill()
            program.wait()
            return 1


class Gate:
    """Tells the other places of the attempt where the head is, and later that all is over."""

    def __init__(self, place: Place) -> None:
        try:
            self._listener = socket.create_server((place.master, place.port), backlog=place.world + CONNECTIONS_EXTRA)
        except OSError as error:
            raise Failed(f"rendezvous port {place.port}: {error.strerror}") from error
        self._place, self._port = place, 0
        self._slots = threading.BoundedSemaphore(place.world + CONNECTIONS_EXTRA)
        self._lines: list[Line] = []
        self._changing = threading.Lock()

    def open(self, port: int) -> None:
        self._port = port
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            self._slots.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        line = Line(connection)
        try:
            connection.settimeout(HANDSHAKE_S)
            line.as_head(self._place.token)
            with self._changing:
                line.say(port=self._port)
                self._lines.append(line)
            connection.settimeout(None)
            line.hear()  # its end
        except (OSError, ValueError):
            pass
        finally:
            with self._changing:
                if line in self._lines:
                    self._lines.remove(line)
            line.close()
            self._slots.release()

    def over(self) -> None:
        """Say that the program has ended."""
        with self._changing:
            for line in self._lines:
                with contextlib.suppress(OSError):
                    line.say(over=True)


def _follow(place: Place, ray: Ray) -> int:
    """Be a node of the cluster until the program at the first place has ended. Raises: Failed."""
    line = _connected(place)
    try:
        port = line.hear().get("port")
        ray.start(f"--address={place.master}:{port}", f"--node-ip-address={line.connection.getsockname()[0]}")
        while not select.select([line], [], [], POLL_S)[0]:
            ray.check()
        over = line.hear().get("over")
    except (OSError, ValueError) as error:
        raise Failed(f"the first place of the job does not answer: {error}") from error
    finally:
        line.close()
    if not over:
        raise Failed("the first place of the job has gone")
    return 0


def _connected(place: Place) -> "Line":
    """Return a line to the first place, once it has a head. Raises: Failed."""
    deadline, problem = time.monotonic() + START_S, "nobody listens"
    while time.monotonic() < deadline:
        try:
            connection = socket.create_connection((place.master, place.port), timeout=HANDSHAKE_S)
            line = Line(connection)
            connection.settimeout(START_S)  # it answers once its head runs
            line.as_place(place.token)
            connection.settimeout(None)
        except (OSError, ValueError) as error:
            problem = str(error)
            time.sleep(POLL_S)
        else:
            return line
    raise Failed(f"waited {START_S:.0f} s for the first place at {place.master}:{place.port}: {problem}")


class Line:
    """A connection of two places: lines of JSON; both have proved before that they know the attempt's token."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._reader = connection.makefile("rb")

    def as_head(self, token: str) -> None:
        """Prove it to a place, and have it proved. Raises: ValueError, OSError."""
        theirs, mine = str(self.hear().get("nonce")), secrets.token_hex(16)
        self.say(nonce=mine, proof=_proof(token, "head", theirs, mine))
        _check(self.hear(), _proof(token, "place", theirs, mine))

    def as_place(self, token: str) -> None:
        """Prove it to the first place, and have it proved. Raises: ValueError, OSError."""
        mine = secrets.token_hex(16)
        self.say(nonce=mine)
        said = self.hear()
        theirs = str(said.get("nonce"))
        _check(said, _proof(token, "head", mine, theirs))
        self.say(proof=_proof(token, "place", mine, theirs))

    def fileno(self) -> int:
        return self.connection.fileno()

    def say(self, **said: object) -> None:
        self.connection.sendall(json.dumps(said).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """Return what the other side says next. Raises: ValueError at the end of the connection."""
        text = self._reader.readline(LINE_MAX)
        said = json.loads(text) if text.endswith(b"\n") else None
        if not isinstance(said, dict):
            raise ValueError("the connection has ended")
        return said

    def close(self) -> None:
        self._reader.close()
        self.connection.close()


def _proof(token: str, *words: str) -> str:
    return hmac.new(token.encode(), " ".join(words).encode(), hashlib.sha256).hexdigest()


def _check(said: dict[str, Any], proof: str) -> None:
    if not hmac.compare_digest(str(said.get("proof")), proof):
        raise ValueError("a stranger answers")


def _end_by(number: int) -> NoReturn:
    """End by a signal, as the program did."""
    sys.stderr.flush()
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
