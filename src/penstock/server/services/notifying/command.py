"""Commands that an administrator declared: the message comes as JSON on standard input, and nothing as an argument."""

import contextlib
import os
import signal
import subprocess

from penstock import starts
from penstock.core.model.notifications import NotifyCommand
from penstock.server.services.notifying.errors import NotSent

WAIT_S = 30.0
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "HOME")
"""Variables of the server that a command gets."""


def run_command(command: NotifyCommand, body: bytes) -> None:
    """Run a command once. Raises: NotSent when it fails, or does not end in time."""
    known = starts.environment()
    process = subprocess.Popen(  # noqa: S603 - the administrator's own command
        # The server ignores the exits of its children (its agents outlive it): so the shell prints the status.
        ["/bin/sh", "-c", '"$1" >/dev/null 2>&1; printf "%s" "$?"', "penstock-notify", command.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=starts.HOME,
        env={name: known[name] for name in _KEPT if name in known},
    )
    try:
        output, _ = process.communicate(body, WAIT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise NotSent(f"command {command.name} did not end within {WAIT_S:.0f} s", again=True) from None
    status = output.decode("ascii", errors="replace")
    if status != "0":
        raise NotSent(f"command {command.name} failed: exit {status or 'unknown'}", again=True)
