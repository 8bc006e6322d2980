"""What tests of imports share: files of a test's own making, and ways to look at a report."""

from pathlib import Path

import yaml

from penstock.core.config.cluster import parse_cluster
from penstock.core.model.cluster import ClusterConfig, Queue
from penstock.migrate import Imported, slurm, to_cluster_file

SAMPLES = Path(__file__).parent / "samples"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def slurm_of(folder: Path, conf: str = "", **others: str) -> Imported:
    """Import slurm.conf and other files of Slurm that a test writes out."""
    files = {name: write(folder, f"{name}.txt", text) for name, text in {"slurm": conf, **others}.items() if text}
    return slurm.read(slurm.SlurmFiles(**files))


def queue(imported: Imported, name: str) -> Queue:
    return next(q for q in imported.config.queues if q.name == name)


def outcomes(imported: Imported, key: str) -> list[tuple[int, str, str]]:
    """Return line, value and outcome of each entry of a key."""
    return [(e.line, e.value, e.outcome) for e in imported.report if e.key == key]


def note(imported: Imported, key: str) -> str:
    return next(e.note for e in imported.report if e.key == key)


def read_back(imported: Imported) -> ClusterConfig:
    """Write the cluster file and read it as the server would."""
    parsed, problems = parse_cluster(yaml.safe_load(to_cluster_file(imported)))
    assert problems == []
    return parsed.config
