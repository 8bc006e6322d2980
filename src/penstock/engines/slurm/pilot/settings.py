"""What a pilot may ask Slurm for, as its operator sets it."""

from pathlib import Path
from typing import Annotated

import msgspec

from penstock.core.model.errors import InvalidInput
from penstock.core.model.ids import DEFAULT_POOL

OPTIONS_MAX = 50
NODES_MAX = 10_000
Count = Annotated[int, msgspec.Meta(ge=0, le=NODES_MAX)]
Some = Annotated[int, msgspec.Meta(ge=1, le=NODES_MAX)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=30 * 86_400)]
Words = Annotated[str, msgspec.Meta(max_length=400, pattern=r"^[^\s\x00-\x1f]*$")]
OWN = ("job-name", "comment", "parsable", "output", "error", "nodes", "signal", "time", "partition", "account", "qos",
       "constraint", "gres", "cpus-per-task", "mem", "exclusive", "wrap", "array", "requeue", "no-requeue", "hold",
       "test-only", "wait", "clusters", "export", "chdir", "dependency", "ntasks", "ntasks-per-node")  # fmt: skip
"""Options that the pilot gives by itself, or that would make something else of an allocation."""


class PilotSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a pilot, with their defaults. Times in seconds."""

    nodes_min: Count = 0
    """Held and asked for, whether or not jobs need them."""
    nodes_max: Some = 4
    """Held and asked for at the same time."""
    nodes_per_allocation: Some = 1
    """At most; fewer where fewer are missing."""
    pool: Words = DEFAULT_POOL
    """Pool of the nodes; jobs of other pools ask for none."""
    partition: Words = ""
    account: Words = ""
    qos: Words = ""
    constraint: Words = ""
    gres: Words = ""
    """Of each node, such as `gpu:a100:4`."""
    simulated: bool = False
    """The devices of `gres` are simulated ones, marked as such everywhere: to try a pilot without any."""
    cpus: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    """Of each node; 0: whole nodes (`--exclusive`)."""
    memory_mib: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    """Of each node; 0: all of it (`--mem=0`)."""
    time_limit_s: Annotated[float, msgspec.Meta(ge=120, le=365 * 86_400)] = 14_400
    """Of an allocation; Slurm counts whole minutes."""
    margin_s: Annotated[float, msgspec.Meta(ge=45, le=86_400)] = 120
    """Before the end of an allocation: from then on nothing is placed there, and its jobs are asked to save and move
    on. A job whose `grace` is longer is asked so much earlier."""
    idle_s: Seconds = 300
    """An allocation none of whose nodes has run a job for so long is given back."""
    grow_after_s: Seconds = 5
    """For how long a job has waited for room before nodes are asked for."""
    cancel_after_s: Seconds = 30
    """For how long an ask has been of no more use before it is cancelled."""
    backoff_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 30
    """Pause after an ask that failed; doubled with each further one, up to 32 times as long."""
    refresh_s: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 5
    """Time between two questions to Slurm for the pilot's own jobs."""
    join_s: Annotated[float, msgspec.Meta(ge=5, le=86_400)] = 120
    """An allocation none of whose nodes has joined so long after its start is given back."""
    options: tuple[Words, ...] = ()
    """Further options of `sbatch`, such as `--reservation=night`."""
    folder: str = ""
    """On storage that every node reaches at the same path, for the keys with which nodes join and the folders of jobs;
    empty: `pilot` in the data folder."""
    scratch: str = ""
    """On each node: where its agent keeps what is its own. Empty: TMPDIR of the allocation."""
    python: str = ""
    """The Python with Penstock on the nodes; empty: the server's own, at the same path."""


def read_settings(path: Path) -> PilotSettings:
    """Return the settings that a YAML file sets. Raises: InvalidInput."""
    from penstock.yamltext import loaded

    try:
        raw = loaded(path.read_text(encoding="utf-8"))
        return checked(msgspec.convert(raw or {}, PilotSettings))
    except (OSError, ValueError) as error:  # of the text, of YAML, or of a value
        hint = "known: " + ", ".join(PilotSettings.__struct_fields__)
        raise InvalidInput(f"{path} cannot be used: {error}", hint=hint) from error


def checked(settings: PilotSettings) -> PilotSettings:
    """Return settings that agree with each other. Raises: ValueError naming field, value and what was expected."""
    if settings.nodes_min > settings.nodes_max:
        raise ValueError(f"nodes_min is {settings.nodes_min}, expected at most nodes_max ({settings.nodes_max})")
    if settings.margin_s >= settings.time_limit_s / 2:
        half = f"{settings.time_limit_s / 2:g}"
        raise ValueError(f"margin_s is {settings.margin_s:g}, expected less than half of time_limit_s ({half})")
    if len(settings.options) > OPTIONS_MAX:
        raise ValueError(f"options has {len(settings.options)} entries, expected at most {OPTIONS_MAX}")
    for word in settings.options:
        name = word.removeprefix("--").partition("=")[0]
        if not word.startswith("--") or not name:
            raise ValueError(f"options has '{word}', expected long options such as --reservation=night")
        if name in OWN:
            raise ValueError(f"options has '{word}', which the pilot sets itself{nearest_field(name)}")
    for field in ("folder", "scratch", "python"):
        value = getattr(settings, field)
        if value and not (Path(value).is_absolute() and value.isprintable()):
            raise ValueError(f"{field} is '{value}', expected an absolute path")
    return settings


def nearest_field(name: str) -> str:
    """Return the setting for one of sbatch's options, as the end of a sentence; '' where there is none."""
    by_option = {"nodes": "nodes_per_allocation", "time": "time_limit_s", "cpus-per-task": "cpus", "mem": "memory_mib"}
    own = by_option.get(name) or (name if name in PilotSettings.__struct_fields__ else "")
    return f": use {own}" if own else ""
