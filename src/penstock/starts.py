"""Starting programs: Penstock's own processes, and the tools they use.

A command may be typed in a folder of another user's files: a cloned repository, a shared disk. No file of it
may run as the user of the server. So the words of each start have `-P` (Python does not look for modules in the
working directory), and each process begins in `/`: a relative path in PYTHONPATH, PATH or LD_LIBRARY_PATH, or an
empty one, cannot mean that folder. Never `-I`: the user's own packages and PYTHONPATH go on working.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

HOME = "/"
"""Working directory of all our processes. Given paths are made absolute before."""
_SEARCHED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_PLACES = (
    *("TMPDIR", "TEMP", "TMP", "PENSTOCK_CA", "PENSTOCK_HOME", "PENSTOCK_TRACES", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("PGPASSFILE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGSSLCERT", "PGSSLKEY", "PGSSLROOTCERT", "PGSSLCRL"),
)
_NO_PLACES = ("system",)
"""Of PGSSLROOTCERT: the authorities of the system."""


def python(module: str, *arguments: str) -> list[str]:
    """Return the words that start a module of ours in a Python of its own."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment that means the same in `/`: paths and search paths are absolute.

    Args:
        base: this process's own by default; of its working directory, too.
    """
    found = dict(os.environ if base is None else base)
    for name in _SEARCHED:
        if name in found:
            found[name] = os.pathsep.join(absolute_only(found[name]))
    if not found.get("PYTHONPATH", "-"):
        del found["PYTHONPATH"]
    if not found.get("LD_LIBRARY_PATH", "-"):
        del found["LD_LIBRARY_PATH"]
    for name in _PLACES:
        if found.get(name) and found[name] not in _NO_PLACES:
            found[name] = str(whole(found[name]))
    return found


def absolute_only(path: str) -> list[str]:
    """Return the folders of a search path that are absolute."""
    return [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]


def tool(name: str) -> str | None:
    """Return where a program lies, or None: looked for in the absolute folders of PATH only."""
    return shutil.which(name, path=os.pathsep.join(absolute_only(os.environ.get("PATH", os.defpath))))


def begin(
    module: str, *arguments: str, output: int | IO[Any], variables: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a module of ours that outlives this process: in a session of its own, without input.

    Args:
        output: of the process, errors too.
        variables: its environment, by default this process's.
    Raises: OSError.
    """
    return subprocess.Popen(  # noqa: S603 - this program itself
        python(module, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        cwd=HOME,
        env=environment(variables),
    )


def become(module: str, *arguments: str, variables: Mapping[str, str] | None = None) -> NoReturn:
    """Let this process go on as a module of ours. Raises: OSError."""
    found = environment(variables)
    os.chdir(HOME)
    os.execve(sys.executable, python(module, *arguments), found)  # noqa: S606 - this program itself


def settle() -> None:
    """Let this process work in `/`, and make files that only their owner can write."""
    os.chdir(HOME)
    os.umask(os.umask(0o077) | 0o022)


def whole(path: Path | str) -> Path:
    """Return a path that means the same in every folder; links are left as they are."""
    return Path(path).absolute()
