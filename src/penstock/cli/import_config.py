"""`penstock import`: another scheduler's configuration, and its history, as Penstock's."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import replace

from penstock.cli.options import JsonOption
from penstock.cli.outcomes import print_outcomes
from penstock.cli.output import print_document, print_json, say
from penstock.cli.progress import waiting
from penstock.core.model.cluster import DEFAULT_POOL
from penstock.core.model.errors import InvalidInput, Problem
from penstock.core.model.ids import PoolName, QueueName
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.core.model.jobs import JobSpec
    from penstock.migrate import Imported
    from penstock.traces import Trace

PARTITION = "partition."
"""Labels of nodes begin so that say which partitions they are in."""

import_config = typer.Typer(help="Convert another scheduler's configuration, with a report.")
OutOption = Annotated[Path, typer.Option(help="Folder for cluster.yaml, report.json and jobs.csv.")]
ObjectsOption = Annotated[
    bool, typer.Option("--as-objects", help="Print Queue and ComputePool objects for kubectl apply; write no files.")
]
YamlArgument = Annotated[list[Path], typer.Argument(help="YAML files.")]


@import_config.command("slurm")
def import_slurm(
    conf: Annotated[Path | None, typer.Option("--conf", help="slurm.conf; with the files that it includes.")] = None,
    gres: Annotated[Path | None, typer.Option(help="gres.conf.")] = None,
    topology: Annotated[Path | None, typer.Option(help="topology.conf.")] = None,
    dump: Annotated[Path | None, typer.Option(help="Output of `sacctmgr dump CLUSTER file=...`.")] = None,
    qos: Annotated[Path | None, typer.Option(help="Output of `sacctmgr -P show qos`.")] = None,
    associations: Annotated[Path | None, typer.Option(help="Output of `sacctmgr -P show assoc tree`.")] = None,
    jobs: Annotated[Path | None, typer.Option(help="History: output of `sacct -P -a -X ...`.")] = None,
    out: OutOption = Path("imported"),
    json: JsonOption = False,
) -> None:
    """Slurm: nodes, partitions, accounts, and the history of jobs."""
    from penstock.migrate import slurm

    files = slurm.SlurmFiles(slurm=conf, gres=gres, topology=topology, dump=dump, qos=qos, associations=associations)
    _bring(lambda: slurm.read(files), out, jobs, as_json=json)


@import_config.command("kueue")
def import_kueue(
    files: YamlArgument,
    out: OutOption = Path("imported"),
    as_objects: ObjectsOption = False,
    json: JsonOption = False,
) -> None:
    """Kueue: cluster queues, cohorts and flavours."""
    from penstock.migrate import kueue

    _bring(lambda: kueue.read(files), out, None, as_objects=as_objects, as_json=json)


@import_config.command("volcano")
def import_volcano(
    files: YamlArgument,
    out: OutOption = Path("imported"),
    as_objects: ObjectsOption = False,
    json: JsonOption = False,
) -> None:
    """Volcano: queues and the scheduler's plugins."""
    from penstock.migrate import volcano

    _bring(lambda: volcano.read(files), out, None, as_objects=as_objects, as_json=json)


@import_config.command("yunikorn")
def import_yunikorn(
    files: YamlArgument,
    out: OutOption = Path("imported"),
    as_objects: ObjectsOption = False,
    json: JsonOption = False,
) -> None:
    """YuniKorn: the queues of a partition."""
    from penstock.migrate import yunikorn

    _bring(lambda: yunikorn.read(files), out, None, as_objects=as_objects, as_json=json)


