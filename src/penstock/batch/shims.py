"""The programs `sbatch`, `squeue`, `srun` and others, as small files that call ours."""

import shlex
import sys
from pathlib import Path

import penstock

NAMES = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "srun", "salloc", "scontrol")
_CODE = "import sys; sys.path.insert(0, {path!r}); from {module} import main; sys.exit(main())"


def program(module: str, *words: str) -> list[str]:
    """Return the words that start a program of ours with the Python and the sources of this process."""
    path = str(Path(penstock.__file__).resolve().parents[1])
    return [sys.executable, "-P", "-c", _CODE.format(path=path, module=module), *words]


def shim(name: str) -> str:
    """Return the text of one of them."""
    words = program("penstock.batch.srun") if name == "srun" else program("penstock.cli.as_slurm", name)
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def write_shims(folder: Path) -> list[Path]:
    """Write all of them into a folder, which is made; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name in NAMES:
        path = folder / name
        partial = folder / f".{name}.new"
        partial.write_text(shim(name), encoding="utf-8")
        partial.chmod(0o755)
        partial.rename(path)
        found.append(path)
    return found
