"""The places where a log may lie."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.places import KINDS, NAMES, Place, opened


@pytest.fixture(params=KINDS, ids=NAMES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from opened(request.param, tmp_path)