def _bring(
    read: "Callable[[], Imported]", out: Path, jobs: Path | None, *, as_objects: bool = False, as_json: bool
) -> None:
    """Read, and write `cluster.yaml`, `report.json` and, with a history, `jobs.csv` to the folder `out`.

    Everything is read before anything is written.
    """
    from penstock.migrate import to_cluster_file
    from penstock.traces import load, write_csv

    imported = read()
    if as_objects:
        _print_objects(imported, as_json=as_json)
        return
    text = to_cluster_file(imported)
    with waiting("reading the history of jobs", quiet=as_json):
        history = load(jobs, "sacct") if jobs is not None else None
    if out.exists() and not out.is_dir():
        problem = Problem("invalid_value", "out", f"out is '{out}', which is no folder", str(out))
        raise InvalidInput(problem.message, problems=(problem,))
    out.mkdir(parents=True, exist_ok=True)
    (out / "cluster.yaml").write_text(text, encoding="utf-8")
    known = msgspec.json.encode({"report": imported.report})
    (out / "report.json").write_bytes(msgspec.json.format(known, indent=2) + b"\n")
    if history is not None:
        write_csv(_at_home(history, imported), out / "jobs.csv")
    if as_json:
        print_json({"folder": str(out), "nodes": len(imported.nodes), "report": imported.report})
        return
    _print(imported, out, len(history.jobs) if history is not None else None)


def _print_objects(imported: "Imported", *, as_json: bool) -> None:
    """Print Queues and ComputePools; the report, and what they cannot carry, goes to standard error."""
    from penstock.engines.kubernetes.install.writing import text_of
    from penstock.engines.kubernetes.operator.objectsof import objects_of
    from penstock.migrate.report import MigrationEntry

    objects, not_said = objects_of(imported.config)
    entries = [
        MigrationEntry("objects", 0, one.key, one.value, "not mapped" if one.lost else "approximated", one.why)
        for one in not_said
    ]
    if imported.nodes:
        why = "nodes of the cluster are read live"
        entries.append(MigrationEntry("objects", 0, "nodes", str(len(imported.nodes)), "not mapped", why))
    report = (*imported.report, *entries)
    if as_json:
        print_json({"objects": objects, "report": report})
        return
    print_document("---\n".join(map(text_of, objects)))
    say(f"{counted(len(objects), 'object')}", err=True)
    print_outcomes(report, "with --json", err=True)


def _at_home(history: "Trace", imported: "Imported") -> "Trace":
    """Return the history on the imported nodes and queues: partitions are pools there, and accounts are queues.

    A partition that shares its pool with others is a label of its nodes. Jobs of accounts and partitions that the
    configuration does not have keep what they have, with the queues and tenants of the history.
    """
    config, old = imported.config, history.config
    queues = {queue.name for queue in config.queues}
    pools = {pool.name for pool in config.pools}
    labelled = {key: spec.pool for spec in imported.nodes for key, _ in spec.labels if key.startswith(PARTITION)}
    specs: dict[int, JobSpec] = {}
    jobs = []
    for job in history.jobs:
        spec = specs.get(id(job.spec))
        if spec is None:
            label = f"{PARTITION}{job.spec.queue}"
            partition, account = PoolName(job.spec.queue), QueueName(job.spec.tenant)
            pool = partition if partition in pools else labelled.get(label, DEFAULT_POOL)
            ask = replace(job.spec.ask, pool=pool, labels_wanted=((label, "true"),) if label in labelled else ())
            queue = account if account in queues else job.spec.queue
            spec = specs[id(job.spec)] = replace(job.spec, ask=ask, queue=queue)
        jobs.append(replace(job, spec=spec))
    used = {job.spec.queue for job in jobs} - queues
    tenants = {tenant.name for tenant in config.tenants}
    whole = replace(
        config,
        queues=(*config.queues, *(queue for queue in old.queues if queue.name in used)),
        tenants=(*config.tenants, *(tenant for tenant in old.tenants if tenant.name not in tenants)),
    )
    return replace(history, jobs=tuple(jobs), nodes=imported.nodes or history.nodes, config=whole)


def _print(imported: "Imported", out: Path, jobs: int | None) -> None:
    config = imported.config
    devices = sum(len(spec.devices) for spec in imported.nodes)
    say(
        f"{len(imported.nodes):,} nodes with {devices:,} devices, {len(config.pools)} pools, "
        f"{len(config.tenants)} tenants, {len(config.queues)} queues"
    )
    print_outcomes(imported.report, f"in {out / 'report.json'}")
    say(f"wrote {out / 'cluster.yaml'} and {out / 'report.json'}")
    if jobs is not None:
        say(f"wrote {out / 'jobs.csv'}: {jobs:,} jobs; try policies on them with: penstock sim {out / 'jobs.csv'}")
