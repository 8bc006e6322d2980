"""Options that several commands share."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from penstock.core.model.errors import InvalidInput, Problem, nearest
from penstock.core.model.quantities import parse_duration_ms

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JobArgument = Annotated[int, typer.Argument(help="Number of the job.", min=1)]
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
KINDS = "acme, csv, gavel, helios, openb, philly, pollux, sacct, swf or tiresias"
KindOption = Annotated[str | None, typer.Option(help=f"Format of the trace: {KINDS}; by default detected.")]
LoadOption = Annotated[float, typer.Option(help="Load relative to the trace; other than 1 draws a workload like it.")]
NodesOption = Annotated[
    str | None,
    typer.Option(
        help="Other nodes: 90, +4, -2 or +4xH100 like those of the trace; or a cluster, nodes x devices x model: "
        "16x8, 16x8xH100:cpus=96:memory=1TiB, several divided by commas."
    ),
]

Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def pairs(option: str, given: list[str]) -> dict[str, str]:
    """Return the mapping that a repeated option NAME=VALUE gives. Raises: InvalidInput."""
    found = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise InvalidInput(f"{option} is '{item}', expected NAME=VALUE")
        found[name] = value
    return found


def one_of(option: str, given: str, known: Iterable[str]) -> str:
    """Return the word an option gives, one of those known. Raises: InvalidInput with the nearest right word."""
    words = list(known)
    if given not in words:
        raise InvalidInput(f"{option} is '{given}', expected one of {', '.join(words)}", hint=nearest(given, words))
    return given


def spread(
    kind: Any, name: str, *, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of a named tuple as options, but for those named, in place of its parameter `name`."""
    hints = get_type_hints(kind, include_extras=True)
    options = [
        inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[field])
        for field in kind._fields
        if field not in without
    ]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**given: Any) -> None:
            made = kind(**{option.name: given.pop(option.name) for option in options})
            command(**given, **{name: made})

        signature = inspect.signature(command)
        parameters: list[inspect.Parameter] = []
        for one in signature.parameters.values():
            parameters += options if one.name == name else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
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
