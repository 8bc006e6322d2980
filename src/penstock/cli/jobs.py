"""Commands about jobs: `ps`, `show`, `explain`, `cancel`, `checkpoint`."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.api import types as api
from penstock.cli.options import DataOption, JobArgument, JsonOption, client_of
from penstock.cli.output import Console, marked, print_done, print_json, say, styled, table
from penstock.core.model.events import Record
from penstock.core.model.explanation import Explanation
from penstock.core.model.quantities import format_duration

if TYPE_CHECKING:
    from rich.text import Text

    from penstock.client import Client


def ps(
    data: DataOption = None,
    all: Annotated[bool, typer.Option("--all", "-a", help="Include finished jobs.")] = False,  # noqa: A002
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1, max=1000)] = 200,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second.")] = False,
    json: JsonOption = False,
) -> None:
    """List jobs."""
    client = client_of(data)
    query: dict[str, Any] = {"limit": limit, "finished": str(all).lower()}
    query |= {k: v for k, v in (("tenant", tenant), ("state", state)) if v}
    while True:
        listed = client.jobs(**query)
        if json:
            print_json(listed)
        else:
            if watch:
                Console().clear()
            _print_jobs(client, listed.jobs, limit)
        if not watch:
            return
        time.sleep(1.0)


def _print_jobs(client: "Client", listed: list[api.JobView], limit: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    rows = [_job_row(job, now_ms) for job in listed]
    columns = ("job", "name", "state", "tenant", "prio", "dev", "nodes", "waited", "ran", "left", "att", "step", "why")
    if rows:
        Console().print(table(columns, rows, right=("job", "prio", "dev", "waited", "ran", "left", "att", "step")))
    shown = client.cluster()
    say(
        f"{shown.jobs_active} active, {shown.jobs_waiting} waiting, {shown.jobs_succeeded} succeeded, "
        f"{shown.jobs_not_succeeded} failed or cancelled; {shown.devices_held} of {shown.devices} devices held"
    )
    if len(listed) >= limit:
        say(f"only the first {limit} are listed (--limit)")


def _job_row(job: api.JobView, now_ms: int) -> "tuple[str | Text, ...]":
    started = 0 if job.state == "waiting" else job.started_ms
    waited = (started or job.finished_ms or now_ms) - job.submitted_ms
    ran = (job.finished_ms or now_ms) - started if started else 0
    name = f"{job.name}[{job.array_index}]" if job.array_id is not None else job.name
    return (
        str(job.id),
        name,
        styled(job.state),
        job.tenant,
        str(job.priority),
        str(job.devices or "") if job.replicas == 1 else f"{job.replicas}x{job.devices // job.replicas}",
        ",".join(job.nodes),
        format_duration(max(0, waited)),
        format_duration(max(0, ran)) if started else "",
        _left(job, now_ms),
        str(job.attempt or ""),
        str(job.step) if job.step else "",
        job.reason,
    )


def _left(job: api.JobView, now_ms: int) -> str:
    """Return the expected remaining run time, '' where unknown."""
    if not job.ends_ms:
        return ""
    return f"~{format_duration(job.ends_ms - now_ms)}" if job.ends_ms > now_ms else "soon"


def show(job: JobArgument, data: DataOption = None, json: JsonOption = False) -> None:
    """Show one job with its attempts and events."""
    client = client_of(data)
    shown, records = client.job(job), client.job_events(job)
    if json:
        print_json({"job": shown, "events": records})
    else:
        _print_job(shown, records)


def _print_job(job: api.JobView, records: list[Record]) -> None:
    out = Console()
    out.print(marked("[bold]job {}[/] {}  {}  {}", job.id, job.name, styled(job.state), job.reason))
    facts = [
        ("tenant / queue", f"{job.tenant} / {job.queue}"),
        ("user", job.user),
        ("priority", f"{job.priority}{'' if job.preemptible else ', not preemptible'}"),
        ("asks for", f"{job.replicas} replica(s), {job.devices} device(s)"),
        ("attempts", f"{job.attempt} ({job.preemptions} preemption(s))"),
        ("step", f"{job.step} (checkpoint at {job.checkpoint_step})" if job.step else ""),
        ("ends", _left(job, time.time_ns() // 1_000_000).replace("~", "in about ")),
        ("command", " ".join(job.command)),
    ]
    for name, value in facts:
        if value:
            out.print(f"  {name:<15} {value}")
    for replica in job.replica_list:
        devices = ",".join(map(str, replica.devices)) or "-"
        out.print(f"  replica {replica.rank:<7} {replica.node} devices {devices} {replica.state} {replica.exit}")
    out.print()
    start_ms = records[0].time_ms if records else 0
    for record in records:
        out.print(f"  +{(record.time_ms - start_ms) / 1000:8.3f}s  {story(record)}")


def story(record: Record) -> str:
    """Return one event as a line for people."""
    event = record.event
    name = type(event).__name__
    words = "".join(" " + c.lower() if c.isupper() else c for c in name).strip()
    details = {
        field: getattr(event, field)
        for field in event.__struct_fields__
        if field not in ("job_id", "spec", "digest", "idempotency_key", "places", "exit", "user", "batch")
    }
    extra = [f"{k}={v}" for k, v in details.items() if v not in ("", None, 0, False, ())]
    places = getattr(event, "places", ())
    if places:
        extra.append("on " + ", ".join(f"{p.node}{list(p.devices) if p.devices else ''}" for p in places))
    info = getattr(event, "exit", None)
    if info is not None:
        extra.append(info.text())
    return f"{words:<26} {'  '.join(extra)}"


def explain(job: JobArgument, data: DataOption = None, json: JsonOption = False) -> None:
    """Explain why a job waits. Lists all constraints, the smallest changes that would start it now, and an estimate."""
    found = client_of(data).explain(job)
    if json:
        print_json(found)
        return
    out = Console()
    out.print(marked("[bold]job {}[/] {} ({}): {}", found.job_id, styled(found.state), found.code, found.text))
    if found.constraints:
        out.print()
        for constraint in found.constraints:
            out.print(f"  {constraint.code}: {constraint.text}")
    if found.refused:
        out.print()
        rows = [(str(count), code) for code, count in found.refused.items()]
        out.print(table(("nodes", "ruled out by"), rows, right=("nodes",)))
    _print_ways_on(out, found)


def _print_ways_on(out: Console, found: Explanation) -> None:
    """Print the changes that would help and the estimated start."""
    if found.blockers:
        out.print("held by / waits for: job " + ", ".join(map(str, found.blockers)))
    for edit in found.edits:
        when = "would start now" if edit.starts_now else "would make room now"
        out.print(marked("[green]{}:[/] {}", when, edit.text))
    if found.edits_note:
        out.print(found.edits_note)
    if found.start_by_ms:
        left = max(0, found.start_by_ms - time.time_ns() // 1_000_000)
        out.print(f"start: within {format_duration(left)}, {found.start_note}")
    elif found.start_note:
        out.print(f"start: {found.start_note}")
    if found.start_interval_ms is not None:
        now_ms = time.time_ns() // 1_000_000
        early, late = (format_duration(max(0, at_ms - now_ms)) for at_ms in found.start_interval_ms)
        out.print(f"estimate: in {early} to {late}, as 8 of 10 such starts (penstock eta)")
    if found.stop is not None and found.stop.grace_left_ms:
        out.print(f"it has {format_duration(found.stop.grace_left_ms)} left to save")


def cancel(
    jobs: Annotated[list[int], typer.Argument(help="Numbers of the jobs.", min=1)],
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Cancel jobs."""
    client = client_of(data)
    for job in jobs:
        client.cancel(job)
    print_done({"cancelled": jobs}, "cancel requested for job " + ", ".join(map(str, jobs)), as_json=json)


def checkpoint(job: JobArgument, data: DataOption = None, json: JsonOption = False) -> None:
    """Ask a running job to save a checkpoint and continue."""
    client_of(data).checkpoint(job)
    print_done({"asked": job}, f"job {job} was asked to save a checkpoint", as_json=json)
