"""`penstock snapshots`: names by their first digits, each of them one snapshot."""

import pytest

from penstock.api.snapshots import SnapshotView
from penstock.cli.errors import NotThere
from penstock.cli.snapshots import _whole
from penstock.core.model.errors import InvalidInput

KEPT = [SnapshotView(name, 1, 2, 3, 0) for name in ("abcdef01" + "0" * 56, "abcdef02" + "0" * 56, "12" + "abcdef" * 10)]


def test_the_first_digits_stand_for_a_name():
    assert _whole("abcdef02", KEPT) == KEPT[1].name
    assert _whole(KEPT[0].name, KEPT) == KEPT[0].name


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("abcde", InvalidInput, "too short"),
        ("abcdef", InvalidInput, "begins 2 names"),
        ("bcdefa", NotThere, "there is no snapshot 'bcdefa' of yours"),
    ],
)
def test_a_name_of_none_or_of_several_is_refused(name, error, said):
    with pytest.raises(error, match=said):
        _whole(name, KEPT)
