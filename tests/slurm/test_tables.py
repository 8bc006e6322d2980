"""Columns, states and times as squeue, sinfo and sacct print them."""

import pytest

from penstock.slurm import tables
from penstock.slurm.listing import SACCT_OPTIONS, SCANCEL_OPTIONS, SCONTROL_OPTIONS, SINFO_OPTIONS, SQUEUE_OPTIONS, Read
from penstock.slurm.options import Unknown
from penstock.slurm.rows import Seen, exit_text, members, row, waiting_arrays
from penstock.slurm.settings import Settings

BASE = Seen(12, "train", "running", "", "ann", "lab", "default", 500, [], ["n1", "n2"], "2", 1_000, 1_010, 0, 1, None,
            None, None)  # fmt: skip


def seen(**more: object) -> Seen:
    return BASE._replace(**more)  # type: ignore[arg-type]


def command(**settings: object) -> list[str]:
    words = Settings(**settings).words()  # type: ignore[arg-type]
    return ["python", "-P", "-m", "penstock.batch", *words, "--", "job.sh", "a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%.6i %.2t|%P", "    12  R|default"),
        ("%6i.", "12    ."),
        ("%2j", "tr"),
        ("%M %D %R", "1:05:03 2 n[1-2]"),
        ("%A%%", "12%%"),
    ],
)
def test_squeue_formats_cut_and_align(text, expected):
    one = row(seen(replicas=2), 1_010 + 3_903)
    assert tables.line(tables.by_letters(text, tables.SQUEUE), one) == expected


def test_squeue_names_and_sacct_names_have_widths():
    one = row(seen(), 1_010)
    assert (
        tables.line(tables.by_names("JobID:5,State,Name:.8", tables.SQUEUE_NAMES), one)
        == "12   RUNNING                train"
    )
    assert [c.width for c in tables.by_sacct("JobID%30,State,ExitCode", tables.SACCT)] == [30, 10, 8]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tables.by_letters("%y", tables.SQUEUE), "format %y is not known"),
        (lambda: tables.by_names("Jobbid", tables.SQUEUE_NAMES), "no field 'Jobbid' here; did you mean jobid?"),
        (lambda: tables.by_sacct("Stat", tables.SACCT), "no field 'Stat' here; did you mean state?"),
        (lambda: Read("squeue", ["--usr=ann"], SQUEUE_OPTIONS), "did you mean --user?"),
        (lambda: Read("squeue", ["-i", "5"], SQUEUE_OPTIONS), "penstock ps --watch"),
    ],
)
def test_what_is_not_known_names_the_nearest(call, said):
    with pytest.raises(Unknown) as error:
        call()
    assert said in str(error.value)


@pytest.mark.parametrize("options", [SACCT_OPTIONS, SCANCEL_OPTIONS, SCONTROL_OPTIONS, SINFO_OPTIONS, SQUEUE_OPTIONS])
def test_option_names_and_letters_are_unique(options):
    names, letters = [one.name for one in options], [one.short for one in options if one.short]
    assert (len(names), len(letters)) == (len(set(names)), len(set(letters)))


def test_options_may_follow_other_words_and_what_is_left_out_is_named():
    read = Read("scancel", ["12", "-u", "ann", "13_2", "--qos=x"], SCANCEL_OPTIONS)
    assert (read.words, read.get("user"), len(read.notes)) == (["12", "13_2"], "ann", 1)


@pytest.mark.parametrize(
    ("state", "reason", "expected", "code"),
    [
        ("succeeded", "", ("COMPLETED", "CD"), "0:0"),
        ("failed", "exit 3", ("FAILED", "F"), "3:0"),
        ("failed", "time limit of 60 s reached", ("TIMEOUT", "TO"), "0:0"),
        ("failed", "out of memory: its limit of 2 GiB", ("OUT_OF_MEMORY", "OOM"), "3:0"),
        ("cancelled", "cancelled by ann", ("CANCELLED", "CA"), "0:0"),
        ("waiting", "held", ("PENDING", "PD"), "0:0"),
    ],
)
def test_states_and_codes_are_named_as_slurm_names_them(state, reason, expected, code):
    one = seen(state=state, reason=reason, exit_code=3)
    assert (tables.state_of(state, reason), exit_text(one)) == (expected, code)


def test_a_signal_is_shown_after_the_colon():
    assert exit_text(seen(state="failed", reason="signal 9", exit_signal=9)) == "0:9"


def test_a_waiting_job_has_a_reason_in_place_of_nodes():
    assert row(seen(state="waiting", reason="held", nodes=[]), 2_000)["where"] == "(JobHeldUser)"
    assert row(seen(state="waiting", reason="no_fit", nodes=[]), 2_000)["where"] == "(Resources)"


def test_what_a_script_asked_for_is_shown_of_its_job():
    words = command(nodes=2, ntasks=5, tasks="3,2", cpus="6,4", cpus_per_task=2, time_limit=7_200, partition="gpu",
                    account="lab", submit_dir="/home/ann", output="%x-%j.log", gpus_on_node=2)  # fmt: skip
    one = row(seen(command=words), 1_010 + 60)
    fields = ("cpus", "tasks", "nodes", "limit", "left", "partition", "stdout", "command", "gres", "tres")
    assert [one[field] for field in fields] == [
        "10", "5", "2", "2:00:00", "1:59:00", "gpu", "/home/ann/train-12.log", "job.sh a", "gres/gpu:2",
        "cpu=10,node=2,gres/gpu=4"]  # fmt: skip


def test_waiting_members_of_an_array_are_one_line():
    words = command(array="4,7,22,23", array_count=4, array_min=4, array_max=23, array_step=1, array_at_once=2)
    jobs = [seen(number=30 + at, state=state, command=words, array=(30, at), nodes=nodes)
            for at, (state, nodes) in enumerate([("running", ["n1"]), *[("waiting", [])] * 3])]  # fmt: skip
    shown = waiting_arrays([(one, row(one, 2_000)) for one in jobs])
    assert [(one["id"], one["short"]) for one in shown] == [("30_4", "R"), ("30_[7,22-23%2]", "PD")]


@pytest.mark.parametrize(
    ("text", "expected"), [("12", (12, ())), ("12_3", (12, (3,))), ("12_[1-2,5]", (12, (1, 2, 5)))]
)
def test_numbers_of_jobs_may_name_members(text, expected):
    assert members(text) == expected


@pytest.mark.parametrize(("seconds", "short", "long"), [(5, "0:05", "00:00:05"), (90_000, "1-01:00:00", "1-01:00:00")])
def test_durations_have_both_forms(seconds, short, long):
    assert (tables.clock(seconds), tables.long_clock(seconds)) == (short, long)
