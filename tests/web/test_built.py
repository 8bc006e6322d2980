"""The built pages: all of the manifest, within their sizes, with the licences of what is shipped."""

import gzip
import hashlib
import json
import re
from pathlib import Path

from penstock.web.pages import built_files

UI = Path(__file__).parents[2] / "ui"
STATIC = Path(__file__).parents[2] / "src/penstock/web/static"
MANIFEST = json.loads((STATIC / "MANIFEST.json").read_text())
FIRST_MAX_KB, ALL_MAX_KB = 120, 400


def test_every_file_is_that_of_the_manifest():
    found = {str(p.relative_to(STATIC)): p.read_bytes() for p in STATIC.rglob("*") if p.is_file()}
    del found["MANIFEST.json"]
    assert {name: hashlib.sha256(data).hexdigest() for name, data in found.items()} == {
        name: file["sha256"] for name, file in MANIFEST["files"].items()
    }


def test_the_first_load_and_all_files_are_small():
    sizes = {p.name: len(gzip.compress(p.read_bytes(), 9)) for p in STATIC.rglob("*") if p.is_file()}
    assert sum(sizes[name] for name in MANIFEST["first"]) < FIRST_MAX_KB * 1000
    assert sum(sizes.values()) < ALL_MAX_KB * 1000


def test_what_is_shipped_names_its_licences():
    lock = json.loads((UI / "package-lock.json").read_text())["packages"]
    text = (STATIC / "THIRD_PARTY.txt").read_text()
    shipped = {name for name, entry in lock.items() if name and not entry.get("dev") and not entry.get("optional")}
    assert shipped
    for name in shipped:
        assert f"{name.removeprefix('node_modules/')} {lock[name]['version']} (MIT)" in text


def test_every_file_that_the_index_names_is_there():
    files = built_files()
    index = files["index.html"].body.decode()
    names = re.findall(r'(?:src|href)="\{root\}([^"]+)"', index)
    assert len(names) == 3
    assert set(names) <= files.keys()
    assert "http" not in index.replace("http-equiv", "")
