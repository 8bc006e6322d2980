"""What every command has beyond its own options: `--data`, `--server`, `--watch`, and examples in its help."""

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import place
from penstock.cli.errors import UsageError
from penstock.cli.examples import EXAMPLES
from penstock.cli.helping import name_values
from penstock.cli.output import clear_screen, flush

WATCH_S = 1.0


def use_data(folder: str | None) -> None:
    """Use the server of a data folder in this process. Raises: UsageError for an empty word."""
    if folder is not None:
        place.named(data=Path(_word("--data DIR", folder)))


def use_server(url: str | None) -> None:
    """Use the server at an address in this process. Raises: UsageError for an empty word."""
    if url is not None:
        place.named(server=_word("--server URL", url))


def _word(option: str, given: str) -> str:
    """Return what an option gives; an empty word, as of a variable that is not set, would mean the server here."""
    if not given.strip():
        raise UsageError(f"{option.split()[0]} is empty", hint=option)
    return given


def _placed(
    data: Annotated[str | None, typer.Option("--data", hidden=True, callback=use_data, expose_value=False)] = None,
    server: Annotated[
        str | None, typer.Option("--server", hidden=True, callback=use_server, expose_value=False)
    ] = None,
) -> None:
    """Declares the options that every command takes, as `penstock` itself does."""


def _watched(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second.")] = False,
) -> None:
    """Declares the option of lists."""


def complete(command: Any, name: str, *, watch: bool) -> Any:
    """Return a command with the options that all share, and its examples in its help.

    Args:
        name: with its groups, such as `money bill`.
    """
    name_values(command)
    members = getattr(command, "commands", None)
    if members is not None:
        for word, member in members.items():
            complete(member, f"{name} {word}", watch=False)
        return command
    command.params += _parameters(_placed)
    if watch:
        command.params += _parameters(_watched)
        command.callback = _repeated(command.callback)
    if examples := EXAMPLES.get(name):
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)
    return command


def _parameters(declared: Callable[..., None]) -> list[Any]:
    holder = typer.Typer(rich_markup_mode=None, add_completion=False)
    holder.command()(declared)
    return [one for one in typer.main.get_command(holder).params if "--help" not in one.opts]


def _repeated(call: Callable[..., None]) -> Callable[..., None]:
    """Return a command that is repeated while it is watched, each time on a clear screen."""

    @wraps(call)
    def run(*, watch: bool, **given: Any) -> None:
        if not watch:
            call(**given)
            return
        while True:
            clear_screen()
            call(**given)
            flush()
            time.sleep(WATCH_S)

    return run
