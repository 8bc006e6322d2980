"""The question before a change; without a terminal the change is refused."""

import sys
from typing import Annotated

import typer

from penstock.cli.errors import NotConfirmed

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, yes: bool, as_json: bool = False) -> None:
    """Return once the user agrees, or did so by `--yes`.

    Raises: NotConfirmed where standard input is no terminal or the output is JSON, and when the answer is no;
        typer.Abort when the user does not answer.
    """
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        why = "--json does not ask" if as_json else "standard input is no terminal"
        raise NotConfirmed(
            f"nothing was changed: this needs a confirmation, and {why}",
            hint="--yes confirms it, --dry-run shows what would change",
        )
    if not typer.confirm(question, err=True):
        raise NotConfirmed("nothing was changed")
