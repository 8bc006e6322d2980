"""What tests of several engines share: a Ray cluster and a server on it, for the tests of one file."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # loaded where a test asks for it: without Ray it cannot be
    from tests.engines.ray.serving import RayServing


@pytest.fixture(scope="module")
def ray_serving(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RayServing]":
    """A server with the four nodes of a Ray cluster; jobs' folders are shared. Its raylets take CPU time while idle."""
    from tests.engines.ray.cluster import shared
    from tests.engines.ray.serving import RayServing

    folder = tmp_path_factory.mktemp("ray-shared")
    try:
        with RayServing(tmp_path_factory.mktemp("ray-engine") / "data", shared.get(), shared=folder) as made:
            yield made
    finally:
        shared.end()
