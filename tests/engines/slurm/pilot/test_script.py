"""The batch script of an allocation, and how its job is read."""

from pathlib import Path

import pytest

from penstock.engines.slurm.pilot.lent import COLUMNS, LentJob, lent_jobs
from penstock.engines.slurm.pilot.script import Place, script_of
from penstock.engines.slurm.pilot.settings import PilotSettings

PLACE = Place(Path("/shared/pilot"), "/opt/python", "/src")
BETWEEN = "~0123456789~"


def options(settings: PilotSettings) -> list[str]:
    text = script_of(settings, PLACE, "penstock-abc", "ask-1", 2)
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_a_script_asks_for_what_the_settings_say_and_is_known_again():
    wanted = options(
        PilotSettings(partition="gpu", gres="gpu:a100:4", cpus=16, memory_mib=64_000, options=("--reservation=night",))
    )
    assert {"--job-name=penstock-abc", "--comment=ask-1", "--nodes=2", "--time=240", "--no-requeue"} <= set(wanted)
    assert {"--partition=gpu", "--gres=gpu:a100:4", "--cpus-per-task=16", "--mem=64000M"} <= set(wanted)
    assert wanted[-1] == "--reservation=night"
    whole = options(PilotSettings())
    assert {"--exclusive", "--mem=0"} <= set(whole)
    assert not any(word.startswith(("--partition", "--gres", "--account")) for word in whole)


def test_simulated_devices_have_the_type_of_the_resource():
    text = script_of(PilotSettings(gres="gpu:a100:4", simulated=True), PLACE, "n", "t", 1)
    assert " --simulated=a100\n" in text


def test_no_word_of_a_path_becomes_a_word_of_the_shell():
    place = Place(Path("/shared/a b;c"), "/opt/py'thon", "/src $x")
    text = script_of(PilotSettings(scratch="/scratch/$(id)"), place, "n", "t", 1)
    assert "'/shared/a b;c'" in text
    assert "export PYTHONPATH='/src $x'" in text
    assert "'--scratch=/scratch/$(id)'" in text


def table(*rows: tuple[str, ...]) -> str:
    cells = [f"{cell:<{column.width}}{BETWEEN}" for row in rows for cell, column in zip(row, COLUMNS, strict=True)]
    lines = ["".join(cells[at : at + len(COLUMNS)]) for at in range(0, len(cells), len(COLUMNS))]
    return "\n".join(lines) + "\n"


def read(*row: str) -> LentJob:
    (one,) = lent_jobs(table(row), BETWEEN)
    return one


def test_jobs_of_the_pilot_are_read():
    waits = read("5", "PENDING", "Resources", "100", "900", "1000", "2", "", "ask-1")
    assert (waits.key, waits.stage, waits.start_s, waits.hosts, waits.tag) == (("5", 100), "asked", 900, (), "ask-1")
    runs = read("5", "RUNNING", "None", "100", "200", "1000", "2", "n[1-2]", "ask-1")
    assert (runs.stage, runs.hosts, runs.end_s, runs.sure) == ("held", ("n1", "n2"), 1000, False)
    assert read("5", "COMPLETING", "None", "1", "2", "3", "1", "n1", "").stage == "leaving"


@pytest.mark.parametrize(
    ("state", "sure"),
    [("CANCELLED", True), ("TIMEOUT", True), ("COMPLETED", True), ("PREEMPTED", True), ("NODE_FAIL", False)],
)
def test_after_the_failure_of_a_node_its_processes_may_live(state, sure):
    ended = read("5", state, "None", "1", "2", "3", "1", "n1", "")
    assert (ended.stage, ended.sure) == ("ended", sure)
