"""The batch script of an allocation. It holds no secret: the keys of its nodes lie in a folder of the server's user."""

import shlex
from pathlib import Path
from typing import NamedTuple

from penstock.engines.slurm.pilot.settings import PilotSettings
from penstock.formats.devices import UNTYPED, plain_model
from penstock.formats.slurm import read_gres

LEAVE_S = 10
"""Slurm sends SIGTERM so long before the end, and up to 30 s earlier, for it looks at limits every 30 s."""


class Place(NamedTuple):
    """Where the nodes find things."""

    folder: Path
    """On shared storage: one folder for each allocation below it."""
    python: str
    python_path: str
    """PYTHONPATH of the server, where it has one."""


def job_name(cluster: str) -> str:
    """Return the name by which the allocations of a log are known, whichever server asked for them."""
    return f"penstock-{cluster}"


def directives(settings: PilotSettings, name: str, tag: str, nodes: int, folder: Path) -> list[str]:
    """Return the options of `sbatch`, each one word.

    Args:
        tag: of this ask: found in the comment where the answer of sbatch was lost.
    """
    minutes = max(1, round(settings.time_limit_s / 60))
    words = [f"--job-name={name}", f"--comment={tag}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--time={minutes}"]
    output = shlex.quote(f"{str(folder).replace('%', '%%')}/allocation-%j.log")
    words += [f"--signal=B:TERM@{LEAVE_S}", "--no-requeue", "--open-mode=append", f"--output={output}"]
    for field in ("partition", "account", "qos", "constraint", "gres"):
        if value := getattr(settings, field):
            words.append(f"--{field}={value}")
    words.append(f"--cpus-per-task={settings.cpus}" if settings.cpus else "--exclusive")
    words.append(f"--mem={settings.memory_mib}M" if settings.memory_mib else "--mem=0")
    return [*words, *settings.options]


def _model(gres: str) -> str:
    """Return the type of `gpu:a100:4`, or a name for devices without one."""
    found = read_gres(gres)
    return plain_model(found.kind if found is not None and found.kind else UNTYPED)


def script_of(settings: PilotSettings, place: Place, name: str, tag: str, nodes: int) -> str:
    """Return the batch script: on each node it becomes, or starts, our agent, and lasts as long as the agents do.

    On one node the script itself becomes the agent. On several, `srun` starts one on each: its step has all CPUs and
    devices of the nodes, and a node that fails takes no other with it.
    """
    words = [place.python, "-P", "-m", "penstock.engines.slurm.pilot.onnode", str(place.folder)]
    words += [f"--scratch={settings.scratch}"] if settings.scratch else []
    words += [f"--simulated={_model(settings.gres)}"] if settings.simulated and settings.gres else []
    start = shlex.join(words)
    lines = ["#!/bin/sh", *(f"#SBATCH {word}" for word in directives(settings, name, tag, nodes, place.folder))]
    lines += ["umask 077", "cd /"]
    lines += [f"export PYTHONPATH={shlex.quote(place.python_path)}"] if place.python_path else []
    lines += ['if [ "$SLURM_JOB_NUM_NODES" = 1 ]; then', f"  exec {start}", "fi"]
    options = "--ntasks-per-node=1 --kill-on-bad-exit=0 --no-kill --cpu-bind=none --mem-bind=none --whole --mem=0"
    lines += [
        "unset SLURM_CPUS_PER_TASK",
        f"srun {options} {start} &",
        "agents=$!",
        "trap 'kill -TERM $agents' TERM",
        "while kill -0 $agents 2>/dev/null; do wait $agents; done",
        "wait $agents",
    ]
    return "\n".join(lines) + "\n"
