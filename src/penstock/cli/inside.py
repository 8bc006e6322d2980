"""Into a running job: a shell or a command where one of its replicas is."""

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from penstock.api.types import JobView
from penstock.cli.options import client_of, data_folder
from penstock.cli.terminal import close_others, run_apart
from penstock.client import Client
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import JobSubmitted, ReplicaStarted
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.engines.local.accounts import Account, account_of
from penstock.engines.local.become import execute, switch
from penstock.engines.local.entering import Held, NotEntered, prove
from penstock.engines.local.paths import DataFolder

_FOR_ACCOUNTS = ("TERM", "LANG")
"""Variables of the caller's that the shell of another account gets."""
_FOR_SELF = (*_FOR_ACCOUNTS, "HOME", "SHELL", "USER", "SSH_AUTH_SOCK")


def run(data: Path | None, job: int, rank: int, command: list[str] | None) -> int:
    """Run a command inside, or a shell, and return how it ended; one's own job is entered by this very process.

    Raises: InvalidInput when the job does not run, not here, or is somebody else's.
    """
    client = client_of(data)
    shown = client.job(job)
    if shown.state != "running":
        raise InvalidInput(f"job {job} is {shown.state}: a shell needs one that runs")
    held = _prove(client, shown, rank, data_folder(data))
    client.close()
    if held.uid == os.geteuid():
        _be_inside(held, command)
    account = account_of(held.account)
    return run_apart(lambda terminal: _be_account_inside(held, account, command, terminal))


def _prove(client: Client, shown: JobView, rank: int, folder: Path) -> Held:
    """Return the process of a replica. Raises: InvalidInput when it is not here, or not proven to be it."""
    started, account = 0, ""
    for record in client.job_events(shown.id):
        event = record.event
        if isinstance(event, ReplicaStarted) and (event.rank, event.attempt) == (rank, shown.attempt):
            started = event.pid
        elif isinstance(event, JobSubmitted):
            account = event.account
    key = ReplicaKey(JobId(shown.id), AttemptNumber(shown.attempt), Rank(rank))
    try:
        return prove(DataFolder(folder), key, pid=started, account=account)
    except NotEntered as error:
        where = f"replica {rank} of job {shown.id} cannot be entered: {error.message}"
        raise InvalidInput(where, hint=error.hint or f"it runs on {', '.join(shown.nodes)}: go there") from error


def _be_inside(held: Held, command: list[str] | None) -> NoReturn:
    """Become a command inside, as who calls: the job is theirs."""
    with contextlib.suppress(OSError):  # who is not root cannot, and root's jobs are root's
        held.join()
    environment = _own(_FOR_SELF) | held.environment()
    held.change_to_its_folder()
    words = command or [os.environ.get("SHELL", "/bin/sh")]
    sys.stdout.flush()
    os.execvpe(words[0], words, environment)  # noqa: S606 - that is what was asked for


def _be_account_inside(held: Held, account: Account, command: list[str] | None, terminal: int | None) -> None:
    """Become a command inside, as the job's account: nothing that the job says is read before. Does not return."""
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
