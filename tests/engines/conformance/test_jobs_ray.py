"""The five job files on a Ray cluster of four nodes; its agents outlive everything of Ray."""

import pytest

from tests.engines.conformance.jobsuite import JobConformance, RunningCluster
from tests.engines.ray.cluster import CPUS, NODES
from tests.engines.ray.serving import RayServing


@pytest.fixture(scope="module")
def cluster(ray_serving: RayServing, tmp_path_factory: pytest.TempPathFactory) -> RunningCluster:
    return RunningCluster(ray_serving.client, tmp_path_factory.mktemp("shared"), NODES, CPUS)


@pytest.mark.slow  # in CI test_engine.py runs jobs on such nodes, and test_jobs_local.py these files
class TestJobsOnRay(JobConformance):
    """See there."""
