"""The level of isolation that a node reaches for a device: by its vendor, and by what is installed."""

import pytest

from penstock.core.model.resources import Discovery
from penstock.devices import inventory
from penstock.devices.isolation import isolation_of
from penstock.testing.builders import device
from tests.devices.test_installed import Reading


@pytest.mark.parametrize(
    ("vendor", "level"),
    [("nvidia", "cooperative"), ("amd", "cooperative"), ("mthreads", "watched"), ("google", "none"), ("acme", "none")],
)
def test_a_vendor_has_the_level_that_its_tools_and_frameworks_reach(vendor, level, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert isolation_of(device(0, vendor=vendor)) == level


@pytest.mark.parametrize(("capability", "level"), [((7, 0), "driver"), ((6, 1), "cooperative")])
def test_where_mps_is_installed_the_driver_limits_fractions(tmp_path, monkeypatch, capability, level):
    (tmp_path / "nvidia-cuda-mps-control").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert isolation_of(device(0, capability=capability)) == level


def test_devices_that_are_discovered_say_their_level(monkeypatch):
    class Acme:
        vendor = "amd"

        def is_present(self, sources):
            return True

    monkeypatch.setattr(inventory, "_inventories", lambda providers: [Reading() for _ in providers])
    monkeypatch.setattr(inventory, "joined", lambda inventories: Discovery((device(0, vendor="amd"),), "one"))
    assert [one.isolation for one in inventory.discovered([Acme()]).devices] == ["cooperative"]
