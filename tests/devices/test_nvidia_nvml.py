"""NVIDIA devices through NVML: the real package calls a library whose devices are recorded ones."""

import sys

import pytest
from msgspec.structs import replace

from penstock.devices.nvidia_nvml import NO_PACKAGE, PAUSE_S
from penstock.devices.reading import LinkFacts
from penstock.testing.devices import Recorded, check_inventory, check_sample
from tests.devices.nvidia_machines import GIB, Clock, codes, divided, library, nvidia, on, parts, sampled
from tests.devices.nvml_library import LOST, NO_INSTANCE, Running, loaded

SYSTEM = Recorded(files={f"/sys/bus/pci/devices/0000:0{n + 1}:00.0/numa_node": f"{n % 2}\n" for n in range(3)})


def test_an_inventory_has_what_stays_the_same():
    with loaded(library()) as nvml:
        here = nvidia().inventory(SYSTEM)
        check_inventory(here)
        for at, (device, gpu) in enumerate(zip(here.devices, nvml.gpus, strict=True)):
            wanted = gpu.facts
            assert (device.index, device.uuid, device.pci, device.model) == (at, wanted.uuid, wanted.pci, wanted.model)
            assert (device.serial, device.minor, device.capability) == (wanted.serial, at, (8, 0))
            assert (device.memory_bytes, device.numa_node) == (wanted.memory_bytes, at % 2)
            assert device.files == (f"/dev/nvidia{at}",)
        assert (here.driver, here.findings) == ("535.183.01", ())


def test_devices_are_in_the_order_of_their_addresses():
    with loaded(library()) as nvml:
        nvml.gpus.reverse()
        here = nvidia().inventory(Recorded())
        assert [(device.index, device.pci[5:7]) for device in here.devices] == [(0, "01"), (1, "02"), (2, "03")]


def test_links_are_the_closest_ones():
    with loaded(library()) as nvml:
        nvml.gpus[1].group = nvml.gpus[2].group = 1
        assert nvidia().inventory(Recorded()).links == (
            LinkFacts(0, 1, "pcie"),
            LinkFacts(0, 2, "node"),
            LinkFacts(1, 2, "nvlink"),
        )


def test_a_pair_of_which_nvml_does_not_say_has_no_link():
    with loaded(library()) as nvml:
        nvml.gpus[1].group = nvml.gpus[2].group = 1
        nvml.fault = lambda function, device: 999 if function == "nvmlDeviceGetP2PStatus" and device == 1 else 0
        assert nvidia().inventory(Recorded()).links == (LinkFacts(0, 1, "pcie"), LinkFacts(0, 2, "node"))


def test_memory_that_cannot_be_is_not_told():
    with loaded(library()) as nvml:
        facts = nvml.gpus[0].facts
        nvml.gpus[0].facts = replace(facts, memory_used_bytes=facts.memory_bytes + 1)
        assert nvidia().inventory(Recorded()).devices[0].memory_bytes is None


def test_parts_have_their_profile_and_place():
    with loaded(library()) as nvml:
        divided(nvml.gpus[1])
        here = nvidia().inventory(Recorded())
        assert (here.devices[1].partitioned, here.devices[1].parts) == (True, parts())
        assert (here.devices[0].partitioned, here.devices[0].parts) == (None, ())


def test_an_instance_without_a_compute_instance_is_a_part():
    with loaded(library()) as nvml:
        divided(nvml.gpus[1])
        bare = replace(parts()[1], compute_instance=None, uuid="", memory_used_bytes=None)
        nvml.gpus[1].facts = replace(nvml.gpus[1].facts, parts=(parts()[0], bare))
        assert nvidia().inventory(Recorded()).devices[1].parts == (parts()[0], bare)


def test_a_user_who_may_not_see_places_sees_the_parts():
    with loaded(library()) as nvml:
        divided(nvml.gpus[0])
        nvml.fault = lambda function, device: 4 if "GpuInstance" in function and "Id" not in function[-3:] else 0
        nvml.absent = {"nvmlDeviceGetGpuInstanceById"}
        seen = nvidia().inventory(Recorded()).devices[0].parts
        assert [(part.profile, part.instance, part.start) for part in seen] == [
            ("1g.10gb", 9, None),
            ("3g.40gb", 2, None),
        ]


def test_a_sample_has_what_changes():
    with loaded(library()) as nvml:
        gpu = nvml.gpus[2]
        gpu.fields |= {38: 1, 52: 2}
        provider = nvidia()
        here = provider.inventory(Recorded())
        sample = sampled(provider)
        check_sample(sample, here)
        device, wanted = sample.devices[2], gpu.facts
        for name in ("memory_used_bytes", "use_milli", "temperature_c", "power_mw", "power_limit_mw", "clock_mhz"):
            assert getattr(device, name) == getattr(wanted, name) != None  # noqa: E711 - each of them is recorded
        assert (device.energy_mj, device.ecc_corrected, device.link_errors) == (1_000_002, 2, 3)
        assert on(sample) == [(1000 + at, gpu.facts.uuid, None) for at, gpu in enumerate(nvml.gpus)]


