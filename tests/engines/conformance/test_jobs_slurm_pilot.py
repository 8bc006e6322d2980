"""The five job files on nodes that a real Slurm lends: four allocations of one node each."""

from collections.abc import Iterator

import pytest

from tests.engines.conformance.jobsuite import JobConformance, RunningCluster
from tests.engines.slurm import cluster as clusters
from tests.engines.slurm.pilot.flying import find, flying

NODES, CPUS = 4, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with find(clusters.shared()) as slurm, flying(slurm, tmp_path_factory.mktemp("pilot"), nodes_min=NODES) as server:
        server.wait_ready(NODES)
        yield RunningCluster(server.client, tmp_path_factory.mktemp("shared"), NODES, CPUS)


@pytest.mark.slow
class TestJobsOnNodesThatSlurmLends(JobConformance):
    """See there."""
