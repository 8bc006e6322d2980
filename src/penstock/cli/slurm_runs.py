"""What srun and salloc ask for where they begin a job of their own."""

import os
import shlex
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.logs import exit_code, follow_job
from penstock.cli.output import say
from penstock.cli.sbatch import Script, cluster_of, request_of
from penstock.slurm.directives import Options
from penstock.slurm.options import OPTIONS, STEP_OPTIONS, Given, Unknown, read_words
from penstock.slurm.settings import STANDARD_OUTPUT
from penstock.slurm.translate import Translated, translate

if TYPE_CHECKING:
    from penstock.client import Client

_NAMES = {one.name for one in OPTIONS}
SRUN_OPTIONS = (*OPTIONS, *(one for one in STEP_OPTIONS if one.name not in _NAMES and not one.left_out))
OF_STEP = ("label", "multi-prog", "output", "error", "open-mode", "cpus-per-task", "gpus-per-task", "export")
"""Options that the step inside of the job gets."""


def _translated(client: "Client", given: Sequence[Given], name: str, program: str) -> Translated:
    made = translate(Options(given), name, os.getcwd(), socket.gethostname(), cluster_of(client))
    say(*(f"{program}: {note}" for note in made.notes), err=True)
    return made


def allocation(client: "Client", words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the lease that salloc's options ask for, and its command. Raises: Unknown."""
    given, command = read_words(words, "salloc", OPTIONS)
    if not any(one.name == "time" for one in given):
        raise Unknown("salloc: --time is missing: an allocation ends with its time limit, such as --time=4:00:00")
    made = _translated(client, given, "interactive", "salloc")
    if "time_limit" not in made.fields:
        raise Unknown("salloc: --time is unlimited: an allocation ends with its time limit, such as --time=4:00:00")
    return {**made.fields, "lease": True}, command


def run_tasks(client: "Client", words: Sequence[str]) -> int:
    """Run a command as tasks of a new job, and follow its output. Returns: the highest exit code. Raises: Unknown."""
    given, command = read_words(words, "srun", SRUN_OPTIONS)
    if not command:
        raise Unknown("srun: no program is named")
    inner = [f"--{one.name}" + (f"={one.value}" if one.value else "") for one in given if one.name in OF_STEP]
    outer = [one for one in given if one.name in _NAMES and one.name not in ("output", "error", "open-mode")]
    made = _translated(client, outer, command[0].rpartition("/")[2], "srun")
    made = made._replace(settings=made.settings._replace(output=STANDARD_OUTPUT))
    text = f"#!/bin/sh\nexec srun {shlex.join([*inner, '--', *command])}\n"
    number = client.submit_request(request_of(client, Script(text, command[0], command), made)).jobs[0].id
    try:
        return exit_code(follow_job(client, number, say=lambda line: say(f"srun: {line}", err=True)))
    except KeyboardInterrupt:
        client.cancel(number)
        say("", f"srun: job {number} is being cancelled", err=True)
        return 130
