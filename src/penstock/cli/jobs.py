"""Commands about jobs."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api import types as api
from penstock.cli.lifecycle import ensure
from penstock.cli.logs import follow_job
from penstock.cli.options import PASSED_ON, JobShape, client_of
from penstock.cli.output import Console, marked, print_json, say, styled, table
from penstock.client import Client
from penstock.core.explain import Explanation
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import Record
from penstock.core.model.units import format_duration

if TYPE_CHECKING:
    from rich.text import Text

JOB_FILE_ENDINGS = (".yaml", ".yml", ".json")


def run(data: Path | None, command: list[str], shape: JobShape) -> None:
    client = ensure(data)
    made = client.submit(_from_command(command, shape)).jobs[0]
    say(f"penstock: job {made.id} ({made.name})", err=True)
    try:
        ended = follow_job(client, made.id, say=lambda text: say(f"penstock: {text}", err=True))
    except KeyboardInterrupt:
        client.cancel(made.id)
        say("", f"penstock: job {made.id} is being cancelled", err=True)
        sys.exit(130)
    if ended.reason and ended.state != "succeeded":
        say(f"penstock: job {made.id} {ended.state}: {ended.reason}", err=True)
    sys.exit(_exit_code(ended))


def _exit_code(ended: api.JobView) -> int:
    if ended.state == "succeeded":
        return 0
    if ended.exit_code:
        return ended.exit_code
    return 128 + ended.exit_signal if ended.exit_signal else 1


def submit(data: Path | None, what: list[str], shape: JobShape, key: str | None, *, as_json: bool) -> None:
    answer = client_of(data).submit(request_of(what, shape), idempotency_key=key)
    if as_json:
        print_json(answer)
        return
    again = " (submitted before under this key)" if answer.repeated else ""
    if len(answer.jobs) > 8:
        first, last = answer.jobs[0], answer.jobs[-1]
        say(f"jobs {first.id} to {last.id} ({len(answer.jobs)} jobs){again}")
        return
    for job in answer.jobs:
        say(f"job {job.id} ({job.name}){again}")


def request_of(what: list[str], shape: JobShape) -> Any:
    """Return the request in a job file, or for a command, as the command line gives it."""
    is_file = len(what) == 1 and (what[0] == "-" or what[0].endswith(JOB_FILE_ENDINGS))
    return _from_file(what[0], shape) if is_file else _from_command(what, shape)


def _from_command(command: list[str], shape: JobShape) -> dict[str, Any]:
    return {"command": command, **shape.fields(), **_surroundings({}, shape)}


def _surroundings(job: dict[str, Any], shape: JobShape) -> dict[str, Any]:
    """Return `workdir` and `env` of a job: its own, completed by those of the submitting shell."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    own = job.get("env")
    if own is not None and not isinstance(own, dict):
        return {}  # the server says what is wrong with it
    return {"workdir": job.get("workdir") or os.getcwd(), "env": {**passed, **(own or {}), **shape.environment()}}


def _from_file(name: str, shape: JobShape) -> Any:
    """Return the request in a job file, completed by options and surroundings.

    Raises: InvalidInput when the file cannot be read or is no YAML.
    """
    import yaml

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise InvalidInput(f"the job file {name} cannot be read: {reason}") from error
    try:
        raw = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both loaders are safe
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        place = f", line {where.line + 1}, column {where.column + 1}" if where else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InvalidInput(
            f"{name}{place}: this is no YAML: {problem}", hint="see docs/jobs.md for examples"
        ) from error
    if raw is None:
        raise InvalidInput(f"the job file {name} is empty", hint="examples: docs/jobs.md")
    return _completed(_jsonable(raw), shape)


def _jsonable(value: Any) -> Any:
    """Return the value with keys and dates as texts."""
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _completed(raw: Any, shape: JobShape) -> Any:
    if isinstance(raw, dict) and isinstance(raw.get("jobs"), list):
        defaults = raw.get("defaults") or {}
        return [_completed({**defaults, **j} if isinstance(j, dict) else j, shape) for j in raw["jobs"]]
    if isinstance(raw, list):
        return [_completed(job, shape) for job in raw]
    return {**raw, **shape.fields(), **_surroundings(raw, shape)} if isinstance(raw, dict) else raw


def ps(
    data: Path | None,
    *,
    show_all: bool,
    tenant: str | None,
    state: str | None,
    limit: int,
    watch: bool,
    as_json: bool,
) -> None:
    client = client_of(data)
    query: dict[str, Any] = {"limit": limit, "finished": str(show_all).lower()}
    query |= {k: v for k, v in (("tenant", tenant), ("state", state)) if v}
    while True:
        listed = client.jobs(**query)
        if as_json:
            print_json(listed)
        else:
            if watch:
                Console().clear()
            _print_jobs(client, listed.jobs, limit)
        if not watch:
            return
        time.sleep(1.0)


def _print_jobs(client: Client, listed: list[api.JobView], limit: int) -> None:
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
    """Return how long the job is expected to go on, '' where nobody knows."""
    if not job.ends_ms:
        return ""
    return f"~{format_duration(job.ends_ms - now_ms)}" if job.ends_ms > now_ms else "soon"


def show(data: Path | None, job_id: int, *, as_json: bool) -> None:
    client = client_of(data)
    job, records = client.job(job_id), client.job_events(job_id)
    if as_json:
        print_json({"job": job, "events": records})
        return
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


def explain(data: Path | None, job_id: int, *, as_json: bool) -> None:
    found = client_of(data).explain(job_id)
    if as_json:
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
    """Print what would help and when it may start."""
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


def cancel(data: Path | None, job_ids: list[int], *, as_json: bool) -> None:
    client = client_of(data)
    for job_id in job_ids:
        client.cancel(job_id)
    if as_json:
        print_json({"cancelled": job_ids})
    else:
        say("cancel requested for job " + ", ".join(map(str, job_ids)))


def checkpoint(data: Path | None, job_id: int, *, as_json: bool) -> None:
    client_of(data).checkpoint(job_id)
    if as_json:
        print_json({"asked": job_id})
    else:
        say(f"job {job_id} was asked to save a checkpoint")
