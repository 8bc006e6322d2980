"""`penstock secret`, and help to keep secrets off the command line, where every user of a machine can read them.

A value comes from standard input or a file.
"""

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.api.types import SecretView
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_done, print_json, table
from penstock.cli.place import client_of
from penstock.core.model.errors import InvalidInput
from penstock.core.model.quantities import format_time

ARG_START, ARG_END = 45, 46
"""Fields of /proc/self/stat after the name of the program: where the words of the command line lie. Source: proc(5)."""

secret = typer.Typer(help="Set, list and remove secrets that jobs get as variables.")
SharedOption = Annotated[str, typer.Option("--tenant", help="For all jobs of this tenant; by default only for yours.")]


@secret.command("set")
def set_secret(
    name: Annotated[str, typer.Argument(help="Name, such as HF_TOKEN.")],
    tenant: SharedOption = "",
    file: Annotated[Path | None, typer.Option("--file", help="Read the value from this file, as it is.")] = None,
    json: JsonOption = False,
) -> None:
    """Set a secret, or replace its value. The value is asked for, or read from standard input."""
    made = client_of().set_secret(name, _value(name, file), tenant)
    whose = f"all jobs of tenant {made.tenant}" if made.tenant else f"jobs of {made.owner}"
    print_done(made, f"secret {made.name} is set, for {whose} that name it under 'secrets'", as_json=json)


def _value(name: str, file: Path | None) -> str:
    """Raises: InvalidInput when the file cannot be read, or is no text."""
    if file is None and sys.stdin.isatty():
        return str(typer.prompt(f"value of {name}", hide_input=True))
    try:
        if file is not None:
            return file.read_bytes().decode()
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except OSError as error:
        raise InvalidInput(f"the file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InvalidInput("the value is no UTF-8 text", hint="encode it, with base64 for example") from None


@secret.command("list")
def list_secrets(json: JsonOption = False) -> None:
    """List the secrets that your jobs may use; values are never shown."""
    found = client_of().secrets()
    if json:
        print_json(found)
        return
    rows = [(one.name, one.tenant or "-", one.owner or "-", format_time(one.set_ms), one.by) for one in found]
    columns, none = ("secret", "tenant", "user", "set", "by"), "no secrets are set: penstock secret set NAME"
    Console().print(table(columns, rows, drop=("by", "set"), of=found, kind=SecretView, key="name", empty=none))


@secret.command("remove")
def remove_secret(
    name: Annotated[str, typer.Argument(help="Name of the secret.")],
    tenant: SharedOption = "",
    json: JsonOption = False,
) -> None:
    """Remove a secret that no live job needs."""
    client_of().remove_secret(name, tenant)
    print_done({"removed": name}, f"secret {name} is removed", as_json=json)


@secret.command("rotate")
def rotate_key(json: JsonOption = False) -> None:
    """Seal all secrets with a new key and discard the former ones: removed and replaced values are lost for good."""
    done = client_of().rotate_secret_key()
    text = f"{done.sealed} secrets are sealed with a new key; {done.dropped} former keys are gone"
    print_done(done, text, as_json=json)


def hide(secret: str | None) -> None:
    """Blot `secret` out of this process's command line, if it is a word of it and where the system lets us.

    It could be read until now: a file, PENSTOCK_STORE or ~/.pgpass is better.
    """
    if not secret or "@" not in secret:
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        start, end = int(fields[ARG_START]), int(fields[ARG_END])
        if not 0 < start < end:
            return
        found = ctypes.string_at(start, end - start)
        word = secret.encode()
        at = found.find(word)
        while at >= 0:
            ctypes.memset(start + at, ord("x"), len(word))
            at = found.find(word, at + 1)
