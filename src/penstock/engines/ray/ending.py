"""The end of everything that a server has started in a Ray cluster, when the server itself has ended."""

import os
import subprocess
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock import starts
from penstock.engines.ray.driver_options import DriverOptions
from penstock.engines.ray.engine import OPTIONS, access
from penstock.privatefiles import open_own


def end(folder: Path, wait_s: float) -> list[str]:
    """End all agents and holders, and the local cluster; return the names of the nodes that lived.

    Raises: OSError; subprocess.SubprocessError where Ray does not answer.
    """
    options = msgspec.json.decode((folder / OPTIONS).read_bytes(), type=DriverOptions)
    words = msgspec.json.encode(replace(options, end=True)).decode()
    with os.fdopen(open_own(folder / "driver.log", os.O_WRONLY | os.O_APPEND), "ab") as log:
        done = subprocess.run(  # noqa: S603 - this program itself
            starts.python("penstock.engines.ray.driver", words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            timeout=wait_s,
            check=True,
            cwd=starts.HOME,
            env=starts.environment() | access(options),
        )
    (folder / OPTIONS).unlink(missing_ok=True)
    return sorted(done.stdout.decode().split())
