"""The limit of device memory that a replica with a part of a device sets for its framework."""

from functools import partial
from importlib import import_module

import pytest

from penstock.training import session
from penstock.training.memory_limit import keep_limit, limit_bytes

GIB = 2**30
EIGHT = {"PENSTOCK_DEVICE_MEMORY_BYTES": str(8 * GIB)}


class Kind:
    """What PyTorch has for one kind of device, with 32 GiB."""

    total_memory = 32 * GIB

    def __init__(self, available=True):
        self.available, self.told = available, []

    def is_available(self):
        return self.available

    def get_device_properties(self, index):
        assert index == 0
        return self

    def set_per_process_memory_fraction(self, fraction, index):
        self.told.append((fraction, index))


class Torch:
    def __init__(self, **kinds):
        self.__dict__.update(kinds)


@pytest.mark.parametrize("name", ["cuda", "npu"])
def test_pytorch_gets_the_fraction_that_the_limit_is_of_the_device(name):
    kind = Kind()
    assert keep_limit(EIGHT, {"torch": Torch(**{name: kind})})
    assert kind.told == [(0.25, 0)]


def test_a_limit_beyond_the_device_is_all_of_it():
    kind = Kind()
    keep_limit({"PENSTOCK_DEVICE_MEMORY_BYTES": str(99 * GIB)}, {"torch": Torch(cuda=kind)})
    assert kind.told == [(1.0, 0)]


@pytest.mark.parametrize(
    "variables", [{}, {"PENSTOCK_DEVICE_MEMORY_BYTES": ""}, {"PENSTOCK_DEVICE_MEMORY_BYTES": "8G"}]
)
def test_without_a_limit_nothing_is_asked_of_pytorch(variables):
    kind = Kind()
    assert (keep_limit(variables, {"torch": Torch(cuda=kind)}), kind.told, limit_bytes(variables)) == (False, [], 0)


def test_without_pytorch_or_a_device_nothing_happens():
    kind = Kind(available=False)
    assert not keep_limit(EIGHT, {})
    assert not keep_limit(EIGHT, {"torch": Torch(cuda=kind)})
    assert kind.told == []


def test_a_session_sets_it_when_it_begins(monkeypatch, tmp_path):
    kind = Kind()
    monkeypatch.setenv("PENSTOCK_DEVICE_MEMORY_BYTES", str(16 * GIB))
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_DIR", str(tmp_path))
    limited = partial(keep_limit, modules={"torch": Torch(cuda=kind)})
    monkeypatch.setattr(import_module("penstock.training.session"), "keep_limit", limited)
    with session():
        pass
    assert kind.told == [(0.5, 0)]
