"""Options that several commands share."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.core.model.errors import InvalidInput
from penstock.starts import whole

if TYPE_CHECKING:
    from penstock.client import Client

DataOption = Annotated[
    Path | None, typer.Option("--data", help="Data folder of the server [env: PENSTOCK_HOME; ~/.local/share/penstock].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
JobArgument = Annotated[int, typer.Argument(help="Number of the job.", min=1)]
NameOption = Annotated[str | None, typer.Option("--name", "-J", help="Name of the job.")]
DevicesOption = Annotated[int | None, typer.Option("--devices", "--gpus", "-g", help="Devices of each replica.")]
ReplicasOption = Annotated[int | None, typer.Option("--replicas", "-n", help="How many start together.")]
CpusOption = Annotated[float | None, typer.Option("--cpus", "-c", help="CPUs of each replica.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", "--mem", help="Host memory of each replica.")]
PriorityOption = Annotated[str | None, typer.Option("--priority", help="low, medium, high or a number.")]
QueueOption = Annotated[str | None, typer.Option("--queue", "-p", help="Queue to wait in.")]
TenantOption = Annotated[str | None, typer.Option("--tenant", "-A", help="Team that the job belongs to.")]
TimeLimitOption = Annotated[str | None, typer.Option("--time-limit", "-t", help="Stop it after this long.")]
ArrayOption = Annotated[int | None, typer.Option("--array", "-a", help="Submit this many copies.")]
LogOption = Annotated[
    Path | None, typer.Option("--log", help="A log (JSON of GET /api/v1/events) instead of the server's.")
]
EnvOption = Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE, or NAME to pass your own.")]
SecretOption = Annotated[
    list[str] | None, typer.Option("--secret", help="NAME, or VARIABLE=NAME, of what `secret set` has set.")
]

PASSED_ON = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables of the submitting shell that a job gets, so that `python` means the same there."""


class JobShape(NamedTuple):
    """What the options of `run` and `submit` say about the job; None where nothing was said."""

    name: str | None
    devices: int | None
    replicas: int | None
    cpus: float | None
    memory: str | None
    priority: str | None
    queue: str | None
    tenant: str | None
    time_limit: str | None
    array: int | None
    env: list[str] | None
    secrets: list[str] | None

    def fields(self) -> dict[str, Any]:
        """Return the job-file fields that were given."""
        apart = ("env", "secrets")
        given = {name: value for name, value in self._asdict().items() if value is not None and name not in apart}
        if self.secrets:
            given["secrets"] = {one.partition("=")[0]: one.partition("=")[2] or one for one in self.secrets}
        if self.priority is not None and self.priority.isdigit():
            given["priority"] = int(self.priority)
        return given

    def environment(self) -> dict[str, str]:
        """Return the variables asked for with --env."""
        found = {}
        for item in self.env or []:
            name, given, value = item.partition("=")
            found[name] = value if given else os.environ.get(name, "")
        return found


def data_folder(given: Path | None) -> Path:
    """Return the data folder as an absolute path: the option, else PENSTOCK_HOME, else the user's own.

    Raises: NotPrivate when somebody else could have filled it: it says where tokens are sent, and which programs run.
    """
    from penstock.engines.local.paths import DataFolder
    from penstock.engines.local.trust import check_data

    home = given or os.environ.get("PENSTOCK_HOME")
    folder = whole(home or Path.home() / ".local" / "share" / "penstock")
    check_data(DataFolder(folder))
    return folder


def client_of(data: Path | None) -> "Client":
    """Return a client of the running server, with the token in PENSTOCK_TOKEN if that is set.

    PENSTOCK_URL names a server elsewhere, unless `--data` was given; PENSTOCK_CA the authorities to trust.

    Raises: ServerNotRunning, InvalidInput, NotTrusted.
    """
    from penstock.client import Client

    token = os.environ.get("PENSTOCK_TOKEN")
    return remote_client() if data is None and remote() else Client.of(data_folder(data), token=token)


def remote() -> bool:
    """Return whether the environment names a server elsewhere."""
    return bool(os.environ.get("PENSTOCK_URL"))


def remote_client() -> "Client":
    """Return a client of the server at PENSTOCK_URL. Raises: InvalidInput, NotTrusted."""
    from penstock.client import Client

    token = os.environ.get("PENSTOCK_TOKEN")
    if not token:
        raise InvalidInput("PENSTOCK_URL is set, but no token", hint="set PENSTOCK_TOKEN")
    ca = os.environ.get("PENSTOCK_CA")
    insecure = os.environ.get("PENSTOCK_INSECURE") == "1"
    return Client.at(os.environ["PENSTOCK_URL"], token=token, ca=Path(ca) if ca else None, insecure=insecure)
