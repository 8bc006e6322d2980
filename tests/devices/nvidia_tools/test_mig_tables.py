"""Tables of `nvidia-smi mig` and its answers to orders, as recorded and damaged."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.devices.nvidia_tools.mig_answers import answer
from penstock.devices.nvidia_tools.mig_facts import FINDINGS_MAX, LINES_MAX, Change, Instance, MigReading, Mode, Refusal
from penstock.devices.nvidia_tools.mig_tables import (
    compute_instances,
    compute_profiles,
    gpu_instances,
    placements,
    profiles,
)
from penstock.devices.reading import INPUT_MAX
from tests.properties import LONG

RECORDINGS = Path(__file__).parent.parent / "recordings" / "nvidia"
GIB = 2**30
READERS: dict[str, Callable[[str], MigReading]] = {
    "lgi": gpu_instances,
    "lci": compute_instances,
    "lgip": profiles,
    "lcip": compute_profiles,
    "lgipp": placements,
    "cgi": answer,
    "on": answer,
}
RECORDED = sorted(path.name for path in RECORDINGS.glob("nvidia-smi-mig-*.txt"))
KINDS = 11
DAMAGED_PER_RECORDING = 400 if LONG else 24


def recorded(name: str) -> str:
    return (RECORDINGS / f"nvidia-smi-mig-{name}.txt").read_text(encoding="utf-8")


def reader(name: str) -> Callable[[str], MigReading]:
    return READERS[name.removeprefix("nvidia-smi-mig-").split("-")[0]]


def codes(reading: MigReading) -> list[str]:
    return [finding.code for finding in reading.findings]


@pytest.mark.parametrize(
    ("name", "expected", "found"),
    [
        ("lgi-1", ["3 1g.6gb 14 0:1", "4 1g.6gb 14 1:1", "2 2g.12gb 5 2:2"], []),
        ("lgi-2", [f"{7 + n} 1g.5gb 19 {n}:1" for n in range(7)], []),
        ("lgi-3", ["11 1g.5gb 19 0:1", "12 1g.5gb 19 1:1", "6 2g.10gb 14 2:2", "1 3g.20gb 9 4:4"], ["cut"]),
        ("lgi-4", ["9 1g.5gb 19 6:1", "3 2g.10gb 14 4:2", "2 4g.20gb 5 0:4"], []),
        ("lgi-5", [f"{3 + n} 1g.24gb 14 {3 * n}:3" for n in range(4)], ["cut"]),
        ("lgi-empty-1", [], []),
    ],
)
def test_gpu_instances_of_each_recording(name: str, expected: list[str], found: list[str]) -> None:
    reading = gpu_instances(recorded(name))

    assert [f"{i.instance} {i.name} {i.profile} {i.start}:{i.size}" for i in reading.instances] == expected
    assert {i.gpu for i in reading.instances} <= {0}
    assert codes(reading) == found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lci-1", ["11/0 1g.5gb 0 0:1"]),
        ("lci-2", ["9/0 1g.5gb 0 0:1", "3/0 1c.2g.10gb 0 0:1", "3/1 1c.2g.10gb 0 1:1", "2/0 4g.20gb 3 0:4"]),
        ("lci-3", [f"{n}/0 1g.24gb 0 0:1" for n in (3, 4, 5, 6)]),
    ],
)
def test_compute_instances_of_each_recording(name: str, expected: list[str]) -> None:
    reading = compute_instances(recorded(name))

    listed = [f"{i.instance}/{i.compute_instance} {i.name} {i.profile} {i.start}:{i.size}" for i in reading.instances]
    assert listed == expected
    assert codes(reading) == []


A100 = ["19 1g.5gb 7 4.75 14", "20 1g.5gb+me 1 4.75 14"]


@pytest.mark.parametrize(
    ("name", "expected", "taken", "found"),
    [
        (
            "lgip-1",
            ["14 1g.6gb 4 5.81 14", "21 1g.6gb+me 1 5.81 14", "5 2g.12gb 2 11.69 28", "6 2g.12gb+me 1 11.69 28",
             "0 4g.24gb 1 23.44 56"],
            False, [],
        ),
        (
            "lgip-2",
            ["19 1g.12gb 7 10.75 16", "20 1g.12gb+me 1 10.75 16", "15 1g.24gb 4 21.62 26", "14 2g.24gb 3 21.62 32",
             "9 3g.47gb 2 46.38 60", "5 4g.47gb 1 46.38 64", "0 7g.94gb 1 93.12 132"],
            False, [],
        ),
        (
            "lgip-3",
            ["19 1g.12gb 7 11.00 16", "20 1g.12gb+me 1 11.00 16", "15 1g.24gb 4 23.00 26", "14 2g.24gb 3 23.00 32",
             "9 3g.48gb 2 46.50 60", "5 4g.48gb 1 46.50 64", "0 7g.96gb 1 93.00 132"],
            False, [],
        ),
        (
            "lgip-4",
            [*A100, "14 2g.10gb 3 9.75 28", "9 3g.20gb 2 19.62 42", "5 4g.20gb 1 19.62 56"],
            True, ["cut"],
        ),
        (
            "lgip-5",
            [*A100, "15 1g.10gb 4 9.62 14", "14 2g.10gb 3 9.62 28", "9 3g.20gb 2 19.50 42", "5 4g.20gb 1 19.50 56",
             "0 7g.40gb 1 39.25 98"],
            False, [],
        ),
    ],
)  # fmt: skip
def test_profiles_of_each_recording(name: str, expected: list[str], taken: bool, found: list[str]) -> None:
    reading = profiles(recorded(name))

    listed = [
        f"{p.profile} {p.name} {p.total} {(p.memory_bytes or 0) / GIB:.2f} {p.multiprocessors}"
        for p in reading.profiles
    ]
    assert listed == expected
    assert [p.free for p in reading.profiles] == [0 if taken else p.total for p in reading.profiles]
    assert codes(reading) == found


def test_compute_profiles_have_their_own_ids_and_a_default() -> None:
    reading = compute_profiles(recorded("lcip-1"))

    listed = [(p.instance, p.profile, p.name, p.default, p.free, p.total) for p in reading.compute_profiles]
    assert listed == [(2, 0, "1c.2g.12gb", False, 0, 2), (2, 1, "2g.12gb", True, 0, 1)]
    assert [p.multiprocessors for p in reading.compute_profiles] == [14, 28]
    assert codes(reading) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lgipp-1", {14: ((0, 1, 2, 3), 1), 21: ((0, 1, 2, 3), 1), 5: ((0, 2), 2), 6: ((0, 2), 2), 0: ((0,), 4)}),
        (
            "lgipp-2",
            {
                19: ((0, 1, 2, 3, 4, 5, 6), 1), 20: ((0, 1, 2, 3, 4, 5, 6), 1), 15: ((0, 2, 4, 6), 2),
                14: ((0, 2, 4), 2), 9: ((0, 4), 4), 5: ((0,), 4), 0: ((0,), 8),
            },
        ),
    ],
)  # fmt: skip
def test_placements_of_each_recording(name: str, expected: dict[int, tuple[tuple[int, ...], int]]) -> None:
    reading = placements(recorded(name))

    assert {p.profile: (p.starts, p.size) for p in reading.placements} == expected
    assert codes(reading) == []


def test_answers_name_what_was_made() -> None:
    made = answer(recorded("cgi-1"))
    assert made.changes == (
        Change(done="created", gpu=0, instance=2, profile=5, name="2g.12gb"),
        Change(done="created", gpu=0, instance=2, compute_instance=0, profile=1, name="2g.12gb"),
    )
    assert made.findings == ()
    assert [c.instance for c in answer(recorded("cgi-2")).changes] == [5, 5, 3, 3, 4, 4]


def test_answers_name_what_was_destroyed_before_a_refusal() -> None:
    text = (
        "Successfully destroyed compute instance ID  1 from GPU  7 GPU instance ID 12\n"
        "Successfully destroyed GPU instance ID 12 from GPU  7\n"
        "Unable to destroy GPU instance ID  3 from GPU  7: In use by another client\n"
        "Failed to destroy GPU instances: In use by another client\n"
    )
    reading = answer(text)

    assert reading.changes == (
        Change(done="destroyed", gpu=7, instance=12, compute_instance=1),
        Change(done="destroyed", gpu=7, instance=12),
    )
    assert reading.refusals == (Refusal(reason="in_use", gpu=7, instance=3),)
    assert codes(reading) == ["tool_failed", "tool_failed"]


@pytest.mark.parametrize(("name", "reason"), [("cgi-error-1", "in_use"), ("cgi-error-2", "no_room")])
def test_refusals_have_a_reason(name: str, reason: str) -> None:
    reading = answer(recorded(name))

    assert [(r.reason, r.gpu, r.profile) for r in reading.refusals] == [(reason, 0, 20)]
    assert reading.changes == ()
    assert codes(reading) == ["tool_failed", "tool_failed"]


def test_refusal_of_a_compute_instance_names_both_ids() -> None:
    text = "Unable to destroy compute instance ID  1 from GPU  0 GPU instance ID  2: Blocage par un autre client\n"

    assert answer(text).refusals == (Refusal(reason="other", gpu=0, instance=2, compute_instance=1),)


def test_mode_is_only_effective_where_nothing_is_pending() -> None:
    pending = (
        "Warning: MIG mode is in pending enable state for GPU 00000000:00:03.0:Not Supported\n"
        "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU 00000000:00:03.0\n"
        "All done.\n"
    )

    on = answer(recorded("on-1"))
    assert (on.modes, on.findings) == ((Mode(pci="0009:01:00.0", wanted=True, effective=True),), ())
    half = answer(recorded("on-2"))
    assert (half.modes, codes(half)) == ((Mode(pci="0000:00:03.0", wanted=None, effective=False),), ["mig_pending"])
    assert answer(pending).modes == (Mode(pci="0000:00:03.0", wanted=True, effective=False),)
    enabled = f"{pending}Enabled MIG Mode for GPU 00000000:00:03.0\n"
    assert answer(enabled).modes == answer(pending).modes
    assert codes(answer("All done.\n")) == ["cut"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "unreadable"),
        ("No MIG-enabled devices found.\n", "not_supported"),
        ("No devices were found\n", "no_devices"),
        ("Failed to display GPU instance profiles: Insufficient Permissions\n", "no_permission"),
        ("Failed to display GPU instances: Unknown Error\n", "tool_failed"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "no_driver"),
        ("Aucune instance trouvée : introuvable\n", "unknown_format"),
        ("x" * (INPUT_MAX + 1), "unreadable"),
        ("x\n" * (LINES_MAX + 1), "unreadable"),
    ],
)
def test_sentences_in_place_of_a_table_are_findings(text: str, code: str) -> None:
    for read in READERS.values():
        assert codes(read(text)) == [code]


def test_headings_that_are_not_known_give_no_rows() -> None:
    table = recorded("lgi-1").replace("Start:Size", "Size:Start")

    reading = gpu_instances(table)
    assert (reading.instances, codes(reading)) == ((), ["unknown_format"])


def test_rows_of_another_table_are_not_taken() -> None:
    reading = gpu_instances(recorded("lci-2"))

    assert reading.instances == ()
    assert codes(reading) == ["unknown_format"]


def test_instances_that_share_an_id_or_a_slice_are_not_given() -> None:
    text = recorded("lgi-1")

    same_id = gpu_instances(text.replace("14        4   ", "14        3   "))
    assert [i.instance for i in same_id.instances] == [2]
    same_slice = gpu_instances(text.replace("1:1", "3:1"))
    assert [i.instance for i in same_slice.instances] == [3]
    assert set(codes(same_id)) == set(codes(same_slice)) == {"duplicate"}


def test_a_row_that_is_listed_twice_counts_once() -> None:
    lines = recorded("lgi-1").splitlines(keepends=True)
    reading = gpu_instances("".join([*lines[:7], lines[5], *lines[6:]]))

    assert [i.instance for i in reading.instances] == [3, 4, 2]
    assert "duplicate" in codes(reading)


def test_a_row_that_is_missing_is_noticed() -> None:
    lines = recorded("lgi-1").splitlines(keepends=True)

    assert "cut" in codes(gpu_instances("".join(lines[:7] + lines[8:])))
    assert "cut" in codes(profiles("".join(recorded("lgip-1").splitlines(keepends=True)[:-1])))


def test_a_last_line_without_an_end_is_not_trusted() -> None:
    text = "Successfully destroyed GPU instance ID  1 from GPU  12\n"

    assert [(c.gpu, c.instance) for c in answer(text).changes] == [(12, 1)]
    assert answer(text[:-2]).changes == ()
    assert codes(answer(text[:-2])) == ["cut"]


def test_a_table_without_a_row_is_cut() -> None:
    lines = recorded("lgi-1").splitlines(keepends=True)

    assert codes(gpu_instances("".join([*lines[:5], lines[0]]))) == ["cut"]


def test_a_profile_needs_both_of_its_lines() -> None:
    lines = recorded("lgip-1").splitlines(keepends=True)
    reading = profiles("".join(lines[:6] + lines[8:]))

    assert [p.profile for p in reading.profiles] == [21, 5, 6, 0]
    assert "cut" in codes(reading)


@pytest.mark.parametrize("places", ["{0,0}:2", "{0,2}:0"])
def test_placements_that_cannot_be_are_not_given(places: str) -> None:
    reading = placements(recorded("lgipp-1").replace("ID  5 Placements: {0,2}:2", f"ID  5 Placements: {places}"))

    assert [p.profile for p in reading.placements] == [14, 21, 6, 0]
    assert codes(reading) == ["unreadable"]


def test_an_instance_without_a_slice_is_not_given() -> None:
    reading = gpu_instances(recorded("lgi-1").replace("1:1", "1:0"))

    assert [i.instance for i in reading.instances] == [3, 2]
    assert codes(reading) == ["duplicate"]


def test_memory_is_read_with_a_decimal_comma_and_left_out_where_it_is_not_told() -> None:
    table = recorded("lgip-1").replace("5.81", "5,81").replace("23.44", " N/A ").replace("11.69", " 0.00")

    sizes = [p.memory_bytes for p in profiles(table).profiles]
    assert sizes == [round(5.81 * GIB), round(5.81 * GIB), None, None, None]


def test_more_free_than_there_are_is_no_profile() -> None:
    reading = profiles(recorded("lgip-1").replace("4/4", "9/4"))

    assert [p.profile for p in reading.profiles] == [21, 5, 6, 0]
    assert codes(reading) == ["cut"]


def test_findings_of_an_output_are_bounded() -> None:
    for read in READERS.values():
        assert len(read("| ?\nwhat is this\n" * 1000).findings) == FINDINGS_MAX


def damaged(text: str, rnd: random.Random, kind: int) -> str:
    """Return a text with one kind of damage, of `KINDS`; the last writes other numbers."""
    lines = text.splitlines(keepends=True)
    at = rnd.randrange(len(lines))
    match kind:
        case 0:
            return text[: rnd.randrange(len(text))]
        case 1:
            return text[rnd.randrange(1, len(text)) :]
        case 2:
            rnd.shuffle(lines)
        case 3:
            del lines[at]
        case 4:
            lines.insert(at, lines[rnd.randrange(len(lines))])
        case 5:
            return text.replace("\n", "\r\n")
        case 6:
            lines[at] = lines[at][: len(lines[at]) // 2] + "\0" + lines[at][len(lines[at]) // 2 :]
        case 7:
            lines[at] = lines[at].rstrip("\n") + "x" * 100_000 + "\n"
        case 8:
            return "".join(line.replace("|\n", "   N/A |\n") for line in lines)
        case 9:
            lines = lines[:at]
        case _:
            lines[at] = "".join("0" if c.isdigit() else c for c in lines[at])
            return "".join(lines).replace(".", ",")
    return "".join(lines)


def facts(reading: MigReading) -> set[object]:
    return {*reading.profiles, *reading.compute_profiles, *reading.placements, *reading.instances, *reading.changes,
            *reading.refusals, *reading.modes}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_damage_is_a_finding_or_leaves_facts_of_whole_rows(name: str) -> None:
    text = (RECORDINGS / name).read_text(encoding="utf-8")
    whole = facts(reader(name)(text))
    rnd = random.Random(name)
    for at in range(DAMAGED_PER_RECORDING):
        kind = at % KINDS
        broken = damaged(text, rnd, kind)
        reading = reader(name)(broken)
        assert facts(reading) <= whole or (reading.findings and kind == KINDS - 1), broken


@pytest.mark.parametrize("name", [name for name in RECORDED if "-lgi-" in name])
def test_an_instance_is_never_another_one_after_lines_were_lost_or_moved(name: str) -> None:
    text = (RECORDINGS / name).read_text(encoding="utf-8")
    whole = set(gpu_instances(text).instances)
    rnd = random.Random(name)
    for _ in range(DAMAGED_PER_RECORDING):
        lines = text.splitlines(keepends=True)
        kept = rnd.sample(lines, rnd.randrange(len(lines) + 1))
        assert set(gpu_instances("".join(kept)).instances) <= whole


def test_there_is_a_recording_for_each_expectation() -> None:
    assert len(RECORDED) == 23


def test_instances_are_values() -> None:
    one = Instance(gpu=0, instance=1, profile=9, name="3g.20gb", start=4, size=4)

    assert len({one, gpu_instances(recorded("lgi-3")).instances[3]}) == 1
