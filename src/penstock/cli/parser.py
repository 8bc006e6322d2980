"""Errors of the command line's parser, in the voice of all others."""

import re
from typing import Any

import typer

from penstock.cli.errors import UsageError
from penstock.core.model.errors import PenstockError, nearest

_PARSER_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The base of the parser's errors, which typer does not export."""
_EXPECTED = (
    (r".*valid integer.*", "a whole number"),
    (r".*valid (number|float).*", "a number"),
    (r".*greater than or equal to (\S+)", r"\1 or more"),
    (r".*less than or equal to (\S+)", r"\1 or less"),
)
"""What the parser says of a value, and what was expected."""


def as_ours(error: Exception) -> PenstockError | None:
    """Return the parser's error as ours, or None for anything else."""
    if not isinstance(error, _PARSER_ERROR):
        return None
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "penstock"
    helped = f"{path} --help shows its arguments, options and examples"
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return _no_option(error, context, path)
    if kind == "MissingParameter":
        return UsageError(f"{path} needs {_missing(error)}", hint=helped)
    parameter = getattr(error, "param", None)
    if kind == "BadParameter" and parameter is not None:
        return UsageError(f"{_named(parameter)}: {_expected(getattr(error, 'message', ''))}", hint=helped)
    return UsageError(_plain(getattr(error, "message", "") or str(error)), hint=helped)


def _no_option(error: Any, context: Any, path: str) -> PenstockError:
    parameters = context.command.params if context is not None else []
    known = [name for one in parameters if not getattr(one, "hidden", False) for name in one.opts if name[:2] == "--"]
    near = nearest(error.option_name, known)
    shown = near if near.startswith("did you mean") else f"{path} --help lists its options"
    note = "; words of a command come after --" if path in ("penstock run", "penstock submit", "penstock plan") else ""
    return UsageError(f"{path} has no option {error.option_name}", hint=shown + note)


def _missing(error: Any) -> str:
    parameter = error.param
    if parameter is None:
        return "another argument"
    about = getattr(parameter, "help", "") or ""
    return _named(parameter) + (f": {about[0].lower()}{about[1:].rstrip('.')}" if about else "")


def _named(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(getattr(parameter, "metavar", None) or parameter.name).upper().strip("[].")
    return str(max(parameter.opts, key=len))


def _expected(message: str) -> str:
    for pattern, ours in _EXPECTED:
        if found := re.fullmatch(pattern, message, re.IGNORECASE | re.DOTALL):
            return "expected " + found.expand(ours)
    return _plain(message)


def _plain(message: str) -> str:
    """Return the parser's sentence as ours are: without a capital and a full stop."""
    message = re.sub(r"^Got unexpected extra argument\(?s?\)? \((.*)\)$", r"too many arguments: \1", message)
    message = re.sub(r"^Option '(.*)' requires an argument\.?$", r"option \1 needs a value", message)
    message = re.sub(r"^Option '(.*)' does not take a value\.?$", r"option \1 takes no value", message)
    return (message[:1].lower() + message[1:]).rstrip(".")
