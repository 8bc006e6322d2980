"""How programs are started: nothing of the folder where a command was typed runs, and the lint step keeps it so."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import starts

ROOT = Path(__file__).resolve().parents[2]


def test_an_environment_names_only_absolute_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = starts.environment(
        {
            "PATH": ".::/bin:bin:/usr/bin",
            "PYTHONPATH": ":src",
            "LD_LIBRARY_PATH": "/lib:",
            "TMPDIR": "tmp",
            "PGSSLROOTCERT": "system",
            "PENSTOCK_CA": "/a/ca.pem",
            "HOME": "/h",
        }
    )
    assert found == {
        "PATH": "/bin:/usr/bin",
        "LD_LIBRARY_PATH": "/lib",
        "TMPDIR": str(tmp_path / "tmp"),
        "PGSSLROOTCERT": "system",
        "PENSTOCK_CA": "/a/ca.pem",
        "HOME": "/h",
    }


def test_tools_are_found_in_absolute_folders_only(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (".", "", f"{os.pathsep}."):
        monkeypatch.setenv("PATH", path)
        assert starts.tool("nvidia-smi") is None
    monkeypatch.setenv("PATH", f".{os.pathsep}{tmp_path}")
    assert starts.tool("nvidia-smi") == str(tmp_path / "nvidia-smi")


def test_a_module_of_ours_begins_in_the_root_and_looks_nowhere_else(tmp_path, monkeypatch):
    (tmp_path / "marked.py").write_text("print('not ours')\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "marked.py").write_text("import os; print(os.getcwd())\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}.{os.pathsep}{tmp_path / 'elsewhere'}")
    with (tmp_path / "said").open("wb") as output:
        assert starts.begin("marked", output=output).wait() == 0
    assert (tmp_path / "said").read_text() == "/\n"


def test_a_process_that_becomes_a_module_of_ours_leaves_its_folder(tmp_path):
    (tmp_path / "marked.py").write_text("print('not ours')\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "marked.py").write_text("import os, sys; print(os.getcwd(), *sys.argv[1:])\n")
    program = "from penstock import starts; starts.become('marked', 'a b')"
    sources = str(Path(starts.__file__).parents[1])
    path = os.pathsep.join((sources, "", str(tmp_path / "elsewhere")))
    words = [sys.executable, "-P", "-c", program]
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("/ a b\n", "")


@pytest.mark.parametrize(("before", "after"), [(0o000, 0o022), (0o002, 0o022), (0o077, 0o077)])
def test_what_a_server_makes_only_its_owner_can_write(before, after):
    child = os.fork()
    if child == 0:
        os.umask(before)
        starts.settle()
        os._exit(os.umask(0) if os.getcwd() == "/" else 255)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == after


# The lint rule.


def refused(tmp_path: Path, monkeypatch, text: str, folder: str = "src") -> list[str]:
    spec = importlib.util.spec_from_file_location("check_starts", ROOT / "scripts" / "check_starts.py")
    assert spec is not None
    assert spec.loader is not None
    rule = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rule)
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "some.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return rule.unsafe(Path(folder) / "some.py")


@pytest.mark.parametrize("folder", ["src", "examples", "bench", "scripts"])
@pytest.mark.parametrize(
    "words",
    [
        "[sys.executable, '-m', 'penstock.wire']",
        "('python3', '-m', 'penstock.wire')",
        "[sys.executable, '-u', '-m', 'x', '-P']",
        "[sys.executable, '-c', 'import x']",
        "[python, '-um', 'x']",
        "('-m', 'penstock.wire')",
    ],
)
def test_a_start_that_looks_around_is_refused(tmp_path, monkeypatch, words, folder):
    (found,) = refused(tmp_path, monkeypatch, f"command = {words}\n", folder)
    assert found.startswith(f"{folder}/some.py:1: '-")


@pytest.mark.parametrize(
    "words",
    [
        "[sys.executable, '-P', '-m', 'penstock.wire']",
        "[sys.executable, '-I', '-S', '-c', 'import x']",
        "['-P', '-m', 'x']",
        "['git', 'commit', '-m', 'x']",
        "[shell, '-c', 'x']",
        "typer.Option('--model', '-m')",
    ],
)
def test_a_start_that_does_not_look_around_is_taken(tmp_path, monkeypatch, words):
    assert refused(tmp_path, monkeypatch, f"command = {words}\n") == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("subprocess.run(words)", "subprocess.run names no cwd"),
        ("subprocess.Popen(words, env={})", "subprocess.Popen names no cwd"),
        ("os.execv(sys.executable, [sys.executable, '-m', 'x'])", "'-m' needs -P or -I before it"),
        ("os.execl(sys.executable, 'python', '-m', 'x')", "'-m' needs -P or -I before it"),
        ("os.system('true')", "os.system leaves it to others which program starts"),
        ("from subprocess import PIPE, Popen", "Popen is imported by name: write subprocess.Popen"),
        ("from os import execv", "execv is imported by name: write os.execv"),
        ("from os import system", "system is imported by name: write os.system"),
        ("shutil.which('sh')", "shutil.which may find a program in a relative folder of PATH: use starts.tool"),
    ],
)
def test_starts_of_the_product_name_their_folder_and_program(tmp_path, monkeypatch, text, what):
    assert refused(tmp_path, monkeypatch, f"{text}\n") == [f"src/some.py:1: {what}"]


def test_all_our_starts_keep_the_rule():
    done = subprocess.run([sys.executable, "scripts/check_starts.py"], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("starts: ok\n", 0)
