"""How programs are told of their batch: at the start, and when it changes."""

import logging
import os
from pathlib import Path

import pytest

from penstock.core.model.batching import BatchChoice
from penstock.engines.processes.batches import batch_variables, make_told, tell_batch
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.spawn import open_output, replica_environment
from penstock.training.batching.orders import OrderFile, Share, parse_share
from tests.engines.agent.builders import KEY, start


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    found = DataFolder(tmp_path)
    found.job(KEY.job_id).mkdir(parents=True)
    return found


def test_a_program_without_an_order_is_told_nothing(data):
    assert batch_variables(data, KEY, None) == {}
    assert not [name for name in replica_environment(start(KEY), (), data, {}) if "BATCH" in name]


def test_the_training_library_reads_what_it_is_told(data):
    order = start(KEY, batch=BatchChoice(32, 3))
    told = replica_environment(order, (), data, {})
    assert parse_share(told["PENSTOCK_BATCH"]) == Share(32, 3)
    make_told(data, KEY, passed=False)
    orders = OrderFile(Path(told["PENSTOCK_BATCH_FILE"]))
    for batch in (BatchChoice(64), BatchChoice(16, 1)):
        tell_batch(data, KEY, batch)
        assert orders.newest() == Share(batch.local, batch.accumulation)


@pytest.mark.parametrize(("passed", "mode"), [(False, 0o700), (True, 0o711)])
def test_an_account_may_read_what_it_is_told_and_change_none_of_it(data, passed, mode):
    make_told(data, KEY, passed=passed)
    tell_batch(data, KEY, BatchChoice(8))
    assert data.told(KEY.job_id).stat().st_mode & 0o777 == mode
    assert data.batch(KEY).stat().st_mode & 0o777 == 0o644


def test_what_a_former_life_of_a_replica_was_told_is_gone_when_it_starts(data):
    make_told(data, KEY, passed=False)
    tell_batch(data, KEY, BatchChoice(8))
    os.close(open_output(data, start(KEY, batch=BatchChoice(16))))
    assert not data.batch(KEY).exists()


def test_what_cannot_be_told_is_logged(data, caplog):
    with caplog.at_level(logging.WARNING):
        tell_batch(data, KEY, BatchChoice(8))
    assert "a batch could not be told" in caplog.text
