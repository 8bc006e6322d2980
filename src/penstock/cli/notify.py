"""`penstock notify`: what a user hears of, and by which way.

The address of a webhook lets anybody who knows it send messages there: it comes from standard input or a file.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.api.notifications import NotificationList, NotificationView
from penstock.cli.options import JsonOption
from penstock.cli.output import EXIT_CODES, Console, print_done, print_json, say, table
from penstock.cli.place import client_of
from penstock.core.model.errors import InvalidInput
from penstock.core.model.notifications import EVENTS, GROUPS
from penstock.core.model.quantities import format_time, listed
from penstock.core.model.words import counted

notify = typer.Typer(help="Choose what you are notified of, and by which way.")
NameArgument = Annotated[str, typer.Argument(help="Name of the notification, such as mail.")]
FAILED = EXIT_CODES["job_failed"]


@notify.command("set")
def set_notification(
    name: NameArgument,
    on: Annotated[str, typer.Option("--on", help=f"Events, with commas: {', '.join((*EVENTS, *GROUPS))}.")] = "end",
    email: Annotated[str, typer.Option("--email", help="Send e-mails to this address.")] = "",
    webhook: Annotated[bool, typer.Option("--webhook", help="Post JSON to a URL, which is asked for.")] = False,
    slack: Annotated[bool, typer.Option("--slack", help="Post what Slack reads to a URL, which is asked for.")] = False,
    command: Annotated[str, typer.Option("--command", help="Run this command, which an administrator declared.")] = "",
    file: Annotated[Path | None, typer.Option("--file", help="Read the URL from this file.")] = None,
    tenant: Annotated[str, typer.Option("--tenant", "-A", help="Tenant of budget and exhausted.")] = "",
    json: JsonOption = False,
) -> None:
    """Choose which events are sent to you, and where to. The same name again changes it."""
    ways = [bool(email), webhook, slack, bool(command)]
    if sum(ways) != 1:
        raise InvalidInput("name one way", hint="--email ADDRESS, --webhook, --slack or --command NAME")
    channel = ("email", "webhook", "slack", "command")[ways.index(True)]
    to = email or command or _url(file)
    events = on.replace(",", " ").split()
    wanted: dict[str, Any] = {"channel": channel, "to": to, "events": events, "tenant": tenant}
    made = client_of().set_notification(name, wanted)
    one = made.notification
    text = f"{one.channel} to {one.to} on {', '.join(one.events)}; try it: penstock notify test {name}"
    print_done(made, text, as_json=json)
    if made.signing_key and not json:
        say(f"its messages are signed with this key, which is shown only now: {made.signing_key}")


def _url(file: Path | None) -> str:
    """Return the URL. Raises: InvalidInput when the file cannot be read, or there is no terminal to ask at."""
    try:
        if file is not None:
            return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the file {file} cannot be read") from error
    return str(typer.prompt("URL", hide_input=True)).strip() if sys.stdin.isatty() else sys.stdin.read().strip()


@notify.command("list")
def list_notifications(
    everyone: Annotated[bool, typer.Option("--everyone", help="Of all users: for administrators.")] = False,
    json: JsonOption = False,
) -> None:
    """List what you are notified of, what waits, and why the last message was not taken."""
    found = client_of().notifications(everyone=everyone)
    if json:
        print_json(found)
        return
    shown = [*found.notifications, *found.of_jobs]
    rows = [_row(one) for one in shown]
    head = ("name", "user", "way", "to", "on", "about", "sent", "waits", "last sent", "last error")
    drop = ("last sent", "user", "about", "waits", "sent", "way", "on")
    kept = tuple(one for one in drop if one != "user" or not everyone)
    none = f"nothing is set: penstock notify set NAME ({_ways(found)})"
    Console().print(table(head, rows, drop=kept, of=shown, kind=NotificationView, key="name", empty=none))


def _row(one: NotificationView) -> tuple[str, ...]:
    error = one.last_error + (f" ({counted(one.tries, 'try', 'tries')})" if one.tries else "")
    sent_at = format_time(one.last_sent_ms // 1000 * 1000) if one.last_sent_ms else "-"
    return (
        one.name,
        one.owner,
        one.channel,
        one.to,
        ", ".join(one.events) or "as jobs say",
        one.tenant or "-",
        f"{one.sent:,}",
        f"{one.waiting:,}",
        sent_at,
        error or "-",
    )


def _ways(found: NotificationList) -> str:
    channels = found.channels
    ways = [f"--email to {listed(channels.email_domains)}"] if channels.email_domains else []
    ways += [f"--webhook and --slack to {listed(channels.webhook_hosts)}"] if channels.webhook_hosts else []
    ways += [f"--command {' or '.join(channels.commands)}"] if channels.commands else []
    return "; ".join(ways) or "an administrator has to declare a channel first: `notifications` in the cluster file"


@notify.command("test")
def try_notification(name: NameArgument, json: JsonOption = False) -> None:
    """Send a test message now, and say whether it was taken."""
    done = client_of().test_notification(name)
    hint = f": {done.hint}" if done.hint else ""
    text = "the test message was taken" if done.sent else f"the test message was not taken: {done.error}{hint}"
    print_done(done, text, as_json=json)
    if not done.sent:
        raise typer.Exit(FAILED)


@notify.command("remove")
def remove_notification(
    name: NameArgument,
    user: Annotated[str, typer.Option("--user", help="Of this user: for administrators.")] = "",
    json: JsonOption = False,
) -> None:
    """Remove a notification; what still waits to be sent is dropped."""
    client_of().remove_notification(name, user)
    print_done({"removed": name}, f"notification {name} is removed", as_json=json)
