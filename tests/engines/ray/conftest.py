"""The server on the file's Ray cluster, as tests here call it."""

import pytest

from tests.engines.ray.serving import RayServing


@pytest.fixture
def serving(ray_serving: RayServing) -> RayServing:
    return ray_serving
