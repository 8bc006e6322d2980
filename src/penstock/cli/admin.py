"""Commands about the configuration: pools, tenants, users, queues, prices, settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.confirm import DryRunOption, YesOption, confirm
from penstock.cli.options import JsonOption
from penstock.cli.output import print_document, print_json, say
from penstock.cli.place import client_of
from penstock.core.model.errors import InvalidInput, nearest
from penstock.core.model.foreign import lines
from penstock.core.model.words import counted

FieldsArgument = Annotated[list[str] | None, typer.Argument(help="FIELD=VALUE, such as weight=2 or max.devices=16.")]

admin = typer.Typer(help="Show and change pools, tenants, users, queues and settings.")


def apply(
    file: Annotated[Path, typer.Option("--file", "-f", help="Cluster file (YAML), or - for standard input.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Apply a cluster file. Shows the changes, asks, and applies all of them or none."""
    _change({"config": _read(file)}, dry_run=dry_run, yes=yes, as_json=json)


def _read(file: Path) -> dict[str, Any]:
    from penstock.yamltext import read_yaml

    raw = read_yaml(str(file), "the cluster file") or {}
    if not isinstance(raw, dict):
        raise InvalidInput(f"{file} is no mapping of pools, tenants, queues, ...")
    return raw


def _change(change: dict[str, Any], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Plan a change, ask, and apply it as it was planned."""
    client = client_of()
    plan = client.configure({**change, "dry_run": True})
    if not as_json:
        for one in plan.changes:
            say(one.text)
        if not plan.changes:
            say("nothing changes")
    if plan.changes and not dry_run:
        confirm(f"Apply {counted(len(plan.changes), 'change')}?", yes=yes, as_json=as_json)
        plan = client.configure({**change, "base": plan.base})
        if not as_json:
            say(f"applied {counted(len(plan.changes), 'change')}")
    if as_json:
        print_json(plan)


@admin.command("show")
def show(
    section: Annotated[str, typer.Argument(help="pools, tenants, users, queues, billing, settings, ...")] = "",
    json: JsonOption = False,
) -> None:
    """Print the declared configuration as a cluster file."""
    import yaml

    found = client_of().config()
    if json:
        print_json(found)
        return
    config = found.config
    if section and section not in config:
        hint = nearest(section, list(config))
        raise InvalidInput(f"nothing is declared under '{section}'", hint=hint or f"there is {', '.join(config)}")
    shown = {section: config[section]} if section else config
    layout: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": 120}
    text = yaml.safe_dump(shown, allow_unicode=True, **layout)
    print_document(text if text == lines(text) else yaml.safe_dump(shown, allow_unicode=False, **layout))


@admin.command("add")
def add(
    kind: Annotated[str, typer.Argument(help="pool, tenant, user, queue or reservation.")],
    name: Annotated[str, typer.Argument(help="Name of the new one.")],
    fields: FieldsArgument = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Add a pool, tenant, user, queue or reservation."""
    said = [f"{kind}.{name}.{field}" for field in fields or []]
    _change({"add": [f"{kind}.{name}"], "set": said}, dry_run=dry_run, yes=yes, as_json=json)


@admin.command("set")
def change(
    changes: Annotated[list[str], typer.Argument(help="PATH=VALUE, such as queue.research.max.devices=16.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Set fields of the configuration; an empty value removes a field."""
    _change({"set": changes}, dry_run=dry_run, yes=yes, as_json=json)


@admin.command("remove")
def remove(
    kind: Annotated[str, typer.Argument(help="pool, tenant, user, queue or reservation.")],
    name: Annotated[str, typer.Argument(help="Name of the one to remove.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Remove a pool, tenant, user, queue or reservation that no live job needs."""
    _change({"remove": [f"{kind}.{name}"]}, dry_run=dry_run, yes=yes, as_json=json)
