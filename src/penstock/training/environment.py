"""The environment variables that the node agent sets for a replica, parsed once and checked.

Outside Penstock the variables are absent: the process is then rank 0 of 1, without attempt and report file.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.training.batching.orders import Share, parse_share
from penstock.training.errors import BadEnvironment

DEFAULT_CHECKPOINT_INTERVAL_S = 600.0
DEFAULT_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class Environment:
    """The contract of one replica.

    Args:
        job: id of the job, or None outside Penstock.
        attempt: number of this start of the job (>= 0), or None outside Penstock.
        checkpoint_dir: exists, and is shared by all attempts and ranks of the job; None: none was given.
        checkpoint_url: the same at a URL, which then counts; None: none was given.
        report_file: JSON lines of this replica go here; None: no agent reads reports.
        checkpoint_interval_s: most seconds between two automatic checkpoints (> 0).
        grace_s: seconds between SIGTERM and SIGKILL (>= 0).
        checkpoint_signal: "save now and carry on", if the job declares one; else the session picks and reports one.
        batch: what the scheduler orders of this rank at the start; None: it orders nothing.
        batch_file: says what it orders later; None: it does not change within the attempt.
        rank, world_size: place of this replica among all of the job, 0 <= rank < world_size.
    """

    job: str | None
    attempt: int | None
    checkpoint_dir: Path | None
    checkpoint_url: str | None
    report_file: Path | None
    checkpoint_interval_s: float
    grace_s: float
    checkpoint_signal: signal.Signals | None
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    batch: Share | None = None
    batch_file: Path | None = None


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Return the contract found in `variables` (usually `os.environ`).

    Raises: BadEnvironment naming the variable, its value and what was expected.
    """
    world_size = _integer(variables, "WORLD_SIZE", default=1, least=1)
    rank = _integer(variables, "RANK", default=0, least=0)
    if rank >= world_size:
        raise BadEnvironment(f"RANK is {rank}; expected a number below WORLD_SIZE, which is {world_size}")
    return Environment(
        job=variables.get("PENSTOCK_JOB_ID") or None,
        attempt=_integer(variables, "PENSTOCK_ATTEMPT", default=0, least=0)
        if variables.get("PENSTOCK_ATTEMPT")
        else None,
        checkpoint_dir=_path(variables, "PENSTOCK_CHECKPOINT_DIR"),
        checkpoint_url=_url(variables, "PENSTOCK_CHECKPOINT_URL"),
        report_file=_path(variables, "PENSTOCK_REPORT_FILE"),
        checkpoint_interval_s=_seconds(
            variables, "PENSTOCK_CHECKPOINT_INTERVAL_S", DEFAULT_CHECKPOINT_INTERVAL_S, zero_allowed=False
        ),
        grace_s=_seconds(variables, "PENSTOCK_GRACE_S", DEFAULT_GRACE_S, zero_allowed=True),
        checkpoint_signal=_signal(variables, "PENSTOCK_CHECKPOINT_SIGNAL"),
        rank=rank,
        world_size=world_size,
        local_rank=_integer(variables, "LOCAL_RANK", default=0, least=0),
        local_world_size=_integer(variables, "LOCAL_WORLD_SIZE", default=1, least=1),
        node_rank=_integer(variables, "NODE_RANK", default=0, least=0),
        batch=_share(variables, "PENSTOCK_BATCH"),
        batch_file=_path(variables, "PENSTOCK_BATCH_FILE"),
    )


def _integer(variables: Mapping[str, str], name: str, *, default: int, least: int) -> int:
    text = variables.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise BadEnvironment(f"{name} is {text!r}; expected a whole number of at least {least}") from None
    if value < least:
        raise BadEnvironment(f"{name} is {value}; expected a whole number of at least {least}")
    return value


def _seconds(variables: Mapping[str, str], name: str, default: float, *, zero_allowed: bool) -> float:
    text = variables.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero_allowed):
        wanted = "of at least 0" if zero_allowed else "above 0"
        raise BadEnvironment(f"{name} is {text!r}; expected a number of seconds {wanted}")
    return value


def _path(variables: Mapping[str, str], name: str) -> Path | None:
    text = variables.get(name, "")
    return Path(text) if text else None


def _share(variables: Mapping[str, str], name: str) -> Share | None:
    text = variables.get(name, "")
    share = parse_share(text)
    if text and share is None:
        raise BadEnvironment(f"{name} is {text!r}; expected LOCAL,ACCUMULATION such as 32,1: samples, further passes")
    return share


def _url(variables: Mapping[str, str], name: str) -> str | None:
    text = variables.get(name, "")
    if text and not is_url(text):
        raise BadEnvironment(f"{name} is {text!r}; expected a URL such as s3://bucket/folder")
    return text or None


def is_url(text: str) -> bool:
    """Whether it names a place by a protocol, as in `s3://bucket/folder`."""
    protocol, sign, rest = text.partition("://")
    return bool(sign and rest) and protocol.isalnum()


def _signal(variables: Mapping[str, str], name: str) -> signal.Signals | None:
    text = variables.get(name, "")
    if not text:
        return None
    found = signal.Signals.__members__.get(text)
    if found is None or found in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
        raise BadEnvironment(
            f"{name} is {text!r}; expected the name of a signal that can be caught and is not SIGTERM, such as SIGUSR1"
        )
    return found
