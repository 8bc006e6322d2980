"""`penstock schema`: the JSON Schema of job files and cluster files."""

from typing import Annotated, Literal

import typer

from penstock.cli.output import print_json


def schema(
    of: Annotated[Literal["job", "cluster"], typer.Argument(help="Kind of file.")] = "job",
    json: Annotated[bool, typer.Option("--json", hidden=True)] = False,
) -> None:
    """Print the JSON Schema of job or cluster files."""
    from penstock.core.config.cluster import cluster_schema
    from penstock.core.config.job import request_schema

    print_json(request_schema() if of == "job" else cluster_schema())
