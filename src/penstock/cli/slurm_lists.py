"""squeue, sacct and sinfo: lists of jobs and nodes in the columns of Slurm's users."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.api import types as api
from penstock.cli.output import say
from penstock.core.model.errors import InvalidInput
from penstock.core.model.jobs import FINAL_STATES
from penstock.formats.hostlist import compressed, expand
from penstock.slurm import tables
from penstock.slurm.listing import SACCT_OPTIONS, SINFO_OPTIONS, SQUEUE_OPTIONS, Read
from penstock.slurm.options import Unknown
from penstock.slurm.rows import Seen, exit_text, members, row, split_words, waiting_arrays

if TYPE_CHECKING:
    from penstock.client import Client

PAGE = 1_000
JOBS_MAX = 50_000
"""Rows of one list."""


def seen_of(job: api.JobView) -> Seen:
    """Return a job of the API as the rows of tables read it."""
    return Seen(
        number=job.id,
        name=job.name,
        state=job.state,
        reason=job.reason,
        user=job.user,
        tenant=job.tenant,
        queue=job.queue,
        priority=job.priority,
        command=job.command,
        nodes=job.nodes,
        devices=job.devices_text,
        submit=job.submitted_ms // 1000,
        start=job.started_ms // 1000,
        end=job.finished_ms // 1000,
        attempt=job.attempt,
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        array=None if job.array_id is None else (job.array_id, job.array_index),
        replicas=job.replicas,
        limit=job.time_limit_ms // 1000,
    )


def squeue(client: "Client", words: Sequence[str]) -> None:
    """Print live jobs."""
    options = Read("squeue", words, SQUEUE_OPTIONS)
    say(*options.notes, err=True)
    columns = _squeue_columns(options)
    users = options.listed("user") or ([client.me().user] if "me" in options else [])
    states = _states(options.listed("states"))
    jobs = _jobs(client, options, users, finished=states is not None and bool(states & FINAL_STATES))
    now = int(time.time())
    shown_states = set(tables.STATES) - FINAL_STATES if states is None else states
    jobs = [job for job in jobs if job.state in shown_states]
    used = {column.field for column in columns if not isinstance(column, str)}
    rows = [(seen, row(seen, now)) for seen in detailed(client, jobs, each=bool(used & OF_ONE))]
    if "nodelist" in options:
        wanted = set(expand(options.get("nodelist")))
        rows = [(seen, one) for seen, one in rows if wanted & set(seen.nodes)]
    shown = [one for _, one in rows] if "array" in options else waiting_arrays(rows)
    if "noheader" not in options:
        say(tables.heading(columns))
    say(*(tables.line(columns, one) for one in shown))


def _squeue_columns(options: Read) -> list[tables.Column | str]:
    if "Format" in options:
        return tables.by_names(options.get("Format"), tables.SQUEUE_NAMES)
    default = tables.SQUEUE_LONG if "long" in options else tables.SQUEUE_DEFAULT
    default = tables.SQUEUE_START if "start" in options else default
    return tables.by_letters(options.get("format", default), tables.SQUEUE)


def _states(words: Sequence[str]) -> set[str] | None:
    """Return our states for Slurm's; None where none is asked for. Raises: Unknown."""
    if not words:
        return None
    found: set[str] = set()
    ends = {name for names in tables.ENDS.values() for name in names}
    for word in (each.upper() for each in words):
        if word == "ALL":
            return set(tables.STATES)
        ours = [state for state, names in tables.STATES.items() if word in names]
        if not ours and word not in ends:
            raise Unknown(f"there is no state '{word}' here")
        found.update(ours or ["failed"])
    return found


def _jobs(client: "Client", options: Read, users: Sequence[str], *, finished: bool) -> list[api.JobView]:
    """Return the jobs that the options select. Raises: NotFound for a number of none."""
    numbers = [members(word) for word in split_words(options.get("jobs"))]
    if numbers:
        found = [job for number, indexes in numbers for job in jobs_of(client, number, indexes)]
    else:
        query: dict[str, Any] = {"finished": "true"} if finished else {}
        found = []
        for user in users or [""]:
            found += list(_pages(client, query | ({"user": user} if user else {})))
    names, tenants = options.listed("name"), options.listed("account", "accounts")
    queues = options.listed("partition")
    return [
        job
        for job in sorted(found, key=lambda job: job.id)
        if (not names or job.name in names)
        and (not tenants or job.tenant in tenants)
        and (not queues or job.queue in queues or job.pool in queues)
        and (not users or job.user in users)
    ]


def jobs_of(client: "Client", number: int, indexes: Sequence[int]) -> Iterator[api.JobView]:
    """Yield a job, or the members of an array."""
    first = client.job(number)
    if first.array_id != number:
        yield first
        return
    for job in _pages(client, {"array": number, "finished": "true"}):
        whole = seen_of(job)._replace(command=first.command)
        if not indexes or int(row(whole, 0)["array_task"]) in indexes:
            yield job


