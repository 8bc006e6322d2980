"""Jobs that do their worst cost those of another tenant nothing: none is lost, late, read or changed.

Short version: each deed once, in a few mixes. `python -m tests.hostile.mixes MIXES SEED` plays random ones.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile.deeds import DEEDS, PYTHON
from tests.hostile.mixes import Stage, faults, stage

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as other accounts"),
]
NAMES = sorted(DEEDS)
MIXES = [NAMES[at::5] for at in range(5)]


@pytest.fixture(scope="module")
def played() -> Iterator[Stage]:
    if not Path(PYTHON).exists():
        assert os.environ.get("CI") != "true", f"{PYTHON} is not installed"
        pytest.skip(f"{PYTHON} is not installed")
    with stage() as made:
        yield made


@pytest.mark.parametrize("names", MIXES, ids=lambda names: names[0])
def test_hostile_jobs_cost_another_tenant_nothing(played, names):
    assert faults(played.play(names)) == []


def test_many_tiny_jobs_cost_another_tenant_nothing_nor_does_a_worker_that_begins_among_what_they_left(played):
    assert faults(played.play(["puts pipes and links where its folders were made"], array=True, restart=True)) == []
