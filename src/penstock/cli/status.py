"""`penstock status`: the server, its nodes, jobs and alerts at a glance."""

from penstock.api import types as api
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, marked, print_json, say
from penstock.cli.place import client_of
from penstock.core.model.answers import Alert
from penstock.core.model.words import counted

ALERTS_SHOWN = 5


def status(json: JsonOption = False) -> None:
    """Show the server, its nodes, jobs and alerts at a glance."""
    client = client_of()
    shown, alerts, me = client.cluster(), client.alerts(), client.me()
    if json:
        print_json({"cluster": shown, "alerts": alerts, "user": me.user}, of=[shown])
        return
    for name, text in _facts(shown, me.user, client.address):
        Console().print(marked("[bold]{}[/] {}", f"{name:<9}", text))
    _print_alerts(alerts)


def _facts(shown: api.ClusterView, user: str, address: str) -> list[tuple[str, str]]:
    away = shown.nodes - shown.nodes_ready
    used = f", {100 * shown.devices_held // shown.devices} %" if shown.devices else ""
    return [
        ("server", f"Penstock {shown.version} at {address}"),
        ("user", user),
        ("nodes", f"{shown.nodes_ready} of {shown.nodes} ready" + (f", {away} not: penstock nodes" if away else "")),
        ("devices", f"{shown.devices_held} of {shown.devices} held{used}" if shown.devices else "none"),
        ("jobs", f"{shown.jobs_active:,} running, {shown.jobs_waiting:,} waiting"),
        ("ended", f"{shown.jobs_succeeded:,} succeeded, {shown.jobs_not_succeeded:,} failed or cancelled"),
    ]


def _print_alerts(alerts: list[Alert]) -> None:
    if not alerts:
        say("no alerts")
        return
    say(f"{counted(len(alerts), 'alert')}: penstock alerts says how to resolve them")
    for alert in alerts[:ALERTS_SHOWN]:
        say(f"  {alert.text}")
