"""The places of a job: who may start tasks there, and when they end."""

import json
import os
import select
import socket
from pathlib import Path

import pytest

from penstock.batch import frames
from penstock.batch.__main__ import OVER, _attend
from penstock.batch.frames import Channel
from penstock.batch.places import Place

ORDER = {"environment": {"PATH": os.environ["PATH"], "A": "shared"}, "folder": "/", "input": True, "umask": 0o027,
         "devices_per_task": 1}  # fmt: skip
SAY = ["sh", "-c", "cat; echo $A $B $CUDA_VISIBLE_DEVICES; umask; exit $B"]


def tasks(*words: list[str]) -> bytes:
    listed = [{"number": 5 + at, "words": each, "environment": {"B": str(at)}} for at, each in enumerate(words)]
    return json.dumps({**ORDER, "tasks": listed}).encode()


def frames_of(channel: Channel) -> list[tuple[bytes, int, bytes]]:
    found = []
    while (frame := channel.receive()) is not None and frame[0] != frames.WATCH:
        found.append(frame)
    return found


def test_a_place_starts_tasks_with_their_devices_and_tells_how_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,7")
    Place(tmp_path, 0, "127.0.0.1")
    channel = frames.connected(tmp_path, 0)
    channel.send(frames.START, 0, tasks(SAY, SAY, ["/nowhere/program"]))
    channel.send(frames.INPUT, 0, b"given\n")
    channel.send(frames.INPUT, 0, b"")
    found = frames_of(channel)
    channel.close()
    output = {5: b"", 6: b"", 7: b""}
    for kind, number, data in found:
        output[number] += data if kind == frames.OUTPUT else b""
    assert output == {5: b"given\nshared 0 3\n0027\n", 6: b"given\nshared 1 7\n0027\n", 7: b""}
    ends = sorted((number, data) for kind, number, data in found if kind in (frames.ENDED, frames.FAULT))
    assert ends == [(5, b"0"), (6, b"1"), (7, b"/nowhere/program: No such file or directory")]


def test_without_the_token_of_a_place_nothing_is_started(tmp_path: Path) -> None:
    place = Place(tmp_path, 0, "127.0.0.1")
    assert (tmp_path / "place-0").stat().st_mode & 0o777 == 0o600
    for first in ((frames.TOKEN, 0, b"guessed"), (frames.START, 0, tasks(["touch", str(tmp_path / "ran")]))):
        channel = Channel(socket.create_connection((place.address.host, place.address.port)))
        channel.send(*first)
        channel.send(frames.START, 0, tasks(["touch", str(tmp_path / "ran")]))
        assert channel.receive() is None
        channel.close()
    assert not (tmp_path / "ran").exists()


def test_tasks_end_with_the_step_that_began_them(tmp_path: Path) -> None:
    Place(tmp_path, 0, "127.0.0.1")
    channel = frames.connected(tmp_path, 0)
    channel.send(frames.START, 0, tasks(["sh", "-c", "echo $$; exec sleep 600"]))
    frame = channel.receive()
    assert frame is not None
    descriptor = os.pidfd_open(int(frame[2]))
    channel.close()
    try:
        assert select.select([descriptor], [], [], 20)[0] == [descriptor]
    finally:
        os.close(descriptor)


def test_a_place_that_begins_after_the_script_has_ended_leaves_at_once(tmp_path: Path) -> None:
    (tmp_path / OVER).touch()
    assert _attend(tmp_path, 1, "127.0.0.1") == 0
