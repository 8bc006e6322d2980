"""The condition of devices, folded from readings: one wrong reading changes nothing, no stranger is ours."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.resources import Device
from penstock.devices.condition import EVENT_KEPT_MS, SEEN_LEAST, UNSEEN_LEAST, Condition, Host
from penstock.devices.reading import DeviceFacts, Finding, ProcessFacts, Reading
from penstock.devices.samples import DeviceSample
from tests.properties import examples

DEVICES = [Device(i, "acme", "A1", 2**30, uuid=f"U{i}") for i in range(4)]
FACTS = tuple(DeviceFacts(index=i, uuid=f"U{i}", pci=f"0000:0{i}:00.0") for i in range(4))
GONE = Finding(code="row_remap_failed", text="row remapping failed", uuid="U1")


@dataclass
class Machine:
    """Processes by number: when they began, and whether they are ours."""

    started: dict[int, int] = field(default_factory=dict)
    ours: set[int] = field(default_factory=set)

    @property
    def host(self) -> Host:
        return Host(self.ours.__contains__, self.started.get, lambda pid: "ada")


class Bench:
    def __init__(self) -> None:
        self.machine, self.condition, self.now_ms = Machine(), Condition(DEVICES), 0
        self.take(kind="inventory")

    def take(self, *findings, devices=FACTS, processes=(), kind="sample", vendor="acme"):
        self.now_ms += 1000
        reading = Reading(devices=devices, findings=findings, processes=processes)
        self.condition.take(DeviceSample(vendor, kind, reading), self.now_ms, self.machine.host)

    @property
    def faults(self):
        return [(one.index, one.code) for one in self.condition.faults(self.now_ms)]

    @property
    def users(self):
        return [(one.index, one.pid) for one in self.condition.users()]


@pytest.fixture
def bench():
    return Bench()


def on(index, pid, name="train"):
    return ProcessFacts(pid=pid, uuid=f"U{index}", name=name)


def test_a_state_counts_when_two_readings_show_it_and_is_over_after_three(bench):
    bench.take(GONE)
    assert bench.faults == []
    bench.take(GONE)
    assert bench.faults == [(1, "row_remap_failed")]
    for _ in range(2):
        bench.take()
        assert bench.faults == [(1, "row_remap_failed")]
    bench.take()
    assert bench.faults == []


def test_one_wrong_reading_changes_nothing(bench):
    for _ in range(10):
        bench.take(GONE)
        bench.take()
    assert bench.faults == []


def test_an_event_counts_at_once_and_for_a_while(bench):
    xid = Finding(code="lost", text="Xid 79", number=79, time_s=5.0, pci="0000:02:00.0")
    bench.take(xid)
    assert bench.faults == [(2, "lost")]
    bench.now_ms += EVENT_KEPT_MS
    assert bench.faults == []
    bench.take(xid)  # the same line of the log again
    assert bench.faults == []


@pytest.mark.parametrize("code", ["reset_required", "init_failed", "row_remap_pending", "page_retirement_pending"])
def test_an_xid_is_an_event_whatever_it_means_for_the_device(bench, code):
    bench.take(Finding(code=code, text="Xid", number=119, uuid="U2"))
    assert bench.faults == [(2, code)]


def test_an_event_is_kept_for_a_server_that_is_away(bench):
    bench.take(Finding(code="lost", text="Xid 79", number=79, time_s=5.0, pci="0000:02:00.0"))
    bench.now_ms += EVENT_KEPT_MS - 1
    bench.condition.keep_events(bench.now_ms)
    bench.now_ms += EVENT_KEPT_MS - 1
    assert bench.faults == [(2, "lost")]


def test_a_device_that_disappears_is_lost_and_the_others_are_not(bench):
    bench.take(devices=FACTS[:3])
    bench.take(devices=FACTS[:3])
    assert bench.faults == [(3, "lost")]


def test_an_output_that_is_cut_says_nothing_about_devices_that_it_does_not_show(bench):
    cut = Finding(code="cut", text="the last row is not whole")
    for _ in range(5):
        bench.take(cut, devices=FACTS[:2])
    assert bench.faults == []


def test_a_cut_output_clears_no_fault_of_a_device_that_it_does_not_show(bench):
    bench.take(GONE)
    bench.take(GONE)
    for _ in range(5):
        bench.take(Finding(code="cut", text="the last row is not whole"), devices=FACTS[:1])
    assert bench.faults == [(1, "row_remap_failed")]


def test_a_warning_closes_nothing(bench):
    for _ in range(3):
        bench.take(Finding(code="throttled", text="power", uuid="U1"))
    assert bench.faults == []


def test_no_device_at_all_is_believed_only_when_the_output_says_so(bench):
    for _ in range(5):
        bench.take(devices=())
    assert bench.faults == []
    for _ in range(SEEN_LEAST):
        bench.take(Finding(code="no_devices", text="No devices were found"), devices=())
    assert bench.faults == [(i, "lost") for i in range(4)]


def test_a_silent_provider_leaves_its_devices_as_they_were(bench):
    bench.take(GONE)
    bench.take(GONE)
    bench.take(Finding(code="tool_timeout", text="it does not answer"), devices=(), kind="silent")
    assert bench.faults == [(1, "row_remap_failed")]
    assert bench.condition.notes() == ("it does not answer",)
    bench.take()
    assert bench.condition.notes() == ()


def test_findings_of_other_vendors_and_of_unknown_devices_close_nothing(bench):
    other = Finding(code="unhealthy", text="", uuid="U9")
    for _ in range(5):
        bench.take(other, Finding(code="unhealthy", text="", index=17))
        bench.take(GONE, vendor="other", devices=())
    assert bench.faults == []


def test_a_stranger_is_seen_in_the_second_reading_and_gone_when_it_has_ended(bench):
    bench.machine.started[7] = 100
    bench.take(processes=[on(2, 7)])
    assert bench.users == []
    bench.take(processes=[on(2, 7)])
    assert bench.users == [(2, 7)]
    assert bench.condition.users()[0].user == "ada"
    del bench.machine.started[7]
    bench.take(processes=[on(2, 7)])  # the driver still shows it
    assert bench.users == []


def test_a_stranger_that_lives_is_kept_for_some_readings_without_it(bench):
    bench.machine.started[7] = 100
    for _ in range(2):
        bench.take(processes=[on(2, 7)])
    bench.take()
    assert bench.users == [(2, 7)]
    for _ in range(UNSEEN_LEAST):
        bench.take()
    assert bench.users == []


def test_programs_that_only_show_devices_are_no_strangers(bench):
    bench.machine.started |= {7: 1, 8: 1}
    for _ in range(3):
        bench.take(processes=[on(0, 7, "/usr/lib/xorg/Xorg"), on(0, 8, "nvidia-smi")])
    assert bench.users == []


def test_a_process_of_ours_is_none_of_theirs_even_after_its_replica_has_ended(bench):
    bench.machine.started[7], bench.machine.ours = 100, {7}
    bench.take(processes=[on(2, 7)])
    bench.machine.ours = set()  # its box is gone, the driver still holds it
    for _ in range(5):
        bench.take(processes=[on(2, 7)])
    assert bench.users == []
    bench.machine.started[7] = 200  # another process with its number
    for _ in range(2):
        bench.take(processes=[on(2, 7)])
    assert bench.users == [(2, 7)]


def test_a_device_that_came_later_is_named_and_changes_no_other(bench):
    new = DeviceFacts(index=4, uuid="U9", model="A2", memory_bytes=2**30)
    bench.take(devices=(*FACTS, new), kind="inventory")
    assert [note.partition(":")[0] for note in bench.condition.notes()] == ["acme A2 U9 is new"]
    assert bench.condition.new() == 1
    bench.take(Finding(code="unhealthy", text="", uuid="U9"), devices=(*FACTS, new))
    bench.take(Finding(code="unhealthy", text="", uuid="U9"), devices=(*FACTS, new))
    assert bench.faults == []


STEP = st.tuples(
    st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4, unique=True),  # devices shown
    st.lists(st.sampled_from([0, 1, 2, 3]), max_size=2),  # devices with a closing finding
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.sampled_from([7, 8, 9])), max_size=3),  # processes
    st.sampled_from(["sample", "sample", "sample", "inventory", "silent"]),
)


@examples(200)
@given(st.lists(STEP, max_size=25))
def test_whatever_is_read_only_devices_that_were_shown_ill_or_missing_are_at_fault(steps):
    bench = Bench()
    bench.machine.started, bench.machine.ours = {7: 1, 8: 1}, {8}
    ill: set[int] = set()
    for shown, wrong, processes, kind in steps:
        if kind != "silent":
            ill |= set(wrong) | ({0, 1, 2, 3} - set(shown) if shown else set())
        findings = [Finding(code="unhealthy", text="", uuid=f"U{i}") for i in wrong]
        bench.take(*findings, devices=[FACTS[i] for i in shown], processes=[on(*p) for p in processes], kind=kind)
        assert {index for index, _ in bench.faults} <= ill
        assert {pid for _, pid in bench.users} <= {7}
    for _ in range(UNSEEN_LEAST + 1):
        bench.take()
    assert bench.faults == []
    assert bench.users == []
