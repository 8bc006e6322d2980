"""What the whole test session shares, and ends."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import postgres

settings.register_profile("untimed", deadline=None)  # machines that are busy fail no test
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def _shared_postgres_ends() -> Iterator[None]:
    yield
    postgres.end_shared()
