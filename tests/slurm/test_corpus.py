"""Batch scripts of real kinds end on Penstock as they end on Slurm: exit code, what is printed, files."""

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.batch.shims import write_shims
from tests.engines.slurm.cluster import SlurmCluster
from tests.server.harness import Server, environment
from tests.slurm import corpus
from tests.slurm.corpus import CASES, DIFFERS, SHORT, Left

RECORDED = Path(__file__).with_name("recorded.json")
"""What Slurm 22.05.8 left of each case; `test_slurm_still_does_so` compares it with the Slurm that is installed."""
AT_ONCE = 4
NODE = {"cpus": 4, "memory": "4000MiB", "simulated_devices": {"count": 4, "model": "a100"}}
SETTINGS = {"heartbeat": "100ms", "lease_ttl": "20s", "lease_margin": "8s"}


def recorded() -> dict[str, Left]:
    return {name: Left(**left) for name, left in json.loads(RECORDED.read_text()).items()}


def left_by(names: Iterable[str], folder: Path, variables: Mapping[str, str]) -> dict[str, Left]:
    """Run cases beside each other, and return what each left."""
    folder.mkdir(exist_ok=True)
    listed = list(names)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(listed, pool.map(lambda name: corpus.run(name, folder / name, variables), listed), strict=True))


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment of a user of a server with the nodes of the recorded Slurm."""
    nodes = [{"name": f"n{number}", **NODE} for number in range(1, 5)]
    with Server(tmp_path_factory.mktemp("corpus") / "data", {"settings": SETTINGS, "nodes": nodes}) as server:
        write_shims(server.root / "bin")
        found = environment(server.root, PENSTOCK_HOME=str(server.data.root))
        yield found | {"PATH": f"{server.root / 'bin'}:{found['PATH']}"}


def differing(names: Iterable[str], ours: Mapping[str, Left]) -> dict[str, tuple[Left, Left]]:
    theirs = recorded()
    return {name: (ours[name], theirs[name]) for name in names if ours[name] != theirs[name]}


def test_scripts_end_as_slurm_ends_them(tmp_path: Path, variables: dict[str, str]) -> None:
    assert differing(SHORT, left_by(SHORT, tmp_path / "ours", variables)) == {}


@pytest.mark.slow
def test_all_scripts_end_as_slurm_ends_them(tmp_path: Path, variables: dict[str, str]) -> None:
    assert sorted(differing(CASES, left_by(CASES, tmp_path / "ours", variables))) == sorted(DIFFERS)


@pytest.mark.slow
def test_slurm_still_does_so(tmp_path: Path) -> None:
    made = SlurmCluster(accounting=False)
    try:
        made.start()
        assert differing(CASES, left_by(CASES, tmp_path / "theirs", made._environment)) == {}
    finally:
        made.remove()


def test_every_script_is_recorded() -> None:
    assert sorted(recorded()) == sorted(CASES)
