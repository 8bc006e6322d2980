"""`penstock import`: its commands, one for each scheduler that is read."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import JsonOption

importing = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Turn another scheduler's configuration into Penstock's, with a report of what became of each key.",
)
OutOption = Annotated[Path, typer.Option(help="Folder for cluster.yaml, report.json and jobs.csv.")]
YamlArgument = Annotated[list[Path], typer.Argument(help="YAML files.")]


@importing.command("slurm")
def import_slurm(
    conf: Annotated[Path | None, typer.Option("--conf", help="slurm.conf; what it includes is read, too.")] = None,
    gres: Annotated[Path | None, typer.Option(help="gres.conf.")] = None,
    topology: Annotated[Path | None, typer.Option(help="topology.conf.")] = None,
    dump: Annotated[Path | None, typer.Option(help="What `sacctmgr dump CLUSTER file=...` wrote.")] = None,
    qos: Annotated[Path | None, typer.Option(help="What `sacctmgr -P show qos` printed.")] = None,
    associations: Annotated[Path | None, typer.Option(help="What `sacctmgr -P show assoc tree` printed.")] = None,
    jobs: Annotated[Path | None, typer.Option(help="History: what `sacct -P -a -X ...` printed.")] = None,
    out: OutOption = Path("imported"),
    json: JsonOption = False,
) -> None:
    """Slurm: nodes, partitions, accounts, and the history of jobs."""
    from penstock.cli import importing as work
    from penstock.migrate import slurm

    files = slurm.SlurmFiles(slurm=conf, gres=gres, topology=topology, dump=dump, qos=qos, associations=associations)
    work.bring(lambda: slurm.read(files), out, jobs, as_json=json)


@importing.command("kueue")
def import_kueue(files: YamlArgument, out: OutOption = Path("imported"), json: JsonOption = False) -> None:
    """Kueue: cluster queues, cohorts and flavours."""
    from penstock.cli import importing as work
    from penstock.migrate import kueue

    work.bring(lambda: kueue.read(files), out, None, as_json=json)


@importing.command("volcano")
def import_volcano(files: YamlArgument, out: OutOption = Path("imported"), json: JsonOption = False) -> None:
    """Volcano: queues and the scheduler's plugins."""
    from penstock.cli import importing as work
    from penstock.migrate import volcano

    work.bring(lambda: volcano.read(files), out, None, as_json=json)


@importing.command("yunikorn")
def import_yunikorn(files: YamlArgument, out: OutOption = Path("imported"), json: JsonOption = False) -> None:
    """YuniKorn: the queues of a partition."""
    from penstock.cli import importing as work
    from penstock.migrate import yunikorn

    work.bring(lambda: yunikorn.read(files), out, None, as_json=json)
