"""What places of a Ray cluster do before Ray runs: find it, meet, and leave nothing behind."""

import fcntl
import os
import socket
import subprocess
import threading

import pytest

from penstock.engines.processes import ray_place
from penstock.engines.processes.ray_place import Failed, Gate, Line, Place
from penstock.starts import tool

OPTIONS = {"--cpus": "2", "--devices": "0", "--memory": "0", "--store": "0"}


def place(monkeypatch: pytest.MonkeyPatch, port: int = 0, **variables: str) -> Place:
    for name, value in {"WORLD_SIZE": "2", "MASTER_PORT": str(port), "RAY_AUTH_TOKEN": "t", **variables}.items():
        monkeypatch.setenv(name, value)
    return Place(OPTIONS)


def met(ours: str, theirs: str) -> list[str]:
    """Return which sides of a line refuse the other."""
    first, second = socket.socketpair()
    refused = []

    def lead() -> None:
        line = Line(first)
        try:
            line.as_head(ours)
        except ValueError:
            refused.append("head")
        line.close()

    leading = threading.Thread(target=lead)
    leading.start()
    line = Line(second)
    try:
        line.as_place(theirs)
    except ValueError:
        refused.append("place")
    line.close()
    leading.join()
    return sorted(refused)


@pytest.mark.parametrize(("theirs", "refused"), [("t", []), ("u", ["head", "place"])])
def test_places_of_one_attempt_meet_and_nobody_else_does(theirs, refused):
    assert met("t", theirs) == refused


def test_a_stranger_at_the_port_learns_nothing_and_a_place_learns_the_head_and_the_end(monkeypatch):
    gate = Gate(place(monkeypatch))
    port = gate._listener.getsockname()[1]
    gate.open(6_379)
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b'{"nonce": "1"}\n{"proof": "2"}\n')
        said = stranger.makefile("rb").readlines()
    assert len(said) == 1
    line = ray_place._connected(place(monkeypatch, port, RANK="1"))
    assert line.hear() == {"port": 6_379}
    gate.over()
    assert line.hear() == {"over": True}
    line.close()
    gate._listener.close()


def test_a_place_without_ray_says_so(monkeypatch):
    monkeypatch.setattr(ray_place, "HAS_RAY", "import sys; sys.exit(1)")
    with pytest.raises(Failed, match="no Python here has Ray"):
        ray_place._python()


def test_folders_of_killed_places_go_and_those_of_living_ones_stay(monkeypatch, tmp_path):
    monkeypatch.setattr(ray_place.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ray_place, "FOLDER_MAX", 500)
    left, living = tmp_path / "penstock-ray-aaaaaaaa", tmp_path / "penstock-ray-bbbbbbbb"
    for folder in (left, living):
        folder.mkdir()
        (folder / "lock").touch()
    held = os.open(living / "lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_SH)
    with ray_place._folder(place(monkeypatch)) as own:
        assert sorted(tmp_path.iterdir()) == sorted([living, own])
    assert list(tmp_path.iterdir()) == [living]
    os.close(held)


def test_a_folder_that_others_made_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(ray_place.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ray_place, "FOLDER_MAX", 500)
    mine = place(monkeypatch)
    mine.folder.mkdir(mode=0o755)
    with pytest.raises(Failed, match="is not a private folder"), ray_place._folder(mine):
        pass


def test_the_script_needs_nothing_but_the_standard_library():
    python = tool("python3")
    assert python is not None
    code = f"import runpy; runpy.run_path({ray_place.__file__!r}, run_name='place')"
    assert subprocess.run([python, "-I", "-S", "-c", code], check=False).returncode == 0