def _pages(client: "Client", query: dict[str, Any]) -> Iterator[api.JobView]:
    """Yield jobs page by page, up to the most that a list has."""
    cursor, count = "", 0
    while count < JOBS_MAX:
        page = client.jobs(**query, limit=PAGE, **({"cursor": cursor} if cursor else {}))
        yield from page.jobs
        count += len(page.jobs)
        cursor = page.next_cursor or ""
        if not cursor:
            return


OF_ONE = frozenset({
    "account", "command", "comment", "cpus", "cpus_per_task", "end", "gres", "left", "limit", "memory", "partition",
    "qos", "stderr", "stdout", "tasks", "wckey", "workdir",
})  # fmt: skip
"""Fields for which each job is asked for: lists of the server leave its command out."""
DETAILS_MAX = 2_000


def detailed(client: "Client", jobs: Sequence[api.JobView], *, each: bool) -> list[Seen]:
    """Return jobs with their commands: of one member for all of its array, of jobs alone where `each` asks for it.

    Raises: InvalidInput where too many would be asked for.
    """
    known: dict[int, api.JobView] = {}
    found = []
    for job in jobs:
        first = job.id if job.array_id is None else job.array_id
        if first not in known and not job.command and (each or job.array_id is not None):
            if len(known) >= DETAILS_MAX:
                hint = "name some: -j, -S, -u, -X"
                raise InvalidInput(f"these columns are shown of at most {DETAILS_MAX:,} jobs at once", hint=hint)
            known[first] = client.job(job.id)
        whole = known.get(first)
        seen = seen_of(job)
        found.append(seen if whole is None else seen._replace(command=whole.command, limit=whole.time_limit_ms // 1000))
    return found


def sacct(client: "Client", words: Sequence[str]) -> None:
    """Print jobs that ran or run, and the batch step of each."""
    options = Read("sacct", words, SACCT_OPTIONS)
    say(*options.notes, err=True)
    default = tables.SACCT_BRIEF if "brief" in options else tables.SACCT_DEFAULT
    columns = tables.by_sacct(options.get("format", default), tables.SACCT)
    users = options.listed("user") or ([] if "allusers" in options or "jobs" in options else [client.me().user])
    jobs = _jobs(client, options, users, finished=True)
    states, now = _states(options.listed("state")), int(time.time())
    if "jobs" not in options or "starttime" in options:
        since = 1000 * _moment(options.get("starttime", "00:00"), now)
        until = 1000 * _moment(options.get("endtime", "now"), now) + 999
        jobs = [job for job in jobs if job.submitted_ms <= until and (job.finished_ms or 1000 * now) >= since]
    rows: list[dict[str, str]] = []
    for seen in detailed(client, jobs, each=True):
        if states is None or seen.state in states:
            one = row(seen, now) | {"restarts": ""}
            if one["state"] == "CANCELLED" and seen.reason.startswith("cancelled by"):
                one["state"] = seen.reason.replace("cancelled", "CANCELLED", 1)
            rows.append(one)
            if "allocations" not in options and seen.start and "penstock.batch" in seen.command:
                rows.append(_batch_step(one, seen))
    _print_sacct(options, columns, rows)


def _batch_step(one: dict[str, str], seen: Seen) -> dict[str, str]:
    state = {"CANCELLED": "CANCELLED", "TIMEOUT": "CANCELLED"}.get(one["state"].split()[0], one["state"])
    code = "0:15" if state == "CANCELLED" else exit_text(seen)
    hidden = {
        "partition": "",
        "user": "",
        "limit_long": "",
        "limit_minutes": "",
        "qos": "",
        "workdir": "",
        "priority": "",
    }
    return one | hidden | {"id": f"{one['id']}.batch", "number": f"{one['number']}.batch", "name": "batch",
                           "state": state, "exit": code, "tasks": "1", "nodes": "1"}  # fmt: skip


def _print_sacct(options: Read, columns: Sequence[tables.Column], rows: Sequence[dict[str, str]]) -> None:
    titles = {column.field: column.title for column in columns}
    if "parsable" in options or "parsable2" in options:
        mark = options.get("delimiter", "|")
        end = mark if "parsable" in options else ""
        head = [mark.join(column.title for column in columns) + end]
        lines = [mark.join(one.get(column.field, "") for column in columns) + end for one in rows]
    else:
        rule = " ".join("-" * column.width for column in columns) + " "
        head = [" ".join(tables.fitted(column.title, column) for column in columns) + " ", rule] if titles else []
        lines = [
            " ".join(tables.fitted(one.get(column.field, ""), column, mark="+") for column in columns) + " "
            for one in rows
        ]
    say(*([] if "noheader" in options else head), *lines)


def _moment(text: str, now: int) -> int:
    """Return the unix seconds of `now`, `now-2days`, `today`, `00:00`, `2026-01-31` or `2026-01-31T12:00`."""
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0)  # noqa: DTZ006 - local, as Slurm reads it
    word, minus, rest = text.partition("-")
    if word == "now":
        number = rest.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}.get(rest[len(number) :][:1], 1)
        return now - (int(number) * unit if minus and number.isdecimal() else 0)
    if text == "today":
        return int(today.timestamp())
    try:
        if ":" in text and "-" not in text:
            parts = [int(part) for part in text.split(":")]
            return int(today.replace(hour=parts[0], minute=parts[1]).timestamp())
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        raise InvalidInput(
            f"'{text}' is no time", hint="2026-01-31, 2026-01-31T12:00, 12:00, today or now-2days"
        ) from None


