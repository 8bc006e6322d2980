"""Task files of SkyPilot and dstack, as jobs: the common subset; each field without a meaning here is named once.

The fields are those of their public documentation (SkyPilot: task YAML; dstack: `.dstack.yml` of `type: task`).
"""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.core.model.errors import InvalidInput

Raw = Mapping[str, Any]
SKY = frozenset({"run", "resources", "num_nodes", "file_mounts", "envs"})
"""A file with one of these, and none of a job file's `command` and `jobs`, is a task of SkyPilot."""
OTHER_TYPES = {
    "dev-environment": "penstock lease 1 --for 8h, then penstock shell JOB",
    "service": "a job with ports: [http], which runs until it is cancelled",
    "fleet": "nodes and pools of a cluster file",
    "volume": "storage that the nodes mount",
    "gateway": "a proxy of your own in front of the nodes",
}
_SKY_MODEL = re.compile(r"(?P<model>[A-Za-z0-9-]+?)(-(?P<memory>[0-9]+GB))?")
_MEMORY = re.compile(r"[0-9.]+ ?(MB|GB|TB)", re.IGNORECASE)
_NOTES = {
    "ports": "name them: ports: [http] in a job file gives $PENSTOCK_PORT_HTTP",
    "secrets": "set them once by penstock secret set NAME, and name them: --secret NAME",
    "use_spot": "every job may be preempted, and goes on from its checkpoint",
    "spot_policy": "every job may be preempted, and goes on from its checkpoint",
    "file_mounts": "inputs: of a job file fetches files by URL; else storage that the nodes mount",
    "volumes": "storage that the nodes mount, or inputs: of a job file",
    "files": "workdir: {snapshot: .} of a job file sends a folder",
    "repos": "workdir: {snapshot: .} of a job file sends a folder",
    "priority": "penstock submit --priority",
    "retry": "lost nodes never count; --retries N is for failures of the program",
    "any_of": "alternatives of a job file",
    "ordered": "alternatives of a job file",
    "disk_size": "storage of a job file",
    "disk": "storage of a job file",
}


class Task(NamedTuple):
    """A request, and what of the file has no meaning here."""

    request: dict[str, Any]
    notes: list[str]


def task_of(raw: Any) -> Task | None:
    """Return the job of a task file of SkyPilot or dstack; None for anything else.

    Raises: InvalidInput for a file of dstack that is no task, and for values that cannot be read.
    """
    if not isinstance(raw, Mapping) or "command" in raw or "jobs" in raw:
        return None
    if isinstance(raw.get("type"), str) and ("commands" in raw or raw["type"] in ("task", *OTHER_TYPES)):
        return _dstack(raw)
    return _sky(raw) if SKY & raw.keys() and isinstance(raw.get("run", ""), str) else None


