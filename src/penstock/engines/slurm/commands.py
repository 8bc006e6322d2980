"""The one place that runs commands of Slurm which read. A command is known by its words, not by what it is hoped to do.

Beside it `engines/slurm/writing.py` runs those that write; nothing else in this package starts a program.
"""

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence

from penstock.core.model.errors import InvalidInput, PenstockError, nearest
from penstock.starts import tool

SHOWN = ("config", "node", "partition")
"""What `scontrol show` is asked for."""
OPTIONS = {
    "squeue": ("-h", "-r", "-t", "-O", "-j", "-u", "-n"),
    "sacct": ("-n", "-P", "-a", "-D", "-X", "-S", "-E", "-o", "-j", "--delimiter"),
    "scontrol": ("-o",),
}
"""The commands, and the options that they are given."""
TIMEOUT_S = 120.0
OUTPUT_MAX_BYTES = 512 * 2**20
ERROR_BYTES_MAX = 400
_DROPPED = ("SLURM_", "SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SBATCH_", "SCANCEL_")
"""Variables that change what the commands print, or which cluster they ask, all but the place of its configuration."""


class SlurmAway(PenstockError):
    """Slurm did not answer, or said an error.

    Args:
        answered: the command ended by itself, and said why.
    """

    code = "slurm_away"

    def __init__(self, message: str, *, answered: bool = False) -> None:
        super().__init__(message)
        self.answered = answered


class NotARead(PenstockError):
    """A command that is none of those that read. It was not run."""

    code = "not_a_read"


def checked(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that only reads. Raises: NotARead for every other one, whatever its words."""
    name, words = (command[0], tuple(command[1:])) if command else ("", ())
    known = OPTIONS.get(name)
    if known is None:
        raise NotARead(f"'{name}' is not run here, expected {', '.join(OPTIONS)}", hint=nearest(name, OPTIONS))
    if name == "scontrol":
        if len(words) < 2 or words[0] != "show" or words[1] not in SHOWN or words[2:] not in ((), known):
            raise NotARead(f"'{' '.join(command)}' is not run here, expected scontrol show {' or '.join(SHOWN)}")
        return tuple(command)
    for word in words:
        option = word.partition("=")[0] if word.startswith("--") else word
        if word.startswith("-") and option not in known:
            raise NotARead(f"'{name} {word}' is not run here, expected {', '.join(known)}")
    return tuple(command)


def environment() -> dict[str, str]:
    """Return the variables of a command: times in seconds since 1970, and nothing that changes what is printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    conf = os.environ.get("SLURM_CONF")
    return {**kept, **({"SLURM_CONF": conf} if conf else {}), "TZ": "UTC", "SLURM_TIME_FORMAT": "%s",
            "SLURM_BITSTR_LEN": "0", "LC_ALL": "C.UTF-8"}  # fmt: skip


def require_programs() -> None:
    """Check that the commands are here. Raises: InvalidInput."""
    missing = [name for name in OPTIONS if tool(name) is None]
    if missing:
        hint = "install Slurm's client commands here (Debian: slurm-client), or start the server on a login node"
        raise InvalidInput(f"--engine slurm needs {', '.join(missing)} on this machine", hint=hint)


class SlurmCommands:
    """Runs commands, one at a time, and notes what the last one cost."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self.last_s = 0.0
        """How long the last one took."""

    async def run(self, *command: str) -> str:
        """Return what a command printed. Raises: NotARead before anything is run; SlurmAway."""
        words = checked(command)
        async with self._turn:
            begun_s = time.monotonic()
            call = Call(words)
            try:
                return await asyncio.to_thread(call.output)
            except asyncio.CancelledError:
                call.kill()
                raise
            finally:
                self.last_s = time.monotonic() - begun_s


class Call:
    """One command. A thread waits for it: loops differ in how they hear of the ends of programs.

    Args:
        given: its standard input.
        variables: its environment; by default that of commands that read.
        limit_s: after this long it is killed.
    """

    def __init__(
        self,
        words: tuple[str, ...],
        given: str = "",
        variables: dict[str, str] | None = None,
        limit_s: float | None = None,
    ) -> None:
        self._words, self._late = words, False
        self._given, self._variables = given, variables
        self._limit_s = TIMEOUT_S if limit_s is None else limit_s
        self._process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        self._late = True
        if self._process is not None:
            self._process.kill()

    def output(self) -> str:
        name, *rest = self._words
        program = tool(name)
        if program is None:
            raise SlurmAway(f"{name} is not on this machine")
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as given:
            given.write(self._given.encode())
            given.seek(0)
            try:
                process = self._process = subprocess.Popen(  # noqa: S603 - its words were checked
                    [program, *rest],
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    cwd="/",
                    env=environment() if self._variables is None else self._variables,
                )
            except OSError as error:
                raise SlurmAway(f"{name} cannot be run: {error}") from None
            timer = threading.Timer(self._limit_s, self.kill)
            timer.daemon = True
            timer.start()
            try:
                assert process.stdout is not None
                text = process.stdout.read(OUTPUT_MAX_BYTES + 1)
                if len(text) > OUTPUT_MAX_BYTES:
                    process.kill()
                process.stdout.close()
                code = process.wait()
            finally:
                timer.cancel()
            said.seek(0)
            problem = said.read(ERROR_BYTES_MAX).decode("utf-8", "replace").strip().replace("\n", "; ")
        if len(text) > OUTPUT_MAX_BYTES:
            raise SlurmAway(f"{name} printed more than {OUTPUT_MAX_BYTES // 2**20} MiB")
        if self._late:
            raise SlurmAway(f"{name} did not answer within {self._limit_s:.0f} s")
        if code != 0 or (problem and not text):
            raise SlurmAway(f"{name}: {problem or f'exit {code}'}", answered=code > 0)
        return text.decode("utf-8", "replace")
