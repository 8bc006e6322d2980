"""The table of fields of a job: how each is read, its JSON Schema, and a line on it for people."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.config.ask import (
    ALTERNATIVES,
    NAMES,
    QUANTITY,
    SHAPE,
    STRING,
    Field,
    Json,
    read_count,
    struct,
    whole,
)
from penstock.core.config.reader import NAME_MAX, TEXT_MAX, Reader, short, shown
from penstock.core.model import jobs as m
from penstock.core.model import secrets
from penstock.core.model.errors import nearest
from penstock.core.model.units import parse_duration_ms

ARRAY_MAX = 100_000
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = "PENSTOCK_"
WORDS_MAX = 4_096
"""Words of a command."""
PATH_MAX = 4_096
SECRETS_MAX = 100
LABELS_MAX = 100
DEPENDENCIES_MAX = 1_000
"""Numbers or names that one field of a job names."""
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGHUP")


def _command(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and value.strip() and len(value) <= TEXT_MAX and "\0" not in value:
        return ("/bin/sh", "-c", value)
    if isinstance(value, list) and 0 < len(value) <= WORDS_MAX and all(isinstance(v, str | int | float) for v in value):
        words = tuple(str(v) for v in value)
        if words[0] and all("\0" not in w for w in words) and sum(map(len, words)) <= TEXT_MAX:
            return words
    reader.wrong(field, value, "a command line, or a list of words")
    return ()


def _priority(reader: Reader, field: str, value: Any) -> int:
    if isinstance(value, str) and value in m.PRIORITY_CLASSES:
        return m.PRIORITY_CLASSES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000:
        return value
    words = list(m.PRIORITY_CLASSES)
    hint = nearest(value, words) if isinstance(value, str) else ""
    reader.wrong(field, value, "one of " + ", ".join(words) + " or a number from 0 to 10000", hint=hint)
    return m.PRIORITY_CLASSES["medium"]


def _dependencies(reader: Reader, field: str, value: Any) -> list[int | str]:
    items = value if isinstance(value, list) else [value]
    found: list[int | str] = []
    if len(items) > DEPENDENCIES_MAX:
        hint = "give these jobs one name, and name that"
        reader.wrong(field, f"a list of {len(items)}", f"at most {DEPENDENCIES_MAX} jobs", hint=hint)
        return found
    for item in items:
        if isinstance(item, str) and item.isdecimal() and len(item) < 17:
            item = int(item)
        if (
            isinstance(item, bool)
            or not isinstance(item, int | str)
            or item == ""
            or (item != item)
            or (isinstance(item, str) and len(item) > NAME_MAX)
        ):
            reader.wrong(field, item, "job numbers, or names of jobs in the same file")
        elif isinstance(item, int) and not 0 < item < 2**53:
            reader.wrong(field, item, "a job number from 1")
        else:
            found.append(item)
    return found


def _checkpoint(reader: Reader, field: str, value: Any) -> m.CheckpointSpec:
    inner = Reader(reader.path(field), reader.problems)
    if not isinstance(value, Mapping):
        reader.wrong(field, value, "a mapping with signal, request_signal, interval")
        return m.CheckpointSpec()
    inner.unknown(value, ("signal", "request_signal", "interval"))
    request = value.get("request_signal")
    return m.CheckpointSpec(
        stop_signal=inner.word("signal", value.get("signal", "SIGTERM"), SIGNALS, "SIGTERM"),
        request_signal=inner.word("request_signal", request, SIGNALS, "") if request is not None else "",
        interval_ms=inner.quantity("interval", value.get("interval", "10m"), parse_duration_ms, "10m"),
    )


def _duration(reader: Reader, field: str, value: Any) -> int:
    return reader.quantity(field, value, parse_duration_ms, "2h or 90s")


def _on_hang(reader: Reader, field: str, value: Any) -> str:
    return reader.word(field, value, ("restart", "report"), "restart")


def _on_preempt(reader: Reader, field: str, value: Any) -> str:
    return reader.word(field, value, ("stop", "suspend"), "stop")


def _name(reader: Reader, field: str, value: Any) -> str:
    return reader.name(field, value)


def _path(reader: Reader, field: str, value: Any) -> str:
    return reader.text(field, value, most=PATH_MAX)


def _flag(default: bool) -> Callable[[Reader, str, Any], bool]:
    return lambda reader, field, value: reader.flag(field, value, default=default)


def _pairs(reader: Reader, field: str, value: Any) -> tuple[tuple[str, str], ...]:
    return reader.pairs(field, value)


def _labels(reader: Reader, field: str, value: Any) -> tuple[tuple[str, str], ...]:
    return reader.pairs(field, value, LABELS_MAX)


def _secrets(reader: Reader, field: str, value: Any) -> tuple[tuple[str, str], ...]:
    """Read variables and the secrets that they get; in a list a variable is called like its secret."""
    if isinstance(value, list | Mapping) and len(value) > SECRETS_MAX:
        reader.wrong(field, f"{len(value)} secrets", f"at most {SECRETS_MAX}")
        return ()
    if isinstance(value, list):
        value = {name if isinstance(name, str) else shown(name): name for name in value}
    if not isinstance(value, Mapping):
        reader.wrong(field, value, "a list of secrets, or a mapping of variables to secrets")
        return ()
    found = []
    for variable, name in value.items():
        if len(str(variable)) > NAME_MAX or not VARIABLE.fullmatch(str(variable)) or str(variable).startswith(RESERVED):
            reader.wrong(field, variable, f"names of variables such as HF_TOKEN, not beginning with {RESERVED}")
        elif not isinstance(name, str) or not secrets.NAME.fullmatch(name):
            reader.wrong(f"{field}.{short(str(variable))}", name, f"the name of a secret: {secrets.NAME_EXPECTED}")
        else:
            found.append((str(variable), name))
    return tuple(sorted(found))


_FLAG: Json = {"type": "boolean"}
_JOB_REF: Json = {"type": ["string", "integer"], "minimum": 1, "maximum": 2**53 - 1, "minLength": 1}
_JOBS: Json = {"anyOf": [_JOB_REF, {"type": "array", "items": _JOB_REF}]}
_SIGNAL: Json = {"enum": list(SIGNALS)}

FIELDS: dict[str, Field] = {
    "name": Field(_name, STRING, "name of the job; by default the program's"),
    "command": Field(
        _command,
        {"anyOf": [STRING, {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}]},
        "a line for /bin/sh, or a list of words that is executed as it is",
    ),
    "lease": Field(_flag(False), _FLAG, "no command: holds what it asks for until its time limit (false)"),
    **SHAPE,
    "alternatives": ALTERNATIVES,
    "shareable": Field(_flag(False), _FLAG, "its devices may be shared while they are little used (false)"),
    "pool": Field(_name, STRING, "pool to run in"),
    "queue": Field(_name, STRING, "queue to wait in"),
    "tenant": Field(_name, STRING, "team that the job belongs to"),
    "priority": Field(_priority, {"type": ["string", "integer"]}, "low, medium, high, or a number"),
    "preemptible": Field(_flag(True), _FLAG, "may be asked to make room for others (true)"),
    "on_preempt": Field(
        _on_preempt, {"enum": ["stop", "suspend"]}, "make room by saving and leaving, or frozen with its memory (stop)"
    ),
    "after_ok": Field(_dependencies, _JOBS, "start when these have succeeded"),
    "after_any": Field(_dependencies, _JOBS, "start when these have ended in any way"),
    "after_failed": Field(_dependencies, _JOBS, "start when these have failed"),
    "array": Field(read_count(1, ARRAY_MAX, 1), whole(1, ARRAY_MAX), "submit this many copies with their own index"),
    "time_limit": Field(_duration, QUANTITY, "an attempt that runs longer is stopped"),
    "estimated_duration": Field(_duration, QUANTITY, "how long it will probably run"),
    "max_wait": Field(_duration, QUANTITY, "cancel it when it has waited this long"),
    "grace": Field(_duration, QUANTITY, "time between the stop signal and the kill (30s)"),
    "retries": Field(read_count(0, 100, 0), whole(0, 100), "attempts after a failure of its own (0)"),
    "on_hang": Field(_on_hang, {"enum": ["restart", "report"]}, "what follows when a rank hangs (restart)"),
    "hang_limit": Field(_duration, QUANTITY, "how long without a step is too long, where it is not certain (15m)"),
    "env": Field(_pairs, NAMES, "environment variables"),
    "secrets": Field(
        _secrets,
        {"anyOf": [{"type": "array", "items": STRING}, NAMES]},
        "environment variables that get secrets: their names, or variable: secret",
    ),
    "workdir": Field(_path, STRING, "directory to start in"),
    "labels": Field(_labels, NAMES, "labels of the job"),
    "checkpoint": Field(
        _checkpoint,
        struct(signal=_SIGNAL, request_signal=_SIGNAL, interval=QUANTITY),
        "how the program is asked to save",
    ),
}
