"""Finds the checkpoints of a program: at a URL, in the folder of the job, in a folder of its own, or none."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.training.environment import Environment, is_url
from penstock.training.errors import BadEnvironment
from penstock.training.storage.checkpoints import Checkpoints, Place
from penstock.training.storage.directory import CheckpointDirectory
from penstock.training.storage.remote import RemoteDirectory


def open_checkpoints(
    environment: Environment, directory: str | os.PathLike[str] | None, *, keep: int, compress: bool
) -> Checkpoints | None:
    """Return the checkpoints that the environment names, else those in `directory`, a path or a URL.

    Raises: BadEnvironment, BadArgument.
    """
    place = Place(environment.job, environment.attempt, environment.rank, environment.world_size)
    if environment.checkpoint_url is not None:
        return RemoteDirectory(environment.checkpoint_url, place, keep=keep, compress=compress)
    if environment.checkpoint_dir is not None:
        if not environment.checkpoint_dir.is_dir():
            # Making it here would hide a shared disk that is not mounted, and start training over from nothing.
            raise BadEnvironment(
                f"PENSTOCK_CHECKPOINT_DIR is {str(environment.checkpoint_dir)!r}, which is not a directory on this "
                "node; expected one that all attempts share. Is the shared disk mounted?"
            )
        return CheckpointDirectory(environment.checkpoint_dir, place, keep=keep, compress=compress)
    if directory is None:
        return None
    if isinstance(directory, str) and is_url(directory):
        return RemoteDirectory(directory, place, keep=keep, compress=compress)
    return CheckpointDirectory(Path(directory), place, keep=keep, compress=compress)
