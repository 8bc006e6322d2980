"""What the whole test session shares, and ends."""

from collections.abc import Iterator

import pytest

from tests import postgres


@pytest.fixture(scope="session", autouse=True)
def _shared_postgres_ends() -> Iterator[None]:
    yield
    postgres.end_shared()
