"""A program sees its own devices and no others, whatever vendors' devices a machine has."""

from msgspec.structs import replace

from penstock.core.model.resources import Discovery
from penstock.devices import installed
from penstock.devices.installed import VARIABLES, closed_files, visibility
from penstock.devices.inventory import joined
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, Reading
from penstock.testing.builders import device


class Acme:
    """A vendor that a package would add."""

    vendor, variables = "acme", ("ACME_CARDS",)

    def closed_files(self, given, here):
        return tuple(f"c 9:{d.index}" for d in here if d.vendor == self.vendor and d not in given)


def test_a_program_without_devices_sees_none():
    found = visibility(())
    assert found == dict.fromkeys(found, "") | {"PENSTOCK_DEVICES_SIMULATED": "0"}
    assert {n for names in VARIABLES.values() for n in names} < set(found)


def test_the_table_of_variables_is_that_of_the_providers():
    assert {one.vendor: one.variables for one in installed.installed_providers()} == VARIABLES


def test_devices_are_shown_to_their_own_vendor_only():
    found = visibility((device(1), device(3, uuid="GPU-3"), device(0, vendor="amd")))
    assert (found["CUDA_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == ("1,GPU-3", "0")
    assert found["TPU_VISIBLE_CHIPS"] == ""
    assert found["PENSTOCK_DEVICES"] == "1,3,0"


def test_hip_counts_within_what_rocr_has_left():
    given = (device(4, vendor="amd", uuid="GPU-a"), device(6, vendor="amd", uuid="GPU-b"))
    found = visibility(given)
    assert (found["ROCR_VISIBLE_DEVICES"], found["HIP_VISIBLE_DEVICES"]) == ("GPU-a,GPU-b", "0,1")
    assert "HIP_VISIBLE_DEVICES" not in visibility(())


def test_simulated_devices_are_shown_to_no_driver():
    found = visibility((device(0, simulated=True),))
    assert (found["CUDA_VISIBLE_DEVICES"], found["PENSTOCK_DEVICES"]) == ("", "0")
    assert found["PENSTOCK_DEVICES_SIMULATED"] == "1"


def test_a_vendor_that_is_added_is_shown_and_closed(monkeypatch):
    card = device(0, vendor="acme", uuid="ACME-0")
    monkeypatch.setattr(installed, "installed_providers", lambda: (Acme(),))
    monkeypatch.setattr(installed, "of_packages", lambda: {"acme": Acme.variables})
    assert (visibility((card,))["ACME_CARDS"], visibility(())["ACME_CARDS"]) == ("ACME-0", "")
    assert (closed_files((card,), [card]), closed_files((), [card])) == ((), ("c 9:0",))


PAIR = Reading(
    devices=tuple(
        DeviceFacts(index=i, uuid=f"A-{i}", pci=f"0000:0{i}:00.0", model="A1", memory_bytes=8) for i in (0, 1)
    ),
    links=(LinkFacts(0, 1, "nvlink"), LinkFacts(1, 0, "nvlink")),
    driver="7.1",
)


def test_devices_of_two_vendors_are_numbered_through():
    found = joined([("acme", PAIR), ("other", PAIR)])
    assert [(d.index, d.vendor, d.uuid) for d in found.devices][1:3] == [(1, "acme", "A-1"), (2, "other", "A-0")]
    assert [d.links[0].peer for d in found.devices] == [1, 0, 3, 2]
    assert found.note == "acme: 2 devices, driver 7.1; other: 2 devices, driver 7.1"


def test_an_ill_device_is_offered_as_one_that_has_failed():
    ill = Finding(code="row_remap_failed", text="row remapping failed", pci="0000:01:00.0")
    found = joined([("acme", replace(PAIR, findings=(ill,)))])
    assert [d.healthy for d in found.devices] == [True, False]
    assert "row remapping failed" in found.note


def test_a_device_of_unknown_memory_or_model_is_not_offered_and_the_links_of_others_stay_right():
    first = replace(PAIR.devices[0], memory_bytes=None)
    third = replace(PAIR.devices[1], index=2, uuid="A-2", pci="0000:02:00.0")
    links = (LinkFacts(1, 2, "pcie"), LinkFacts(2, 1, "pcie"), LinkFacts(0, 1, "nvlink"))
    found = joined([("acme", Reading(devices=(first, PAIR.devices[1], third), links=links))]).devices
    assert [(d.index, d.uuid, [link.peer for link in d.links]) for d in found] == [(0, "A-1", [1]), (1, "A-2", [0])]


def test_a_machine_without_drivers_has_no_devices():
    assert joined([]) == Discovery((), "no accelerator, and no driver of one")
