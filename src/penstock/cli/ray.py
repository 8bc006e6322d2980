"""Options of `penstock up --engine ray`, and the end of what it has started."""

import importlib.util
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from penstock import starts
from penstock.core.model.errors import InvalidInput, PenstockError

END_S = 90.0
RayAddressOption = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="Of the head of a Ray cluster; by default a Ray of one node is started."),
]
RayShareOption = Annotated[
    float, typer.Option(help="With Ray: what is held of each of its nodes, as a share.", min=0.01, max=1)
]


def ray_options(engine: str, address: str, share: float, shared: Path | None) -> dict[str, object] | None:
    """Return the options of the Ray engine; None for another one. Raises: InvalidInput."""
    if engine != "ray":
        if address:
            raise InvalidInput("--ray-address needs --engine ray")
        return None
    if importlib.util.find_spec("ray") is None:
        raise InvalidInput("--engine ray needs Ray, of the version of the cluster", hint="pip install 'penstock[ray]'")
    host, _, port = address.rpartition(":")
    if address and not (host and port.isdecimal()):
        hint = "the address that ray start --head prints; the token in RAY_AUTH_TOKEN"
        raise InvalidInput(f"--ray-address is '{address}', expected HOST:PORT", hint=hint)
    if shared is not None and not shared.is_dir():
        raise InvalidInput(f"--shared is '{shared}', expected a folder that all nodes see under the same path")
    return {
        "address": address,
        "share_milli": round(share * 1000),
        "shared": str(starts.whole(shared)) if shared is not None else "",
    }


def end_nodes(folder: Path) -> list[str]:
    """End the agents on all nodes of a Ray cluster, what holds resources there, and a cluster that `up` has started.

    Args:
        folder: the engine's own, of the data folder.
    Returns: the names of the nodes whose agents lived.
    Raises: PenstockError where Ray does not answer: agents end their jobs by themselves then.
    """
    if not (folder / "driver.json").exists():
        return []
    from penstock.engines.ray.ending import end

    try:
        return end(folder, END_S)
    except (OSError, subprocess.SubprocessError) as error:
        hint = f"agents end their jobs when their leases are over; {folder / 'driver.log'} says more"
        raise PenstockError(f"the nodes of Ray were not ended: {error}", hint=hint) from error
