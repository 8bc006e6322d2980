"""Power-loss images of the log: whatever had been answered before the power went is there afterwards.

A kill -9 cannot show this: the kernel keeps what a killed program wrote. So the store's file operations are recorded
and images are made of what a disk may hold at a moment, unsynced writes lost, kept or torn.
"""

import json
import os
import random
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.core.model.events import Record
from penstock.core.state import invariants
from penstock.core.state.state import State
from penstock.store.sqlite import SqliteStore
from tests.crash.recording import PowerLoss, Recording, record

IMAGES = 120
KEEPS = (0.0, 0.3, 0.5, 0.7, 1.0)
"""Chances that an unsynced write is on the disk all the same; each in turn."""
ROOT = Path(__file__).resolve().parents[2]


class Made(msgspec.Struct):
    """A recorded run and the whole log that it left."""

    recording: Recording
    log: list[Record]


def recorded(folder: Path, *mode: str) -> Made:
    if shutil.which("strace") is None:
        assert os.environ.get("CI") != "true", "strace is missing: apt-get install strace"
        pytest.skip("strace is missing: apt-get install strace")
    log, marker = folder / "data" / "log", folder / "answers"
    log.parent.mkdir()
    paths = os.pathsep.join([str(ROOT), str(Path(penstock.__file__).resolve().parents[1])])
    command = [sys.executable, "-m", "tests.crash.submitting", str(log), str(marker), *mode]
    made = record(command, log, marker, folder / "trace", {**os.environ, "PYTHONPATH": paths})
    store = SqliteStore(log)
    try:
        return Made(made, store.records(0, 100_000))
    finally:
        store.close()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return recorded(tmp_path_factory.mktemp("full"))


def answered(recording: Recording, time: int) -> set[int]:
    return {job_id for at, ids in recording.answers if at <= time for job_id in ids}


def opened(folder: Path) -> tuple[State, list[Record]]:
    """Open an image as the next server would; return its state and its log."""
    store = SqliteStore(folder)
    try:
        image, tail = store.load()
        state = State.from_image(image) if image else State()
        for entry in tail:
            state.apply(entry)
        return state, store.records(0, 100_000)
    finally:
        store.close()


def lost_jobs(made: Made, loss: PowerLoss, folder: Path, time: int) -> set[int]:
    """Return the jobs answered by `time` that the image has lost; everything else about it must be right."""
    loss.build(folder)
    state, log = opened(folder)
    assert log == made.log[: len(log)], "the log of an image is a beginning of the whole log"
    folded = State()
    for entry in log:
        folded.apply(entry)
    assert folded.image() == state.image(), "snapshot and log agree"
    assert invariants.violations(folded) == []
    there = {getattr(entry.event, "job_id", 0) for entry in log}
    shutil.rmtree(folder)
    return answered(made.recording, time) - there


def images(made: Made, tmp_path: Path, seed: int) -> dict[str, int]:
    """Make `IMAGES` images at random moments after the first answer, and count what they lost."""
    chance = random.Random(seed)
    figures = {"images": 0, "answers": len(made.recording.answers), "torn": 0, "dropped": 0, "losing": 0, "lost": 0}
    figures["operations"] = made.recording.length
    figures["checkpoints"] = syncs_of(made.recording, "log.sqlite")
    for number in range(IMAGES):
        time = chance.randint(made.recording.answers[0][0], made.recording.length)
        loss = PowerLoss(made.recording, chance, time=time, keep=KEEPS[number % len(KEEPS)])
        lost = lost_jobs(made, loss, tmp_path / f"image{number}", time)
        figures["images"] += 1
        figures["torn"] += loss.torn
        figures["dropped"] += loss.dropped
        figures["losing"] += bool(lost)
        figures["lost"] += len(lost)
    print(json.dumps(figures))
    return figures


def syncs_of(recording: Recording, name: str) -> int:
    numbers = {n.file for n in recording.names if Path(n.path).name == name and n.file is not None}
    return sum(len(recording.files[n].syncs) for n in numbers)


def test_no_image_of_a_power_loss_has_lost_an_answered_job(full: Made, tmp_path: Path) -> None:
    figures = images(full, tmp_path, seed=1)
    assert figures["images"] >= 100
    assert figures["torn"] > 0
    assert figures["dropped"] > 0
    assert figures["checkpoints"] >= 3  # the write-ahead log was moved into the database while answers were given
    assert figures["lost"] == 0


def test_the_images_show_what_normal_sync_would_lose(tmp_path: Path) -> None:
    made = recorded(tmp_path, "normal")
    figures = images(made, tmp_path, seed=1)
    assert figures["losing"] > IMAGES // 4


def test_every_answer_comes_after_a_sync_of_what_it_rests_on(full: Made) -> None:
    """The strictest image of each moment at which an answer was given: nothing unsynced has survived."""
    recording = full.recording
    wal = [recording.files[n.file] for n in recording.names if n.path.endswith("-wal") and n.file is not None]
    former = 0
    for time, _ in recording.answers:
        written = [t for file in wal for t, _, _ in file.changes if former < t <= time]
        synced = [t for file in wal for t in file.syncs if former < t <= time]
        assert written, "an answer rests on a write"
        assert max(written) < max(synced, default=0)
        former = time
