"""Devices as dcgm-exporter samples them, and as a node counts them."""

import pytest

from penstock.devices import kubernetes_tools
from tests.devices.tool_outputs import codes, read, text_of, told

UUID = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"


@pytest.mark.parametrize("number", [1, 2])
def test_a_value_that_dcgm_does_not_have_is_none(number):
    reading = read(f"k8s/dcgm-exporter-{number}.prom")
    assert [told(device) for device in reading.devices] == [{"index": 0, "uuid": UUID, "clock_mhz": 139}]
    assert codes(reading) == ["unknown_format"]


@pytest.mark.parametrize("value", ["9223372036854775792", "9.223372036854776e+18", "140737488355329", "2147483634"])
def test_every_blank_of_dcgm_is_none(value):
    text = f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{UUID}"}} {value}\n'
    (device,) = kubernetes_tools.parse_samples(text + text.replace("GPU_TEMP", "SM_CLOCK")).devices
    assert told(device) == {"index": 0, "uuid": UUID}


def test_samples_give_the_facts_of_their_fields():
    labels = f'gpu="3",UUID="{UUID}",pci_bus_id="00000000:9B:00.0",modelName="NVIDIA H100, 80GB"'
    values = {"GPU_TEMP": "41", "POWER_USAGE": "98.5", "GPU_UTIL": "7", "FB_USED": "512", "ECC_DBE_VOL_TOTAL": "2"}
    text = "".join(f"DCGM_FI_DEV_{name}{{{labels}}} {value}\n" for name, value in values.items())
    part = f'DCGM_FI_DEV_GPU_UTIL{{{labels},GPU_I_ID="1"}} 99\n'
    reading = kubernetes_tools.parse_samples(text + part)
    identity = {"index": 3, "uuid": UUID, "pci": "0000:9b:00.0", "model": "NVIDIA H100, 80GB"}
    moment = {"temperature_c": 41, "power_mw": 98_500, "use_milli": 70, "memory_used_bytes": 512 * 2**20}
    assert [told(device) for device in reading.devices] == [{**identity, **moment, "ecc_uncorrected": 2}]
    assert codes(reading) == ["ecc_uncorrected"]


def test_a_field_that_stands_twice_is_a_finding():
    text = text_of("k8s/dcgm-exporter-1.prom")
    sample = next(line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_SM_CLOCK{"))
    reading = kubernetes_tools.parse_samples(f"{sample}\n{sample.replace('139', '7')}\n")
    assert ([device.clock_mhz for device in reading.devices], codes(reading)) == ([139], ["unknown_format"])


@pytest.mark.parametrize(
    ("name", "count", "model"),
    [("lost-gpu-1", 7, ""), ("openshift-1", 8, ""), ("timeslicing-1", 4, "Tesla-T4"), ("timeslicing-2", 4, "Tesla-T4")],
)
def test_a_node_counts_devices_without_names(name, count, model):
    reading = read(f"k8s/node-describe-{name}.txt")
    assert ([device.model for device in reading.devices], codes(reading)) == ([model] * count, ["masked"])


def test_a_node_that_had_more_lost_some():
    reading = kubernetes_tools.parse_node(text_of("k8s/node-describe-lost-gpu-1.txt"), expected=8)
    assert [(f.code, f.text) for f in reading.findings][1:] == [("lost", "7 of 8 devices are left")]


def test_a_device_that_cannot_be_allocated_is_ill():
    before, allocatable, after = text_of("k8s/node-describe-openshift-1.txt").partition("Allocatable:")
    text = f"{before}{allocatable}{after.replace('8', '6', 1)}"
    reading = kubernetes_tools.parse_node(text)
    assert (len(reading.devices), codes(reading)) == (6, ["masked", "unhealthy"])
