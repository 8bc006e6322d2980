"""The server of the server's tests, for its client, and one key of this user's functions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import jobs as jobs
from tests.server.conftest import server as server


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of this user's key: one for all tests of a run, because clients find it by the environment."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("config")
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        yield folder / "penstock" / "functions.key"
