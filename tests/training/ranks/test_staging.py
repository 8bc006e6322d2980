"""Memory for copies: got beside training, once, and not held twice by processes that are forked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import training
from penstock.training import CheckpointDirectory
from penstock.training.ranks import staging
from penstock.training.ranks.layouts import Whole
from penstock.training.ranks.staging import Stage
from penstock.training.reports import Reporter
from penstock.training.saver import Saver
from penstock.training.storage import hostmemory
from penstock.training.storage.blobs import Shelf
from penstock.training.storage.contents import FileContents, NumpyContent
from tests.training.needs import need

Open = Callable[..., CheckpointDirectory]
ROOT = Path(__file__).parents[3]
WEIGHTS = np.arange(100_000.0)


def pieces(array: Any = WEIGHTS) -> list[FileContents]:
    return [FileContents("weights", (NumpyContent(array),))]


class SlowTouch:
    """The kernel takes its time to hand out pages; `threads` are those that wait for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.begun, self.threads = threading.Event(), threading.Event(), []
        real = staging._touch

        def touch(memory: Any) -> None:
            self.threads.append(threading.current_thread().name)
            self.begun.set()
            assert self.open.wait(20)
            real(memory)

        monkeypatch.setattr(staging, "_touch", touch)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowTouch]:
    made = SlowTouch(monkeypatch)
    yield made
    made.open.set()


def test_training_does_not_wait_until_memory_is_there(slow: SlowTouch) -> None:
    stage = Stage()
    stage.reserve(pieces())
    assert slow.begun.wait(20)
    assert slow.threads == ["penstock-reserve"]


def test_a_copy_waits_for_the_memory_that_is_being_got(slow: SlowTouch) -> None:
    stage = Stage()
    stage.reserve(pieces())
    assert slow.begun.wait(20)
    threading.Timer(0.05, slow.open.set).start()
    copied = stage.copy(pieces(), Shelf())[0]
    assert b"".join(copied.windows) == WEIGHTS.tobytes()
    assert slow.threads == ["penstock-reserve"], "it is got once"


def test_a_state_that_has_grown_since_gets_more(slow: SlowTouch) -> None:
    slow.open.set()
    stage, grown = Stage(), np.arange(200_000.0)
    stage.reserve(pieces())
    assert b"".join(stage.copy(pieces(grown), Shelf())[0].windows) == grown.tobytes()
    assert slow.threads == ["penstock-reserve", "MainThread"]


def test_memory_that_was_not_there_when_reserved_is_missed_at_the_save(
    open_directory: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nothing(_: int) -> Any:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(hostmemory, "fresh", nothing)
    directory = open_directory()
    saver = Saver(directory, Whole(), Reporter(None), behind=True)
    saver.prepare(lambda: {"weights": WEIGHTS})
    saver.save_behind(1, lambda: {"weights": WEIGHTS}, "interval")
    assert not saver.busy
    assert directory.steps() == [1]
    assert "no memory for a copy" in caplog.text


def test_memory_is_got_after_the_first_step_and_before_one_that_follows_a_resume(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: list[int] = []
    for stop in (3, 5):
        with training.session(folder) as run:
            monkeypatch.setattr(Saver, "prepare", lambda *_, run=run: at.append(run.step))
            run.resume(None)
            list(run.steps(stop, capture=lambda: {"weights": WEIGHTS}))
    assert at == [1, 3]


FORKED = """
import os, sys
import numpy as np
from pathlib import Path
from penstock.training.storage.blobs import Folder, Shelf, read_blob
from penstock.training.storage.contents import FileContents, NumpyContent
from penstock.training.storage.manifest import Blob
from penstock.training.storage import durable
from penstock.training.ranks.staging import Stage
stage = Stage()
copied = stage.copy([FileContents("a", (NumpyContent(np.ones(2**17)),))], Shelf())[0].windows[0]
written = durable.write_bytes(Path(sys.argv[1]) / "a", b"x" * 4096)
read = read_blob(Folder(Path(sys.argv[1])), Blob("a", written.size_bytes, written.checksum))
child = os.fork()
if not child:
    read[0] = 0
    os._exit(any(copied))
print(os.waitpid(child, 0)[1], all(copied[7::8]), bytes(read[:2]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps memory from forked processes")
def test_a_forked_process_holds_no_copy_and_shares_nothing_that_was_read(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path)]
    paths = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=paths)
    assert done.stdout == "0 True b'xx'\n", done.stderr


def test_memory_for_shards_is_got_beside_training(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = need("torch")
    from penstock.training.distributed import Sharded

    threads, real = [], Sharded._get

    def get(self: Any, missing: Any) -> None:
        threads.append(threading.current_thread().name)
        real(self, missing)

    monkeypatch.setattr(Sharded, "_get", get)
    layout = Sharded()
    layout.prepare({"weights": torch.ones(3)}, behind=True)
    assert layout._lacking({"weights": torch.ones(3)}) == {}
    assert threads == ["penstock-reserve"]
