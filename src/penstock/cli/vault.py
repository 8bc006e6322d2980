"""Commands about secrets. A value comes from standard input or a file: on a command line everybody could read it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DataOption, JsonOption, client_of
from penstock.cli.output import Console, print_json, say, table
from penstock.core.model.amounts import format_time
from penstock.core.model.errors import InvalidInput

secret = typer.Typer(no_args_is_help=True, help="Set, list and remove secrets that jobs get as variables.")
SharedOption = Annotated[str, typer.Option("--tenant", help="For all jobs of this tenant; by default for yours alone.")]


@secret.command("set")
def set_secret(
    name: Annotated[str, typer.Argument(help="Its name, such as HF_TOKEN.")],
    tenant: SharedOption = "",
    file: Annotated[Path | None, typer.Option("--file", help="Take the value from this file, as it is.")] = None,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Set a secret, or give it another value. It is asked for, or read from standard input."""
    made = client_of(data).set_secret(name, _value(name, file), tenant)
    if json:
        print_json(made)
        return
    whose = f"all jobs of tenant {made.tenant}" if made.tenant else f"jobs of {made.owner}"
    say(f"secret {made.name} is set, for {whose} that name it under 'secrets'")


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
def list_secrets(data: DataOption = None, json: JsonOption = False) -> None:
    """List the secrets that your jobs may use; their values are shown to nobody."""
    found = client_of(data).secrets()
    if json:
        print_json(found)
        return
    if not found:
        say("no secrets are set: penstock secret set NAME")
        return
    rows = [(one.name, one.tenant or "-", one.owner or "-", format_time(one.set_ms), one.by) for one in found]
    Console().print(table(("secret", "tenant", "user", "set", "by"), rows))


@secret.command("remove")
def remove_secret(
    name: Annotated[str, typer.Argument(help="Its name.")],
    tenant: SharedOption = "",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Remove a secret that no live job needs."""
    client_of(data).remove_secret(name, tenant)
    if json:
        print_json({"removed": name})
    else:
        say(f"secret {name} is removed")


@secret.command("rotate")
def rotate_key(data: DataOption = None, json: JsonOption = False) -> None:
    """Seal all secrets with a new key and throw the former away: what was removed or replaced is lost for good."""
    done = client_of(data).rotate_secret_key()
    if json:
        print_json(done)
        return
    say(f"{done.sealed} secrets are sealed with a new key; {done.dropped} former keys are gone")