class _Reader:
    """Takes fields one after the other; what is left has no meaning here."""

    def __init__(self, tool: str, raw: Raw, where: str = "", notes: list[str] | None = None) -> None:
        self.tool, self.where, self.left = tool, where, dict(raw)
        self.notes = [] if notes is None else notes

    def take(self, name: str) -> Any:
        return self.left.pop(name, None)

    def inner(self, name: str) -> "_Reader":
        value = self.take(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(name, value, "a mapping")
        return _Reader(self.tool, value or {}, f"{name}.", self.notes)

    def note(self, name: str, text: str = "") -> None:
        self.notes.append(f"{self.where}{name} of {self.tool} has no meaning here{': ' * bool(text)}{text}")

    def end(self) -> None:
        for name in self.left:
            self.note(str(name)[:64], _NOTES.get(str(name), ""))

    def wrong(self, name: str, value: Any, expected: str) -> InvalidInput:
        return InvalidInput(f"{self.where}{name} of {self.tool} is {str(value)[:80]!r}, expected {expected}")


def _sky(raw: Raw) -> Task:
    reader = _Reader("SkyPilot", raw)
    job: dict[str, Any] = {}
    _copy(reader, job, {"name": "name", "num_nodes": "replicas", "setup": "setup"})
    resources = reader.inner("resources")
    count = 0
    accelerators = resources.take("accelerators")
    if accelerators is not None:
        job["devices"], count = _sky_devices(resources, accelerators)
    _amount(resources, job, "cpus")
    _amount(resources, job, "memory")
    if isinstance(image := resources.take("image_id"), str):
        job |= {"image": image.removeprefix("docker:")} if image.startswith("docker:") else {}
        if not image.startswith("docker:"):
            resources.note("image_id", "image: of a job file names a container image")
    resources.end()
    job["env"] = _env(reader, "envs") | _env(reader, "env")
    workdir = reader.take("workdir")
    if isinstance(workdir, str):
        job["workdir"] = {"snapshot": workdir}
    elif workdir is not None:
        reader.note("workdir", "a repository is cloned by setup")
    run = reader.take("run") or "true"
    if "SKYPILOT_NODE_IPS" in run and job.get("replicas", 1) != 1:
        reader.notes.append("SKYPILOT_NODE_IPS has the address of the first node alone")
    names = {
        "SKYPILOT_NODE_RANK": "$RANK",
        "SKYPILOT_NUM_NODES": "$WORLD_SIZE",
        "SKYPILOT_NODE_IPS": "$MASTER_ADDR",
        "SKYPILOT_NUM_GPUS_PER_NODE": str(count),
    }
    job["command"] = _with_names(names, run)
    reader.end()
    return Task(job, reader.notes)


def _dstack(raw: Raw) -> Task:
    reader = _Reader("dstack", raw)
    kind = reader.take("type")
    if kind != "task":
        raise InvalidInput(f"type of dstack is '{str(kind)[:80]}', expected task", hint=OTHER_TYPES.get(str(kind), ""))
    job: dict[str, Any] = {}
    _copy(reader, job, {"name": "name", "nodes": "replicas", "image": "image"})
    if (version := reader.take("python")) is not None:
        job["python"] = {"version": str(version)}
    resources = reader.inner("resources")
    count = 0
    if (gpu := resources.take("gpu")) is not None:
        job["devices"], count = _dstack_devices(resources, gpu)
    _amount(resources, job, "cpu", "cpus")
    _amount(resources, job, "memory")
    resources.end()
    job["env"] = _env(reader, "env")
    limit = reader.take("max_duration")
    if limit not in (None, "off", False):
        job["time_limit"] = f"{limit}s" if isinstance(limit, int) else limit
    rule = reader.inner("schedule")
    if (cron := rule.take("cron")) is not None:
        job["schedule"] = {"cron": cron}
    rule.end()
    commands = reader.take("commands") or []
    if not isinstance(commands, list) or not all(isinstance(one, str) for one in commands):
        raise reader.wrong("commands", commands, "a list of commands")
    names = {
        "DSTACK_NODE_RANK": "$RANK",
        "DSTACK_NODES_NUM": "$WORLD_SIZE",
        "DSTACK_MASTER_NODE_IP": "$MASTER_ADDR",
        "DSTACK_GPUS_PER_NODE": str(count),
        "DSTACK_GPUS_NUM": f"$(({count} * WORLD_SIZE))",
    }
    job["command"] = _with_names(names, "\n".join(["set -e", *commands]) if commands else "true")
    reader.end()
    return Task(job, reader.notes)


def _with_names(names: dict[str, str], command: str) -> str:
    """Return a command after the variables of the other tool that it uses."""
    used = [f'{name}="{value}"' for name, value in names.items() if name in command]
    return f"export {' '.join(used)}\n{command}" if used else command


def _copy(reader: _Reader, job: dict[str, Any], names: Mapping[str, str]) -> None:
    for theirs, ours in names.items():
        if (value := reader.take(theirs)) is not None:
            job[ours] = value


def _amount(reader: _Reader, job: dict[str, Any], name: str, ours: str = "") -> None:
    """Read an amount such as 8, `8+`, `32GB` or `16..`: that much, or more."""
    value = reader.take(name)
    if value is None:
        return
    text = str(value).removesuffix("+").split("..")[0].strip()
    number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", text)
    if name == "memory" and (number or _MEMORY.fullmatch(text)):
        job["memory"] = f"{text}GB" if number else text.replace(" ", "")
    elif name != "memory" and number:
        job[ours or name] = float(text) if "." in text else int(text)
    else:
        raise reader.wrong(name, value, "an amount such as 8, 8+ or 16..")


def _sky_devices(reader: _Reader, given: Any) -> tuple[dict[str, Any], int]:
    """Read `H100`, `H100:8`, `{H100: 8}`, or a list of models of which any will do."""
    several = list(given) if isinstance(given, list | set) else [given]
    if isinstance(given, Mapping):
        several = [f"{model}:{count}" for model, count in given.items()]
    models: list[str] = []
    counts: set[int] = set()
    memories: set[str] = set()
    for one in several:
        model, _, count = str(one).partition(":")
        match = _SKY_MODEL.fullmatch(model)
        if match is None or not re.fullmatch(r"[0-9]*", count):
            raise reader.wrong("accelerators", one, "a model and a number such as H100:8")
        models.append(match["model"])
        counts.add(int(count or 1))
        memories.add(match["memory"] or "")
    if len(counts) != 1 or len(memories) != 1:
        raise reader.wrong("accelerators", given, "models with one number of devices; else alternatives of a job file")
    number, memory = counts.pop(), memories.pop()
    wanted: dict[str, Any] = {"count": number, "model": models[0] if len(models) == 1 else models}
    return wanted | ({"memory": memory} if memory else {}), number


def _dstack_devices(reader: _Reader, given: Any) -> tuple[dict[str, Any], int]:
    """Read `24GB`, `H100`, `A100:80GB:8`, `24GB..:2`, 2, or a mapping of name, memory and count."""
    parts = str(given).split(":")
    if isinstance(given, Mapping):
        inner = _Reader(reader.tool, given, f"{reader.where}gpu.", reader.notes)
        names = inner.take("name")
        parts = [",".join(map(str, names)) if isinstance(names, list) else str(names)] if names is not None else []
        parts += [str(value) for name in ("memory", "count") if (value := inner.take(name)) is not None]
        inner.end()
    found: dict[str, Any] = {"count": 1}
    for part in parts:
        least = part.split("..")[0].strip()
        if _MEMORY.fullmatch(least):
            found["memory"] = least.replace(" ", "")
        elif re.fullmatch(r"[0-9]+", least):
            found["count"] = int(least)
        elif re.fullmatch(r"[A-Za-z0-9-]+(,[A-Za-z0-9-]+)*", part):
            names = part.split(",")
            found["model"] = names[0] if len(names) == 1 else names
        else:
            raise reader.wrong("gpu", given, "a model, memory and number such as A100:80GB:8")
    return found, found["count"]


def _env(reader: _Reader, name: str) -> dict[str, str]:
    """Read a mapping, or a list of NAME=VALUE and of NAMEs of this environment."""
    given = reader.take(name)
    if given is None:
        return {}
    if isinstance(given, list):
        given = {one.partition("=")[0]: one.partition("=")[2] if "=" in one else None for one in map(str, given)}
    if not isinstance(given, Mapping):
        raise reader.wrong(name, given, "a mapping of variables")
    found = {}
    for variable, value in given.items():
        value = os.environ.get(str(variable)) if value is None else value
        if value is None:
            raise reader.wrong(f"{name}.{variable}", "", "a value: it has none in this environment either")
        found[str(variable)] = str(value)
    return found
