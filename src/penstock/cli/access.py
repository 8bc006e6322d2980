"""Commands about permissions: tokens, and the caller's identity."""

from typing import Annotated

import typer

from penstock.api.types import TokenView
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, print_done, print_json, say, table
from penstock.cli.place import client_of
from penstock.core.model.quantities import format_time

token = typer.Typer(help="Create, list and revoke tokens.")


def whoami(json: JsonOption = False) -> None:
    """Show your user, roles and the level of your token."""
    found = client_of().me()
    if json:
        print_json(found)
        return
    roles = [f"{role} of {tenant}" for tenant, role in found.tenants.items()]
    if found.role:
        roles.insert(0, f"{found.role} of the cluster")
    say(f"{found.user}: {', '.join(roles) or 'no role'}; this token is for: {found.level}")
    say(f"may submit jobs for {', '.join(found.submits) or 'no tenant'}")
    if found.submits:
        tenant = f"go to {found.default_tenant}" if found.default_tenant else "are refused"
        queue = f"to {found.default_queue}" if found.default_queue else "are refused"
        say(f"jobs that name no tenant {tenant}, those that name no queue {queue}")


@token.command("create")
def create_token(
    user: Annotated[str, typer.Argument(help="User of the token; by default you.")] = "",
    level: Annotated[str, typer.Option(help="read, write (jobs and nodes) or admin.")] = "write",
    tenant: Annotated[list[str] | None, typer.Option(help="Limit it to this tenant; may be repeated.")] = None,
    days: Annotated[
        int | None,
        typer.Option(help="Days until it expires; 0: never. By default 90, and no later than your own token."),
    ] = None,
    note: Annotated[str, typer.Option(help="Purpose of the token.")] = "",
    json: JsonOption = False,
) -> None:
    """Create a token; its secret is printed only once."""
    body = {"user": user, "level": level, "tenants": tenant or [], "days": days, "note": note}
    made = client_of().create_token(body)
    if json:
        print_json(made)
        return
    say(made.token)
    until = f"until {format_time(made.expires_ms)}" if made.expires_ms else "for ever"
    say(f"token {made.id}, valid {until}; use it as PENSTOCK_TOKEN. It is not shown again.", err=True)


@token.command("list")
def list_tokens(json: JsonOption = False) -> None:
    """List the tokens that you may revoke."""
    found = client_of().tokens()
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
    drop = ("by", "created", "in", "note")
    columns = ("token", "user", "for", "in", "created", "expires", "by", "note")
    Console().print(
        table(columns, rows, drop=drop, text=("note",), of=found, kind=TokenView, key="id", empty="no tokens")
    )


@token.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(help="Number of the token, as `token list` shows it.")],
    json: JsonOption = False,
) -> None:
    """Revoke a token at once."""
    client_of().revoke_token(token_id)
    print_done({"revoked": token_id}, f"token {token_id} is revoked", as_json=json)
