"""Environment variables that show a program its own devices and no others.

Every vendor's list is set, to nothing where the replica has none of that vendor: a program without devices must not
see all of them.
"""

from collections.abc import Sequence

from penstock.core.model.resources import Device

VENDOR_VARIABLES: dict[str, tuple[str, ...]] = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "huawei": ("ASCEND_RT_VISIBLE_DEVICES",),
    "intel": ("HABANA_VISIBLE_MODULES",),
    "google": ("TPU_VISIBLE_CHIPS",),
}


def visibility(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables for a replica that holds `devices` (of one node).

    Simulated devices appear in `PENSTOCK_DEVICES` alone: no driver knows them.
    """
    found = dict.fromkeys((name for names in VENDOR_VARIABLES.values() for name in names), "")
    for vendor, names in VENDOR_VARIABLES.items():
        listed = ",".join(d.uuid or str(d.index) for d in devices if d.vendor == vendor and not d.simulated)
        found |= dict.fromkeys(names, listed)
    found["PENSTOCK_DEVICES"] = ",".join(str(d.index) for d in devices)
    found["PENSTOCK_DEVICES_SIMULATED"] = "1" if any(d.simulated for d in devices) else "0"
    return found
