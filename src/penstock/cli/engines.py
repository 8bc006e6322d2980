"""Options of `penstock up` that say which engine runs the jobs, and what they mean for the server."""

import os
import re
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from penstock import starts
from penstock.core.model.errors import InvalidInput, nearest

ENGINES = ("local", "kubernetes", "ray", "slurm")
QUEUE_CONFIG = "penstock-queues"
OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
QueueConfigOption = Annotated[
    str, typer.Option(help="ConfigMap of that namespace with the key queues.yaml, followed; empty: none.")
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(envvar="KUBECONFIG", help="Kubeconfig of the cluster, or several; in a pod its service account."),
]
ShadowOption = Annotated[
    bool, typer.Option("--shadow", help="Only watch what other schedulers do in the cluster; write nothing to it.")
]
PassingOption = Annotated[
    bool, typer.Option("--pass-through", help="Order and admit jobs here; each becomes one job of Slurm.")
]
SharedOption = Annotated[
    Path | None, typer.Option(help="With Slurm or Ray: folder for jobs that all nodes see under this path.")
]
PilotOption = Annotated[
    bool, typer.Option("--pilot", help="Ask Slurm for nodes as the queue needs them, and run jobs on them.")
]
PilotSettingsOption = Annotated[
    Path | None, typer.Option(help="With --pilot: settings (YAML): numbers of nodes, partition, time limit and so on.")
]


class EngineWish(NamedTuple):
    """What was said of the engine on the command line."""

    engine: str
    kubeconfig: Path | None
    context: str
    queue_config: str
    shadow: bool
    passing: bool
    shared: Path | None
    pilot: bool
    pilot_settings: Path | None


def engine_options(wish: EngineWish) -> dict[str, object]:
    """Return the server's options for its engine. Raises: InvalidInput for one that there is not."""
    engine, kubeconfig, context, queue_config, shadow, passing, shared, pilot, pilot_settings = wish
    if engine not in ENGINES:
        hint = nearest(engine, ENGINES)
        raise InvalidInput(f"--engine is '{engine}', expected {' or '.join(ENGINES)}", hint=hint)
    if pilot or pilot_settings is not None:
        return _pilot_options(wish)
    if engine != "slurm" and passing:
        raise InvalidInput("--pass-through needs --engine slurm")
    if engine not in ("slurm", "ray") and shared is not None:
        raise InvalidInput("--shared needs --engine slurm or ray")
    if engine in ("local", "ray"):
        if context:
            raise InvalidInput("--context needs --engine kubernetes")
        if shadow:
            raise InvalidInput("--shadow needs --engine kubernetes or slurm")
        return {}
    if engine == "slurm":
        return _slurm_options(context, shadow=shadow, passing=passing, shared=shared)
    if queue_config and OBJECT_NAME.fullmatch(queue_config) is None:
        expected = f"the name of a ConfigMap such as {QUEUE_CONFIG}"
        raise InvalidInput(f"--queue-config is '{queue_config}', expected {expected}")
    return {
        "kubernetes": True, "kubeconfigs": _kubeconfigs(kubeconfig), "context": context, "queue_config": queue_config,
        "shadow": shadow,
    }  # fmt: skip


def _slurm_options(context: str, *, shadow: bool, passing: bool, shared: Path | None) -> dict[str, object]:
    from penstock.engines.slurm import commands, writing

    if context:
        raise InvalidInput("--context needs --engine kubernetes")
    if shadow == passing:
        hint = "with --shadow it only watches the cluster, with --pass-through each job becomes one of Slurm's"
        hint += ", with --pilot it asks Slurm for nodes"
        problem = "--shadow and --pass-through exclude each other"
        raise InvalidInput(problem if shadow else "--engine slurm needs --shadow, --pass-through or --pilot", hint=hint)
    commands.require_programs()
    if shadow:
        if shared is not None:
            raise InvalidInput("--shared needs --pass-through")
        return {"slurm": True, "shadow": True}
    writing.require_programs()
    if shared is not None and not shared.is_dir():
        raise InvalidInput(f"--shared is '{shared}', expected a folder that all nodes see under the same path")
    return {"slurm": True, "passing": True, "shared": _whole(shared)}


def _pilot_options(wish: EngineWish) -> dict[str, object]:
    """Return the server's options for a pilot. Raises: InvalidInput."""
    from penstock.engines.slurm import commands, writing
    from penstock.engines.slurm.pilot.settings import PilotSettings, read_settings

    if wish.engine != "slurm" or wish.context:
        raise InvalidInput("--context needs --engine kubernetes" if wish.context else "--pilot needs --engine slurm")
    if not wish.pilot:
        raise InvalidInput("--pilot-settings needs --pilot")
    if wish.shadow or wish.passing or wish.shared is not None:
        raise InvalidInput("--pilot excludes --shadow, --pass-through and --shared", hint="folder: in --pilot-settings")
    commands.require_programs()
    writing.require_programs()
    path = wish.pilot_settings
    found = read_settings(starts.whole(path)) if path is not None else PilotSettings()
    return {"slurm": True, "pilot": msgspec.to_builtins(found)}


def _kubeconfigs(given: Path | None) -> list[str]:
    """Return the files that --kubeconfig names: one, or several as KUBECONFIG has them."""
    if given is None:
        return []
    names = [str(given)] if given.exists() else [part for part in str(given).split(os.pathsep) if part]
    return [str(starts.whole(Path(name))) for name in names]


def _whole(path: Path | None) -> str | None:
    return str(starts.whole(path)) if path is not None else None
