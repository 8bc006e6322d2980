"""Accounts of the machine that jobs run as, where the agent is root: each sees its own jobs' files and no others."""

import os
import pwd
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from penstock.core.messages.orders import Order, StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.errors import nearest
from penstock.core.model.ids import DEFAULT_TENANT, UserName
from penstock.engines.processes import account_files
from penstock.engines.processes.paths import DataFolder
from penstock.privatefiles import PASSED

if TYPE_CHECKING:
    from penstock.core.model.cluster import ClusterConfig
    from penstock.core.state.state import State


class UserAccount(msgspec.Struct, frozen=True):
    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @property
    def variables(self) -> dict[str, str]:
        """Its environment variables."""
        return {"USER": self.name, "LOGNAME": self.name, "HOME": self.home, "SHELL": self.shell}

    @property
    def environment(self) -> dict[bytes, bytes]:
        """The same, as the kernel takes it."""
        return {os.fsencode(name): os.fsencode(value) for name, value in self.variables.items()}

    @property
    def login_shell(self) -> str:
        """Its shell; /bin/sh where logins are refused, for entering a job is no login."""
        return self.shell if os.path.basename(self.shell) not in ("", "nologin", "false") else "/bin/sh"


def may_switch() -> bool:
    """Return whether this process may start programs as other accounts."""
    return os.geteuid() == 0


def one_for_all(config: "ClusterConfig", *, root: bool) -> str:
    """Return a warning where tenants share one account of the machine, or ''."""
    declared = {tenant.name for tenant in config.tenants} - {DEFAULT_TENANT}
    if root or not (declared or config.users):
        return ""
    return (
        "the server is not root: jobs of all tenants run as one account of the machine, and can read each other's "
        "files, environments and secrets"
    )


def unknown_account(name: str) -> str:
    """Return what is wrong with the name of an account, or ''."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        hint = nearest(name, sorted(entry.pw_name for entry in pwd.getpwall()))
        return f"the machine has no account '{name}'" + (f": {hint}" if hint else "")
    return ""


def cannot_be(name: str) -> str:
    """Return why programs cannot be started as an account, or ''."""
    return unknown_account(name) if may_switch() else f"only root starts programs as {name}"


def accounted(order: Order, state: "State", local: Collection[UserName], *, root: bool) -> Order:
    """Return an order as the server's nodes may get it: root starts no program of a user without an account as itself.

    No submit to a server that is root makes such a job. But its log may have some: it may not have been root then, or
    it may be another server's.

    Args:
        local: who runs the server: their jobs run as it does.
    """
    if not root or not isinstance(order, StartReplica) or order.account:
        return order
    job = state.jobs.get(order.key.job_id)
    user = state.config.user_by_name.get(job.user) if job is not None else None
    if user is None or user.role == "admin" or user.name in local:
        return order
    text = f"{user.name} submitted it to a server that was not root: it names no account to run as, submit it again"
    return replace(order, secrets=(), refused=text)


def account_of(name: str) -> UserAccount:
    """Return an account. Raises: KeyError when the machine has none of that name."""
    found = pwd.getpwnam(name)
    return UserAccount(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir, found.pw_shell)


def hand_over(data: DataFolder, key: ReplicaKey, account: UserAccount) -> None:
    """Give the account what it writes: checkpoints, a folder to work in, the report file.

    The job's own folder stays the agent's: a user who could replace files there could make the agent write elsewhere.
    """
    with account_files.folder(data.job(key.job_id)) as own:
        os.fchmod(own, PASSED)
    for path in (data.checkpoints(key.job_id), data.work(key.job_id)):
        account_files.make_folder(path, 0o700, account.uid, account.gid)
    os.close(account_files.kept_file(data.report(key), os.O_WRONLY, account.uid, account.gid))


def private(path: Path, mode: int = 0o700) -> Path:
    """Return a folder of the agent's own, created where missing, that is closed to others."""
    try:
        return account_files.make_folder(path, mode)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)  # root's: above the folder
        return account_files.make_folder(path, mode)
