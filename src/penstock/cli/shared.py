"""What every command has beyond its own options: `--data`, `--server`, `--watch`, forms of output, and examples."""

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import forms, place
from penstock.cli.commands import LISTS, STREAMS, TABLES, WATCHED
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


def _formed(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORM", help="wide, json, yaml, csv or name (for arguments).")
    ] = "",
    template: Annotated[
        str, typer.Option("--format", metavar="TEXT", help="A line for each, with fields: '{id} {name}'.")
    ] = "",
) -> None:
    """Declares the options of all commands that print a result."""


def _listed(
    columns: Annotated[
        str, typer.Option("--columns", metavar="NAMES", help="Only these columns or fields, with commas.")
    ] = "",
    sort: Annotated[
        str, typer.Option("--sort", metavar="NAME", help="Sort by this column or field; -NAME: greatest first.")
    ] = "",
) -> None:
    """Declares the options of lists."""


def complete(command: Any, name: str, *, watch: bool) -> Any:
    """Return a command with the options that all share, and its examples in its help.

    Args:
        name: with its groups, such as `money bill`.
    """
    name_values(command)
    members = getattr(command, "commands", None)
    if members is not None:
        for word, member in members.items():
            complete(member, f"{name} {word}", watch=f"{name} {word}" in WATCHED)
        return command
    if any("--json" in one.opts for one in command.params) and name not in STREAMS:
        taken = {option for one in command.params for option in one.opts}
        more = [*_parameters(_formed), *(_parameters(_listed) if name in LISTS else ())]
        more = [one for one in more if not taken & set(one.opts)]
        command.params += more
        command.callback = _in_form(command.callback, [one.name for one in more], has_table=name in TABLES)
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


def _in_form(call: Callable[..., None], options: list[str], *, has_table: bool) -> Callable[..., None]:
    """Return a command that prints in the form that its options choose.

    Args:
        options: those of the form that it has.
        has_table: it knows the items of its table; others give them with their JSON.
    """

    @wraps(call)
    def run(*, json: bool, **given: Any) -> None:
        words = {name: given.pop(name) for name in options}
        form = forms.form_of(
            words["output"], words.get("template", ""), words.get("columns", ""), words.get("sort", ""), as_json=json
        )
        with forms.using(form):
            call(json=form.output in ("json", "yaml") or (form.of_items and not has_table), **given)

    return run


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