def test_processes_on_parts_name_the_instance_once():
    with loaded(library()) as nvml:
        uuid = divided(nvml.gpus[0]).facts.uuid
        sample = sampled(nvidia())
        assert sorted(on(sample))[-2:] == [(2002, uuid, 2), (2009, uuid, 9)]
        assert [part.memory_used_bytes for part in sample.devices[0].parts] == [GIB, GIB]
        nvml.fault = lambda function, device: 4 if "ComputeRunning" in function and device == 0 else 0
        assert [row for row in on(sampled(nvidia())) if row[1] == uuid] == []


def test_programs_that_draw_and_clients_of_mps_are_processes_too():
    with loaded(library("q-x-12.xml")) as nvml:
        nvml.gpus[0].processes = [
            Running(pid=1, memory=4, kind="graphics"),
            Running(pid=2, memory=5, kind="graphics"),
            Running(pid=2, memory=9),
            Running(pid=3, memory=7, kind="mps"),
        ]
        seen = [(each.pid, each.memory_bytes) for each in sampled(nvidia()).processes]
        assert sorted(seen) == [(1, 4), (2, 9), (3, 7)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"reasons": 0x40}, "too_hot"),
        ({"reasons": 0x88}, "throttled"),
        ({"reasons": 0x4}, None),
        ({"fields": {144: 1}}, "row_remap_pending"),
        ({"fields": {145: 1}}, "row_remap_failed"),
        ({"fields": {31: 1}}, "page_retirement_pending"),
        ({"fields": {29: 1, 30: 1}}, "pages_retired"),
        ({"fields": {230: 1}}, "reset_required"),
        ({"fields": {230: 0, 4: 0}}, None),
        ({"fabric": (3, 0, 0)}, None),
        ({"fabric": (0, 0, 0)}, None),
        ({"fabric": (2, 0, 0)}, "fabric_fault"),
        ({"fabric": (3, 999, 0)}, "fabric_fault"),
        ({"fabric": (3, 0, 1 << 4)}, "fabric_fault"),
        ({"fabric": (3, 0, 6 << 8)}, "fabric_fault"),
        ({"fabric": (3, 0, 0x2 | 0x2 << 2 | 0x2 << 4 | 0x2 << 6 | 0x1 << 8)}, None),
        ({"fabric": (3, 0, 1)}, "link_fault"),
    ],
    ids=str,
)
def test_what_a_device_says_of_itself_is_a_finding(change, code):
    with loaded(library()) as nvml:
        for name, value in change.items():
            setattr(nvml.gpus[1], name, value)
        sample = sampled(nvidia())
        wanted = [(code, nvml.gpus[1].facts.uuid)] if code else []
        assert [(finding.code, finding.uuid) for finding in sample.findings] == wanted


def test_the_reasons_of_low_clocks_are_named():
    with loaded(library()) as nvml:
        nvml.gpus[0].reasons, nvml.gpus[1].reasons = 0x4 | 0x8, 0x20
        nvml.absent = {"nvmlDeviceGetCurrentClocksEventReasons"}  # before driver 535
        assert [device.throttled for device in sampled(nvidia()).devices] == [("power", "hardware"), ("heat",), ()]


def test_a_change_of_mig_that_waits_for_a_reset_is_a_finding():
    with loaded(library()) as nvml:
        divided(nvml.gpus[0]).mig_pending = False
        assert codes(sampled(nvidia())) == ["mig_pending"]


def test_errors_count_when_they_grow():
    with loaded(library()) as nvml:
        provider = nvidia()
        nvml.gpus[0].fields = {4: 2, 52: 7}
        assert codes(sampled(provider)) == ["degraded"]
        nvml.gpus[0].fields = {4: 3, 52: 9}
        grown = sampled(provider).findings
        assert [(finding.code, finding.text) for finding in grown] == [
            ("ecc_uncorrected", "uncorrected memory errors: 3, 1 more than before"),
            ("link_fault", "errors of links: 9, 2 more than before"),
        ]
        assert all(finding.time_s for finding in grown)  # events: they are seen once
        nvml.gpus[0].fields = {4: 0, 52: 0}  # the driver was reloaded
        assert codes(sampled(provider)) == []


def test_xids_come_as_events():
    with loaded(library()) as nvml:
        provider = nvidia()
        assert codes(sampled(provider)) == []
        nvml.events = [(1, 79, NO_INSTANCE), (2, 94, 9), (0, 13, NO_INSTANCE), (2, 154, NO_INSTANCE)]
        told = [(f.code, f.number, f.uuid, f.instance) for f in sampled(provider).findings]
        uuids = [gpu.facts.uuid for gpu in nvml.gpus]
        assert told == [
            ("lost", 79, uuids[1], None),
            ("ecc_contained", 94, uuids[2], 9),
            ("program_fault", 13, uuids[0], None),
        ]
        assert codes(sampled(provider)) == []


