"""`penstock sbatch`: a batch script with `#SBATCH` lines, as it is."""

import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli.errors import UsageError
from penstock.cli.logs import exit_code
from penstock.cli.output import say
from penstock.cli.place import PLACE, client_of, home
from penstock.cli.wait import reached
from penstock.core.model.errors import InvalidInput
from penstock.core.model.jobs import FINAL_STATES
from penstock.slurm.directives import SCRIPT_MAX_BYTES, Options, check_script, directives, from_variables
from penstock.slurm.options import Given, Unknown, read_words
from penstock.slurm.settings import END, packed
from penstock.slurm.translate import FEATURE, Cluster, Translated, exported, translate
from penstock.starts import absolute_only

if TYPE_CHECKING:
    from penstock.client import Client

HELP_HINT = "penstock sbatch --help shows how it is used; options are those of Slurm's sbatch"
MEMBERS_MAX = 1_000
"""Members of an array that another job waits for."""


class Script(NamedTuple):
    text: str
    name: str
    """Its file name, of which the job is called; without a file `wrap` or `sbatch`."""
    words: list[str]
    """As it was called, with its arguments."""


def sbatch(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPTION]... [SCRIPT [ARGUMENT]...]", help="As of Slurm's sbatch; - or none: from stdin."
        ),
    ] = None,
) -> None:
    """Submit a batch script with #SBATCH lines. Options are those of Slurm; what has no meaning here is named."""
    try:
        given, rest = read_words(words or [], "command line")
        if any(one.name in ("help", "usage") for one in given):
            say(HELP_HINT)
            return
        script = _script(given, rest)
        options = Options(directives(script.text), from_variables(os.environ), given)
        submit(script, options)
    except Unknown as error:
        raise UsageError(str(error), hint=HELP_HINT) from None


def submit(script: Script, options: Options, *, lead: Sequence[str] = ("sbatch",)) -> int:
    """Submit a script with its options, say its number, and wait where that is asked for; return the number.

    Raises: Unknown, InvalidInput.
    """
    client = client_of()
    made = translate(options, script.name, os.getcwd(), socket.gethostname(), cluster_of(client))
    if "quiet" not in options:
        say(*(f"{lead[0]}: {note}" for note in made.notes), err=True)
    request = request_of(client, script, made)
    if "test-only" in options:
        from penstock.cli.plan import print_plan

        print_plan(client.plan(request), as_json=False)
        return 0
    answer = client.submit_request(request)
    number = answer.jobs[0].id
    if "parsable" in options:
        say(str(number))
    elif "quiet" not in options:
        say(f"Submitted batch job {number}")
    if made.wait:
        _wait(client, [job.id for job in answer.jobs])
    return number


def _script(given: Sequence[Given], rest: list[str]) -> Script:
    """Return the script that the command line names, from a file, standard input or --wrap. Raises: Unknown."""
    wrapped = [one.value for one in given if one.name == "wrap"]
    if wrapped:
        if rest:
            raise Unknown("a script and --wrap exclude each other")
        text = f"#!/bin/sh\n# This script was made by sbatch --wrap.\n\n{wrapped[-1]}\n"
        return Script(text, "wrap", ["wrap"])
    if not rest or rest[0] == "-":
        data, name = sys.stdin.buffer.read(SCRIPT_MAX_BYTES + 1), "sbatch"
        shown = "the script on standard input"
    else:
        path = _found(rest[0])
        shown, name = rest[0], path.name
        try:
            with path.open("rb") as file:
                data = file.read(SCRIPT_MAX_BYTES + 1)
        except OSError as error:
            raise Unknown(f"{rest[0]} cannot be read: {error.strerror}") from None
    if len(data) > SCRIPT_MAX_BYTES:
        raise Unknown(f"{shown} has more than {SCRIPT_MAX_BYTES:,} bytes")
    text = data.decode("utf-8", "surrogateescape")
    check_script(text, shown)
    return Script(text, name, [rest[0] if rest else name, *rest[1:]])


def _found(name: str) -> Path:
    """Return the path of a script: in this folder, else a name without a folder in PATH, as sbatch looks for it."""
    path = Path(name)
    if "/" in name or path.is_file():
        return path
    for folder in absolute_only(os.environ.get("PATH", os.defpath)):
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    return path


def cluster_of(client: "Client") -> Cluster:
    """Return the names of the server that options may use."""
    nodes = client.nodes()
    models = {device.model for node in nodes for device in node.devices}
    features = {name.removeprefix(FEATURE) for node in nodes for name in node.labels if name.startswith(FEATURE)}
    me = client.me()
    return Cluster(
        queues=[queue.name for queue in client.queues()],
        pools=[pool.name for pool in client.pools()],
        tenants=me.submits,
        models=sorted(models),
        features=sorted(features),
        queue=me.default_queue or "default",
        tenant=me.default_tenant or "default",
    )


def request_of(client: "Client", script: Script, made: Translated) -> dict[str, Any]:
    """Return the job of a script. Raises: InvalidInput, where script and environment are too large."""
    environment = dict(os.environ)
    if PLACE.data is not None:
        environment["PENSTOCK_HOME"] = str(home().absolute())
    umask = os.umask(0)
    os.umask(umask)
    settings = made.settings._replace(umask=f"{umask:04o}")
    try:
        carried = packed(script.text, exported(settings.export, environment))
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    passed = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    command = [client.python, "-P", "-m", "penstock.batch", *settings.words(), END, *script.words]
    fields = made.fields | _dependencies(client, made)
    return {**fields, "command": command, "env": {**passed, **carried}}


def _dependencies(client: "Client", made: Translated) -> dict[str, list[int]]:
    """Return the jobs that it waits for, by kind; all members of an array that is named by its number."""
    found: dict[str, list[int]] = {}
    for one in made.dependencies.jobs:
        members = _members(client, one.job)
        if one.member >= 0:
            members = {index: number for index, number in members.items() if index == one.member}
            if not members:
                raise InvalidInput(f"job {one.job} has no member with the index {one.member}")
        found.setdefault(one.kind, []).extend(members.values() or [one.job])
    if made.dependencies.singleton:
        user = client.me().user
        mine = client.jobs(name=str(made.fields["name"]), user=user, limit=MEMBERS_MAX).jobs
        found.setdefault("after_any", []).extend(job.id for job in mine if job.name == made.fields["name"])
    return {kind: sorted(set(jobs)) for kind, jobs in found.items() if jobs}


def _members(client: "Client", number: int) -> dict[int, int]:
    """Return the members of an array, index and number; none for a job alone. Raises: NotFound."""
    from penstock.slurm.arrays import index_at
    from penstock.slurm.settings import batch_words

    if client.job(number).array_id != number:
        return {}
    listed = client.jobs(array=number, finished="true", limit=MEMBERS_MAX).jobs
    batch = batch_words(client.job(number).command)
    spec = batch[0].array if batch else ""
    return {index_at(spec, job.array_index) if spec else job.array_index: job.id for job in listed}


def _wait(client: "Client", jobs: list[int]) -> None:
    """Wait for jobs; exits with the highest of their exit codes where one has failed, 1 for a signal."""
    ended = list(reached(client, deque(jobs), FINAL_STATES, None))
    if code := max(1 if job.exit_signal else exit_code(job) for job in ended):
        sys.exit(code)
