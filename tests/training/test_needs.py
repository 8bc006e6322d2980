"""Tests that need a library load it when they run: whoever only collects them does without."""

import pytest

from tests.training import needs


def test_collecting_all_tests_loads_no_heavy_library():
    assert needs.loaded_early == [], "in each worker, for seconds: use `need_later`"


def test_a_look_at_what_decorators_leave_loads_nothing():
    later = needs.Later("penstock.no_such_module")
    assert not any(hasattr(later, name) for name in ("_mock_name", "__wrapped__", "_pytestfixturefunction"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = later.anything
