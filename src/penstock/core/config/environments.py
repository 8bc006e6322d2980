"""The fields of a job about what its programs are run with: `setup`, `python`, `conda`."""

import re
from collections.abc import Mapping
from typing import Any

from penstock.core.config.fields import STRING, Field, Json, described, struct
from penstock.core.config.reader import NAME_MAX, Reader
from penstock.core.model.environments import PythonSpec

STEPS_MAX = 100
SETUP_MAX = 65_536
"""Characters of all steps of a job."""
REQUIREMENTS_MAX = 1_000
REQUIREMENT_MAX = 1_000
"""Characters of one requirement."""
PATH_MAX = 4_096
VERSION = re.compile(r"[0-9]+(\.[0-9]+){0,2}")
_SOURCES = ("requirements", "project")


def _setup(reader: Reader, field: str, value: Any) -> tuple[str, ...]:
    steps = [value] if isinstance(value, str) else value
    right = isinstance(steps, list) and 0 < len(steps) <= STEPS_MAX
    if not right or not all(isinstance(one, str) and one.strip() and "\0" not in one for one in steps):
        found = f"a list of {len(steps)}" if isinstance(steps, list) and len(steps) > STEPS_MAX else value
        reader.wrong(field, found, f"a command line, or a list of 1 to {STEPS_MAX} of them")
        return ()
    if (length := sum(map(len, steps))) > SETUP_MAX:
        reader.wrong(field, f"{length} characters", f"at most {SETUP_MAX}", hint="put the steps into a script")
        return ()
    return tuple(steps)


def _requirements(reader: Reader, value: Any) -> tuple[str, tuple[str, ...]]:
    """Return a requirements file, or requirements."""
    if isinstance(value, str):
        return _path(reader, "requirements", value), ()
    if not isinstance(value, list) or not 0 < len(value) <= REQUIREMENTS_MAX:
        found = f"a list of {len(value)}" if isinstance(value, list) and value else value
        reader.wrong("requirements", found, f"a requirements file, or a list of 1 to {REQUIREMENTS_MAX} packages")
        return "", ()
    for index, one in enumerate(value):
        field = f"requirements[{index}]"
        if not isinstance(one, str) or not one.strip() or len(one) > REQUIREMENT_MAX or not one.isprintable():
            reader.wrong(field, one, "a package such as numpy or torch==2.6.*")
        elif one.lstrip().startswith("-"):
            hint = "options belong into a requirements file"
            reader.wrong(field, one, "a package such as numpy or torch==2.6.*", hint=hint)
    return "", tuple(str(one).strip() for one in value)


def _path(reader: Reader, field: str, value: Any) -> str:
    found = reader.text(field, value, most=PATH_MAX)
    if found.startswith("-") or not found.isprintable():
        reader.wrong(field, value, "a path, without line breaks")
        return ""
    return found


def _version(reader: Reader, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 100:
        return str(value)
    if isinstance(value, str) and VERSION.fullmatch(value) and len(value) <= NAME_MAX:
        return value
    hint = 'in quotes: version: "3.11"' if isinstance(value, float) else ""
    reader.wrong("version", value, 'a version of Python such as "3.11"', hint=hint)
    return ""


def _python(reader: Reader, field: str, value: Any) -> PythonSpec | None:
    if not isinstance(value, Mapping):
        reader.wrong(field, value, "requirements or a project", hint="python: {requirements: requirements.txt}")
        return None
    inside = Reader(reader.path(field), reader.problems)
    inside.unknown(value, tuple(_PYTHON))
    given = [name for name in _SOURCES if value.get(name) is not None]
    if len(given) != 1:
        inside.wrong("", dict(value), "either requirements or project")
        return None
    file, requirements = _requirements(inside, value["requirements"]) if given == ["requirements"] else ("", ())
    project = _path(inside, "project", value["project"]) if given == ["project"] else ""
    version = _version(inside, value["version"]) if value.get("version") is not None else ""
    index = _path(inside, "index", value["index"]) if value.get("index") is not None else ""
    return PythonSpec(requirements, file, project, version, index)


def _conda(reader: Reader, field: str, value: Any) -> PythonSpec | None:
    name = _path(reader, field, value)
    return PythonSpec(conda=name) if name else None


_PYTHON = {
    "requirements": described(
        {"anyOf": [STRING, {"type": "array", "items": STRING, "minItems": 1, "maxItems": REQUIREMENTS_MAX}]},
        "a requirements file in the folder that the job starts in, or a list of packages",
    ),
    "project": described(STRING, "a folder with pyproject.toml and uv.lock, which is installed as locked; . is usual"),
    "version": described({"type": ["string", "integer"]}, 'version of Python, in quotes: "3.11" (that of the node)'),
    "index": described(STRING, "package index, or a folder of packages: no other place is asked (as set on the node)"),
}
_STEPS: Json = {"type": "array", "items": STRING, "minItems": 1, "maxItems": STEPS_MAX}
ENVIRONMENT: dict[str, Field] = {
    "setup": Field(
        _setup,
        {"anyOf": [STRING, _STEPS]},
        "steps for /bin/sh that are run once on each node before the program, and kept for later jobs",
    ),
    "python": Field(
        _python, struct(**_PYTHON), "Python environment that is made on each node by uv, and kept for later jobs"
    ),
    "conda": Field(_conda, STRING, "environment of conda on the nodes: its name, or its folder"),
}
