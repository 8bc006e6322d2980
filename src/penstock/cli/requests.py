"""The request that a job file or a command line makes, for the commands that submit or plan."""

import os
from pathlib import Path
from typing import Any

from penstock.cli.errors import UsageError
from penstock.cli.output import say
from penstock.cli.shape import JobShape
from penstock.client.requests import JOB_FILE_ENDINGS, file_request, with_surroundings
from penstock.starts import tool

INTERPRETERS = {".py": "python", ".sh": "sh", ".bash": "bash", ".r": "Rscript", ".R": "Rscript", ".jl": "julia"}
"""What runs a script, by its ending."""


def request_of(what: list[str], shape: JobShape) -> Any:
    """Return the request in a job file, or for a command, as the command line gives it."""
    is_file = len(what) == 1 and (what[0] == "-" or what[0].endswith(JOB_FILE_ENDINGS))
    if not is_file:
        return from_command(what, shape)
    return file_request(what[0], shape.fields(), shape.environment(), lambda note: say(f"penstock: {note}", err=True))


def from_command(command: list[str], shape: JobShape) -> dict[str, Any]:
    """Return the request for a command. Raises: UsageError for a script that needs its interpreter named."""
    interpreter = INTERPRETERS.get(Path(command[0]).suffix)
    if interpreter and _program(command[0]) is None:
        hint = f"did you mean: -- {interpreter} {' '.join(command)}"
        raise UsageError(f"{command[0]} is neither a job file nor a program that can be run", hint=hint)
    return with_surroundings({"command": command, **shape.fields()}, shape.environment())


def _program(word: str) -> str | None:
    """Return the program that a command begins with, or None."""
    return tool(word) if "/" not in word else word if os.access(word, os.X_OK) else None
