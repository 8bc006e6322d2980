"""The program `penstock`: its commands, and how errors end it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.access import quota, token, whoami
from penstock.cli.admin import admin, apply
from penstock.cli.importers import importing
from penstock.cli.lease import lease, shell
from penstock.cli.money import account, credit, invoice, ledger, reverse
from penstock.cli.options import (
    ArrayOption,
    CpusOption,
    DataOption,
    DevicesOption,
    EnvOption,
    JobArgument,
    JobShape,
    JsonOption,
    LogOption,
    MemoryOption,
    NameOption,
    PriorityOption,
    QueueOption,
    ReplicasOption,
    SecretOption,
    TenantOption,
    TimeLimitOption,
)
from penstock.cli.output import print_encoded, print_error, say
from penstock.cli.pools import pools
from penstock.cli.servers import certificates, down, up
from penstock.cli.storing import backup, restore, verify
from penstock.cli.usage import usage
from penstock.cli.vault import secret

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Penstock pools accelerators and lets the right ML job through at the right moment.",
)


def _version(value: bool) -> None:
    if value:
        say(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and end.")
    ] = False,
) -> None:
    """Nothing happens before a command is named."""


_STORE = (up, down, certificates, backup, restore, verify)
_TENANTS = (apply, quota, pools, whoami, lease, shell, usage, account, credit, reverse, ledger)
for _command in (*_STORE, *_TENANTS):
    app.command()(_command)


@app.command()
def run(
    command: Annotated[list[str], typer.Argument(help="What to run, after --.")],
    data: DataOption = None,
    name: NameOption = None,
    devices: DevicesOption = None,
    replicas: ReplicasOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    priority: PriorityOption = None,
    queue: QueueOption = None,
    tenant: TenantOption = None,
    time_limit: TimeLimitOption = None,
    env: EnvOption = None,
    secrets: SecretOption = None,
) -> None:
    """Run a command as a job and follow its output; ends with the job's exit code."""
    from penstock.cli import jobs

    shape = JobShape(name, devices, replicas, cpus, memory, priority, queue, tenant, time_limit, None, env, secrets)
    jobs.run(data, command, shape)


@app.command()
def submit(
    what: Annotated[list[str], typer.Argument(help="A job file (.yaml, .yml, .json or - for stdin), or -- COMMAND.")],
    data: DataOption = None,
    name: NameOption = None,
    devices: DevicesOption = None,
    replicas: ReplicasOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    priority: PriorityOption = None,
    queue: QueueOption = None,
    tenant: TenantOption = None,
    time_limit: TimeLimitOption = None,
    array: ArrayOption = None,
    env: EnvOption = None,
    secrets: SecretOption = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: repeating it submits nothing new.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Submit nothing: say what would happen, as plan.")] = False,
    json: JsonOption = False,
) -> None:
    """Submit a job file, or a command, and return at once."""
    from penstock.cli import dryrun, jobs

    shape = JobShape(name, devices, replicas, cpus, memory, priority, queue, tenant, time_limit, array, env, secrets)
    if dry_run:
        dryrun.plan(data, what, shape, None, as_json=json)
    else:
        jobs.submit(data, what, shape, key, as_json=json)


@app.command()
def plan(
    what: Annotated[list[str], typer.Argument(help="A job file (.yaml, .yml, .json or - for stdin), or -- COMMAND.")],
    data: DataOption = None,
    name: NameOption = None,
    devices: DevicesOption = None,
    replicas: ReplicasOption = None,
    cpus: CpusOption = None,
    memory: MemoryOption = None,
    priority: PriorityOption = None,
    queue: QueueOption = None,
    tenant: TenantOption = None,
    time_limit: TimeLimitOption = None,
    array: ArrayOption = None,
    env: EnvOption = None,
    secrets: SecretOption = None,
    within: Annotated[str | None, typer.Option(help="Waiting so long is fine: the exit code is 0 then.")] = None,
    json: JsonOption = False,
) -> None:
    """Say what a submit would lead to, and submit nothing. Exit code: 0 starts now, 10 waits, 11 cannot be told."""
    from penstock.cli import dryrun

    shape = JobShape(name, devices, replicas, cpus, memory, priority, queue, tenant, time_limit, array, env, secrets)
    dryrun.plan(data, what, shape, within, as_json=json)


@app.command()
def ps(
    data: DataOption = None,
    all: Annotated[bool, typer.Option("--all", "-a", help="Finished jobs too.")] = False,  # noqa: A002
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many.", min=1, max=1000)] = 200,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show anew every second.")] = False,
    json: JsonOption = False,
) -> None:
    """List jobs."""
    from penstock.cli import jobs

    jobs.ps(data, show_all=all, tenant=tenant, state=state, limit=limit, watch=watch, as_json=json)


app.command("jobs", hidden=True)(ps)


