"""The five job files passed on to a real Slurm with four nodes: each attempt is one of its jobs."""

from collections.abc import Iterator

import pytest

from tests.engines.conformance.jobsuite import JobConformance, RunningCluster
from tests.engines.slurm import cluster as slurm
from tests.engines.slurm.cluster import SEARCHED
from tests.server.harness import Server, cluster_file

NODES, CPUS = 4, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    shared = tmp_path_factory.mktemp("shared")
    with slurm.own(accounting=False) as made, pytest.MonkeyPatch.context() as patched:
        for name, value in (*made.variables.items(), ("PATH", SEARCHED)):
            patched.setenv(name, value)
        folder = tmp_path_factory.mktemp("passing") / "data"
        options = {"slurm": True, "passing": True, "shared": str(shared), "refresh_s": 5.0}
        with Server(folder, cluster_file(NODES, devices=0), **options) as server:
            yield RunningCluster(server.client, shared, NODES, CPUS)


@pytest.mark.slow
class TestJobsPassedOnToSlurm(JobConformance):
    """See there."""
