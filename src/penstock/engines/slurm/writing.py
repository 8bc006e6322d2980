"""The one place that runs commands of Slurm which write: `sbatch`, `scancel`, and no others.

A shadow has no use for it. A job gets a small environment beside its script: `sbatch` hands on all that it has.
"""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.core.model.errors import InvalidInput, PenstockError, nearest
from penstock.engines.slurm.commands import Call, SlurmAway
from penstock.starts import tool

WRITES = ("sbatch", "scancel")
"""The commands."""
OPTIONS = {
    "sbatch": (
        "--parsable", "--job-name", "--comment", "--output", "--error", "--chdir", "--nodes", "--ntasks",
        "--ntasks-per-node", "--cpus-per-task", "--mem", "--mem-per-cpu", "--gres", "--gpus-per-task", "--tmp",
        "--time", "--partition", "--account", "--qos", "--nodelist", "--exclude", "--constraint", "--exclusive",
        "--distribution", "--array", "--uid", "--gid", "--signal", "--no-requeue", "--begin", "--reservation",
        "--kill-on-invalid-dep", "--nice", "--open-mode", "--export",
    ),
    "scancel": ("--signal", "--batch", "--full", "--state"),
}  # fmt: skip
"""The options that they are given; each is one word, as `--time=10`."""
AT_ONCE = 8
"""Commands that run at the same time."""
WRITE_S = 20.0
"""One that takes longer is killed: `sbatch` goes on trying for minutes where slurmctld is away."""
NUMBERS_MAX = 500
"""Jobs in one command."""
_NUMBER = re.compile(r"\d+(_\d+|\+\d+)?", re.ASCII)
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SHELL")
_LATER = re.compile(
    r"slurm_(msg|receive|send)\w*:|socket|communication|contact slurm controller"
    r"|timed out|temporarily|Connection (refused|reset)|Zero Bytes|in standby"
    r"|Unexpected message|Max(Submit|Job)|Submit(Jobs)?Per|AssocGrp|QOS(Max|Grp)"
    r"|Unable to (establish|contact)|not responding|try again",
    re.IGNORECASE,
)
"""Words of errors that pass by themselves: a controller that is away or busy, limits that others' jobs use up."""
_GONE = re.compile(r"Invalid job id|already (completing|completed)|Job/step already", re.IGNORECASE)


class NotAWrite(PenstockError):
    """A command that is none of those that are run here. It was not run."""

    code = "not_a_write"


class NotTaken(PenstockError):
    """Slurm refused a job, and would again."""

    code = "slurm_refused"


def checked(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that may be run. Raises: NotAWrite for every other one."""
    name, words = (command[0], command[1:]) if command else ("", ())
    known = OPTIONS.get(name)
    if known is None:
        raise NotAWrite(f"'{name}' is not run here, expected {' or '.join(WRITES)}", hint=nearest(name, WRITES))
    for word in words:
        fine = (
            word.partition("=")[0] in known if word.startswith("-") else name == "scancel" and _NUMBER.fullmatch(word)
        )
        if not fine:
            raise NotAWrite(f"'{name} {word}' is not run here, expected {', '.join(known)}")
    if name == "scancel" and not any(_NUMBER.fullmatch(word) for word in words):
        raise NotAWrite("'scancel' without the number of a job is not run here")
    return tuple(command)


def job_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command that writes, which jobs inherit."""
    kept = {name: os.environ[name] for name in (*_KEPT, "SLURM_CONF") if name in os.environ}
    return {**kept, **(variables or {})}


def require_programs() -> None:
    """Check that the commands are here. Raises: InvalidInput."""
    missing = [name for name in WRITES if tool(name) is None]
    if missing:
        hint = "install Slurm's client commands here (Debian: slurm-client), or start the server on a login node"
        raise InvalidInput(f"--engine slurm needs {', '.join(missing)} on this machine", hint=hint)


class SlurmWriter:
    """Runs commands that write, some at a time."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="slurm")
        """Of its own: those that the loop lends are as few as there are cores, and others wait in them."""

    async def submit(self, script: str, *options: str, variables: Mapping[str, str] | None = None) -> str:
        """Return the number of the job that a script has become.

        Args:
            options: each one word, such as `--time=10`.
            variables: further ones of sbatch's environment, such as SLURM_HOSTFILE; its job inherits them.
        Raises: SlurmAway when it may be a job or not, or may become one later; NotTaken; NotAWrite.
        """
        words = checked(("sbatch", "--parsable", *options))
        try:
            text = await self._run(words, script, job_environment(variables))
        except SlurmAway as error:
            if _LATER.search(error.message) or not error.answered:
                raise
            raise NotTaken(error.message) from None
        number = text.strip().split("\n")[-1].partition(";")[0]
        if not number.isdecimal():
            raise SlurmAway(f"sbatch: expected the number of a job; found '{text.strip()[:80]}'")
        return number

    async def cancel(self, numbers: Sequence[str]) -> None:
        """End jobs, waiting or running; those that have ended are passed over. Raises: SlurmAway."""
        await self._each(numbers)

    async def signal(self, numbers: Sequence[str], name: str, *, full: bool = False, batch: bool = False) -> None:
        """Send a signal to running jobs.

        Args:
            name: such as TERM or KILL.
            full: to the batch script and to all steps; batch: to the batch script alone; else to the steps alone.
        Raises: SlurmAway.
        """
        where = (("--full",) if full else ()) + (("--batch",) if batch else ())
        await self._each(numbers, f"--signal={name}", *where)

    async def _each(self, numbers: Sequence[str], *options: str) -> None:
        for at in range(0, len(numbers), NUMBERS_MAX):
            words = checked(("scancel", *options, *numbers[at : at + NUMBERS_MAX]))
            try:
                await self._run(words, "", job_environment())
            except SlurmAway as error:
                if not _GONE.search(error.message):
                    raise

    async def _run(self, words: tuple[str, ...], given: str, variables: dict[str, str]) -> str:
        async with self._turns:
            call = Call(words, given, variables, WRITE_S)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, call.output)
            except asyncio.CancelledError:
                call.kill()
                raise
