"""`penstock lease`: devices held for interactive work; `penstock shell` opens a shell where they are."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.options import CpusOption, JsonOption, MemoryOption, QueueOption, TenantOption
from penstock.cli.output import print_json, say
from penstock.cli.place import client_of
from penstock.cli.progress import waiting

POLL_S = 0.3


def lease(
    devices: Annotated[int, typer.Argument(help="Number of devices.", min=0)],
    length: Annotated[str, typer.Option("--for", help="Duration, such as 4h.")],
    model: Annotated[list[str] | None, typer.Option(help="Model of the devices; may be repeated.")] = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    queue: QueueOption = None,
    tenant: TenantOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the lease runs.")] = True,
    json: JsonOption = False,
) -> None:
    """Hold devices for interactive work, for a limited time."""
    client = client_of()
    given = {"cpus": cpus, "memory": memory, "queue": queue, "tenant": tenant}
    asked: dict[str, Any] = {"count": devices, "model": model} if model else {"count": devices}
    job: dict[str, Any] = {"lease": True, "time_limit": length, "workdir": str(Path.cwd())}
    job |= {"devices": asked} if devices else {}
    made = client.submit_request(job | {name: value for name, value in given.items() if value is not None}).jobs[0]
    shown = client.job(made.id)
    told = not wait
    with waiting(f"waiting for lease {made.id}", quiet=json or not wait):
        while wait and shown.state in ("waiting", "starting"):
            if not told and shown.reason:
                say(f"lease {made.id} waits: {client.explain(made.id).text}", err=True)
                told = True
            time.sleep(POLL_S)
            shown = client.job(made.id)
    if json:
        print_json(shown)
        return
    where = f" on {', '.join(shown.nodes)}" if shown.nodes else ""
    say(f"lease {made.id} is {shown.state}{where}")
    if shown.state == "running":
        say(f"penstock shell {made.id} opens a shell there, penstock cancel {made.id} ends it", err=True)