NODE_STATES = {
    "idle": ("idle", "idle"),
    "mixed": ("mixed", "mix"),
    "allocated": ("allocated", "alloc"),
    "drained": ("drained", "drain"),
    "draining": ("draining", "drng"),
    "down": ("down*", "down*"),
}
"""Slurm's words for how a node is, whole and short."""


def sinfo(client: "Client", words: Sequence[str]) -> None:
    """Print pools with their nodes, by state."""
    options = Read("sinfo", words, SINFO_OPTIONS)
    say(*options.notes, err=True)
    default = tables.SINFO_NODES if "Node" in options else tables.SINFO_DEFAULT
    default = tables.SINFO_SUMMARY if "summarize" in options else tables.SINFO_LONG if "long" in options else default
    columns = tables.by_letters(options.get("format", default), tables.SINFO)
    used = {column.field for column in columns if not isinstance(column, str)}
    pools, names = options.listed("partition"), set(expand(options.get("nodes"))) if "nodes" in options else set()
    states = {word.lower() for word in options.listed("states")}
    groups: dict[tuple[str, ...], list[api.NodeView]] = {}
    for node in sorted(client.nodes(), key=lambda node: (node.pool, node.name)):
        state = NODE_STATES[node_state(node)]
        if (pools and node.pool not in pools) or (names and node.name not in names):
            continue
        if states and not states & {state[0].strip("*"), state[1].strip("*")}:
            continue
        one = _node_row([node])
        key = [node.pool, *(one[field] for field in ("state", "cpus", "memory", "gres", "reason") if field in used)]
        key += [one["short"]] if "short" in used else []
        key += [node.name] if "Node" in options or "hosts" in used else []
        groups.setdefault(tuple(key), []).append(node)
    if "noheader" not in options:
        say(tables.heading(columns))
    say(*(tables.line(columns, _node_row(nodes)) for nodes in groups.values()))


def node_state(node: api.NodeView) -> str:
    """Return Slurm's word for how a node is."""
    if not node.connected or node.state not in ("ready", "joining"):
        return "down"
    if node.draining:
        return "draining" if node.jobs else "drained"
    busy = node.jobs or node.cpu_held_milli
    return "idle" if not busy else "allocated" if node.cpu_held_milli >= node.cpu_milli else "mixed"


def _node_row(nodes: Sequence[api.NodeView]) -> dict[str, str]:
    first, count = nodes[0], len(nodes)
    whole, short = NODE_STATES[node_state(first)]
    idle = sum(node_state(node) == "idle" for node in nodes)
    other = sum(node_state(node) in ("down", "drained", "draining") for node in nodes)
    cpus, held = sum(node.cpu_milli for node in nodes) // 1000, sum(node.cpu_held_milli for node in nodes) // 1000
    models = sorted({device.model for device in first.devices})
    gres = ",".join(f"gpu:{m}:{sum(d.model == m for d in first.devices)}" for m in models).replace(" ", "_").lower()
    return {
        "partition": f"{first.pool}*" if first.pool == "default" else first.pool,
        "pool": first.pool,
        "avail": "up",
        "cpus": str(first.cpu_milli // 1000),
        "cpus_aiot": f"{held}/{cpus - held}/0/{cpus}",
        "nodes": str(count),
        "nodes_ai": f"{count - idle - other}/{idle}",
        "nodes_aiot": f"{count - idle - other}/{idle}/{other}/{count}",
        "reason": first.drain_reason or "none",
        "features": ",".join(sorted(first.labels)) or "(null)",
        "gres": gres or "(null)",
        "limit": "infinite",
        "memory": str(first.memory_bytes // 2**20),
        "nodelist": compressed(node.name for node in nodes),
        "hosts": first.name,
        "state": whole,
        "short": short,
    }
