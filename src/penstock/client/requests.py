"""Requests made of a command or a job file: with the surroundings of the submitting process, and other fields."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from penstock.core.model.errors import InvalidInput

JOB_FILE_ENDINGS = (".yaml", ".yml", ".json")
PASSED_ON = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables of the submitting process that a job gets, so that `python` means the same there."""
OF_AN_ENVIRONMENT = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")
"""Those of them that a job does not get which names an environment of its own."""


class CallFields(TypedDict, total=False):
    """Fields of a job that calls a function: all but `python`, which is the program of the call there."""

    name: str
    replicas: int | str | Mapping[str, Any]
    devices: int | float | Mapping[str, Any]
    cpus: int | float
    memory: int | str
    storage: int | str
    bandwidth: str
    groups: Sequence[Mapping[str, Any]]
    topology: str | Mapping[str, Any]
    node_labels: Mapping[str, Any]
    placement: str
    alternatives: Sequence[Mapping[str, Any]]
    shareable: bool
    workload_class: str
    hold: bool
    pool: str
    queue: str
    tenant: str
    priority: int | str
    preemptible: bool
    on_preempt: str
    after_ok: int | str | Sequence[int | str]
    after_any: int | str | Sequence[int | str]
    after_failed: int | str | Sequence[int | str]
    time_limit: int | float | str
    estimated_duration: int | float | str
    max_wait: int | float | str
    grace: int | float | str
    retries: int
    on_hang: str
    hang_limit: int | float | str
    env: Mapping[str, str]
    secrets: Sequence[str] | Mapping[str, str]
    workdir: str | Mapping[str, str]
    image: str | Mapping[str, Any]
    runtime: str | Mapping[str, Any]
    setup: str | Sequence[str]
    conda: str
    labels: Mapping[str, str]
    notify: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
    batch: Mapping[str, int]
    ports: Sequence[str]
    inputs: Mapping[str, Any]
    checkpoint: Mapping[str, Any]


class JobFields(CallFields, total=False):
    """Fields of a job, named and meant as in a job file (docs/job-fields.md); the server checks them."""

    python: Mapping[str, Any]


def with_surroundings(job: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a job with `workdir` and `env`: its own, completed by those of this process, and `environment`.

    A job with an image gets no `workdir` but its own.
    """
    apart = OF_AN_ENVIRONMENT if job.get("python") or job.get("conda") else ()
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ and name not in apart}
    own = job.get("env")
    if own is not None and not isinstance(own, Mapping):
        return dict(job)  # the server reports the fault
    workdir = job.get("workdir") or (None if job.get("image") else os.getcwd())  # an image has its own folders
    return {**job, **({"workdir": workdir} if workdir else {}), "env": {**passed, **(own or {}), **environment}}


def file_request(
    name: str,
    fields: Mapping[str, Any],
    environment: Mapping[str, str],
    on_note: Callable[[str], None] = lambda note: None,
) -> Any:
    """Return the request in a job file, or - for standard input, completed by fields and surroundings.

    A task file of SkyPilot or dstack is read as well.

    Args:
        on_note: gets each field of such a file that has no meaning here.
    Raises: InvalidInput when the file cannot be read, is no YAML or is empty.
    """
    from penstock.client.taskfiles import task_of
    from penstock.yamltext import read_yaml

    raw = read_yaml(name, "the job file")
    if raw is None:
        raise InvalidInput(f"the job file {name} is empty", hint="examples: docs/jobs.md")
    task = task_of(raw)
    for note in task.notes if task is not None else ():
        on_note(note)
    return _completed(raw if task is None else task.request, fields, environment)


def _completed(raw: Any, fields: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    """Return a request with defaults, fields and surroundings in each job; the server reports what is no job."""
    if isinstance(raw, dict) and isinstance(raw.get("jobs"), list):
        defaults = raw.get("defaults") or {}
        if not isinstance(defaults, dict):
            return raw
        kept = {name: value for name, value in raw.items() if name != "defaults"}
        whole = [{**defaults, **job} if isinstance(job, dict) else job for job in raw["jobs"]]
        return {**kept, "jobs": [_completed(job, fields, environment) for job in whole]}
    if isinstance(raw, list):
        return [_completed(job, fields, environment) for job in raw]
    return with_surroundings({**raw, **fields}, environment) if isinstance(raw, dict) else raw
