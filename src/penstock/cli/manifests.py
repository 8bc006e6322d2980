"""`penstock manifests`: what a Kubernetes cluster needs to run the server."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import print_document, print_json, say
from penstock.core.model.errors import InvalidInput


def manifests(
    namespace: Annotated[str, typer.Option(help="Namespace of the server.")] = "penstock",
    image: Annotated[str, typer.Option(help="Image that it runs; see Containerfile.")] = "penstock:latest",
    replicas: Annotated[int, typer.Option(help="How many servers; more than one share a database.")] = 1,
    store_secret: Annotated[
        str, typer.Option(help="Secret with the key url: a PostgreSQL database. Without it: SQLite on a volume.")
    ] = "",
    storage: Annotated[str, typer.Option(help="Size of that volume.")] = "10Gi",
    cpu: Annotated[str, typer.Option(help="CPU that each server asks for.")] = "500m",
    memory: Annotated[str, typer.Option(help="Memory that each server asks for, at most.")] = "1Gi",
    cluster_config: Annotated[
        str, typer.Option(help="ConfigMap with the key cluster.yaml: pools, tenants, queues.")
    ] = "",
    queue_config: Annotated[
        str, typer.Option(help="ConfigMap with the key queues.yaml, followed while it is there.")
    ] = "penstock-queues",
    network_policy: Annotated[bool, typer.Option(help="Let in nothing but the API.")] = True,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="A server that only watches other schedulers, and may write nothing.")
    ] = False,
    chart: Annotated[Path | None, typer.Option(help="Write a Helm chart into this new folder instead.")] = None,
    json: Annotated[bool, typer.Option("--json", hidden=True)] = False,
) -> None:
    """Print what a Kubernetes cluster needs to run the server."""
    from penstock import __version__
    from penstock.engines.kubernetes.install import writing
    from penstock.engines.kubernetes.install.objects import objects
    from penstock.engines.kubernetes.install.values import Values

    values = Values(
        namespace,
        image,
        replicas,
        store_secret,
        storage,
        cpu,
        memory,
        cluster_config,
        queue_config,
        network_policy,
        shadow,
    ).check()
    if chart is not None and shadow:
        raise InvalidInput("--chart and --shadow exclude each other", hint="apply the manifests instead")
    if chart is None and json:
        print_json(objects(values))
        return
    if chart is None:
        print_document(writing.manifests(values))
        return
    if chart.exists():
        raise InvalidInput(f"--chart {chart}: it exists, expected the name of a new folder")
    for name, text in writing.chart(__version__).items():
        path = chart / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    say(f"{chart}: helm install penstock {chart} --namespace {namespace} --create-namespace")
