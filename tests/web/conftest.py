"""One cluster and one browser for all tests of the pages; each viewer has a context of their own."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from penstock.testing.server import InProcessServer
from tests.web.browsing import Viewer, chromium
from tests.web.world import Reports, declared, filled


class World(NamedTuple):
    server: InProcessServer
    tokens: dict[str, str]


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with InProcessServer(declared(), outputs=Reports()) as server:
        yield World(server, filled(server))


@pytest.fixture(scope="module")
def browser():
    """A browser for the tests of one file: its driver runs an event loop in this thread, where no other could run."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def viewer(world: World, browser) -> Iterator[Callable[..., Viewer]]:
    """Make signed-in viewers; what went wrong for one of them fails the test."""
    made: list[Viewer] = []

    def sign_in(role: str = "admin", page: str = "/", **how: object) -> Viewer:
        made.append(Viewer(browser, world.server, world.tokens[role], **how))
        made[-1].sign_in(page)
        return made[-1]

    yield sign_in
    problems = [problem for one in made for problem in one.problems]
    for one in made:
        one.close()
    assert problems == []
