"""The request that a job file or a command line makes, for the commands that submit or plan."""

import os
from pathlib import Path
from typing import Any

from penstock.cli.errors import UsageError
from penstock.cli.shape import PASSED_ON, JobShape
from penstock.core.model.errors import InvalidInput
from penstock.starts import tool

INTERPRETERS = {".py": "python", ".sh": "sh", ".bash": "bash", ".r": "Rscript", ".R": "Rscript", ".jl": "julia"}
"""What runs a script, by its ending."""
JOB_FILE_ENDINGS = (".yaml", ".yml", ".json")


def request_of(what: list[str], shape: JobShape) -> Any:
    """Return the request in a job file, or for a command, as the command line gives it."""
    is_file = len(what) == 1 and (what[0] == "-" or what[0].endswith(JOB_FILE_ENDINGS))
    return _from_file(what[0], shape) if is_file else from_command(what, shape)


def from_command(command: list[str], shape: JobShape) -> dict[str, Any]:
    """Return the request for a command. Raises: UsageError for a script that needs its interpreter named."""
    interpreter = INTERPRETERS.get(Path(command[0]).suffix)
    if interpreter and _program(command[0]) is None:
        hint = f"did you mean: -- {interpreter} {' '.join(command)}"
        raise UsageError(f"{command[0]} is neither a job file nor a program that can be run", hint=hint)
    return {"command": command, **shape.fields(), **_surroundings({}, shape)}


def _program(word: str) -> str | None:
    """Return the program that a command begins with, or None."""
    return tool(word) if "/" not in word else word if os.access(word, os.X_OK) else None


def _surroundings(job: dict[str, Any], shape: JobShape) -> dict[str, Any]:
    """Return `workdir` and `env` of a job: its own, completed by those of the submitting shell."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    own = job.get("env")
    if own is not None and not isinstance(own, dict):
        return {}  # the server reports the fault
    return {"workdir": job.get("workdir") or os.getcwd(), "env": {**passed, **(own or {}), **shape.environment()}}


def _from_file(name: str, shape: JobShape) -> Any:
    """Return the request in a job file, completed by options and surroundings.

    Raises: InvalidInput when the file cannot be read, is no YAML or is empty.
    """
    from penstock.yamltext import read_yaml

    raw = read_yaml(name, "the job file")
    if raw is None:
        raise InvalidInput(f"the job file {name} is empty", hint="examples: docs/jobs.md")
    return _completed(raw, shape)


def _completed(raw: Any, shape: JobShape) -> Any:
    """Return a request with defaults, options and surroundings in each job; the server reports what is no job."""
    if isinstance(raw, dict) and isinstance(raw.get("jobs"), list):
        defaults = raw.get("defaults") or {}
        if not isinstance(defaults, dict):
            return raw
        kept = {name: value for name, value in raw.items() if name != "defaults"}
        jobs = [_completed({**defaults, **j} if isinstance(j, dict) else j, shape) for j in raw["jobs"]]
        return {**kept, "jobs": jobs}
    if isinstance(raw, list):
        return [_completed(job, shape) for job in raw]
    return {**raw, **shape.fields(), **_surroundings(raw, shape)} if isinstance(raw, dict) else raw
