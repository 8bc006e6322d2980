"""`penstock slurm`: squeue, sacct, scancel, sinfo, scontrol, srun, salloc; `slurm-shims` writes programs so named."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.batch.shims import program, write_shims
from penstock.cli import slurm_lists
from penstock.cli.errors import NotThere, UsageError
from penstock.cli.output import say
from penstock.cli.place import client_of
from penstock.core.model.errors import InvalidInput
from penstock.formats.hostlist import compressed, expand
from penstock.formats.slurm import limit_ms
from penstock.slurm import tables
from penstock.slurm.listing import SCANCEL_OPTIONS, SCONTROL_OPTIONS, Read, one_of
from penstock.slurm.options import Unknown
from penstock.slurm.rows import members, row, split_words

if TYPE_CHECKING:
    from penstock.client import Client

HINT = "penstock slurm --help names the programs; their options are those of Slurm"
STARTED = ("running", "stopping", "suspended")
POLL_S = 0.2


def slurm(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROGRAM [OPTION]...", help="squeue, sacct, sinfo, scancel, scontrol, srun or salloc."),
    ] = None,
) -> None:
    """Run a program of Slurm's on this server. What has no meaning here is named."""
    name, *rest = words or [""]
    try:
        if name.startswith("-"):
            raise Unknown(f"penstock slurm has no option {name}")
        PROGRAMS[one_of("penstock slurm", name, list(PROGRAMS))](rest)
    except (Unknown, ValueError) as error:
        raise UsageError(str(error), hint=HINT) from None


def slurm_shims(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the programs; it is made.")],
) -> None:
    """Write sbatch, squeue and others as programs. They call Penstock once the folder is in PATH."""
    for path in write_shims(folder.absolute()):
        say(str(path))


def scancel(words: Sequence[str]) -> None:
    """Cancel jobs by their numbers, or those of a selection."""
    options = Read("scancel", words, SCANCEL_OPTIONS)
    say(*options.notes, err=True)
    if options.get("signal", "TERM").upper().removeprefix("SIG") not in ("TERM", "KILL", "15", "9"):
        raise Unknown(f"scancel: a job is only asked to end here, not sent {options.get('signal')}")
    client = client_of()
    select: dict[str, Any] = {}
    if "user" in options or "me" in options:
        select["user"] = options.get("user") or client.me().user
    for ours, theirs in (("name", "name"), ("name", "jobname"), ("queue", "partition"), ("tenant", "account")):
        if theirs in options:
            select[ours] = options.get(theirs)
    if "state" in options:
        word = options.get("state").upper()
        select["states"] = [state for state, names in tables.STATES.items() if word in names] or ["waiting"]
    ids = _ids(client, options.words) if options.words else []
    if not select and not ids:
        raise Unknown("scancel: no job is named")
    answer = client.act("cancel", select | ({"ids": ids} if ids else {}))
    missing = [one.text for one in answer.unchanged if one.code not in ("over", "cancel_requested")]
    if missing:
        raise NotThere("; ".join(missing))


def _ids(client: "Client", words: Sequence[str]) -> list[str]:
    """Return the numbers of jobs for `12`, `12_3`, `12_[1-3]`; for an array all of its members."""
    found: list[str] = []
    for word in words:
        number, indexes = members(word)
        found += [str(job.id) for job in slurm_lists.jobs_of(client, number, indexes)]
    return found


def scontrol(words: Sequence[str]) -> None:
    """Show jobs, nodes, pools and host lists; hold, release, requeue, suspend, resume and update jobs."""
    options = Read("scontrol", words, SCONTROL_OPTIONS)
    say(*options.notes, err=True)
    verb, *rest = options.words or [""]
    verb = one_of("scontrol", verb.lower(), ("show", *ACTIONS, "update", "version"))
    if verb == "show":
        _show(options, rest)
    elif verb == "version":
        say("slurm 22.05.8 (penstock)")
    elif verb == "update":
        _update(rest)
    else:
        client = client_of()
        ids = _ids(
            client, [word for text in rest for word in split_words(text.removeprefix("job=").removeprefix("jobid="))]
        )
        answer = client.act(ACTIONS[verb], {"ids": ids})  # type: ignore[arg-type]  # the table's words
        if answer.unchanged and not answer.changed:
            raise InvalidInput("; ".join(one.text for one in answer.unchanged))


ACTIONS = {"hold": "hold", "uhold": "hold", "release": "release", "requeue": "requeue", "requeuehold": "requeue_hold",
           "suspend": "suspend", "resume": "release"}  # fmt: skip


