"""Interactive work: devices held for a while, and a shell where they are."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import CpusOption, DataOption, JsonOption, MemoryOption, QueueOption, TenantOption, client_of
from penstock.cli.output import print_json
from penstock.core.errors import InvalidInput
from penstock.core.model.events import ReplicaStarted

POLL_S = 0.3
_ID = "PENSTOCK_JOB_ID"


def lease(
    devices: Annotated[int, typer.Argument(help="How many devices.", min=0)],
    length: Annotated[str, typer.Option("--for", help="For how long, such as 4h; then it ends.")],
    model: Annotated[list[str] | None, typer.Option(help="Model of the devices; may be repeated.")] = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    queue: QueueOption = None,
    tenant: TenantOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return once it is there.")] = True,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Hold devices for interactive work, until the time is over or the lease is cancelled."""
    client = client_of(data)
    given = {"cpus": cpus, "memory": memory, "queue": queue, "tenant": tenant}
    asked: dict[str, Any] = {"count": devices, "model": model} if model else {"count": devices}
    job: dict[str, Any] = {"lease": True, "time_limit": length, "workdir": str(Path.cwd())}
    job |= {"devices": asked} if devices else {}
    made = client.submit(job | {name: value for name, value in given.items() if value is not None}).jobs[0]
    shown = client.job(made.id)
    told = not wait
    while wait and shown.state in ("waiting", "starting"):
        if not told and shown.reason:
            typer.echo(f"lease {made.id} waits: {client.explain(made.id).text}", err=True)
            told = True
        time.sleep(POLL_S)
        shown = client.job(made.id)
    if json:
        print_json(shown)
        return
    where = f" on {', '.join(shown.nodes)}" if shown.nodes else ""
    typer.echo(f"lease {made.id} is {shown.state}{where}")
    if shown.state == "running":
        typer.echo(f"penstock shell {made.id} opens a shell there, penstock cancel {made.id} ends it", err=True)


def shell(
    job: Annotated[int, typer.Argument(help="Number of the lease, or of any running job.", min=1)],
    command: Annotated[list[str] | None, typer.Argument(help="What to run instead of a shell.")] = None,
    rank: Annotated[int, typer.Option(help="Of which replica.", min=0)] = 0,
    data: DataOption = None,
) -> None:
    """Open a shell where a lease or a running job is: its devices, environment, limits; it ends with it."""
    client = client_of(data)
    shown = client.job(job)
    if shown.state != "running":
        raise InvalidInput(f"job {job} is {shown.state}: a shell needs one that runs")
    started = [record.event for record in client.job_events(job) if isinstance(record.event, ReplicaStarted)]
    pid = next((e.pid for e in reversed(started) if e.rank == rank and e.attempt == shown.attempt), 0)
    environment = _environment(pid)
    if environment.get(_ID) != str(job):
        nodes = ", ".join(shown.nodes)
        raise InvalidInput(f"replica {rank} of job {job} is not on this machine", hint=f"it runs on {nodes}: go there")
    _join(pid)
    with contextlib.suppress(OSError):
        os.chdir(f"/proc/{pid}/cwd")
    for name in ("TERM", "LANG", "HOME", "SHELL", "USER", "SSH_AUTH_SOCK"):
        if name in os.environ:
            environment.setdefault(name, os.environ[name])
    words = command or [os.environ.get("SHELL", "/bin/sh")]
    sys.stdout.flush()
    os.execvpe(words[0], words, environment)  # noqa: S606 - that is what was asked for


def _environment(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes() if pid else b""
    except OSError:
        return {}
    pairs = (os.fsdecode(part).partition("=") for part in raw.split(b"\0") if b"=" in part)
    return {name: value for name, _, value in pairs}


def _join(pid: int) -> None:
    """Enter the control groups of a process where that is allowed: its limits hold here, and its end."""
    for path in _groups(Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")):
        with contextlib.suppress(OSError):
            path.write_text(str(os.getpid()), encoding="ascii")


def _groups(text: str) -> list[Path]:
    """Return the files that take a process into the groups named by a `/proc/PID/cgroup` (versions 1 and 2)."""
    found, root = [], Path("/sys/fs/cgroup")
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        name = controllers.removeprefix("name=")
        base = root / name if name else root
        if path != "/":
            found.append(base / path.lstrip("/") / "cgroup.procs")
    return found
