"""What a job is to Slurm's users: its fields under the names that `tables` uses.

Source: squeue(1), sacct(1), scontrol(1); which code is shown of what end: tried with Slurm 22.05.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.slurm import tables
from penstock.slurm.arrays import index_at, read_array
from penstock.slurm.patterns import file_name, symbols
from penstock.slurm.settings import Settings, batch_words


class Seen(NamedTuple):
    """A job as a server shows it; times are unix seconds, 0 where something has not happened."""

    number: int
    name: str
    state: str
    reason: str
    user: str
    tenant: str
    queue: str
    priority: int
    command: Sequence[str]
    nodes: Sequence[str]
    devices: str
    submit: int
    start: int
    end: int
    attempt: int
    exit_code: int | None
    exit_signal: int | None
    array: tuple[int, int] | None
    """Number of the array, and the index as Penstock counts it."""
    replicas: int = 1
    limit: int = 0


def stamp(seconds: int, missing: str = "N/A") -> str:
    """Return a time as Slurm's tools print it: of the local clock, without an offset, or as SLURM_TIME_FORMAT says."""
    if not seconds:
        return missing
    if os.environ.get("SLURM_TIME_FORMAT") == "%s":
        return str(seconds)
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006 - local, as Slurm prints it


def array_of(seen: Seen, settings: Settings) -> tuple[int, int] | None:
    """Return the number of its array and the index that the user gave it; None for a job alone."""
    if seen.array is None:
        return None
    number, index = seen.array
    return number, index_at(settings.array, index) if settings.array else index


def exit_text(seen: Seen) -> str:
    """Return `code:signal`, as sacct shows it."""
    if seen.state == "failed" and "time limit" not in seen.reason:
        return f"{seen.exit_code or (0 if seen.exit_signal else 1)}:{seen.exit_signal or 0}"
    return "0:0"


def row(seen: Seen, now: int) -> dict[str, str]:
    """Return the fields of a job."""
    settings, words = batch_words(list(seen.command)) or (Settings(), [])
    array = array_of(seen, settings)
    whole, short = tables.state_of(seen.state, seen.reason)
    started = 0 if seen.state == "waiting" else seen.start
    elapsed = max(0, (seen.end or now) - started) if started else 0
    limit = settings.time_limit or seen.limit
    reason = tables.REASONS.get(seen.reason, "Resources") if whole == "PENDING" else "None"
    nodes = tables.compressed(seen.nodes) if started else ""
    count = settings.nodes if words else seen.replicas
    memory = settings.mem_per_node or settings.mem_per_cpu
    found = {
        "id": f"{array[0]}_{array[1]}" if array else str(seen.number),
        "number": str(seen.number),
        "array_job": str(array[0]) if array else str(seen.number),
        "array_task": str(array[1]) if array else "N/A",
        "account": settings.account or seen.tenant,
        "gres": f"gres/gpu:{settings.gpus_on_node}" if settings.gpus_on_node else "N/A",
        "cpus": str(sum(settings.place_cpus)),
        "cpus_per_task": str(settings.cpus_per_task or 1),
        "tasks": str(sum(settings.place_tasks)),
        "nodes": str(count),
        "end": stamp(seen.end or (started + limit if started and limit else 0), "NONE"),
        "name": seen.name,
        "comment": settings.comment or "(null)",
        "limit": tables.clock(limit) if limit else "UNLIMITED",
        "limit_long": tables.long_clock(limit) if limit else "UNLIMITED",
        "limit_minutes": str(limit // 60) if limit else "UNLIMITED",
        "left": tables.clock(limit - elapsed) if limit else "UNLIMITED",
        "memory": f"{memory}M" if memory else "0",
        "elapsed": tables.clock(elapsed),
        "elapsed_long": tables.long_clock(elapsed),
        "elapsed_s": str(elapsed),
        "cpu_seconds": str(elapsed * sum(settings.place_cpus)),
        "cpu_time": "",
        "nodelist": nodes,
        "where": nodes if nodes else f"({reason})",
        "command": " ".join(words) if words else " ".join(seen.command),
        "partition": settings.partition or seen.queue,
        "priority": str(seen.priority),
        "qos": settings.qos or "normal",
        "reason": reason,
        "start": stamp(started),
        "submit": stamp(seen.submit),
        "state": whole,
        "short": short,
        "user": seen.user,
        "uid": "",
        "tres": _tres(settings, count),
        "wckey": "",
        "workdir": settings.submit_dir,
        "exit": exit_text(seen),
        "restarts": str(max(0, seen.attempt - 1)),
    }
    return found | _outputs(seen, settings, array)


def _tres(settings: Settings, nodes: int) -> str:
    words = [f"cpu={sum(settings.place_cpus)}"]
    words += [f"mem={settings.mem_per_node * nodes}M"] if settings.mem_per_node else []
    words += [f"node={nodes}"]
    return ",".join([*words, *([f"gres/gpu={settings.gpus_on_node * nodes}"] if settings.gpus_on_node else [])])


def _outputs(seen: Seen, settings: Settings, array: tuple[int, int] | None) -> dict[str, str]:
    values = symbols(job=seen.number, name=seen.name, user=seen.user, node=(list(seen.nodes) or [""])[0], array=array)
    pattern = settings.output or ("slurm-%A_%a.out" if array else "slurm-%j.out")

    def whole(name: str) -> str:
        path = file_name(name, values)
        return path if path.startswith("/") else f"{settings.submit_dir}/{path}"

    return {"stdout": whole(pattern), "stderr": whole(settings.error or pattern)}


def waiting_arrays(rows: Sequence[tuple[Seen, Mapping[str, str]]]) -> list[dict[str, str]]:
    """Return rows with the waiting members of each array as one, `12_[5,7-9%2]`, as squeue shows them."""
    from penstock.slurm.arrays import listed

    found: list[dict[str, str]] = []
    groups: dict[str, tuple[dict[str, str], list[int], int]] = {}
    for seen, one in rows:
        if seen.array is None or one["state"] != "PENDING":
            found.append(dict(one))
            continue
        key = one["array_job"]
        if key not in groups:
            groups[key] = (dict(one), [], _at_once(seen))
            found.append(groups[key][0])
        groups[key][1].append(int(one["array_task"]))
    for key, (shown, indexes, most) in groups.items():
        text = listed(sorted(indexes)) + (f"%{most}" if most else "")
        shown |= {"id": f"{key}_[{text}]", "array_task": text, "number": key}
    return found


def _at_once(seen: Seen) -> int:
    batch = batch_words(list(seen.command))
    return batch[0].array_at_once if batch else 0


def members(text: str) -> tuple[int, tuple[int, ...]]:
    """Return the number and the indexes of `12`, `12_3` or `12_[1-3,7]`; no indexes: all of it. Raises: ValueError."""
    number, _, indexes = text.partition("_")
    if not number.isdecimal():
        raise ValueError(f"'{text}' is no number of a job, such as 12, 12_3 or 12_[1-3]")
    return int(number), read_array(indexes.strip("[]")).indexes if indexes else ()


def split_words(text: str) -> list[str]:
    """Return the words between commas that stand outside of brackets."""
    found, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return [word for word in found if word]
