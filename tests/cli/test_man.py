"""A manual page for each command, which man reads without a complaint."""

import shutil
import subprocess

import pytest

from penstock.cli import man
from penstock.cli.examples import EXAMPLES
from penstock.cli.output import EXIT_CODES
from tests.cli.stage import LEAVES

PAGES = dict(man.pages())


def test_each_command_has_a_page():
    assert sorted(PAGES) == sorted(["penstock", *(f"penstock-{name.replace(' ', '-')}" for name in LEAVES)])


def read(page, tmp_path):
    """Return a page as man shows it, and its warnings."""
    (tmp_path / "page.1").write_text(PAGES[page], encoding="utf-8")
    words = ["groff", "-mandoc", "-Tutf8", "-Kutf8", "-ww", "-rLL=100n", "-P-cbou", str(tmp_path / "page.1")]
    done = subprocess.run(words, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    return done.stdout, done.stderr


@pytest.mark.parametrize("name", ["penstock", "penstock-submit", "penstock-ps", "penstock-money-bill"])
def test_pages_say_what_the_help_says(tmp_path, name):
    if not shutil.which("groff"):
        pytest.skip("there is no groff")
    text, warnings = read(name, tmp_path)
    shown = " ".join(text.split())
    assert warnings == ""
    assert [
        line for line in EXAMPLES.get(name.removeprefix("penstock-").replace("-", " "), ()) if line not in shown
    ] == []
    assert "EXIT STATUS" in text
    assert "PENSTOCK_TOKEN" in text


def test_no_page_gives_groff_a_reason_to_complain(tmp_path):
    if not shutil.which("groff"):
        pytest.skip("there is no groff")
    files = [tmp_path / f"{name}.1" for name in PAGES]
    for path in files:
        path.write_text(PAGES[path.stem], encoding="utf-8")
    words = ["groff", "-mandoc", "-Tutf8", "-Kutf8", "-ww", "-z", *map(str, files)]
    done = subprocess.run(words, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "written"),
    [(".TH x", "\\&.TH x"), ("'br", "\\&'br"), ("a\\b -c", "a\\eb \\-c"), ('"q"', "\\(dqq\\(dq")],
)
def test_no_text_is_a_request_or_an_escape(text, written):
    assert man._text(text) == written


def test_every_exit_code_is_in_the_list():
    assert set(EXIT_CODES.values()) | {0, 130} <= set(man.exit_codes())


def test_all_pages_are_written_where_man_looks(penstock, tmp_path):
    told = penstock("help", "--man", str(tmp_path / "manual"))
    assert (told.code, told.err) == (0, "")
    assert {path.stem for path in (tmp_path / "manual" / "man1").iterdir()} == set(PAGES)
    (tmp_path / "file").touch()
    told = penstock("help", "--man", str(tmp_path / "file"))
    assert (told.code, "cannot be written" in told.err) == (2, True)
