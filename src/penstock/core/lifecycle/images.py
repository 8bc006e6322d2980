"""Which images a cluster lets jobs have, and what of its nodes they may see."""

import re
from collections.abc import Iterator

from penstock.core.model.cluster import Settings
from penstock.core.model.containers import ImageAsk, is_within
from penstock.core.model.errors import Problem
from penstock.core.model.inputs import words_of

NONE = "none"


def closed_image(settings: Settings, image: ImageAsk, workdir: str, prefix: str) -> Iterator[Problem]:
    """Yield what of a job's image the cluster does not allow.

    Args:
        workdir: the folder of the nodes that the job names to start in, which its container sees; or ''.
    """
    runtimes, folders = allowed_runtimes(settings), allowed_folders(settings)
    if runtimes and image.runtime not in runtimes and (image.runtime or NONE in runtimes):
        field = f"{prefix}image.runtime" if image.runtime else f"{prefix}image"
        allowed = "jobs of this cluster have no images" if NONE in runtimes else f"expected {' or '.join(runtimes)}"
        yield Problem("bad_value", field, f"{field}: {allowed}", image.runtime, "settings.container_runtimes says so")
    sources = {f"{prefix}image.mounts[{number}]": mount.source for number, mount in enumerate(image.mounts)}
    if workdir:
        sources[f"{prefix}workdir"] = workdir
    for field, source in sources.items():
        if not is_within(source, folders):
            among = f"one in {', '.join(folders)}" if folders else "none: this cluster lets jobs mount no folders"
            hint = "settings.container_mounts lists the folders that jobs may mount"
            hint += "; workdir: {snapshot: .} sends a folder" if source == workdir else ""
            yield Problem("bad_value", field, f"{field} is {source}, expected {among}", source, hint)


def allowed_folders(settings: Settings) -> tuple[str, ...]:
    """Return the folders of nodes below which jobs may mount what they name."""
    return tuple(folder for folder in re.split(r"[,\s]+", settings.container_mounts) if folder)


def allowed_runtimes(settings: Settings) -> tuple[str, ...]:
    """Return the runtimes that images may run in; none: all."""
    return words_of(settings.container_runtimes)
