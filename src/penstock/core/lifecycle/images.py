"""Which images a cluster lets jobs have, and what of its nodes they may see."""

import re
from collections.abc import Iterator

from penstock.core.model.cluster import Settings
from penstock.core.model.containers import ImageAsk
from penstock.core.model.errors import Problem
from penstock.core.model.inputs import words_of

NONE = "none"


def closed_image(settings: Settings, image: ImageAsk, prefix: str) -> Iterator[Problem]:
    """Yield what of a job's image the cluster does not allow."""
    runtimes, folders = allowed_runtimes(settings), re.split(r"[,\s]+", settings.container_mounts.strip(", "))
    if runtimes and image.runtime not in runtimes and (image.runtime or NONE in runtimes):
        field = f"{prefix}image.runtime" if image.runtime else f"{prefix}image"
        allowed = "jobs of this cluster have no images" if NONE in runtimes else f"expected {' or '.join(runtimes)}"
        yield Problem("bad_value", field, f"{field}: {allowed}", image.runtime, "settings.container_runtimes says so")
    for number, mount in enumerate(image.mounts):
        if not any(f"{mount.source}/".startswith(f"{folder.rstrip('/')}/") for folder in folders if folder):
            field = f"{prefix}image.mounts[{number}]"
            among = f"one in {', '.join(folders)}" if any(folders) else "none: this cluster lets jobs mount no folders"
            hint = "settings.container_mounts lists the folders that jobs may mount"
            yield Problem("bad_value", field, f"{field} is {mount.source}, expected {among}", mount.source, hint)


def allowed_runtimes(settings: Settings) -> tuple[str, ...]:
    """Return the runtimes that images may run in; none: all."""
    return words_of(settings.container_runtimes)
