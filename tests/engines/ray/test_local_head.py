"""The head that a server starts for itself: in a folder that nobody else enters, believed only at a port of its own."""

import hashlib
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from penstock.engines.processes import ray_place
from penstock.engines.ray import local_head
from penstock.engines.ray.local_head import Head

STRANGER = 65_534
FAKE = """
import os, pathlib, socket, sys, time
folder = pathlib.Path(next(word for word in sys.argv if word.startswith("--temp-dir=")).partition("=")[2])
(folder / "session_2x").mkdir(parents=True)
folder.chmod(0o777)
listening = socket.create_server(("127.0.0.1", 0))
port = PORT or listening.getsockname()[1]
(folder / "session_2x" / "gcs_server_port_ab").write_text(str(port))
time.sleep(SLEEP)
"""
"""What Ray does: it opens its folder to everybody, listens, and writes down where."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    temporary = Path(tempfile.mkdtemp(dir="/tmp", prefix="p"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(local_head, "START", FAKE.replace("PORT", "0").replace("SLEEP", "60"))
    yield temporary
    local_head.end(tmp_path)
    monkeypatch.undo()
    temporary.rmdir()


def listens_elsewhere():
    return socket.create_server(("127.0.0.1", 0))


def known(folder):
    return msgspec.json.decode((folder / "head.json").read_bytes(), type=Head)


def test_the_head_lies_in_a_new_folder_of_ours_alone_which_goes_with_it(place, tmp_path):
    assert local_head.address(tmp_path) == local_head.address(tmp_path) == f"127.0.0.1:{known(tmp_path).port}"
    (made,) = place.iterdir()
    assert (stat.S_IMODE(made.lstat().st_mode), made.name.startswith("penstock-head-")) == (0o700, True)
    assert local_head.end(tmp_path)
    assert list(place.iterdir()) == []


def test_a_folder_that_somebody_made_before_is_not_ours(place, tmp_path):
    mark = hashlib.sha256(str(tmp_path).encode()).hexdigest()[:8]
    planted = place / f"penstock-head-{mark}-{os.getpid()}"
    with listens_elsewhere() as theirs:
        (planted / "session_2a").mkdir(parents=True)
        (planted / "session_2a" / "gcs_server_port_a").write_text(str(theirs.getsockname()[1]))
        if os.geteuid() == 0:
            os.chown(planted, STRANGER, STRANGER)
        assert local_head.address(tmp_path) != f"127.0.0.1:{theirs.getsockname()[1]}"
    shutil.rmtree(planted)


def test_a_port_of_another_process_is_no_head(place, tmp_path, monkeypatch):
    with listens_elsewhere() as theirs:
        port = str(theirs.getsockname()[1])
        monkeypatch.setattr(local_head, "START", FAKE.replace("PORT", port).replace("SLEEP", "1"))
        with pytest.raises(OSError, match="no head of Ray came up"):
            local_head.address(tmp_path)
    assert list(place.iterdir()) == []


def test_a_head_that_was_found_again_is_believed_at_its_own_port_alone(place, tmp_path):
    local_head.address(tmp_path)
    with listens_elsewhere() as theirs:
        other = replace(known(tmp_path), port=theirs.getsockname()[1])
        (tmp_path / "head.json").write_bytes(msgspec.json.encode(other))
        with pytest.raises(OSError, match="does not listen at its port"):
            local_head.address(tmp_path)


def test_what_a_head_that_has_died_left_behind_is_removed(place, tmp_path):
    left = place / "left"
    left.mkdir()
    (tmp_path / "head.json").write_bytes(msgspec.json.encode(Head(2**22 + 1, 1, 1, str(left))))
    assert (local_head.end(tmp_path), left.exists()) == (False, False)


def test_a_place_has_rays_folder_below_its_own(monkeypatch, tmp_path):
    folder = tmp_path / "place"
    folder.mkdir(0o700)
    monkeypatch.setattr(ray_place, "_python", lambda: local_head.sys.executable)
    monkeypatch.setattr(ray_place, "START", FAKE.replace("PORT", "7").replace("SLEEP", "0"))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
    given = ray_place.Place({"--cpus": "1", "--devices": "0", "--memory": "0", "--store": "0"})
    ray = ray_place.Ray(given, folder)
    ray.start("--head")
    ray._process.wait()
    assert (stat.S_IMODE(folder.lstat().st_mode), ray_place.head_port(ray.folder)) == (0o700, 7)
    assert len(str(given.folder / ray.folder.name)) <= ray_place.FOLDER_MAX
