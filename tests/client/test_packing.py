"""Which files of a folder belong to its snapshot, and what is read again."""

import os
import socket
import time
from pathlib import Path

import pytest

from penstock.client import packing
from penstock.core.model import folder_snapshots as fs
from penstock.core.model.errors import InvalidInput


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made(root: Path, **texts: str) -> Path:
    """Make a folder with files; `__` in a name stands for `/`, a trailing name is as it is."""
    root.mkdir(exist_ok=True)
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def ignoring(folder: Path, text: str, name: str = ".gitignore") -> None:
    (folder / name).write_text(text)


def paths(folder: Path) -> list[str]:
    return [one.path for one in packing.packed(folder).files]


def refusal(folder: Path) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        packing.packed(folder)
    return caught.value


def test_what_git_ignores_is_left_out_by_the_innermost_rule(tmp_path):
    folder = made(tmp_path / "p", a="", out__x="", sub__keep="", sub__drop="", sub__deep__drop="")
    ignoring(folder, "out/\ndrop\n")
    ignoring(folder / "sub", "!drop\ndeep/\n")
    assert paths(folder) == [".gitignore", "a", "sub/.gitignore", "sub/drop", "sub/keep"]


def test_penstockignore_decides_over_gitignore(tmp_path):
    folder = made(tmp_path / "p", data="", built="")
    ignoring(folder, "built\n")
    ignoring(folder, "!built\ndata\n", ".penstockignore")
    assert paths(folder) == [".gitignore", ".penstockignore", "built"]


def test_the_history_of_a_repository_never_travels_and_caches_do_not(tmp_path):
    folder = made(tmp_path / "p", **{".git__config": "", "a__.git": "", "__pycache____x": "", "b": ""})
    assert paths(folder) == ["b"]


def test_programs_and_links_stay_what_they_are(tmp_path):
    folder = made(tmp_path / "p", run="", sub__x="y")
    (folder / "run").chmod(0o755)
    (folder / "sub" / "up").symlink_to("../run")
    (folder / "lost").symlink_to("nowhere")
    kinds = {one.path: (one.kind, one.target) for one in packing.packed(folder).files}
    assert kinds == {
        "run": ("program", ""),
        "sub/x": ("file", ""),
        "sub/up": ("link", "../run"),
        "lost": ("link", "nowhere"),
    }


@pytest.mark.parametrize("target", ["../other", "/etc/passwd", "sub/../../other", "sub/.."])
def test_a_link_that_may_leave_the_folder_is_refused_by_name(tmp_path, target):
    folder = made(tmp_path / "p", sub__x="")
    (folder / "bad").symlink_to(target)
    error = refusal(folder)
    assert f"bad leads to {target}" in error.message
    assert "put bad into .penstockignore" in error.hint


def test_a_socket_is_refused_by_name(tmp_path):
    folder = made(tmp_path / "p", x="")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "s"))
        assert "s is neither a file nor a link" in refusal(folder).message


def test_a_folder_that_is_too_large_names_its_largest_files(tmp_path, monkeypatch):
    monkeypatch.setattr(fs, "BYTES_MAX", 100)
    folder = made(tmp_path / "p", small="1", sub__large="1" * 90, middle="1" * 20)
    message = refusal(folder).message
    assert "expected at most 100" in message
    assert message.index("sub/large") < message.index("middle")


def test_a_folder_of_too_many_files_names_the_folders_with_most(tmp_path, monkeypatch):
    monkeypatch.setattr(fs, "FILES_MAX", 3)
    folder = made(tmp_path / "p", a="", many__b="", many__c="", many__d="")
    assert "has 4 files, expected at most 3; folders with most: many (3), . (1)" in refusal(folder).message


def test_an_empty_folder_is_refused(tmp_path):
    assert "has no files" in refusal(made(tmp_path / "p")).message


def test_a_name_that_is_no_text_is_refused(tmp_path):
    folder = made(tmp_path / "p", x="")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_text("")
    assert "UTF-8" in refusal(folder).message


def aged(folder: Path, monkeypatch) -> None:
    """Let files count as settled whose times are of this moment."""
    monkeypatch.setattr(packing, "SETTLED_NS", -(10**12))


def test_only_what_has_changed_is_read_again(tmp_path, monkeypatch):
    folder = made(tmp_path / "p", a="1", b="2")
    aged(folder, monkeypatch)
    first = packing.packed(folder)
    (folder / "b").write_text("3")
    read: list[str] = []
    hashed = packing._hashed
    monkeypatch.setattr(packing, "_hashed", lambda where, path: read.append(path) or hashed(where, path))
    second = packing.packed(folder)
    assert read == ["b"]
    assert first.name != second.name
    assert first.files[0] == second.files[0]


def test_a_file_changed_just_before_it_was_read_is_read_again(tmp_path, monkeypatch):
    folder, now_ns = made(tmp_path / "p", a="1"), time.time_ns()
    monkeypatch.setattr(packing, "_stamp", lambda about: packing.Stamp(1, now_ns, now_ns, 1, 1))  # as in one tick
    first = packing.packed(folder)
    (folder / "a").write_text("2")
    assert packing.packed(folder).name != first.name


def test_a_change_while_it_is_sent_is_noticed(tmp_path):
    folder = made(tmp_path / "p", a="1")
    found = packing.packed(folder)
    (folder / "a").write_text("2")
    with pytest.raises(packing.Changed):
        packing.read_chunk(folder, found.files[0], 0)


def test_another_folder_or_a_broken_note_is_no_help_and_no_harm(tmp_path, monkeypatch):
    folder = made(tmp_path / "p", a="1")
    aged(folder, monkeypatch)
    name = packing.packed(folder).name
    packing._place(folder).write_bytes(b"broken")
    assert packing.packed(folder).name == name
