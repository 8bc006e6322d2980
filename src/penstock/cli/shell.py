"""`penstock shell`: a shell or a command where a replica of a running job is."""

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from penstock.api.types import JobView
from penstock.cli.output import say
from penstock.cli.place import client_of, data_folder
from penstock.cli.terminal import close_others, run_apart
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import JobSubmitted, ReplicaStarted
from penstock.core.model.ids import AttemptNumber, JobId, Rank

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.engines.local.entering import ProcessHandle
    from penstock.engines.processes.accounts import UserAccount
    from penstock.engines.processes.paths import DataFolder

_NOT_FOUND_CODE, _NOT_RUN_CODE = 127, 126
"""As of a shell (POSIX, 2.8.2)."""
_FOR_ACCOUNTS = ("TERM", "LANG")
"""Variables of the caller's that the shell of another account gets."""
_FOR_SELF = (*_FOR_ACCOUNTS, "HOME", "SHELL", "USER", "SSH_AUTH_SOCK")


def shell(
    job: Annotated[int, typer.Argument(help="Number of a lease or running job.", min=1)],
    command: Annotated[list[str] | None, typer.Argument(help="Command to run instead of a shell.")] = None,
    rank: Annotated[int, typer.Option(help="Rank of the replica.", min=0)] = 0,
) -> None:
    """Open a shell in a lease or running job. It has the job's devices, environment and limits, and ends with it.

    Root enters a job as the account of the job.
    """
    from penstock.engines.processes.accounts import account_of

    if command and not command[0]:
        raise InvalidInput("the command is empty")
    client = client_of()
    shown = client.job(job)
    if shown.state != "running":
        raise InvalidInput(f"job {job} is {shown.state}: a shell needs one that runs")
    held = _prove(client, shown, rank, data_folder())
    client.close()
    if held.uid == os.geteuid():
        _be_inside(held, command)  # one's own job is entered by this very process
    account = account_of(held.account)
    raise typer.Exit(run_apart(lambda terminal: _be_account_inside(held, account, command, terminal)))


def _prove(client: "Client", shown: JobView, rank: int, folder: "DataFolder") -> "ProcessHandle":
    """Return the process of a replica. Raises: InvalidInput when it is not here, or not proven to be it."""
    from penstock.core.messages.reports import ReplicaKey
    from penstock.engines.local.entering import NotEntered, prove

    started, account = 0, ""
    for record in client.job_events(shown.id):
        event = record.event
        if isinstance(event, ReplicaStarted) and (event.rank, event.attempt) == (rank, shown.attempt):
            started = event.pid
        elif isinstance(event, JobSubmitted):
            account = event.account
    key = ReplicaKey(JobId(shown.id), AttemptNumber(shown.attempt), Rank(rank))
    try:
        return prove(folder, key, pid=started, account=account)
    except NotEntered as error:
        where = f"replica {rank} of job {shown.id} cannot be entered: {error.message}"
        raise InvalidInput(where, hint=error.hint or f"it runs on {', '.join(shown.nodes)}: go there") from error


def _be_inside(held: "ProcessHandle", command: list[str] | None) -> NoReturn:
    """Become a command inside, as the caller: the job is theirs."""
    with contextlib.suppress(OSError):  # only root can, and root's jobs are root's
        held.join()
    environment = _own(_FOR_SELF) | held.environment()
    held.change_to_its_folder()
    words = command or [os.environ.get("SHELL", "/bin/sh")]
    sys.stdout.flush()
    try:
        os.execvpe(words[0], words, environment)  # noqa: S606 - the caller's own command
    except OSError as error:
        raise _not_run(words[0], error) from error


def _not_run(program: str, error: OSError) -> typer.Exit:
    """Say why a program cannot be run; return the end with a shell's exit code for that."""
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    if missing:
        where = "" if "/" in program else " in the job's PATH"
        say(f"error: there is no program {program!r}{where}", err=True)
    else:
        say(f"error: {program!r} cannot be run: {error.strerror}", err=True)
    return typer.Exit(_NOT_FOUND_CODE if missing else _NOT_RUN_CODE)


def _be_account_inside(
    held: "ProcessHandle", account: "UserAccount", command: list[str] | None, terminal: int | None
) -> None:
    """Become a command inside, as the job's account: nothing that the job says is read before. Does not return."""
    from penstock.engines.processes.run_as import execute, switch

    held.join()
    if terminal is not None:
        os.fchown(terminal, account.uid, -1)
    os.chdir("/")
    own = _own(_FOR_ACCOUNTS)
    switch(account.name, gid=account.gid, uid=account.uid)
    environment = own | account.environment | held.environment()
    held.change_to_its_folder()
    close_others()
    execute(command or [account.login_shell], environment)


def _own(names: tuple[str, ...]) -> dict[bytes, bytes]:
    """Return some variables of the caller's: the job's own come before them."""
    return {name.encode(): os.environb[name.encode()] for name in names if name in os.environ}