def _show(options: Read, words: Sequence[str]) -> None:
    what, *names = words or ["jobs"]
    kinds = ("job", "jobs", "hostnames", "hostlist", "node", "nodes", "partition", "partitions")
    what = one_of("scontrol show", what.lower().replace("jobid", "job"), kinds)
    if what == "hostnames":
        say(*expand(names[0] if names else os.environ.get("SLURM_JOB_NODELIST", "")))
    elif what == "hostlist":
        say(compressed(word for name in names for word in name.split(",")))
    elif what in ("job", "jobs"):
        client = client_of()
        numbers = [members(word) for name in names for word in split_words(name)]
        jobs = [job for one in numbers for job in slurm_lists.jobs_of(client, *one)] if numbers else client.jobs().jobs
        for seen in slurm_lists.detailed(client, jobs, each=True):
            _print_block(_job_block(row(seen, int(time.time()))), options)
    elif what in ("node", "nodes"):
        wanted = set(expand(",".join(names))) if names else set()
        for node in client_of().nodes():
            if not wanted or node.name in wanted:
                block = [
                    f"NodeName={node.name} CPUAlloc={node.cpu_held_milli // 1000} CPUTot={node.cpu_milli // 1000}",
                    f"Gres=gpu:{len(node.devices)}" if node.devices else "Gres=(null)",
                    f"RealMemory={node.memory_bytes // 2**20} AllocMem={node.memory_held_bytes // 2**20}",
                    f"State={slurm_lists.node_state(node).upper()} Partitions={node.pool}",
                ]
                _print_block(block, options)
    else:
        for pool in client_of().pools():
            if not names or pool.name in names:
                _print_block([f"PartitionName={pool.name}", f"State=UP TotalNodes={pool.nodes}"], options)


def _job_block(one: dict[str, str]) -> list[str]:
    array = f" ArrayJobId={one['array_job']} ArrayTaskId={one['array_task']}" if one["array_task"] != "N/A" else ""
    return [
        f"JobId={one['number']}{array} JobName={one['name']}",
        f"UserId={one['user']} Account={one['account']} QOS={one['qos']}",
        f"JobState={one['state']} Reason={one['reason']} Dependency=(null)",
        f"Priority={one['priority']} Requeue=1 Restarts={one['restarts']} BatchFlag=1 ExitCode={one['exit']}",
        f"RunTime={one['elapsed_long']} TimeLimit={one['limit_long']}",
        f"SubmitTime={one['submit']} StartTime={one['start']} EndTime={one['end']}",
        f"Partition={one['partition']} NodeList={one['nodelist'] or '(null)'}",
        f"NumNodes={one['nodes']} NumCPUs={one['cpus']} NumTasks={one['tasks']} CPUs/Task={one['cpus_per_task']}",
        f"TRES={one['tres']}",
        f"Command={one['command']}",
        f"WorkDir={one['workdir']}",
        f"StdErr={one['stderr']}",
        f"StdOut={one['stdout']}",
    ]


def _print_block(lines: Sequence[str], options: Read) -> None:
    if "oneliner" in options:
        say(" ".join(lines))
    else:
        say(lines[0], *(f"   {line}" for line in lines[1:]), "")


def _update(words: Sequence[str]) -> None:
    given = {key.lower(): value for key, _, value in (word.partition("=") for word in words)}
    jobs = given.pop("jobid", "") or given.pop("job", "")
    change: dict[str, Any] = {}
    for key, value in given.items():
        if key == "timelimit":
            change["time_limit"] = f"{limit_ms(value) // 1000}s"
        elif key in ("jobname", "name"):
            change["name"] = value
        elif key == "partition":
            change["queue"] = value
        elif key == "priority" and value.isdecimal():
            change["priority"] = int(value)
        else:
            raise Unknown(f"scontrol update: {key} is not supported here: TimeLimit, JobName, Partition, Priority")
    if not jobs or not change:
        raise Unknown("scontrol update: expected JobId=NUMBER and what changes, such as TimeLimit=2:00:00")
    client = client_of()
    answer = client.act("edit", {"ids": _ids(client, split_words(jobs))}, change=change)
    if not answer.changed:
        raise InvalidInput("; ".join(one.text for one in answer.unchanged) or f"job {jobs} is not changed")


def salloc(words: Sequence[str]) -> None:
    """Hold what the options ask for, and run a shell or a command where it is; then give it back."""
    from penstock.cli.slurm_runs import allocation

    client = client_of()
    request, command = allocation(client, words)
    number = client.submit_request(request).jobs[0].id
    say(f"salloc: Pending job allocation {number}", err=True)
    try:
        while (shown := client.job(number)).state in ("waiting", "starting"):
            time.sleep(POLL_S)
        if shown.state not in STARTED:
            raise InvalidInput(f"job {number} is {shown.state}: {shown.reason}")
        say(f"salloc: Granted job allocation {number}", err=True)
        where = [*program("penstock.cli.entry"), "shell", str(number), *(["--", *command] if command else [])]
        code = subprocess.run(where, check=False, cwd=os.getcwd()).returncode  # noqa: S603 - our own program
    finally:
        client.cancel(number)
        say(f"salloc: Relinquishing job allocation {number}", err=True)
    raise typer.Exit(code)


def srun(words: Sequence[str]) -> None:
    """Run a command as tasks of a job of its own, with its output here."""
    from penstock.cli.slurm_runs import run_tasks

    raise typer.Exit(run_tasks(client_of(), words))


def _with_client(call: Callable[["Client", Sequence[str]], None]) -> Callable[[Sequence[str]], None]:
    return lambda words: call(client_of(), words)


PROGRAMS: dict[str, Callable[[Sequence[str]], None]] = {
    "squeue": _with_client(slurm_lists.squeue),
    "sacct": _with_client(slurm_lists.sacct),
    "sinfo": _with_client(slurm_lists.sinfo),
    "scancel": scancel,
    "scontrol": scontrol,
    "srun": srun,
    "salloc": salloc,
}
