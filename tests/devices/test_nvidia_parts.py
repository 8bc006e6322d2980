"""Instances of MIG are devices where nothing else of their device can be used: in containers, and without rights."""

from msgspec.structs import replace

from penstock.devices.nvidia_parts import as_devices, parts_alone
from penstock.devices.reading import LinkFacts
from penstock.testing.devices import Recorded, check_inventory, check_sample
from tests.devices.nvidia_machines import GIB, codes, divided, library, nvidia, on, parts, sampled
from tests.devices.nvml_library import Library, loaded


def restricted() -> Library:
    """Return a library whose first device is divided, and refuses its memory and the places of its instances."""
    made = library()
    divided(made.gpus[0])
    made.gpus[0].facts = replace(made.gpus[0].facts, memory_bytes=None)
    made.fault = lambda function, device: 4 if function in ("nvmlDeviceGetGpuInstanceById",) else 0
    made.absent = {"nvmlDeviceGetGpuInstanceProfileInfoV"}
    return made


def test_a_container_has_the_instances_that_it_was_given():
    with loaded(restricted()) as nvml:
        here = nvidia().inventory(Recorded())
        check_inventory(here)
        model = nvml.gpus[0].facts.model
        assert [(device.uuid, device.model, device.memory_bytes) for device in here.devices[:2]] == [
            (parts()[0].uuid, f"{model} MIG 1g.10gb", 10 * GIB),
            (parts()[1].uuid, f"{model} MIG 3g.40gb", 40 * GIB),
        ]
        assert [device.uuid for device in here.devices[2:]] == [gpu.facts.uuid for gpu in nvml.gpus[1:]]
        assert here.links == (LinkFacts(2, 3, "node"),)


def test_what_a_sample_says_is_of_the_instance():
    with loaded(restricted()) as nvml:
        provider = nvidia()
        here = provider.inventory(Recorded())
        nvml.gpus[0].fields = {144: 1}
        nvml.events = [(0, 94, 2)]
        nvml.gpus[0].reasons = 0
        sampled(provider)
        nvml.events = [(0, 94, 2)]
        sample = sampled(provider)
        check_sample(sample, here)
        small, large = (part.uuid for part in parts())
        assert [device.memory_used_bytes for device in sample.devices[:2]] == [GIB, GIB]
        assert sorted(on(sample))[-2:] == [(2002, large, None), (2009, small, None)]
        told = [(finding.code, finding.uuid) for finding in sample.findings]
        assert told == [("row_remap_pending", small), ("row_remap_pending", large), ("ecc_contained", large)]


def test_a_device_whose_memory_is_told_stays_whole():
    with loaded(restricted()) as nvml:
        nvml.gpus[0].facts = replace(nvml.gpus[0].facts, memory_bytes=80 * GIB)
        here = nvidia().inventory(Recorded())
        assert (len(here.devices), len(here.devices[0].parts), codes(here)) == (3, 2, [])
        assert as_devices(here, parts_alone(here.devices)) is here


def test_an_administrator_whom_nvml_fails_to_tell_the_memory_keeps_the_device_whole():
    with loaded(restricted()) as nvml:
        nvml.fault = lambda function, device: 0
        assert len(nvidia().inventory(Recorded()).devices) == 3
