"""One server for all tests that leave it as it was: two virtual nodes with four simulated devices each."""

from collections.abc import Iterator

import pytest

from tests.server.harness import Jobs, Server


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def jobs(server: Server) -> Iterator[Jobs]:
    """A client; what it submitted has ended when the test ends, and the test fails if it leaves anything else."""
    made = Jobs(server.client)
    for node in server.client.nodes():
        if node.draining:  # by a test that has no `jobs`
            server.client.drain(node.name, on=False)
    yield made
    made.close()
    left = [f"job {job.id} ({job.state})" for job in server.client.jobs().jobs]
    closed = (node for node in server.client.nodes() if node.state != "ready" or node.draining)
    left += [f"node {node.name} ({node.state}, {node.drain_reason or 'no reason'})" for node in closed]
    assert not left, f"left behind on the server that tests share: {', '.join(left)}"
