"""Keeps the container of one replica: `source_mounts.py`, which the agent's gate starts, becomes it.

It is the first process of the replica's box, and every process of the container is in that box, too: control groups
below it where the runtime makes any. So what holds of plain programs (limits, freezing, killing, counting) holds here.

The container is made, then its first process is moved to the box's own groups, then the program begins. conmon, which
made it, becomes a child of this process, and ends with the program's exit code; when conmon is killed, the program
becomes a child of this process, and its exit is known all the same. When that is not so either, the file `unknown` says
why. Signals go to those processes of the program that catch them: one without a handler would end at once, and the
container with it, while a child of it still saves.

PLAN is a file with JSON, made by `commands.py`; the environment of the program waits in descriptor 4. Nothing of
Penstock is imported here.
"""

# root's: plan, files and mount points lie in the agent's folder

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Any

NEVER_RAN_CODE = 126
NOT_FOUND_CODE = 127
KILLED_CODE = 128 + signal.SIGKILL
ENVIRONMENT = 4
PR_SET_CHILD_SUBREAPER = 36
TOP = "/sys/fs/cgroup"
OWN_GROUPS = ("memory", "cpu", "cpuacct", "pids", "cpuset", "cpu,cpuacct")
"""Trees of version 1 in which the program is moved to the box's own group; in the others it stays below it."""
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
LOOK_S = 0.05
REPORT_S = 10.0
"""How long the runtime may take to report the end of a program that has ended."""
STEP_S = 60.0
"""How long the runtime may take for one step."""
TEXT_MAX = 2_000
MNT_DETACH = 2
NOT_FOUND = ("executable file not found", "executable file `", "no such file or directory")
NOT_EXECUTABLE = ("permission denied", "exec format error", "is a directory")


class Failed(Exception):
    """A step of the runtime failed; the text says how."""


