"""The five job files on the local engine: four virtual nodes of this machine."""

from collections.abc import Iterator

import pytest

from tests.engines.conformance.jobsuite import JobConformance, RunningCluster
from tests.server.harness import Server, cluster_file

NODES, CPUS = 4, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    declared = cluster_file(NODES, devices=0)
    for node in declared["nodes"]:
        node["cpus"] = CPUS
    with Server(tmp_path_factory.mktemp("local") / "data", declared) as server:
        yield RunningCluster(server.client, tmp_path_factory.mktemp("shared"), NODES, CPUS)


class TestJobsOnTheLocalEngine(JobConformance):
    """See there."""
