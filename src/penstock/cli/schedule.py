"""`penstock schedule`: jobs that are submitted again and again. `penstock submit` sets a schedule."""

from datetime import datetime
from typing import Annotated, Any

import typer

from penstock.api.schedules import ScheduleView
from penstock.cli.options import JsonOption
from penstock.cli.output import Console, marked, print_done, print_json, say, table
from penstock.cli.place import client_of
from penstock.client.snapshots import with_snapshots
from penstock.core.model.errors import InvalidInput
from penstock.core.model.words import counted

schedule = typer.Typer(help="List, pause and remove schedules; penstock submit sets them.")
NameArgument = Annotated[str, typer.Argument(help="Name of the schedule.")]
UserOption = Annotated[str, typer.Option("--user", help="Of this user; by default yours.")]


def local(time_ms: int) -> str:
    """Return a moment by the clock of this machine, with its zone; `-` for 0."""
    if not time_ms:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime("%a %Y-%m-%d %H:%M %Z")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def rule_of(request: Any) -> dict[str, Any] | None:
    """Return the schedule in a request, or None; a form that only the server can judge counts as none."""
    if isinstance(request, list):
        return next((rule for one in request if (rule := rule_of(one)) is not None), None)
    if not isinstance(request, dict):
        return None
    if isinstance(request.get("jobs"), list):
        return rule_of(request.get("defaults")) or rule_of(request["jobs"])
    rule = request.get("schedule")
    return rule if isinstance(rule, dict) else None


def with_schedule(request: Any, cron: str | None, zone: str | None) -> Any:
    """Return a request with the schedule of the command line. Raises: InvalidInput."""
    if cron is None:
        if zone is not None:
            raise InvalidInput("--zone is the time zone of --schedule, which is missing")
        return request
    rule = {"cron": cron, **({"zone": zone} if zone is not None else {})}
    if isinstance(request, list):
        return {"jobs": request, "defaults": {"schedule": rule}}
    if isinstance(request, dict) and isinstance(request.get("jobs"), list):
        return {**request, "defaults": {**(request.get("defaults") or {}), "schedule": rule}}
    return {**request, "schedule": rule}


def set_schedule(request: Any, rule: dict[str, Any], *, json: bool) -> None:
    """Set the schedule of a request, and print its next times. Raises: InvalidInput where it has no name."""
    jobs = request.get("jobs", [request]) if isinstance(request, dict) else request
    first = jobs[0] if jobs and isinstance(jobs[0], dict) else {}
    name = rule.get("name") or first.get("name")
    if not name:
        raise InvalidInput("the schedule has no name", hint="--name NAME, or name: in the file")
    client = client_of()
    made = client.set_schedule(str(name), with_snapshots(client, request))
    if json:
        print_json(made)
        return
    paused = "; it is paused" if made.paused else f"; next {local(made.next_ms)}"
    say(f"schedule {made.name}: {made.cron} in {made.zone}{paused}")


@schedule.command("list")
def list_schedules(
    everyone: Annotated[bool, typer.Option("--everyone", help="Of all users of tenants that you see.")] = False,
    json: JsonOption = False,
) -> None:
    """List schedules with their next times, by the clock of this machine."""
    found = client_of().schedules(everyone=everyone)
    if json:
        print_json({"schedules": found}, of=found)
        return
    rows = [_row(one) for one in found]
    head = ("name", "user", "tenant", "cron", "zone", "next", "runs", "live", "skipped", "last problem")
    drop = ("tenant", "last problem", "skipped", "live", "user", "runs", "zone")
    none = "there are no schedules: penstock submit --schedule '0 3 * * *' -- COMMAND"
    Console().print(table(head, rows, drop=drop, of=found, kind=ScheduleView, key="name", empty=none))


def _row(one: ScheduleView) -> tuple[str, ...]:
    return (
        one.name,
        one.owner,
        one.tenant,
        one.cron,
        one.zone,
        "paused" if one.paused else local(one.next_ms),
        f"{one.run_total:,}",
        f"{one.live_runs:,}",
        f"{one.skipped_total:,}",
        one.skipped or "-",
    )


@schedule.command("show")
def show_schedule(name: NameArgument, user: UserOption = "", json: JsonOption = False) -> None:
    """Show a schedule with its next times and latest runs."""
    one = client_of().schedule(name, user)
    if json:
        print_json(one)
        return
    out = Console()
    out.print(marked("[bold]schedule {}[/] of {}", one.name, one.owner))
    for label, value in _facts(one):
        if value:
            out.print(f"  {label:<9} {value}")
    if one.runs:
        out.print()
        out.print("runs")
    for run in one.runs:
        jobs = f"job {run.first}" if run.count == 1 else f"jobs {run.first} to {run.first + run.count - 1}"
        end = f", {run.live} live" if run.live else ", over"
        out.print(f"  {local(run.due_ms)}: {jobs}{end}" + (f", started by {run.by}" if run.by else ""))


def _facts(one: ScheduleView) -> list[tuple[str, str]]:
    why = f": {one.paused_why}" if one.paused_why else ""
    return [
        ("when", f"{one.cron} in {one.zone}"),
        ("paused", f"by {one.paused_by}{why}" if one.paused else ""),
        ("next", f"{local(one.next_ms)} here" if one.next_ms else "" if one.paused else "never again"),
        ("then", ", ".join(one.coming)),
        ("from", local(one.start_ms) if one.start_ms else ""),
        ("until", local(one.end_ms) if one.end_ms else ""),
        ("rules", f"catch up {one.catch_up}, overlap {one.overlap}"),
        ("submits", f"{counted(one.jobs, 'job')} of tenant {one.tenant}: {', '.join(one.job_names)}"),
        ("so far", f"{counted(one.run_total, 'run')}, {one.live_runs} live, {one.skipped_total:,} skipped"),
        ("problem", f"{local(one.skipped_ms)}: {one.skipped}" if one.skipped else ""),
    ]


@schedule.command("pause")
def pause(name: NameArgument, user: UserOption = "", json: JsonOption = False) -> None:
    """Start no further runs until the schedule is resumed."""
    done = client_of().act_on_schedule(name, "pause", user)
    print_done(done, f"schedule {name} is paused", as_json=json)


@schedule.command("resume")
def resume(name: NameArgument, user: UserOption = "", json: JsonOption = False) -> None:
    """Start runs again, from the next time on."""
    done = client_of().act_on_schedule(name, "resume", user)
    print_done(done, f"schedule {name} runs again; next {local(done.next_ms)}", as_json=json)


@schedule.command("run-now")
def run_now(name: NameArgument, user: UserOption = "", json: JsonOption = False) -> None:
    """Start a run now; the next times stay as they are."""
    done = client_of().act_on_schedule(name, "run", user)
    started = f": job {done.runs[-1].first}" if done.runs else ""
    print_done(done, f"schedule {name} has started a run{started}", as_json=json)


@schedule.command("remove")
def remove(name: NameArgument, user: UserOption = "", json: JsonOption = False) -> None:
    """Remove a schedule; jobs that it has submitted stay."""
    client_of().remove_schedule(name, user)
    print_done({"removed": name}, f"schedule {name} is removed", as_json=json)
