"""What a batch job tells its own places: settings as words of its command; the script and environment packed.

The standard library alone: the job reads them.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

PIECE_VARIABLE = "PENSTOCK_BATCH_{}"
PIECE_CHARACTERS = 60_000
"""A value of a job's variable has at most 65,536."""
PACKED_MAX_BYTES = 256 * 1024
"""Script and environment, compressed: they stay in the log as part of the job."""
PLAIN_MAX_BYTES = 16 * 2**20
END = "--"
STANDARD_OUTPUT = "/dev/stdout"
"""As `output`: the output of the job itself, and no file."""


class Settings(NamedTuple):
    """How a batch job was asked for; 0 and '' where it was not. Sizes are in MiB, times in seconds."""

    script: str = ""
    """File name of the script, as it was given."""
    nodes: int = 1
    ntasks: int = 0
    tasks: str = ""
    """Tasks of each place, such as `3,2`."""
    cpus: str = ""
    """CPUs of each place, such as `6,4`."""
    ntasks_per_node: int = 0
    cpus_per_task: int = 0
    mem_per_node: int = 0
    mem_per_cpu: int = 0
    mem_per_gpu: int = 0
    gpus: str = ""
    """As asked for, of the whole job: `4` or `a100:4`."""
    gpus_on_node: int = 0
    gpus_per_node: str = ""
    gpus_per_task: int = 0
    partition: str = ""
    account: str = ""
    qos: str = ""
    output: str = ""
    error: str = ""
    input: str = ""
    append: int = 0
    export: str = ""
    signal: str = ""
    """`USR1@60`, or `B:USR1@60` for the batch shell alone."""
    time_limit: int = 0
    no_requeue: int = 0
    submit_dir: str = ""
    submit_host: str = ""
    array: str = ""
    """Indexes that are no arithmetic series, such as `4,7,22`."""
    array_min: int = 0
    array_max: int = 0
    array_step: int = 0
    array_count: int = 0
    array_at_once: int = 0
    comment: str = ""
    umask: str = ""
    """Of the submitting process, octal."""

    def words(self) -> list[str]:
        """Return what differs from the defaults as words `name=value`."""
        pairs = zip(self._fields, self, Settings(), strict=True)
        return [f"{name}={value}" for name, value, default in pairs if value != default]

    @property
    def place_tasks(self) -> list[int]:
        return [int(word) for word in self.tasks.split(",")] if self.tasks else [1] * self.nodes

    @property
    def place_cpus(self) -> list[int]:
        return [int(word) for word in self.cpus.split(",")] if self.cpus else [1] * self.nodes


def settings_of(words: Iterable[str]) -> Settings:
    """Return the settings that words say. Raises: ValueError for a word that says none."""
    given: dict[str, str | int] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in Settings._fields:
            raise ValueError(f"{word} is no setting of a batch job")
        given[name] = int(value) if isinstance(getattr(Settings(), name), int) else value
    return Settings()._replace(**given)  # type: ignore[arg-type]  # of the fields' own types, made above


def batch_words(command: list[str]) -> tuple[Settings, list[str]] | None:
    """Return the settings in the command of a batch job, and its script with arguments; None for another job."""
    if "penstock.batch" not in command[:5] or END not in command:
        return None
    first, end = command.index("penstock.batch") + 1, command.index(END)
    try:
        return settings_of(command[first:end]), command[end + 1 :]
    except ValueError:
        return None


def packed(script: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that carry a script and an environment to the job.

    Raises: ValueError, a sentence, where they are too large.
    """
    plain = json.dumps({"script": script, "environment": dict(environment)}).encode("utf-8", "surrogateescape")
    data = zlib.compress(plain, 6)
    if len(data) > PACKED_MAX_BYTES:
        raise ValueError(
            f"script and environment have {len(data):,} bytes compressed, and may have {PACKED_MAX_BYTES:,}: "
            "make the script shorter, or export less (--export)"
        )
    text = base64.b85encode(data).decode()
    pieces = [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)]
    return {PIECE_VARIABLE.format(number): piece for number, piece in enumerate(pieces)}


def unpacked(variables: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the script and the environment that a job's variables carry. Raises: ValueError where they are damaged."""
    pieces: list[str] = []
    while (name := PIECE_VARIABLE.format(len(pieces))) in variables:
        pieces.append(variables[name])
    try:
        reader = zlib.decompressobj()
        plain = reader.decompress(base64.b85decode("".join(pieces)), PLAIN_MAX_BYTES)
        value = json.loads(plain)
        return value["script"], value["environment"]
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise ValueError("the batch script of this job cannot be read") from error
