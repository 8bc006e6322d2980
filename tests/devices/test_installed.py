"""A program sees its own devices and no others, whatever vendors' devices a machine has."""

from penstock.devices import installed
from penstock.devices.installed import UNDISCOVERED, closed_files, discovered, visibility
from penstock.ports import Discovery
from penstock.testing.builders import device, linked


class Acme:
    """A vendor that a module would add."""

    vendor, variables = "acme", ("ACME_CARDS",)

    def __init__(self, *devices):
        self.devices = devices

    def discover(self):
        return Discovery(self.devices, f"{len(self.devices)} card(s)")

    def closed_files(self, given, here):
        return tuple(f"c 9:{d.index}" for d in here if d.vendor == self.vendor and d not in given)


def test_a_program_without_devices_sees_none():
    found = visibility(())
    assert found == dict.fromkeys(found, "") | {"PENSTOCK_DEVICES_SIMULATED": "0"}
    assert {"CUDA_VISIBLE_DEVICES", *(n for names in UNDISCOVERED.values() for n in names)} < set(found)


def test_devices_are_shown_to_their_own_vendor_only():
    found = visibility((device(1), device(3, uuid="GPU-3"), device(0, vendor="amd")))
    assert (found["CUDA_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == ("1,GPU-3", "0")
    assert (found["HIP_VISIBLE_DEVICES"], found["TPU_VISIBLE_CHIPS"]) == ("0", "")
    assert found["PENSTOCK_DEVICES"] == "1,3,0"


def test_simulated_devices_are_shown_to_no_driver():
    found = visibility((device(0, simulated=True),))
    assert (found["CUDA_VISIBLE_DEVICES"], found["PENSTOCK_DEVICES"]) == ("", "0")
    assert found["PENSTOCK_DEVICES_SIMULATED"] == "1"


def test_a_vendor_that_is_added_is_found_shown_and_closed(monkeypatch):
    card = device(0, vendor="acme", uuid="ACME-0")
    monkeypatch.setattr(installed, "PROVIDERS", (Acme(card),))
    assert discovered() == Discovery((card,), "acme: 1 card(s)")
    assert (visibility((card,))["ACME_CARDS"], visibility(())["ACME_CARDS"]) == ("ACME-0", "")
    assert (closed_files((card,), [card]), closed_files((), [card])) == ((), ("c 9:0",))


def test_devices_of_two_vendors_are_numbered_through(monkeypatch):
    pair = linked(0, "nvlink", 1), linked(1, "nvlink", 0)
    monkeypatch.setattr(installed, "PROVIDERS", (Acme(*pair), Acme(*pair)))
    assert [d.index for d in discovered().devices] == [0, 1, 2, 3]
    assert [d.links[0].peer for d in discovered().devices] == [1, 0, 3, 2]
