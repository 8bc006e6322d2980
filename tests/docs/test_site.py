"""The site that `make docs` builds: strictly, searchable without a server, nothing loaded from elsewhere."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(r"<(?:script|link|img|iframe|source|object|embed)\b[^>]*?\b(?:src|href|data)=\"([^\"]*)\"")
OF_STYLES = re.compile(r"(?:url\(|@import)\s*['\"]?([^'\")\s]*)")
SCRIPTED = re.compile(r"[\"'`](?:https?:)?//[^\"'`]*")


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    (options,) = re.findall(r"-m sphinx (.+) docs site\n", (ROOT / "Makefile").read_text())
    words = [sys.executable, "-m", "sphinx", *options.split(), str(source), str(site)]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT / "docs", folder)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


def index(site: Path) -> dict:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("Search.setIndex(").rstrip(";\n").removesuffix(")"))


@pytest.mark.parametrize(
    ("term", "page"),
    [
        ("longhaul", "tutorial"),
        ("invoic", "billing"),
        ("lendinglimit", "import"),
        ("guardian", "adr/0002-guardian-and-worker"),
    ],
)
def test_the_search_knows_words_of_each_kind_of_page(site, term, page):
    known = index(site)
    places = [known[kind].get(term, []) for kind in ("terms", "titleterms")]
    pages = {at for one in places for at in (one if isinstance(one, list) else [one])}
    assert page in {known["docnames"][at] for at in pages}


def test_every_page_is_in_the_search(site):
    pages = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(index(site)["docnames"]) == pages


def test_nothing_is_loaded_from_elsewhere(site):
    named = [
        address
        for kind, pattern in (("*.html", LOADED), ("*.css", OF_STYLES))
        for path in site.rglob(kind)
        for address in pattern.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(named) > 100
    assert [one for one in named if re.match(r"[a-z]+:|//", one) and not one.startswith("data:")] == []


def test_scripts_name_no_other_server(site):
    scripts = [path for path in site.rglob("*.js") if path.name != "searchindex.js"]
    named = {one.strip("\"'`") for path in scripts for one in SCRIPTED.findall(path.read_text(encoding="utf-8"))}
    assert named - {"http://www.w3.org/2000/svg"} == set()  # the name of a kind of XML


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[there is no such page](nowhere.md)", "nowhere.md"),
        ("[no such heading](index.md#nothing-like-it)", "nothing-like-it"),
        ("![no such picture](images/none.png)", "none.png"),
    ],
    ids=["page", "anchor", "picture"],
)
def test_what_points_nowhere_fails_the_build(tmp_path, line, said):
    source = tmp_path / "docs"
    shutil.copytree(ROOT / "docs" / "static", source / "static")
    shutil.copy(ROOT / "docs" / "conf.py", source)
    (source / "index.md").write_text(f"# Here\n\n{line}\n")
    built = build(source, tmp_path / "site")
    assert built.returncode == 1
    assert said in built.stderr
