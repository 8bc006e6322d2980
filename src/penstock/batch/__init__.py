"""What runs inside a batch job of Slurm's kind: its script, and the places at which `srun` starts tasks.

Run by the job as `python -P -m penstock.batch SETTINGS -- SCRIPT [ARGUMENTS]`, once at each of its places. It needs the
standard library alone, and of ours `slurm.settings`, `slurm.patterns` and what they import.
"""

import os
from pathlib import Path

FOLDER_VARIABLE = "PENSTOCK_BATCH_FOLDER"
"""Tells programs of the job where its places are written down."""


def batch_folder(environment: "os._Environ[str] | dict[str, str]") -> Path:
    """Return the folder that all places of this attempt share: in that of its checkpoints, which they share, too."""
    attempt = environment.get("PENSTOCK_ATTEMPT", "1")
    return Path(environment["PENSTOCK_CHECKPOINT_DIR"]) / f".batch-{attempt}"