@app.command()
def show(job: JobArgument, data: DataOption = None, json: JsonOption = False) -> None:
    """Show one job with its attempts and what happened to it."""
    from penstock.cli import jobs

    jobs.show(data, job, as_json=json)


@app.command()
def logs(
    job: JobArgument,
    data: DataOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    rank: Annotated[int | None, typer.Option(help="Only this replica.")] = None,
    attempt: Annotated[int | None, typer.Option(help="Only this attempt; the newest by default.")] = None,
) -> None:
    """Print what a job has written, byte by byte: at a terminal its escape sequences work, as with cat."""
    from penstock.cli import logs as logs_module

    logs_module.print_logs(data, job, follow=follow, rank=rank, attempt=attempt)


@app.command()
def explain(job: JobArgument, data: DataOption = None, json: JsonOption = False) -> None:
    """Say all that keeps a job waiting, the smallest changes that would let it start now, and when it may."""
    from penstock.cli import jobs

    jobs.explain(data, job, as_json=json)


@app.command()
def cancel(
    jobs: Annotated[list[int], typer.Argument(help="Numbers of the jobs.", min=1)],
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Ask jobs to end."""
    from penstock.cli import jobs as jobs_module

    jobs_module.cancel(data, jobs, as_json=json)


@app.command()
def checkpoint(job: JobArgument, data: DataOption = None, json: JsonOption = False) -> None:
    """Ask a running program to save a checkpoint and carry on."""
    from penstock.cli import jobs as jobs_module

    jobs_module.checkpoint(data, job, as_json=json)


@app.command()
def nodes(data: DataOption = None, json: JsonOption = False) -> None:
    """List nodes with their devices and who holds them."""
    from penstock.cli import cluster

    cluster.nodes(data, as_json=json)


@app.command()
def drain(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    data: DataOption = None,
    off: Annotated[bool, typer.Option("--off", help="Open the node again.")] = False,
    evict: Annotated[bool, typer.Option(help="Ask running work to save and move.")] = False,
    after: Annotated[str, typer.Option("--after", help="Ask work that still runs after this long, such as 2h.")] = "",
    reason: Annotated[str, typer.Option(help="Shown to everybody who asks why.")] = "",
    json: JsonOption = False,
) -> None:
    """Close a node for new work."""
    from penstock.cli import cluster

    cluster.drain(data, node, on=not off, evict=evict, after=after, reason=reason, as_json=json)


@app.command()
def queue(data: DataOption = None, json: JsonOption = False) -> None:
    """Show the queue tree, what waits and what comes next."""
    from penstock.cli import cluster

    cluster.queue(data, as_json=json)


@app.command()
def alerts(data: DataOption = None, json: JsonOption = False) -> None:
    """List what does not go on by itself: jobs that can never start, and what would resolve it."""
    from penstock.cli import cluster

    cluster.alerts(data, as_json=json)


@app.command()
def defrag(data: DataOption = None, json: JsonOption = False) -> None:
    """Show which jobs would move so that a gang fits, and at what cost; nothing moves."""
    from penstock.cli import cluster

    cluster.defrag(data, as_json=json)


@app.command()
def report(
    data: DataOption = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html and summary.json.")] = Path("penstock-report"),
    json: JsonOption = False,
) -> None:
    """Write one HTML page on everything that happened, and summary.json."""
    from penstock.cli import cluster

    cluster.report(data, out, as_json=json)


@app.command()
def sim(
    trace: Annotated[Path, typer.Argument(help="Trace file or folder; also below the folder PENSTOCK_TRACES names.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-P",
            help="Words joined by +, such as fifo+easy or fair_share+best_fit+learned; "
            "as_is; or a cluster file. Several are compared.",
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Format of the trace; otherwise it is told from the file.")] = None,
    nodes: Annotated[str | None, typer.Option(help="Other nodes: 90, +4, -2 or +4xH100.")] = None,
    cluster: Annotated[Path | None, typer.Option(help="Cluster file with pools, tenants, queues and settings.")] = None,
    load: Annotated[float, typer.Option(help="Jobs against the trace; other than 1 draws a workload like it.")] = 1.0,
    seeds: Annotated[int, typer.Option(help="Workloads: the trace, and others drawn like it.", min=1)] = 1,
    processes: Annotated[int | None, typer.Option(help="Processes beside each other; one a core by default.")] = None,
    start: Annotated[str, typer.Option(help="From allocation until a job runs.")] = "0s",
    save: Annotated[str, typer.Option(help="What a job needs to save and leave when it is preempted.")] = "0s",
    restore: Annotated[str, typer.Option(help="What an attempt after the first needs before it goes on.")] = "0s",
    mtbf: Annotated[str, typer.Option(help="Mean time between failures of a node; 0s: none fails.")] = "0s",
    repair: Annotated[str, typer.Option(help="How long a failed node is gone.")] = "1h",
    out: Annotated[Path | None, typer.Option(help="Folder for sim.html and sim.json.")] = None,
    json: JsonOption = False,
) -> None:
    """Try policies on a trace of jobs, by the scheduler itself, and compare them."""
    from penstock.cli import simulate

    options = simulate.Options(
        kind, policy or (), nodes, cluster, load, seeds, processes, start, save, restore, mtbf, repair
    )
    simulate.simulate(trace, options, out, as_json=json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of job files."""
    import json

    from penstock.core.config.job import request_schema

    print_encoded(json.dumps(request_schema(), indent=2).encode())


@app.command()
def capacity(
    trace: Annotated[Path, typer.Argument(help="Trace file or folder, as of sim.")],
    wait: Annotated[str, typer.Option(help="The goal: p99=1h, p90=10m, p50=..., mean=..., max=...")] = "p90=1h",
    policy: Annotated[str, typer.Option("--policy", "-P", help="As of sim.")] = "as_is",
    model: Annotated[str | None, typer.Option(help="Vary only nodes with devices of this model.")] = None,
    kind: Annotated[str | None, typer.Option(help="Format of the trace; otherwise it is told from the file.")] = None,
    load: Annotated[float, typer.Option(help="Jobs against the trace; other than 1 draws a workload like it.")] = 1.0,
    json: JsonOption = False,
) -> None:
    """Say how many nodes keep waiting within a goal, by search over replays. Exit code 10: none of those tried."""
    from penstock.cli import capacity as work

    work.plan_capacity(trace, kind, wait, policy, model, load, as_json=json)


@app.command()
def whatif(
    data: DataOption = None,
    policy: Annotated[list[str] | None, typer.Option("--policy", "-P", help="As of sim; several are compared.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="PATH=VALUE of a cluster file: queue.research.max.devices=16.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(help="Other nodes: 90, +4, -2 or +4xH100.")] = None,
    fail_rack: Annotated[list[str] | None, typer.Option(help="A rack that is gone all the time.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Count jobs submitted in the last so long: 30d.")] = None,
    log: LogOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for whatif.html and whatif.json.")] = None,
    json: JsonOption = False,
) -> None:
    """Replay the cluster's own log with other rules, quotas or nodes, and compare with what was."""
    from penstock.cli import whatif as work

    wish = work.Wish(policy or (), change or (), nodes, fail_rack or (), since)
    work.whatif(data, log, wish, out, as_json=json)


@app.command()
def bill(
    tenant: Annotated[str, typer.Option(help="Only this tenant.")] = "",
    month: Annotated[str, typer.Option(help="Such as 2026-11; by default the present one, up to now.")] = "",
    data: DataOption = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Every line, for a spreadsheet.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what each tenant owes for a month, and for what."""
    from penstock.cli import bill as work

    work.show_bills(tenant, month, data, as_json=json, as_csv=as_csv)


@app.command()
def eta(
    jobs: Annotated[list[int] | None, typer.Argument(help="Numbers of waiting jobs; none: all of them.")] = None,
    calibration: Annotated[bool, typer.Option("--calibration", help="How right such estimates were.")] = False,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Say when waiting jobs start: an interval that holds 8 of 10 starts."""
    from penstock.cli import eta as work

    if calibration:
        work.show_calibration(data, as_json=json)
    else:
        work.show_etas(jobs or (), data, as_json=json)


@app.command()
def checkpoints(
    which: Annotated[str, typer.Argument(help="Number of a job, or a folder of checkpoints.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read and compare every byte.")] = False,
    step: Annotated[int | None, typer.Option("--step", help="Only the checkpoint of this step.")] = None,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """List the checkpoints of a job; with --verify, check that each can be restored."""
    from penstock.cli import checkpoints as work

    work.show(which, data, verify=verify, step=step, as_json=json)


@app.command()
def audit(
    job: Annotated[int | None, typer.Argument(help="Number of a job; none: every decision of the log.")] = None,
    data: DataOption = None,
    log: LogOption = None,
    json: JsonOption = False,
) -> None:
    """Make every decision about a job again from the log, and hold it against the rules.

    Ends with 1 when a decision does not come out again, or a rule was not kept.
    """
    from penstock.cli import audit as work

    work.show_audit(job, data, log, as_json=json)


app.add_typer(importing, name="import")
app.add_typer(invoice, name="invoice")
app.add_typer(token, name="token")
app.add_typer(admin, name="admin")
app.add_typer(secret, name="secret")


def main() -> None:
    """Run the program; a known error ends it with a message and a code of its own (docs/cli.md)."""
    from penstock.core.model.errors import PenstockError

    try:
        app()
    except PenstockError as error:
        sys.exit(print_error(error, as_json="--json" in sys.argv))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


if __name__ == "__main__":
    main()
