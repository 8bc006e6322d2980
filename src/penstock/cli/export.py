"""`penstock export`: the queues and jobs of Penstock as objects of another scheduler."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import JsonOption, one_of
from penstock.cli.outcomes import print_outcomes
from penstock.cli.output import print_document, print_json, say
from penstock.cli.place import client_of
from penstock.cli.progress import progress, shared
from penstock.core.model.errors import InvalidInput
from penstock.core.model.events import JobEdited, JobSubmitted
from penstock.core.model.words import counted

if TYPE_CHECKING:
    from penstock.core.model.cluster import ClusterConfig
    from penstock.core.model.jobs import JobSpec
    from penstock.migrate.podgroups import SourceJob

FORMATS = ("volcano",)
DEVICE = "nvidia.com/gpu"
WAITING_MAX = 1_000
"""Waiting jobs of a server that are exported at a time; what each asks for is a request."""
SERVER = "server"
"""What the report calls the server as the place of a key."""


def export(
    files: Annotated[list[Path] | None, typer.Argument(help="Job files, each job of which is a PodGroup.")] = None,
    format: Annotated[str, typer.Option(help="For which scheduler: volcano.")] = "volcano",  # noqa: A002
    cluster: Annotated[
        Path | None, typer.Option(help="Cluster file with the queues; by default those of the server.")
    ] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="The server's waiting jobs as PodGroups, too.")] = False,
    namespace: Annotated[str, typer.Option(help="Namespace of PodGroups.")] = "default",
    device: Annotated[str, typer.Option(help="Resource that devices are counted as.")] = DEVICE,
    json: JsonOption = False,
) -> None:
    """Print queues and jobs as objects of another scheduler. The report goes to standard error."""
    from penstock.engines.kubernetes.install.writing import text_of
    from penstock.migrate.exporting import to_volcano

    one_of("--format", format, FORMATS)
    config = _config(cluster)
    place = str(cluster) if cluster is not None else SERVER
    jobs = [*_from_files(files or [], config), *(_waiting(quiet=json) if waiting else ())]
    found = to_volcano(config, place, jobs, namespace=namespace, device=device)
    if json:
        print_json({"objects": found.objects, "report": found.report})
        return
    print_document("---\n".join(map(text_of, found.objects)))
    queues = sum(one["kind"] == "Queue" for one in found.objects)
    groups = sum(one["kind"] == "PodGroup" for one in found.objects)
    say(f"{counted(queues, 'queue')}, {counted(groups, 'PodGroup')}", err=True)
    print_outcomes(found.report, "with --json", err=True)


def _config(cluster: Path | None) -> "ClusterConfig":
    from penstock.control.config_files import cluster_config, read_cluster_file

    return read_cluster_file(cluster).config if cluster is not None else cluster_config(client_of().config().config)


def _from_files(files: list[Path], config: "ClusterConfig") -> "Iterator[SourceJob]":
    """Yield the jobs of job files. Raises: InvalidInput with all problems of a file."""
    from msgspec.structs import replace

    from penstock.core.config.job import parse_request
    from penstock.core.model.cluster import DEFAULT_QUEUE
    from penstock.core.model.ids import QueueName
    from penstock.migrate.podgroups import SourceJob
    from penstock.migrate.report import SourcePlace
    from penstock.yamltext import read_yaml

    usual = QueueName(config.settings.default_queue) or DEFAULT_QUEUE
    for path in files:
        entries, problems = parse_request(read_yaml(str(path), "the job file"))
        if problems:
            raise InvalidInput(f"{path} has {counted(len(problems), 'problem')}", problems=problems)
        for entry in entries:
            spec = replace(entry.spec, queue=usual) if "queue" in entry.unnamed else entry.spec
            last = entry.array_first + entry.array_step * entry.count
            indexes = range(entry.array_first, last, entry.array_step)
            key, place = entry.field or spec.name, SourcePlace(str(path))
            yield SourceJob(key, place, spec, indexes, bool(entry.array), len(entry.after_names))


def _waiting(*, quiet: bool) -> "Iterator[SourceJob]":
    """Yield the server's waiting jobs as they stand. Raises: InvalidInput above `WAITING_MAX`."""
    from penstock.migrate.podgroups import SourceJob
    from penstock.migrate.report import SourcePlace

    client = client_of()
    query: dict[str, Any] = {"state": ["waiting"], "sort": "id", "limit": WAITING_MAX}
    listed = client.jobs(**query)
    if listed.next_cursor:
        text = f"{listed.totals.get('waiting', 0):,} jobs wait, expected at most {WAITING_MAX:,}"
        raise InvalidInput(text, hint="export those of job files")
    jobs = sorted(listed.jobs, key=lambda one: one.id)
    with progress(f"{len(jobs):,} waiting jobs", total=len(jobs), quiet=quiet) as on_share:
        for job in shared(jobs, on_share, len(jobs)):
            spec: JobSpec | None = None
            for record in client.job_events(job.id):
                if isinstance(record.event, JobSubmitted):
                    spec = record.event.spec
                elif isinstance(record.event, JobEdited) and spec is not None:
                    spec = record.event.change.of(spec)
            if spec is not None:
                one = range(job.array_index, job.array_index + 1)
                yield SourceJob(f"job {job.id}", SourcePlace(SERVER), spec, one, job.array_id is not None)
