"""What is alike for providers that ask tools: failures, the first whole answer, names of devices in two outputs."""

import pytest

from penstock.devices.by_tools import Question, ask, first_of, joined, named_as, numbered
from penstock.devices.provider import Output
from penstock.devices.reading import DeviceFacts, Finding, LinkFacts, ProcessFacts, Reading
from penstock.testing.devices import Recorded

ONE, TWO = DeviceFacts(index=0, uuid="U0", pci="0000:01:00.0"), DeviceFacts(index=1, uuid="U1", pci="0000:02:00.0")
CUT = Finding(code="cut", text="the last line has no end")


def question(tool: str, *readings: Reading) -> Question:
    """Return a question whose answer is told by the number that the tool prints."""
    return Question((tool,), lambda text: readings[int(text)] if text.strip().isdigit() else Reading())


def test_a_tool_that_fails_behind_a_whole_output_is_a_finding_and_its_devices_stay():
    reading = ask(Recorded({("smi",): Output("0", "bus error\n", 7)}), question("smi", Reading(devices=(ONE,))))
    assert reading.devices == (ONE,)
    assert [(finding.code, finding.text) for finding in reading.findings] == [
        ("tool_failed", "'smi' ended with 7: bus error")
    ]


def test_tools_are_looked_for_where_their_vendors_install_them():
    sources = Recorded({("/opt/rocm/bin/amd-smi", "list"): "0"})
    asked = Question(("amd-smi", "list"), lambda text: Reading(devices=(ONE,)))
    assert ask(sources, asked).devices == (ONE,)
    assert ask(Recorded({("amd-smi", "list"): "0"}), asked).devices == (ONE,)
    missing = ask(Recorded(), asked)
    assert [finding.text for finding in missing.findings] == ["'amd-smi' is not installed"]


@pytest.mark.parametrize(
    ("said", "code"),
    [("", "tool_failed"), ("Operation not permitted\n", "no_permission"), ("timed out\n", "tool_timeout")],
)
def test_what_a_tool_says_of_its_failure_tells_the_kind(said, code):
    reading = ask(Recorded({("smi",): Output("", said, 1)}), question("smi"))
    assert [finding.code for finding in reading.findings] == [code]


def test_the_first_whole_answer_wins_and_what_was_wrong_with_others_is_kept():
    sources = Recorded({("a",): "0", ("b",): "0", ("c",): "0"})
    cut, whole = Reading(devices=(ONE,), findings=(CUT,)), Reading(devices=(ONE, TWO))
    reading = first_of(sources, [question("a", cut), question("b", whole), question("c", Reading())])
    assert (reading.devices, reading.findings) == ((ONE, TWO), (CUT,))
    assert sources.asked == [("a",), ("b",)]


def test_without_a_whole_answer_that_with_the_most_devices_is_taken():
    sources = Recorded({("a",): "0", ("b",): "0"})
    most = Reading(devices=(ONE, TWO), findings=(CUT,))
    reading = first_of(sources, [question("a", most), question("b", Reading(devices=(ONE,), findings=(CUT,)))])
    assert reading.devices == (ONE, TWO)


def test_a_missing_tool_is_a_finding_only_where_no_other_has_answered():
    missing = Finding(code="tool_failed", text="'a' is not installed")
    questions = [question("a"), question("b", Reading(devices=(ONE,)))]
    assert first_of(Recorded({("b",): "0"}), questions).findings == ()
    assert missing in first_of(Recorded(), questions).findings


def test_names_of_two_devices_are_of_neither():
    mixed = Reading(devices=(DeviceFacts(index=5, uuid="U0", pci="0000:02:00.0", power_mw=1),))
    assert named_as(mixed, [ONE, TWO]).devices == ()
    assert joined(Reading(devices=(ONE, TWO)), mixed).devices == (ONE, TWO)
    replaced = Reading(devices=(DeviceFacts(uuid="U9", pci=ONE.pci),))
    assert named_as(replaced, [ONE, TWO]).devices == ()


def test_a_name_that_two_devices_share_is_of_neither():
    twins = [DeviceFacts(index=0, pci="0000:01:00.0"), DeviceFacts(index=1, pci="0000:01:00.0")]
    assert named_as(Reading(devices=(DeviceFacts(pci="0000:01:00.0"),)), twins).devices == ()


def test_processes_and_findings_follow_the_device_that_their_output_numbers_otherwise():
    other = Reading(
        devices=(DeviceFacts(index=7, pci=TWO.pci, power_mw=5),),
        processes=(ProcessFacts(pid=10, index=7), ProcessFacts(pid=11, index=8), ProcessFacts(pid=12, pci=ONE.pci)),
        findings=(Finding(code="lost", text="gone", index=7), Finding(code="lost", text="which", index=8)),
    )
    named = named_as(other, [ONE, TWO])
    assert [(each.pid, each.index, each.uuid) for each in named.processes] == [(10, 1, "U1"), (12, 0, "U0")]
    assert [(each.text, each.index, each.uuid) for each in named.findings] == [("gone", 1, "U1"), ("which", None, "")]
    assert [(each.index, each.uuid, each.power_mw) for each in named.devices] == [(1, "U1", 5)]


def test_an_index_counts_only_where_it_is_counted_alike():
    bare = Reading(devices=(DeviceFacts(index=1, power_mw=5),))
    assert named_as(bare, [ONE, TWO]).devices == ()
    assert [each.uuid for each in named_as(bare, [ONE, TWO], counted_alike=True).devices] == ["U1"]


def test_what_an_inventory_has_stays_and_what_it_lacks_is_filled():
    here = Reading(
        devices=(DeviceFacts(index=0, pci=ONE.pci, model="A"), TWO), links=(LinkFacts(0, 1, "pcie"),), driver=""
    )
    more = Reading(
        devices=(DeviceFacts(index=1, uuid="U0", pci=ONE.pci, model="B", power_mw=5),), findings=(CUT,), driver="7"
    )
    both = joined(here, more)
    assert both.devices == (DeviceFacts(index=0, uuid="U0", pci=ONE.pci, model="A", power_mw=5), TWO)
    assert (both.links, both.findings, both.driver) == (here.links, (CUT,), "7")


@pytest.mark.parametrize(
    ("paths", "ordered"),
    [
        ([f"/dev/x{at}" for at in (0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9)], [f"/dev/x{at}" for at in range(11)]),
        (["/dev/x1", "/dev/x2"], []),
        (["/dev/x0", "/dev/x2"], []),
        (["/dev/x", "/dev/x0"], ["/dev/x0"]),
        ([], []),
    ],
)
def test_files_are_in_the_order_of_their_numbers_or_not_at_all(paths, ordered):
    assert numbered(paths) == ordered
