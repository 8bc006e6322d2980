"""`penstock show`: one job as a page for people."""

import shlex
import time
from collections.abc import Iterator, Sequence

from penstock.api import types as api
from penstock.cli.explain import start_lines
from penstock.cli.options import JobArgument, JsonOption
from penstock.cli.output import Console, marked, print_json, styled
from penstock.cli.place import client_of
from penstock.cli.remaining import left
from penstock.cli.schedule import local
from penstock.cli.story import attempts_of, checkpoints_text, clock, moment, node_part, places_text, story
from penstock.core.model.events import Record
from penstock.core.model.explanation import Explanation
from penstock.core.model.jobs import FINAL_STATES
from penstock.core.model.quantities import format_duration, format_energy, listed
from penstock.core.model.words import counted

REPLICAS_SHOWN_MAX = 16
PORTS_SHOWN = 8
EVENTS_FIRST, EVENTS_LAST = 10, 50
"""Of a long story, these are printed."""


def show(job: JobArgument, json: JsonOption = False) -> None:
    """Show one job with its attempts and events."""
    client = client_of()
    shown, records = client.job(job), client.job_events(job)
    if json:
        print_json({"job": shown, "events": records}, of=[shown])
        return
    why = client.explain(job) if shown.state not in FINAL_STATES else None
    _print_job(shown, records, why, time.time_ns() // 1_000_000)


def _print_job(job: api.JobView, records: Sequence[Record], why: Explanation | None, now_ms: int) -> None:
    out = Console()
    name = f"{job.name}[{job.array_index}]" if job.array_id is not None else job.name
    out.print(marked("[bold]job {}[/] {}  {}", job.id, name, styled(job.state)))
    for label, value in (*state_facts(job, why, now_ms), *request_facts(job)):
        if value:
            out.print(f"  {label:<11} {value}")
    saved = checkpoints_text(records, now_ms)
    if saved:
        out.print(f"  {'saved':<11} {saved}")
    _print_attempts(out, records, now_ms)
    _print_replicas(out, job)
    _print_events(out, records, now_ms)


def state_facts(job: api.JobView, why: Explanation | None, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield what the job does now, and why, as (name, value); a value may be empty."""
    yield "submitted", moment(job.submitted_ms, now_ms)
    if job.started_ms:
        yield "started", moment(job.started_ms, now_ms)
    if job.finished_ms:
        ran = f", ran {format_duration(job.finished_ms - job.started_ms)}" if job.started_ms else ""
        yield "ended", moment(job.finished_ms, now_ms) + ran
    yield "why", why.text if why is not None else job.reason.replace("_", " ")
    for line in start_lines(why, now_ms) if why is not None else ():
        yield "start", line.removeprefix("starts ")
    yield "where", places_text(job.replica_list) or ", ".join(job.nodes)
    if job.ends_ms:
        yield "ends", left(job, now_ms).replace("~", "in about ")
    if job.step:
        yield "step", f"{job.step:,}"
    yield "used", used_text(job)


def used_text(job: api.JobView) -> str:
    """Return what its devices and its programs used, as measured; empty where nothing was."""
    parts = []
    if job.busy_milli is not None:
        parts.append(f"devices busy {job.busy_milli // 10} % of the time")
    if job.energy_mj is not None:
        mean = f" (mean {job.power_mean_mw / 1000:,.0f} W a device)" if job.power_mean_mw is not None else ""
        parts.append(f"{format_energy(job.energy_mj)}{mean}")
    if job.cpu_ms is not None:
        parts.append(f"{format_duration(job.cpu_ms)} of CPU time")
    return ", ".join(parts)


def request_facts(job: api.JobView) -> Iterator[tuple[str, str]]:
    """Yield what was asked for, as (name, value); a value may be empty."""
    fallback = f"{counted(job.replicas, 'replica')}, {counted(job.devices, 'device')}"
    yield "asks for", "; ".join(part for part in (job.asks or fallback, job.placement) if part)
    yield "pool", job.pool
    yield "time limit", format_duration(job.time_limit_ms) if job.time_limit_ms else ""
    yield "tenant", f"{job.tenant}, queue {job.queue}, user {job.user}"
    yield "schedule", f"{job.schedule}, due {local(job.due_ms)}" if job.schedule else ""
    yield "priority", f"{job.priority}{', not preemptible' if job.preemptible is False else ''}"
    yield "ports", ports_text(job.replica_list)
    yield "command", shlex.join(job.command)


def ports_text(replicas: Sequence[api.ReplicaView]) -> str:
    """Return the named ports of replicas with their hosts, as many as fit on a line."""
    known = [(one.rank, name, at) for one in replicas for name, at in one.ports.items()]
    each = (f"{name} {at}" if len(replicas) == 1 else f"{name}[{rank}] {at}" for rank, name, at in known)
    return listed(each, PORTS_SHOWN)


def _print_attempts(out: Console, records: Sequence[Record], now_ms: int) -> None:
    attempts = attempts_of(records)
    if attempts:
        out.print()
        out.print("attempts")
    for one in attempts:
        ran = format_duration((one.ended_ms or now_ms) - one.began_ms)
        end = one.end or "running"
        out.print(f"  {one.number}  {clock(one.began_ms, now_ms)}, {ran}, on {one.where}: {end}")


def _print_replicas(out: Console, job: api.JobView) -> None:
    if len(job.replica_list) < 2:
        return
    out.print()
    out.print("replicas")
    for replica in job.replica_list[:REPLICAS_SHOWN_MAX]:
        end = f": {replica.exit}" if replica.exit else ""
        out.print(f"  {replica.rank}  {node_part(replica.node, replica.devices)}, {replica.state}{end}")
    more = len(job.replica_list) - REPLICAS_SHOWN_MAX
    if more > 0:
        out.print(f"  and {counted(more, 'more replica')}: penstock show {job.id} --json")


def _print_events(out: Console, records: Sequence[Record], now_ms: int) -> None:
    if not records:
        return
    out.print()
    out.print("events")
    first_ms, hidden = records[0].time_ms, len(records) - EVENTS_FIRST - EVENTS_LAST
    for number, record in enumerate(records):
        if hidden > 0 and EVENTS_FIRST <= number < EVENTS_FIRST + hidden:
            if number == EVENTS_FIRST:
                out.print(f"  {counted(hidden, 'event')} left out (--json has them)")
            continue
        after = (record.time_ms - first_ms) / 1000
        out.print(f"  {clock(record.time_ms, now_ms)}  +{after:.1f}s  {story(record)}")
