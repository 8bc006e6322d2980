"""What tests of several engines share: one Ray cluster and one server on it for a session."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # loaded where a test asks for it: without Ray it cannot be
    from tests.engines.ray.serving import RayServing


@pytest.fixture(scope="session")
def ray_serving(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RayServing]":
    """A server with the four nodes of the session's Ray cluster; jobs' folders are shared."""
    from tests.engines.ray.cluster import shared
    from tests.engines.ray.serving import RayServing

    folder = tmp_path_factory.mktemp("ray-shared")
    try:
        with RayServing(tmp_path_factory.mktemp("ray-engine") / "data", shared.get(), shared=folder) as made:
            yield made
    finally:
        shared.end()
