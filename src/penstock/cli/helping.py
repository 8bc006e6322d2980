"""How the help of a command is laid out: usage, arguments, options, each with the word that stands for its value."""

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_RANGE = re.compile(r"x[<>]=?[-\d.]+|[-\d.]+<=?x<=?[-\d.]+|required")
"""Notes of typer's that say nothing to a user: an error names the bounds."""


class PlainCommand(TyperCommand):
    """A command whose help shows `JOB`, not its type in Python."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(str(one.metavar) for one in self.params if _is_argument(one))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self, ctx, formatter)


class PlainGroup(TyperGroup):
    """A group whose members' help is laid out in the same way; without a word, it prints its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command; without any word, print the help, which is no error."""
        if not args and not ctx.resilient_parsing:
            from penstock.cli.output import print_document

            print_document(ctx.get_help() + "\n")
            raise typer.Exit
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the first word names, and the words after it. Raises: UsageError."""
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            from penstock.cli.errors import UsageError

            raise UsageError(f"there is no command '{word}'", hint=self.hint_for(ctx, word))
        return super().resolve_command(ctx, args)

    def hint_for(self, ctx: Any, word: str, *more: str) -> str:
        """Return the command or word of `more` nearest to `word`, else how to list the commands."""
        from penstock.core.model.errors import nearest

        near = nearest(word, [*self.commands, *more])
        return near if near.startswith("did you mean") else f"{ctx.command_path} --help lists the commands"

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the sections of arguments and options."""
    for title, rows in sections(command, ctx).items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def sections(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the arguments and the options of a command, each as it is written and what it is for."""
    return {
        "Arguments": [(str(one.metavar), _about(one, ctx)) for one in command.params if _is_argument(one)],
        "Options": [
            (record[0], _about(one, ctx))
            for one in command.get_params(ctx)
            if not _is_argument(one) and (record := one.get_help_record(ctx)) is not None
        ],
    }


def name_values(command: Any) -> None:
    """Give each parameter the word that stands for its value: `JOB`, `--limit N`, `--memory MEMORY`."""
    for parameter in command.params:
        if parameter.metavar is None and not getattr(parameter, "is_flag", False):
            parameter.metavar = _word(parameter)


def _word(parameter: Any) -> str:
    kind = parameter.display_type(None).strip("<>")
    word = kind if "|" in kind else parameter.name.strip("_").upper()
    if not _is_argument(parameter):
        word = word if "|" in kind else word.rpartition("_")[2].removesuffix("S")
        return "N" if kind.startswith(("int", "float")) else str(word)
    word = word.removesuffix("S") + "..." if parameter.nargs != 1 else word
    return str(word if parameter.required else f"[{word}]")


def _about(parameter: Any, ctx: Any) -> str:
    record = parameter.get_help_record(ctx)
    text, bracket, notes = (record[1] if record else "").rpartition("  [")
    if not bracket:
        return str(notes)
    kept = [note for note in notes.rstrip("]").split("; ") if not _RANGE.fullmatch(note)]
    return f"{text}  [{'; '.join(kept)}]" if kept else str(text)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")
