"""The program `penstock`: its commands by name, and how errors end it.

A command is imported when it is called: help, completion and every other command start without it.
"""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli.commands import FORMER, GROUPS, MEANINGS, PANELS, TOP, WATCHED, Entry
from penstock.cli.helping import PlainGroup

FOREIGN = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": ["--help"]}
"""How the parser leaves the words of a command to it."""


def entry_of(name: str) -> Entry:
    """Return the entry of a command such as `ps` or `money bill`. Raises: KeyError."""
    group, _, member = name.partition(" ")
    return GROUPS[group][member] if member else TOP[name]


def load(name: str) -> Any:
    """Import a command and return it, as typer makes it, with the options that all of them share. Raises: KeyError."""
    entry = entry_of(name)
    word = name.rpartition(" ")[2]
    if not entry.place:
        return LazyGroup(name=word, help=entry.summary, rich_markup_mode=None, below=name)
    module, attribute = entry.place.split(":")
    declared = getattr(import_module(f"penstock.cli.{module}"), attribute)
    from penstock.cli.helping import PlainCommand
    from penstock.cli.shared import complete

    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(declared, typer.Typer):
        for member in declared.registered_commands:
            member.cls = PlainCommand
        own = declared.info.cls
        cls = own if isinstance(own, type) else PlainGroup  # typer's default is no type
        holder.add_typer(declared, name=word, hidden=entry.hidden, cls=cls)
    else:
        settings = FOREIGN if entry.foreign else {}
        holder.command(word, hidden=entry.hidden, cls=PlainCommand, context_settings=settings)(declared)

    return complete(typer.main.get_group(holder).commands[word], name, watch=entry.watch or name in WATCHED)


def leaves() -> Iterator[tuple[str, Any]]:
    """Yield the name of each command that is shown and runs something, such as `money bill`, and the command."""

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        members = getattr(command, "commands", None)
        if members is None:
            yield name, command
            return
        for word, member in members.items():
            yield from below(f"{name} {word}", load(f"{name} {word}") if name in GROUPS else member)

    for name, entry in TOP.items():
        if not entry.hidden:
            yield from below(name, load(name))


class LazyGroup(PlainGroup):
    """Knows its commands by the table, and imports one when it is to run."""

    def __init__(self, *, below: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self._below = below
        for name, entry in (GROUPS[below] if below else TOP).items():
            self.add_command(TyperCommand(name, help=entry.summary, hidden=entry.hidden))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if not self._below and args[0] in FORMER:
            new = FORMER[args[0]]
            from penstock.cli.output import say

            say(f"penstock: {args[0]} is now called {new}: penstock {new}", err=True)
            args = [*new.split(), *args[1:]]
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(f"{self._below} {name}".strip()) if name else command, rest

    def hint_for(self, ctx: Any, word: str, *more: str) -> str:
        """Return what a word of other tools is called here, or else the nearest command."""
        if self._below:
            return super().hint_for(ctx, word, *more)
        meant = MEANINGS.get(word.lower())
        return f"penstock {meant}: {TOP[meant.split()[0]].summary}" if meant else super().hint_for(ctx, word, *FORMER)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands panel by panel, with names in one column over all panels."""
        panels = {"Commands": GROUPS[self._below]} if self._below else PANELS
        width = max(len(name) for panel in panels.values() for name in panel)
        for title, panel in panels.items():
            with formatter.section(title):
                rows = [(name.ljust(width), entry.summary) for name, entry in panel.items() if not entry.hidden]
                formatter.write_dl(rows)

    def main(self, args: Any = None, prog_name: str | None = None, *unused: Any, **extra: Any) -> Any:
        """Run a command; unlike typer's own, every error is left to the caller."""
        with self.make_context("penstock", list(sys.argv[1:] if args is None else args), **extra) as ctx:
            return self.invoke(ctx)


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from penstock import __version__
        from penstock.cli.output import say

        say(f"penstock {__version__}")
        raise typer.Exit


def _data(value: str | None) -> None:
    if value is not None:
        from penstock.cli.shared import use_data

        use_data(value)


def _server(value: str | None) -> None:
    if value is not None:
        from penstock.cli.shared import use_server

        use_server(value)


@app.callback(epilog="penstock help COMMAND shows examples. Start here: penstock up, then penstock run -- echo hello")
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            callback=_data,
            metavar="DIR",
            help="Data folder of the server here [PENSTOCK_HOME; ~/.local/share/penstock].",
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", callback=_server, metavar="URL", help="Server elsewhere [PENSTOCK_URL]."),
    ] = None,
) -> None:
    """Penstock pools accelerators and lets the right ML job through at the right moment."""


def _wants_json(words: list[str]) -> bool:
    """Return whether a command line asks for JSON: then its error is, too."""
    after = {word for option, word in pairwise(words) if option in ("-o", "--output")}
    return "json" in after or not {"--json", "-ojson", "--output=json"}.isdisjoint(words)


def main() -> None:
    """Run the program; a known error ends it with a message and a code of its own (docs/cli.md)."""
    if "PENSTOCK_COMPLETE" in os.environ:
        from penstock.cli.completion import main as complete

        complete()
        return
    words = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    try:
        app()
        sys.stdout.flush()
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
    except typer.Abort:
        from penstock.cli.output import say

        say("", "penstock: stopped at the question; nothing was changed", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered goes nowhere, without a word
        sys.exit(141)
    except Exception as error:
        from penstock.cli.output import print_error
        from penstock.cli.parser import as_ours
        from penstock.core.model.errors import PenstockError

        known = error if isinstance(error, PenstockError) else as_ours(error)
        if known is None:
            raise
        sys.exit(print_error(known, as_json=_wants_json(words)))


if __name__ == "__main__":
    main()
