"""A program sees its own devices and no others."""

from penstock.core.state.visibility import VENDOR_VARIABLES, visibility
from tests.core.builders import device


def test_a_program_without_devices_sees_none():
    found = visibility(())
    assert found == dict.fromkeys(found, "") | {"PENSTOCK_DEVICES_SIMULATED": "0"}
    assert {n for names in VENDOR_VARIABLES.values() for n in names} < set(found)


def test_devices_are_shown_to_their_own_vendor_only():
    found = visibility((device(1), device(3, uuid="GPU-3"), device(0, vendor="amd")))
    assert (found["CUDA_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == ("1,GPU-3", "0")
    assert (found["HIP_VISIBLE_DEVICES"], found["TPU_VISIBLE_CHIPS"]) == ("0", "")
    assert found["PENSTOCK_DEVICES"] == "1,3,0"


def test_simulated_devices_are_shown_to_no_driver():
    found = visibility((device(0, simulated=True),))
    assert (found["CUDA_VISIBLE_DEVICES"], found["PENSTOCK_DEVICES"]) == ("", "0")
    assert found["PENSTOCK_DEVICES_SIMULATED"] == "1"
