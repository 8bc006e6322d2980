"""One server for all tests that leave it as it was: two virtual nodes with four simulated devices each."""

from collections.abc import Iterator

import pytest

from tests.server.harness import Jobs, Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def jobs(server: Server) -> Iterator[Jobs]:
    """A client; whatever it submitted has ended when the test ends."""
    made = Jobs(server.client)
    yield made
    made.close()
