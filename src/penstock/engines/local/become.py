"""The gate of a replica that runs as another account: started by root as `python -I -S become.py ARGUMENTS`.

It enters its control groups, waits for the word of the agent like the shell in `spawn.py`, turns into the account and
then into the program. Until then it has nothing of the job's environment: a loader that is told by a variable what to
load would do that as root. The environment waits in descriptor 4. Nothing of Penstock is imported here.

Arguments: account, its group's and its own number, working directory, checkpoint directory, the file that says that it
never ran, how many control files follow, these, the command.
"""

import ctypes
import os
import sys
import warnings  # noqa: F401 - `execvpe` wants it, when the account may no longer read where it lies

NEVER_RAN_CODE = 126
NOT_FOUND_CODE = 127
GO, ENVIRONMENT = 3, 4
KEYCTL = {"x86_64": 250}
"""Number of the system call by machine; 219 on all others."""
JOIN_SESSION_KEYRING = 1


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
    _leave_keyring()
    os.initgroups(name, int(gid))
    os.setgid(int(gid))
    os.setuid(int(uid))
    try:
        os.chdir(workdir)
        os.listdir(checkpoints)
    except OSError as error:
        print(f"PermissionError: {name} cannot use {error.filename}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NEVER_RAN_CODE)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the job's own program
    except OSError as error:
        print(f"{type(error).__name__}: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND_CODE if isinstance(error, FileNotFoundError) else NEVER_RAN_CODE)


def _leave_keyring() -> None:
    """Have a keyring of its own: whoever inherits root's may use the keys in it. A kernel without keys has none.

    Called as root, which may have many: accounts may have 200 keys.
    """
    number = KEYCTL.get(os.uname().machine, 219)
    ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(JOIN_SESSION_KEYRING), None)


def _environment() -> dict[bytes, bytes]:
    """Return what waits in descriptor 4: `NAME=VALUE`, each ended by a zero byte."""
    with os.fdopen(ENVIRONMENT, "rb") as file:
        pairs = file.read().split(b"\0")
    return {name: value for name, _, value in (pair.partition(b"=") for pair in pairs if pair)}


if __name__ == "__main__":
    main(sys.argv[1:])