def main(path: str) -> None:
    """Run the container of the plan, and leave as its program did. Does not return."""
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    if plan["output"]:
        for number in (1, 2):
            os.dup2(os.open(plan["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    keeper = Keeper(plan)
    for number in PASSED_ON:
        signal.signal(number, keeper.on_signal)
    code = NEVER_RAN_CODE
    try:
        code = keeper.run()
    except Failed as failure:
        keeper.unknown(str(failure))
    finally:
        keeper.remove()
    os._exit(code)


class Keeper:
    """One container, from its making to its removal."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._first = 0  # first process of the container, as this machine numbers it
        self._conmon = 0
        self._wanted: list[int] = []  # signals that came, and still have to be passed on
        self._stopping = 0  # the stop signal, once it came
        self._asked: set[int] = set()  # processes that got it
        self._killed_by = 0  # the signal that ended it by its default
        self._groups = groups()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal: `_pass_on` does the rest."""
        self._wanted.append(number)

    def run(self) -> int:
        """Return the exit code of the program. Raises: Failed."""
        self._create()
        if self._stops():
            return 128 + self._stopping
        code = self._init()
        if code:
            return code
        self._move_in()
        self._step(self._plan["start"], "could not be started")
        return self._watch()

    def unknown(self, text: str) -> None:
        """Say why there is no exit code of a program."""
        descriptor = os.open(self._plan["unknown"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text[:TEXT_MAX])

    def remove(self) -> None:
        """Remove the container with everything that is left of it."""
        with contextlib.suppress(Failed):
            self._step(self._plan["remove"], "")
        for name in ("environment", "pid", "conmon", "plan"):
            with contextlib.suppress(OSError):
                os.unlink(self._plan[name])
        if self._plan["parts"]:
            taken_down(self._plan["parts"])
        if self._plan["below"]:
            remove_strays(self._groups)

    def _create(self) -> None:
        """Make the container from the plan; its environment goes through a file that is gone at once."""
        lines, several = parted(environment() if self._plan["variables"] else {})
        with open(self._plan["environment"], "wb") as file:
            file.write(lines)
        words = list(self._plan["create"])
        at = words.index("--env-file")
        words[at:at] = [word for name in sorted(several) for word in ("--env", name.decode())]
        if self._plan["below"]:
            words[at:at] = ["--cgroup-parent", self._groups["freezer"]]
        variables = {**os.environb, **several}
        try:
            self._step(words, "could not be made", variables)
        finally:
            os.unlink(self._plan["environment"])

    def _init(self) -> int:
        """Let the runtime start the container up to the program; return 0, or the exit code of one that cannot run."""
        size = os.fstat(1).st_size
        try:
            ended = subprocess.run(  # noqa: S603 - the runtime of this node
                self._plan["init"],
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                timeout=STEP_S,
                check=False,
            )
            failed = ended.returncode != 0
        except subprocess.TimeoutExpired:
            raise Failed(f"its container did not begin within {STEP_S:g} s") from None
        said = taken_back(size)
        if not failed:
            self._first, self._conmon = number_in(self._plan["pid"]), number_in(self._plan["conmon"])
            if not self._first:
                raise Failed("the runtime does not say which process it has started")
            return 0
        program, lowered = self._plan["program"], said.lower()
        if program in said and any(sign in lowered for sign in NOT_FOUND):
            print(f"penstock: the image has no program '{program}'", file=sys.stderr, flush=True)
            return NOT_FOUND_CODE
        if any(sign in lowered for sign in NOT_EXECUTABLE) and program in said:
            print(f"penstock: '{program}' of the image cannot be executed", file=sys.stderr, flush=True)
            return NEVER_RAN_CODE
        raise Failed(f"its container could not be started: {last_error(said)}")

    def _move_in(self) -> None:
        """Let the box's own limits and counters see the program, not only those of a group below."""
        if self._plan["grouped"]:
            own, theirs = self._groups, groups(self._first)
            inside = [tree for tree in ("freezer", "") if tree in own and own[tree] != "/"]
            if not all(f"{theirs.get(tree)}/".startswith(f"{own[tree]}/") for tree in inside):
                raise Failed("the runtime puts its processes outside of the control groups of the job")
        for tree in OWN_GROUPS if self._plan["below"] else ():
            if tree in self._groups and self._groups[tree] != "/":
                with contextlib.suppress(OSError), open(f"{TOP}/{tree}{self._groups[tree]}/cgroup.procs", "w") as file:
                    file.write(str(self._first))

    def _step(self, words: list[str], what: str, variables: dict[bytes, bytes] | None = None) -> None:
        """Run one command of the runtime. Raises: Failed."""
        try:
            ended = subprocess.run(  # noqa: S603 - the runtime of this node
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=variables,
                cwd="/",
                start_new_session=True,  # the stop signal is for the program alone
                timeout=STEP_S,
                check=False,
            )
        except OSError as error:
            raise Failed(f"{words[0]}: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise Failed(f"its container {what}: {words[0]} did not answer within {STEP_S:g} s") from None
        if ended.returncode:
            raise Failed(f"its container {what}: {last_error(ended.stdout.decode(errors='replace'))}")

    def _watch(self) -> int:
        """Pass signals on until the program has ended; return its exit code. Raises: Failed."""
        first = opened(self._first)
        over = time.monotonic() if first is None else 0.0
        codes: dict[int, int] = {}
        while True:
            self._reap(codes)
            if self._conmon in codes and codes[self._conmon] >= 0:
                code = codes[self._conmon]
                return 128 + self._killed_by if self._killed_by and code == KILLED_CODE else code
            if self._first in codes:
                code = codes[self._first]
                return code if code >= 0 else 128 - code
            if not over and first is not None and select.select([first], [], [], LOOK_S)[0]:
                over = time.monotonic()
            elif over:
                time.sleep(LOOK_S / 10)
                if time.monotonic() - over > REPORT_S or (
                    self._conmon in codes and not os.path.exists(f"/proc/{self._first}")
                ):
                    raise Failed("its container's monitor was killed: the exit status of the program is not known")
            self._pass_on()

    def _reap(self, codes: dict[int, int]) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            codes[pid] = os.waitstatus_to_exitcode(status)

    def _stops(self) -> bool:
        """Return whether it was asked to stop before it began."""
        self._stopping = next((number for number in self._wanted if number == self._plan["stop"]), 0)
        return bool(self._stopping)

    def _pass_on(self) -> None:
        """Send the signals that came to those who catch them; see the top of this file."""
        if not self._wanted and not self._stopping:
            return
        members = family(self._first)
        while self._wanted:
            number = self._wanted.pop(0)
            if number == self._plan["stop"]:
                self._stopping = number
            else:
                send(number, catchers(self._first, members, number))
        if self._stopping:
            self._stop(self._stopping, members)

    def _stop(self, number: int, members: list[int]) -> None:
        """Send the stop signal, once to each: to those of the program's process group that catch it, and to all when
        none is left that does.
        """
        saving = [pid for pid in members if catches(pid, number)]
        asked = [pid for pid in saving if stat(pid)[1] == self._first] or members
        send(number, [pid for pid in asked if pid not in self._asked])
        self._asked.update(asked)
        if not saving and self._plan["private"]:
            # The first process of a namespace ends by no signal that it does not catch.
            self._killed_by = number
            send(signal.SIGKILL, [self._first])


def taken_down(parts: str) -> None:
    """Remove the folder of what was mounted for a container: never anything in what is mounted there."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parts):
            point = f"{parts}/{name}"
            ctypes.CDLL(None).umount2(os.fsencode(point), MNT_DETACH)
            with contextlib.suppress(OSError):
                (os.rmdir if os.path.isdir(point) else os.unlink)(point)
        os.rmdir(parts)


def environment() -> dict[bytes, bytes]:
    """Return what waits in descriptor 4: `NAME=VALUE`, each ended by a zero byte."""
    with os.fdopen(ENVIRONMENT, "rb") as file:
        pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if b"=" in pair]
    return {name: value for name, _, value in pairs}


def parted(variables: dict[bytes, bytes]) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the lines of a file of variables, and those that have line breaks in them, which no such file can hold.

    These are given by the environment of the runtime. One that means something to it, or to the dynamic loader, is none
    that a job may set there.
    """
    lines, several = b"", dict[bytes, bytes]()
    for name, value in variables.items():
        if b"\n" not in value and b"\r" not in value:
            lines += name + b"=" + value + b"\n"
        elif name.isupper() and not name.startswith(KEPT_FROM_THE_RUNTIME) and not name.endswith(b"_PROXY"):
            several[name] = value
        else:
            raise Failed(
                f"the variable {name.decode(errors='replace')} has several lines: no container can be given it"
            )
    return lines, several


KEPT_FROM_THE_RUNTIME = (
    b"LD_", b"PATH", b"HOME", b"XDG_", b"CONTAINER", b"_CONTAINER", b"GO", b"TMP", b"NOTIFY_", b"LISTEN_", b"REGISTRY_",
    b"STORAGE_", b"PODMAN", b"DOCKER", b"DBUS", b"BUILDAH", b"CONMON", b"SSL_", b"MALLOC_", b"GLIBC_", b"GCONV_",
    b"LOC", b"NLSPATH", b"RES_", b"HOSTALIASES", b"NETAVARK", b"CNI_", b"USER", b"SHELL", b"_",
)  # fmt: skip


def groups(pid: int | str = "self") -> dict[str, str]:
    """Return the control groups of a process by their tree."""
    found = {}
    with open(f"/proc/{pid}/cgroup", encoding="ascii") as file:
        for line in file:
            _, tree, path = line.rstrip("\n").split(":", 2)
            found[tree.removeprefix("name=")] = path
    return found


def remove_strays(own: dict[str, str]) -> None:
    """Remove the groups that the runtime made beside the box: of the same path in trees where the box has none. Their
    parent stays, for others of the node are below it.
    """
    box = own["freezer"]
    for tree, path in own.items():
        if path != box:
            with contextlib.suppress(OSError):
                os.rmdir(f"{TOP}/{tree or 'unified'}{box}")


def taken_back(size: int) -> str:
    """Return what was added to the output since it had this size, and take it out again."""
    with contextlib.suppress(OSError):
        with open("/proc/self/fd/1", "rb") as file:
            file.seek(size)
            said = file.read(65_536).decode(errors="replace")
        os.ftruncate(1, size)
        return said
    return ""


def last_error(said: str) -> str:
    """Return what the runtime says of its failure."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    best = [line for line in lines if "failed" in line.lower() or line.startswith("Error")]
    return (best[0] if best else lines[-1] if lines else "it does not say why")[:TEXT_MAX]


def number_in(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def stat(pid: int | str) -> tuple[int, int]:
    """Return parent and process group of a process; zeros when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(") ")[2].split()
        return int(fields[1]), int(fields[2])
    except (OSError, ValueError, IndexError):
        return 0, 0


def family(first: int) -> list[int]:
    """Return a process and its descendants, parents before children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(stat(name)[0], []).append(int(name))
    found = [first]
    for pid in found:
        found += children.get(pid, [])
    return found


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False


def catchers(first: int, members: list[int], number: int) -> list[int]:
    """Return those that catch a signal, from the first process down, without their descendants."""
    found: list[int] = []
    inside = {first}
    for pid in members:
        if pid in inside and catches(pid, number):
            found.append(pid)
            inside.discard(pid)
        elif pid in inside:
            inside.update(one for one in members if stat(one)[0] == pid)
    return found


def send(number: int, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


if __name__ == "__main__":
    main(sys.argv[1])
