"""The options that describe a job, for the commands that submit or plan one."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from penstock.cli.errors import UsageError
from penstock.cli.options import CpusOption, Decorator, MemoryOption, QueueOption, TenantOption, pairs, spread

WhatArgument = Annotated[
    list[str], typer.Argument(help="A job file (.yaml, .yml, .json or - for stdin), or -- COMMAND.")
]


class JobShape(NamedTuple):
    """The options about a job, with their definitions; None where an option is not given."""

    name: Annotated[str | None, typer.Option("--name", "-J", help="Name of the job.")] = None
    devices: Annotated[
        str | None,
        typer.Option("--devices", "--gpus", "-g", metavar="N", help="Devices of a replica: 2, 0.5 or a MIG profile."),
    ] = None
    model: Annotated[list[str] | None, typer.Option("--model", help="Model of the devices; may be repeated.")] = None
    replicas: Annotated[
        str | None,
        typer.Option("--replicas", "-n", metavar="N", help="Replicas, which start together; 2..4 for an elastic job."),
    ] = None
    cpus: CpusOption = None
    memory: MemoryOption = None
    topology: Annotated[str | None, typer.Option("--topology", help="same_node, same_switch, same_rack or spread.")] = (
        None
    )
    pool: Annotated[str | None, typer.Option("--pool", help="Pool to run in.")] = None
    queue: QueueOption = None
    tenant: TenantOption = None
    priority: Annotated[str | None, typer.Option("--priority", help="low, medium, high or a number.")] = None
    preemptible: Annotated[
        bool | None, typer.Option("--preemptible/--no-preemptible", help="May be asked to make room for others.")
    ] = None
    after_ok: Annotated[
        list[str] | None,
        typer.Option("--after-ok", metavar="JOBS", help="Start when these have succeeded: 3,4."),
    ] = None
    time_limit: Annotated[str | None, typer.Option("--time-limit", "-t", help="Stop the job after this time.")] = None
    grace: Annotated[str | None, typer.Option("--grace", help="Time between the stop signal and the kill.")] = None
    retries: Annotated[int | None, typer.Option("--retries", help="Retries after a failure of the program.")] = None
    array: Annotated[
        str | None,
        typer.Option("--array", "-a", metavar="N", help="Copies with an index: 10, 0-9, 0-9%4 (4 at once)."),
    ] = None
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, or NAME as in this shell.")] = None
    secrets: Annotated[
        list[str] | None, typer.Option("--secret", help="Secret as a variable: NAME or VARIABLE=NAME.")
    ] = None
    notify: Annotated[
        str | None, typer.Option("--notify", "--mail-type", help="Events of it that are sent to you: end,preempted.")
    ] = None
    labels: Annotated[list[str] | None, typer.Option("--label", "-l", help="Label NAME=VALUE of the job.")] = None
    workdir: Annotated[str | None, typer.Option("--workdir", "-C", help="Folder to start in; by default this.")] = None
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", metavar="DIR", help="Send this folder, and start in it on the nodes.")
    ] = None
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="PATH=URL", help="Fetch this before the start; repeatable.")
    ] = None
    image: Annotated[
        str | None, typer.Option("--image", metavar="NAME", help="Container image that its replicas run in.")
    ] = None
    runtime: Annotated[
        str | None,
        typer.Option(metavar="ray", help="ray: run it on a Ray cluster of the job's own, one node a replica."),
    ] = None

    setup: Annotated[
        list[str] | None,
        typer.Option("--setup", metavar="STEP", help="Run this on each node before the program, once."),
    ] = None
    requirements: Annotated[
        str | None,
        typer.Option("--requirements", metavar="FILE", help="Python packages that uv installs on each node."),
    ] = None
    conda: Annotated[str | None, typer.Option("--conda", metavar="NAME", help="Environment of conda on the nodes.")] = (
        None
    )

    def fields(self) -> dict[str, Any]:
        """Return the job-file fields that were given. Raises: InvalidInput."""
        apart = {"env", "secrets", "labels", "devices", "model", "replicas", "after_ok", "array", "priority"}
        apart |= {"workdir", "snapshot", "requirements", "inputs"}
        given = {name: value for name, value in self._asdict().items() if value is not None and name not in apart}
        if self.secrets:
            given["secrets"] = {one.partition("=")[0]: one.partition("=")[2] or one for one in self.secrets}
        if self.priority is not None:
            given["priority"] = int(self.priority) if self.priority.isdecimal() else self.priority
        if self.replicas is not None:
            given["replicas"] = int(self.replicas) if self.replicas.isdecimal() else self.replicas
        if self.devices is not None or self.model:
            given["devices"] = device_ask(self.devices, self.model or [])
        if self.array is not None:
            given["array"] = int(self.array) if self.array.isdecimal() else self.array
        if self.after_ok:
            names = [word for one in self.after_ok for word in one.split(",") if word]
            given["after_ok"] = [int(word) if word.isdecimal() else word for word in names]
        if self.labels:
            given["labels"] = pairs("--label", self.labels)
        if self.inputs:
            given["inputs"] = pairs("--input", self.inputs)
        if self.workdir is not None:
            given["workdir"] = str(Path(self.workdir).absolute())
        if self.snapshot is not None:
            if self.workdir is not None:
                raise UsageError("--snapshot and --workdir name two folders", hint="give one of them")
            given["workdir"] = {"snapshot": self.snapshot}
        if self.requirements is not None:
            given["python"] = {"requirements": self.requirements}
        return given

    def environment(self) -> dict[str, str]:
        """Return the variables asked for with --env."""
        found = {}
        for item in self.env or []:
            name, given, value = item.partition("=")
            found[name] = value if given else os.environ.get(name, "")
        return found


_NUMBER = re.compile(r"-?([0-9]+[.]?[0-9]*|[.][0-9]+)")
"""A number of devices; any other word is a MIG profile, also those that Python reads as numbers: `nan`, `1e9`."""


def device_ask(text: str | None, models: list[str]) -> Any:
    """Return the field `devices` of a job file for a number, a part or a MIG profile, and models."""
    if text is not None and not _NUMBER.fullmatch(text):
        return {"profile": text, **({"model": models} if models else {})}
    amount = None if text is None else int(text) if text.isdecimal() else float(text)
    if not models:
        return amount
    kind = "share" if amount is not None and 0 < amount < 1 else "count"
    return {kind: 1 if amount is None else amount, "model": models}


def shaped(*, without: tuple[str, ...] = ()) -> Decorator:
    """Give a command the options of `JobShape`, but for those named, in place of its parameter `shape`."""
    return spread(JobShape, "shape", without=without)
