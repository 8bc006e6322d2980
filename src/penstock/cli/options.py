"""Options that several commands share, and the server that they name."""

import inspect
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.quantities import parse_duration_ms
from penstock.starts import whole

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.engines.processes.paths import DataFolder

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Data folder of the server [env: PENSTOCK_HOME; ~/.local/share/penstock]."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobArgument = Annotated[int, typer.Argument(help="Number of the job.", min=1)]
WhatArgument = Annotated[
    list[str], typer.Argument(help="A job file (.yaml, .yml, .json or - for stdin), or -- COMMAND.")
]
CpusOption = Annotated[float | None, typer.Option("--cpus", "-c", help="CPUs of each replica.")]
MemoryOption = Annotated[str | None, typer.Option("--memory", "--mem", help="Host memory of each replica.")]
QueueOption = Annotated[str | None, typer.Option("--queue", "-p", help="Queue of the job.")]
TenantOption = Annotated[str | None, typer.Option("--tenant", "-A", help="Tenant of the job.")]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="PENSTOCK_STORE",
        help="Database that holds the log: postgresql://USER@HOST/DATABASE; sqlite: the data folder.",
    ),
]
LogOption = Annotated[
    Path | None, typer.Option("--log", help="Event log (JSON of GET /api/v1/events) instead of the server's.")
]
KindOption = Annotated[str | None, typer.Option(help="Format of the trace; by default detected from the file.")]
LoadOption = Annotated[float, typer.Option(help="Load relative to the trace; other than 1 draws a workload like it.")]
NodesOption = Annotated[str | None, typer.Option(help="Number of nodes instead: 90, +4, -2 or +4xH100.")]

PASSED_ON = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables of the submitting shell that a job gets, so that `python` means the same there."""


class JobShape(NamedTuple):
    """The options about a job, with their definitions; None where an option is not given."""

    name: Annotated[str | None, typer.Option("--name", "-J", help="Name of the job.")] = None
    devices: Annotated[int | None, typer.Option("--devices", "--gpus", "-g", help="Devices of each replica.")] = None
    replicas: Annotated[int | None, typer.Option("--replicas", "-n", help="Replicas, which start together.")] = None
    cpus: CpusOption = None
    memory: MemoryOption = None
    priority: Annotated[str | None, typer.Option("--priority", help="low, medium, high or a number.")] = None
    queue: QueueOption = None
    tenant: TenantOption = None
    time_limit: Annotated[str | None, typer.Option("--time-limit", "-t", help="Stop the job after this time.")] = None
    array: Annotated[int | None, typer.Option("--array", "-a", help="Number of copies to submit.")] = None
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE, or NAME as in this shell.")] = None
    secrets: Annotated[
        list[str] | None, typer.Option("--secret", help="Secret as a variable: NAME or VARIABLE=NAME.")
    ] = None

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


def shaped(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `JobShape`, but for those named, in place of its parameter `shape`."""
    hints = get_type_hints(JobShape, include_extras=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[name])
        for name in JobShape._fields
        if name not in without
    ]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**given: Any) -> None:
            shape = JobShape(**{option.name: given.pop(option.name) for option in options})
            command(**given, shape=shape)

        signature = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        for one in signature.parameters.values():
            parameters += options if one.name == "shape" else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        call.__dict__["__signature__"] = signature.replace(parameters=parameters)
        return call

    return decorated


def duration_ms(option: str, text: str, *, hint: str = "such as 30s, 5m or 2h") -> int:
    """Return the duration that an option gives. Raises: InvalidInput."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        problem = Problem("invalid_value", option, f"{option} is '{text}': {error}", text, hint)
        raise InvalidInput(problem.message, problems=(problem,)) from None


def data_folder(given: Path | None) -> "DataFolder":
    """Return the data folder, at an absolute path: the option, else PENSTOCK_HOME, else the user's own.

    Raises: NotPrivate when another user could have filled it: it decides where tokens are sent, and which programs run.
    """
    from penstock.engines.processes.paths import DataFolder
    from penstock.engines.processes.trust import check_data

    home = given or os.environ.get("PENSTOCK_HOME")
    folder = DataFolder(whole(home or Path.home() / ".local" / "share" / "penstock"))
    check_data(folder)
    return folder


def client_of(data: Path | None) -> "Client":
    """Return a client of the running server, with the token in PENSTOCK_TOKEN if that is set.

    PENSTOCK_URL names a server elsewhere, unless `--data` was given; PENSTOCK_CA the authorities to trust.

    Raises: ServerNotRunning, InvalidInput, NotTrusted.
    """
    from penstock.client import Client

    token = os.environ.get("PENSTOCK_TOKEN")
    if data is not None or not remote():
        return Client.of(data_folder(data).root, token=token)
    if not token:
        raise InvalidInput("PENSTOCK_URL is set, but no token", hint="set PENSTOCK_TOKEN")
    ca = os.environ.get("PENSTOCK_CA")
    insecure = os.environ.get("PENSTOCK_INSECURE") == "1"
    return Client.at(os.environ["PENSTOCK_URL"], token=token, ca=Path(ca) if ca else None, insecure=insecure)


def remote() -> bool:
    """Return whether the environment names a server elsewhere."""
    return bool(os.environ.get("PENSTOCK_URL"))
