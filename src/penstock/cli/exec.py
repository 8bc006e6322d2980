"""`penstock exec`: a command inside a running job."""

from typing import Annotated

import typer


def exec_(
    job: Annotated[int, typer.Argument(help="Number of a lease or running job.", min=1)],
    command: Annotated[list[str], typer.Argument(help="Command to run, after --.")],
    rank: Annotated[int, typer.Option(help="Rank of the replica.", min=0)] = 0,
) -> None:
    """Run a command in a lease or running job. It has the job's devices and limits; exits with the command's code."""
    from penstock.cli.shell import shell

    shell(job, command, rank)
