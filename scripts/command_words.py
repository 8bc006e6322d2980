"""The words of the command line for completion (`src/penstock/cli/words.json`), from the commands themselves."""

import json
from typing import Any

from penstock.cli.commands import TOP
from penstock.cli.forms import OUTPUTS
from penstock.cli.main import app, leaves
from penstock.cli.ps import SORTS, STATES

KINDS = {
    **dict.fromkeys(("job", "jobs", "after_ok"), "jobs"),
    **dict.fromkeys(("queue", "to_queue"), "queues"),
    "tenant": "tenants",
    "pool": "pools",
    "node": "nodes",
    "state": list(STATES),
    "output": list(OUTPUTS),
    "level": ["read", "write", "admin"],
    "language": ["en", "zh"],
    "priority": ["low", "medium", "high"],
    "topology": ["same_node", "same_switch", "same_rack", "spread"],
    **dict.fromkeys(("workdir", "what", "command", "folder", "log", "data", "which"), "files"),
}
"""What a parameter takes, by its name: a kind of things that the server knows, files, or one of these words."""
OF_COMMAND: dict[tuple[str, str], str | list[str]] = {
    ("nodes", "name"): "nodes",
    ("ps", "name"): "job_names",
    ("ps", "sort"): list(SORTS),
    ("usage", "by"): ["tenant", "user", "queue", "pool", "job", "node"],
    ("admin show", "section"): ["pools", "tenants", "users", "queues", "billing", "settings", "nodes"],
    **{(verb, "name"): "job_names" for verb in
       ("cancel", "hold", "release", "suspend", "resume", "requeue", "edit", "save")},
    ("eta", "jobs"): "jobs",
    ("schema", "of"): ["job", "cluster"],
}  # fmt: skip


def command_words() -> str:
    """Return the JSON: by the name of a command what it is about, what its arguments are, and its options."""
    from typer.main import get_command

    top = get_command(app)
    groups = {name: entry.summary for name, entry in TOP.items() if not entry.hidden}
    made: dict[str, Any] = {"": {"groups": groups, "options": _options("", top)}}
    made |= {name: _entry(name, command) for name, command in leaves()}
    names = sorted(name for name in made if name)
    made["help"]["values"] = sorted({name.partition(" ")[0] for name in names})
    lines = [f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in made.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _entry(name: str, command: Any) -> dict[str, Any]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    values = _takes(name, arguments[0]) if arguments else ""
    return {"about": command.get_short_help_str(100), "values": values or "", "options": _options(name, command)}


def _options(name: str, command: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for one in command.params:
        if one.param_type_name != "option":
            continue
        takes = None if one.is_flag or one.count else _takes(name, one)
        main = max(one.opts, key=len)
        about = (one.help or "").split(". ")[0].rstrip(".")
        for word in (*one.opts, *one.secondary_opts):
            shown = word if word in one.secondary_opts else main
            made[word] = {"about": about, "takes": takes, "as": shown, "again": bool(one.multiple)}
    made["--help"] = {"about": "Show its help", "takes": None, "as": "--help", "again": False}
    return made


def _takes(name: str, parameter: Any) -> str | list[str]:
    kind = parameter.display_type(None).strip("<>[]")
    if "|" in kind:
        return str(kind).split("|")
    if kind in ("path", "file", "directory", "filename") and (name, parameter.name) not in OF_COMMAND:
        return "files"
    return OF_COMMAND.get((name, parameter.name)) or KINDS.get(parameter.name, "")
