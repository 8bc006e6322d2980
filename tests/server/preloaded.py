"""Starts servers in processes that have loaded their modules already: forked, and then as if started by `python -m`.

A server imports for longer than it takes to answer, and so do its agents. One process for each worker of the tests
imports what both need, runs nothing of it and has one thread; a program forked from it has words, variables, folder,
session, streams and ignored signals of its own, and shows them in `/proc`. Only its hash seed is that of the others.

Where that cannot be (no Linux that lets it, other settings of Python itself), and in the long profile, programs are
started anew; so they always are by the tests of starting, costs, memory, crashes and commands.
"""

import ctypes
import functools
import gc
import importlib
import json
import mmap
import os
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NamedTuple

from penstock import starts

SERVER, AGENT = "penstock.wire", "penstock.engines.agent.guardian"
ROOT = Path(__file__).resolve().parents[2]
DECIDING = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENBLAS_", "OMP_", "OPENSSL", "SSL_", "TZ")
"""Beginnings of the variables that Python or a library reads once, as it starts."""
ASKED_MAX = 1 << 17
WAIT_S = 60.0
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from tests.server import preloaded; preloaded.serve()"
_PR_SET_MM, _PR_SET_MM_MAP = 35, 14


# Who asks: a test, and a server for its agents.


class Forked:
    """A started program, with those methods of `subprocess.Popen` that tests of servers use."""

    def __init__(self, name: str, pid: int, command: Sequence[str]) -> None:
        self._name, self.pid, self.args = name, pid, command
        self.returncode: int | None = None
        self._end = os.pidfd_open(pid)

    def __del__(self) -> None:
        os.close(self._end)

    def poll(self) -> int | None:
        if self.returncode is None:
            status = _asked(self._name, {"ended": self.pid})["status"]
            self.returncode = None if status is None else os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended. Raises: subprocess.TimeoutExpired."""
        if not select.select([self._end], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start_server(
    options: str, *, output: IO[bytes], variables: Mapping[str, str], anew: bool = False
) -> "Forked | subprocess.Popen[bytes]":
    """Start a server without input; its output and errors go to one file.

    Args:
        anew: whether it may not be forked.
    """
    command = [sys.executable, "-m", SERVER, options]
    if not anew and (name := _source_for(variables)):
        return Forked(name, _started(name, command, output.fileno(), variables, os.getcwd(), kept=True), command)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables)


def settle() -> None:
    """Return when all that was asked for has been started: who asked may be gone."""
    for source in _sources:
        _asked(source.name, {})


def end() -> None:
    """End the process that programs are forked from; they go on."""
    while _sources:
        with _sources.pop().process as process:
            process.kill()  # its standard input may be open in children of this process


def _begin(name: str, anew: Callable[..., Any], module: str, *words: str, **how: Any) -> Any:
    """Be `starts.begin` in a server; its agents are forked, too."""
    if module != AGENT:
        return anew(module, *words, **how)
    variables, output = starts.environment(how.get("variables")), how["output"]
    descriptor = output if isinstance(output, int) else output.fileno()
    command = starts.python(module, *words)
    return SimpleNamespace(pid=_started(name, command, descriptor, variables, starts.HOME, kept=False), returncode=None)


def _started(
    name: str, command: list[str], output: int, variables: Mapping[str, str], folder: str, *, kept: bool
) -> int:
    """Return the process of a program that has begun.

    Args:
        kept: whether somebody will ask how it ended; else it is nobody's child, in a session of its own.
    """
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
    asked = {"command": command, "variables": dict(variables), "folder": folder, "kept": kept, "ignored": ignored}
    with open(os.devnull, "rb") as nothing:
        pid = int(_asked(name, asked, nothing.fileno(), output, output)["pid"])
    if not pid:
        raise OSError(f"{command} was not started: see its output")
    return pid


def _asked(name: str, what: dict[str, Any], *files: int) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.settimeout(WAIT_S)
        link.connect(f"\0{name}")
        socket.send_fds(link, [json.dumps(what).encode()], files)
        answer: dict[str, Any] = json.loads(link.recv(ASKED_MAX))
        return answer


class _Source(NamedTuple):
    """The process that programs are forked from; it ends with this one at the latest."""

    name: str
    deciding: dict[str, str]
    process: "subprocess.Popen[bytes]"
    able: bool
    """Whether the kernel lets it."""


_sources: list[_Source] = []
"""At most one."""


def _source_for(variables: Mapping[str, str]) -> str:
    """Return the name of the process to fork from, '' where a program with these variables has to be started anew."""
    if sys.platform != "linux" or os.environ.get("PENSTOCK_SLOW"):
        return ""
    deciding = {name: variables[name] for name in variables if name.startswith(DECIDING)}
    if not _sources:
        _sources.append(_source(deciding))
    return _sources[0].name if deciding == _sources[0].deciding and _sources[0].able else ""


def _source(deciding: dict[str, str]) -> _Source:
    name = f"penstock-tests-{os.getpid()}-{secrets.token_hex(8)}"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, str(ROOT), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=starts.HOME,
        env={"PATH": os.environ["PATH"]} | deciding,  # nothing by which `harness.sweep` would know it
    )
    assert process.stdout is not None
    told = process.stdout.readline()
    assert told in (b"able\n", b"unable\n"), "nothing can be forked: see what it wrote to standard error"
    return _Source(name, deciding, process, told == b"able\n")


# The process that programs are forked from.


def serve() -> None:
    """Fork programs until standard input ends; runs its program in each child."""
    name = sys.argv[2]
    del sys.path[0]  # where this module lies: servers find only ours
    for module in (SERVER, AGENT):
        importlib.import_module(module)
        del sys.modules[module]  # it runs as `__main__`
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(64)
        if os.fork() == 0:
            os._exit(_refused())
        able = (
            os.wait()[1] == 0
        )  # and OpenBLAS has ended its threads for this, and begins new ones where they are needed
        assert os.listdir("/proc/self/task") == [str(os.getpid())], "a thread would be missing in children"
        os.write(1, b"able\n" if able else b"unable\n")
        asked = None
        while asked is None and 0 not in select.select([listener, 0], [], [])[0]:
            with listener.accept()[0] as link:
                asked = _answered(link)
    if asked is not None:
        _run(name, asked)


def _refused() -> bool:
    """Return whether the kernel does not let a process choose what `/proc` shows of it."""
    try:
        _show(["python"], {})
    except OSError:
        return True
    return False


def _answered(link: socket.socket) -> dict[str, Any] | None:
    """Answer one question; return it in the child that it has made."""
    data, files, _, _ = socket.recv_fds(link, ASKED_MAX, 3)
    asked = json.loads(data)
    if "command" in asked:
        heard, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(heard)
            _become(asked, files, told)
            return asked
        os.close(told)
        with open(heard) as said:
            answer: dict[str, Any] = {"pid": int(said.read() or 0)}
        for file in files:
            os.close(file)
        if not asked["kept"]:
            os.waitpid(pid, 0)
    elif "ended" in asked:
        pid, status = os.waitpid(asked["ended"], os.WNOHANG)
        answer = {"status": status if pid else None}
    else:
        answer = {}
    link.send(json.dumps(answer).encode())
    return None


def _become(asked: dict[str, Any], files: list[int], told: int) -> None:
    """Make this child what a new process of the command is, before it loads anything; its number goes to `told`."""
    if not asked["kept"]:
        if os.fork():
            os._exit(0)
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["variables"])
    for number in asked["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    _show(asked["command"], asked["variables"])
    os.write(told, str(os.getpid()).encode())
    os.close(told)


class _Map(ctypes.Structure):
    """`struct prctl_mm_map` of Linux: what `/proc` says of the memory of a process."""

    _names_ = (
        "start_code end_code start_data end_data start_brk brk start_stack arg_start arg_end env_start env_end auxv"
    )
    _fields_ = (
        *((name, ctypes.c_uint64) for name in _names_.split()),
        ("auxv_size", ctypes.c_uint32),
        ("exe", ctypes.c_uint32),
    )


def _show(command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Let `/proc` show these as what the process was started with. Raises: OSError where that is not allowed."""
    words = b"".join(os.fsencode(word) + b"\0" for word in command)
    pairs = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables.items())
    memory = mmap.mmap(-1, len(words + pairs), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(words + pairs)
    _shown.append(memory)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    middle, end = begin + len(words), begin + len(words + pairs)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    text = Path("/proc/self/stat").read_text(encoding="ascii")
    told = [0, 0, 0, 0, *map(int, text[text.rindex(")") + 4 :].split())]  # numbered as in proc(5)
    places = (*told[26:28], *told[45:48], libc.sbrk(0), told[28], begin, middle, middle, end, 0)
    wanted = _Map(*places, 0, 2**32 - 1)
    if libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(wanted), ctypes.sizeof(wanted), 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM_MAP)")


_shown: list[mmap.mmap] = []
"""Lives as long as the process."""


def _run(name: str, asked: dict[str, Any]) -> None:
    """Run the command, `python -m MODULE WORD...` with or without `-P`."""
    sys.orig_argv = list(asked["command"])
    module, *words = sys.orig_argv[sys.orig_argv.index("-m") + 1 :]
    sys.argv = ["-m", *words]
    if module == SERVER:
        starts.begin = functools.partial(_begin, name, starts.begin)
    runpy._run_module_as_main(module)
