"""Writes what a release is made of, as CycloneDX in JSON: `make sbom`.

dist/penstock-VERSION.cdx.json names the dependencies that constraints.txt locks, with the licence of each that is
installed here in that version; dist/penstock-ui-VERSION.cdx.json the packages that are built into the pages. Both are
validated against their schema. Ends with 3, saying so, when that could not be done.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from audit import HOME, LOCKED, NotDone, last_line, tool

TOOL = "cyclonedx-bom==7.5.0"
ABOUT, PAGES, RELEASE = Path("pyproject.toml"), Path("ui"), Path("dist")
NOT_MADE = 3
WAIT_S = 300
VALIDATE = """
import json, pathlib, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    text = pathlib.Path(path).read_text(encoding="utf-8")
    problem = JsonStrictValidator(SchemaVersion.from_version(json.loads(text)["specVersion"])).validate_str(text)
    if problem is not None:
        sys.exit(f"{path}: " + str(problem).partition("\\n")[0])
"""


def output(*command: object, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            [*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        raise NotDone(last_line(error.stderr.strip() or str(error))) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotDone(str(error)) from error
    return done.stdout


def of_lock() -> dict:
    """Return the bill of what is locked: the licences are those of the installed packages of the same version."""
    cyclonedx = tool(TOOL, "cyclonedx-py")
    how = ["--output-reproducible", "--short-PURLs", "--no-validate", "--pyproject", ABOUT]  # validated as a whole
    bill = json.loads(output(cyclonedx, "requirements", *how, LOCKED))
    installed = json.loads(output(cyclonedx, "environment", *how, sys.executable))["components"]
    licenses = {one["purl"]: one["licenses"] for one in installed if "licenses" in one}
    for component in bill["components"]:
        if component["purl"] in licenses:
            component["licenses"] = licenses[component["purl"]]
    return bill


def of_pages(version: str) -> dict:
    """Return the bill of the pages' packages, but for those that only build or check them."""
    with tempfile.TemporaryDirectory() as folder:
        about = json.loads((PAGES / "package.json").read_text(encoding="utf-8")) | {"version": version}
        ui = Path(folder) / about["name"]  # npm calls the whole what its folder is called
        ui.mkdir()
        (ui / "package.json").write_text(json.dumps(about), encoding="utf-8")
        shutil.copy(PAGES / "package-lock.json", ui)
        how = ["--sbom-format", "cyclonedx", "--omit", "dev", "--package-lock-only"]
        return json.loads(output("npm", "sbom", *how, folder=ui))


def main() -> int:
    version = tomllib.loads(ABOUT.read_text(encoding="utf-8"))["project"]["version"]
    try:
        bills = {f"penstock-{version}.cdx.json": of_lock(), f"penstock-ui-{version}.cdx.json": of_pages(version)}
        with tempfile.TemporaryDirectory() as folder:
            made = [Path(folder) / name for name in bills]
            for path in made:
                path.write_text(json.dumps(bills[path.name], indent=2) + "\n", encoding="utf-8")
            output(HOME / "bin/python", "-c", VALIDATE, *made)
            RELEASE.mkdir(exist_ok=True)
            for path in made:
                shutil.copy(path, RELEASE)
    except NotDone as why:
        print(f"sbom: NOT DONE: {why}", file=sys.stderr)
        return NOT_MADE
    for name, bill in bills.items():
        print(f"{RELEASE / name}: {len(bill['components'])} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
