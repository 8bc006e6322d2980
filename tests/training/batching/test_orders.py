"""Orders of batches: read once each, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.training import Share
from penstock.training.batching.orders import OrderFile, parse_share


@pytest.mark.parametrize("text", ["", "4", "4,", "0,1", "-4,0", "4,0,0", "٤,0", "4.5,0", "99999999999,0", "1,70000"])
def test_what_is_no_order_is_none(text: str) -> None:
    assert parse_share(text) is None


def test_a_file_is_read_once_for_each_time_that_it_is_replaced(tmp_path: Path) -> None:
    path, orders = tmp_path / "batch", OrderFile(tmp_path / "batch")
    assert orders.newest() is None
    for share in (Share(32, 1), Share(64, 0)):
        new = tmp_path / "new"
        new.write_text(f"{share.local},{share.accumulation}\n")
        new.rename(path)
        assert [orders.newest(), orders.newest()] == [share, None]


def test_an_order_that_is_not_understood_is_said_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "batch").write_text("more!\n")
    assert OrderFile(tmp_path / "batch").newest() is None
    assert "was not understood" in caplog.text
