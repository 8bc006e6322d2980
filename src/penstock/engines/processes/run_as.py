"""The gate of a replica that runs as another account: started by root as `python -I -S run_as.py ARGUMENTS`.

It enters its control groups, waits for the word of the agent like the shell in `spawn.py`, turns into the account and
then into the program. Until then it has nothing of the job's environment: the dynamic loader would obey its variables
as root. The environment waits in descriptor 4. Nothing of Penstock is imported here.

Arguments: account, its group's and its own number, working directory, checkpoint directory, the file that says that it
never ran, how many control files follow, these, the command.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import warnings  # noqa: F401 - `execvpe` wants it, when the account may no longer read where it lies

NEVER_RAN_CODE = 126
NOT_FOUND_CODE = 127
GO, ENVIRONMENT = 3, 4
KEYCTL = {"x86_64": 250}
"""Number of the system call by machine; 219 on all others."""
JOIN_SESSION_KEYRING = 1
PR_SET_NO_NEW_PRIVS = 38
CAPABILITIES_VERSION = 0x20080522
UMASK = 0o022
FILES_SOFT, FILES_HARD = 65_536, 524_288
"""Open files of a program, where root has no fewer."""


def main(words: list[str]) -> None:
    """Become the program. Does not return."""
    name, gid, uid, workdir, checkpoints, never_ran, count, *rest = words
    gates, command = rest[: int(count)], rest[int(count) :]
    try:
        for gate in gates:
            with open(gate, "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
    except OSError:
        os._exit(NEVER_RAN_CODE)
    if not os.read(GO, 1):
        os.close(os.open(never_ran, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        os._exit(NEVER_RAN_CODE)
    os.close(GO)
    environment = _environment()
    switch(name, gid=int(gid), uid=int(uid))
    try:
        os.chdir(workdir)
        os.listdir(checkpoints)
    except OSError as error:
        print(f"PermissionError: {name} cannot use {error.filename}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NEVER_RAN_CODE)
    execute(command, environment)


def switch(name: str, *, gid: int, uid: int) -> None:
    """Turn this root process into an account, with nothing of root left: no right, key, limit, mask or priority.

    Raises: OSError; the process has to end then.
    """
    _leave_keyring()
    _leave_priority()
    _bound()
    os.umask(UMASK)
    os.initgroups(name, gid)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _leave_capabilities()


def execute(command: list[str], environment: dict[bytes, bytes]) -> None:
    """Replace the process by a command, looked up in the PATH of `environment`; report a failure. Does not return."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):  # else the program ignores it, too: Python ignores some
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the job's own program
    except OSError as error:
        print(f"{type(error).__name__}: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND_CODE if isinstance(error, FileNotFoundError) else NEVER_RAN_CODE)


def _leave_keyring() -> None:
    """Start a new session keyring, so root's keys are not inherited. A kernel without keys has none.

    Called as root, which may have many: accounts may have 200 keys.
    """
    number = KEYCTL.get(os.uname().machine, 219)
    ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(JOIN_SESSION_KEYRING), None)


def _leave_priority() -> None:
    """Run like any program, however the server was started: not before others, and not spared when memory ends."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        if int(file.read()) < 0:
            file.seek(0)
            file.write("0")


def _bound() -> None:
    """Set limits of a program, not of root. Core dumps have secrets in them: a program may ask for one again."""
    hard = _at_most(resource.getrlimit(resource.RLIMIT_NOFILE)[1], FILES_HARD)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_at_most(hard, FILES_SOFT), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for number in (resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE):
        resource.setrlimit(number, (0, 0))


def _at_most(limit: int, most: int) -> int:
    return most if limit == resource.RLIM_INFINITY else min(limit, most)


def _leave_capabilities() -> None:
    """Drop all capabilities of root, and get none from a program that would give some (setuid, sudo)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    if libc.capset(header, none) or libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _environment() -> dict[bytes, bytes]:
    """Return what waits in descriptor 4: `NAME=VALUE`, each ended by a zero byte."""
    with os.fdopen(ENVIRONMENT, "rb") as file:
        return pairs(file.read())


def pairs(block: bytes) -> dict[bytes, bytes]:
    """Return an environment as the kernel writes it: `NAME=VALUE`, each ended by a zero byte."""
    split = (pair.partition(b"=") for pair in block.split(b"\0") if b"=" in pair)
    return {name: value for name, _, value in split}


if __name__ == "__main__":
    main(sys.argv[1:])
