"""Checks that the committed pages are those of the sources: built again, byte for byte; and their texts and sizes."""

import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STATIC, UI = Path("src/penstock/web/static"), Path("ui")
FIRST_MAX_KB, ALL_MAX_KB = 120, 400
"""Compressed: what is loaded before the first page, and all files together."""
NAMES = {"Penstock", "Enter", "Esc"}
KEY = re.compile(r"""\b(?:t|has)\(\s*[`"']([\w.]+)[`"']""")
TEXT = re.compile(r">\s*([A-Z][a-z]+ ?[a-z]*[^<>{}]*)</")


def main() -> None:
    problems = [*types(), *bytes_of_build(), *sizes(), *texts()]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print("ui: ok")


def types() -> list[str]:
    made = subprocess.run([sys.executable, "scripts/generate_types.py"], check=True, capture_output=True, text=True)
    same = made.stdout == (UI / "src/api/types.gen.ts").read_text()
    return [] if same else ["ui/src/api/types.gen.ts is not that of the API: make ui"]


def bytes_of_build() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "static"
        node = shutil.which("node") or "node"
        subprocess.run([node, "build.mjs", "--out", str(out)], cwd=UI, check=True, stdout=subprocess.DEVNULL)
        built, kept = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in (out, STATIC))
    return [] if built == kept else [f"{STATIC} is not what ui/ builds: make ui"]


def sizes() -> list[str]:
    manifest = json.loads((STATIC / "MANIFEST.json").read_text())
    zipped = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in STATIC.rglob("*") if path.is_file()}
    first = sum(zipped[name] for name in manifest["first"]) / 1000
    everything = sum(zipped.values()) / 1000
    found = []
    if first > FIRST_MAX_KB:
        found.append(f"the first load is {first:.0f} kB compressed, at most {FIRST_MAX_KB}")
    if everything > ALL_MAX_KB:
        found.append(f"all files are {everything:.0f} kB compressed, at most {ALL_MAX_KB}")
    return found


def texts() -> list[str]:
    """Return keys that a catalogue lacks, and sentences that stand in a component."""
    catalogues = {path.stem: json.loads(path.read_text()) for path in (UI / "src/text").glob("*.json")}
    english, found = catalogues["en"], []
    for language, texts in catalogues.items():
        plural = {key.rpartition(".")[0] for key in english if key.endswith(".other")}
        optional = {f"{key}.one" for key in plural}
        found += [f"{language}.json lacks '{key}'" for key in english.keys() - texts.keys() - optional]
        found += [f"{language}.json has '{key}', which en.json has not" for key in texts.keys() - english.keys()]
        found += [
            f"{language}.json: '{key}' has other places than in en.json"
            for key in english.keys() & texts.keys()
            if set(re.findall(r"\{\w+\}", english[key])) != set(re.findall(r"\{\w+\}", texts[key]))
        ]
    for path in sorted((UI / "src").rglob("*.ts*")):
        text = path.read_text()
        known = {*english, *(key.rpartition(".")[0] for key in english)}
        found += [f"{path}: en.json lacks '{key}'" for key in KEY.findall(text) if key not in known]
        if path.suffix == ".tsx":
            found += [f"{path}: '{words}' stands in a component" for words in TEXT.findall(text) if words not in NAMES]
    return found


if __name__ == "__main__":
    main()
