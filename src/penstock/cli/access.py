"""Commands about who may do what: tokens, and who one is."""

from typing import Annotated

import typer

from penstock.cli.options import DataOption, JsonOption, client_of
from penstock.cli.output import Console, print_json, say, table
from penstock.core.model.amounts import format_time

token = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens.")


def quota(data: DataOption = None, json: JsonOption = False) -> None:
    """Show how much of each quota is used, borrowed and lent, and who holds what in your tenants."""
    from penstock.core.model.amounts import format_resource

    found = client_of(data).quotas()
    if json:
        print_json(found)
        return
    rows = []
    for one in found.quotas:
        amounts = (one.used, one.guaranteed, one.maximum, one.borrowed, one.lent)
        shown = ["" if amount is None else format_resource(one.resource, amount) for amount in amounts]
        mark = f"{one.percent} %" + (" !" if one.level >= 95 else "")
        alert = f"{one.alerted} % {format_time(one.alerted_ms)}" if one.alerted else ""
        rows.append((f"{one.kind} {one.name}", one.resource, *shown, mark, alert))
    columns = ("of", "resource", "used", "guaranteed", "max", "borrowed", "lent", "reached", "alert")
    if rows:
        Console().print(table(columns, rows, right=columns[2:-1]))
    else:
        say("no quotas are declared: max and guaranteed of queues, max of tenants")
    held = [
        (one.tenant, one.user or "-", one.queue, one.resource, format_resource(one.resource, one.used), str(one.jobs))
        for one in found.holders
    ]
    if held:
        Console().print(table(("tenant", "user", "queue", "resource", "holds", "jobs"), held, right=("holds", "jobs")))


def whoami(data: DataOption = None, json: JsonOption = False) -> None:
    """Show who the server takes you for, and what you may do."""
    found = client_of(data).me()
    if json:
        print_json(found)
        return
    roles = [f"{role} of {tenant}" for tenant, role in found.tenants.items()]
    if found.role:
        roles.insert(0, f"{found.role} of the cluster")
    say(f"{found.user}: {', '.join(roles) or 'no role'}; this token is for: {found.level}")
    say(f"may submit for {', '.join(found.submits) or 'nobody'}")


@token.command("create")
def create_token(
    user: Annotated[str, typer.Argument(help="Whom it speaks for; by default you.")] = "",
    level: Annotated[str, typer.Option(help="read, write (jobs and nodes) or admin.")] = "write",
    tenant: Annotated[list[str] | None, typer.Option(help="It speaks in this tenant only; may be repeated.")] = None,
    days: Annotated[
        int | None,
        typer.Option(help="It expires after so many; 0: never. By default 90, and no later than the one you use."),
    ] = None,
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Make a token; its secret is printed this once."""
    body = {"user": user, "level": level, "tenants": tenant or [], "days": days, "note": note}
    made = client_of(data).create_token(body)
    if json:
        print_json(made)
        return
    say(made.token)
    until = f"until {format_time(made.expires_ms)}" if made.expires_ms else "for ever"
    say(f"token {made.id}, valid {until}; use it as PENSTOCK_TOKEN. It is not shown again.", err=True)


@token.command("list")
def list_tokens(data: DataOption = None, json: JsonOption = False) -> None:
    """List the tokens that you may revoke."""
    found = client_of(data).tokens()
    if json:
        print_json(found)
        return
    rows = [
        (
            one.id,
            one.user,
            one.level,
            ", ".join(one.tenants) or "all",
            format_time(one.created_ms),
            format_time(one.expires_ms) if one.expires_ms else "never",
            one.by,
            one.note,
        )
        for one in found
    ]
    Console().print(table(("token", "user", "for", "in", "created", "expires", "by", "note"), rows))


@token.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(help="As `token list` shows it.")],
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Revoke a token, from this moment on."""
    client_of(data).revoke_token(token_id)
    if json:
        print_json({"revoked": token_id})
    else:
        say(f"token {token_id} is revoked")
