"""One Ray cluster and one server on it for all tests of a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.ray.cluster import shared
from tests.engines.ray.serving import RayServing


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayServing]:
    """A server with the four nodes of the session's cluster; jobs' folders are shared."""
    folder: Path = tmp_path_factory.mktemp("ray-shared")
    try:
        with RayServing(tmp_path_factory.mktemp("ray-engine") / "data", shared.get(), shared=folder) as made:
            yield made
    finally:
        shared.end()