def test_events_that_fail_are_asked_for_again_after_a_pause():
    with loaded(library()) as nvml:
        clock = Clock()
        provider = nvidia(clock)
        sampled(provider)
        nvml.fault = lambda function, device: 999 if function == "nvmlEventSetWait_v2" else 0
        sampled(provider)
        nvml.fault = lambda function, device: 0
        nvml.events = [(1, 79, NO_INSTANCE)]
        assert (codes(sampled(provider)), nvml.sets) == ([], 0)
        clock.now += PAUSE_S
        assert (codes(sampled(provider)), nvml.sets) == (["lost"], 1)


def test_a_lost_device_is_named_and_takes_no_other_with_it():
    with loaded(library()) as nvml:
        provider = nvidia()
        before = sampled(provider)
        nvml.fault = lambda function, device: LOST if device == 1 else 0
        after = sampled(provider)
        assert [(f.code, f.uuid) for f in after.findings] == [("lost", nvml.gpus[1].facts.uuid)]
        assert after.devices == (before.devices[0], before.devices[2])


def test_a_lost_device_comes_back_when_nvml_is_started_anew():
    with loaded(library()) as nvml:
        clock = Clock()
        provider = nvidia(clock)
        here = provider.inventory(Recorded())
        nvml.gpus[1].seen = False
        nvml.reload()
        gone = sampled(provider)
        assert [(f.code, f.uuid) for f in gone.findings] == [("lost", here.devices[1].uuid)]
        assert [device.index for device in provider.inventory(Recorded()).devices] == [0, 1]
        nvml.gpus[1].seen = True
        assert len(sampled(provider).devices) == 2
        clock.now += PAUSE_S
        assert len(sampled(provider).devices) == 3
        assert (nvml.started, nvml.sets) == (1, 1)


def test_a_device_that_is_lost_from_the_start_is_named_by_the_kernel():
    with loaded(library()) as nvml:
        nvml.gpus[1].seen = False
        folder = "/proc/driver/nvidia/gpus"
        files = {f"{folder}/{gpu.facts.pci}/information": f"GPU UUID: \t {gpu.facts.uuid}\n" for gpu in nvml.gpus}
        wanted = nvml.gpus[1].facts
        assert [(f.code, f.uuid, f.pci) for f in nvidia().inventory(Recorded(files=files)).findings] == [
            ("lost", wanted.uuid, wanted.pci)
        ]
        unnamed = nvidia().inventory(Recorded()).findings[0]
        assert (unnamed.index, unnamed.uuid, "counts it as 1" in unnamed.text) == (None, "", True)


def test_nvml_is_started_anew_after_the_driver_was_reloaded():
    with loaded(library()) as nvml:
        provider = nvidia()
        before = sampled(provider)
        nvml.reload()
        assert sampled(provider) == before
        nvml.gpus.pop()
        assert len(sampled(provider).devices) == 2
        nvml.events = [(1, 79, NO_INSTANCE)]
        assert codes(sampled(provider)) == ["lost"]
        assert (nvml.started, nvml.sets) == (1, 1)


def test_one_call_that_misses_the_driver_starts_nvml_anew_for_the_next_sample():
    with loaded(library()) as nvml:
        provider = nvidia()
        before = sampled(provider)
        nvml.fault = lambda function, device: 1 if function == "nvmlDeviceGetTemperature" and device == 1 else 0
        during = sampled(provider)
        assert (during.devices[::2], during.devices[1].temperature_c) == (before.devices[::2], None)
        nvml.fault = lambda function, device: 0
        nvml.calls.clear()
        assert (sampled(provider), nvml.calls.count("nvmlInitWithFlags")) == (before, 1)


def test_samples_start_nothing_and_keep_nothing():
    with loaded(library()) as nvml:
        provider = nvidia()
        sampled(provider)
        nvml.calls.clear()
        first = (sampled(provider), len(nvml.calls))[1]
        for _ in range(50):
            sampled(provider)
        assert len(nvml.calls) == 51 * first
        assert (nvml.started, nvml.sets, "nvmlInitWithFlags" in nvml.calls) == (1, 1, False)


@pytest.mark.parametrize(
    ("error", "code"), [(9, "no_driver"), (18, "driver_mismatch"), (4, "no_permission"), (999, "tool_failed")]
)
@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_nvml_that_does_not_start_says_why(error, code, function):
    with loaded(library()) as nvml:
        nvml.fault = lambda name, device: error if name == function else 0
        provider = nvidia()
        assert (provider.inventory(Recorded()).devices, codes(provider.inventory(Recorded()))[0]) == ((), code)
        assert codes(sampled(provider))[0] == code
        nvml.fault = lambda name, device: 0
        assert len(sampled(provider).devices) == 3
        assert nvml.started == 1


def test_a_missing_package_is_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvidia().inventory(Recorded()).findings[0] == NO_PACKAGE


def test_a_machine_whose_devices_have_gone_says_so():
    with loaded(library()) as nvml:
        provider = nvidia()
        sampled(provider)
        nvml.gpus.clear()
        assert (sampled(provider).devices, codes(sampled(provider))) == ((), ["no_devices"])
        assert codes(provider.inventory(Recorded())) == ["no_devices"]
