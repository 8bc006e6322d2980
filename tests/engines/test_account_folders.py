"""Modules that touch what accounts own reach it by descriptor: `scripts/check_folders.py`, a part of `make lint`."""

import importlib.util
import subprocess
import sys

import pytest

from tests.server.harness import ROOT

spec = importlib.util.spec_from_file_location("check_folders", ROOT / "scripts" / "check_folders.py")
check_folders = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_folders)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("os.open(path, 0)", ["os.open"]),
        ("path.read_text()", ["path.read_text"]),
        ("(a / b).unlink()", ["(a / b).unlink"]),
        ("shutil.rmtree(path)", ["shutil.rmtree"]),
        ("os.unlink(name, dir_fd=home)", []),
        ("account_files.remove(name, home)", []),
        ("text.replace(a, b)", []),
        ("path.exists()  # root's: the node's folder", []),
        ("# root's: the node's folder\npath.exists()", []),
        ("x = 1  # root's: another line\npath.exists()", ["path.exists"]),
        ("def f():  # root's: the node's folder\n    path.exists()", []),
        ('"""A module."""\n\n# root\'s: all of it\n\npath.exists()', []),
    ],
)
def test_an_operation_by_path_says_whose_folder_it_is(text, found):
    assert [name for _, name in check_folders.by_path(text)] == found


def test_all_modules_keep_to_it():
    done = subprocess.run([sys.executable, "scripts/check_folders.py"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
