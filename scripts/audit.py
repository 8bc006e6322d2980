"""Looks the locked dependencies up in a database of known vulnerabilities: `make audit`.

It needs the network, so it is no part of `make lint`. Ends with 0 when nothing is known, 1 when something is, and 3,
saying so, when the database could not be asked: then nothing is known of anything.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TOOL = "pip-audit==2.10.1"
HOME = Path(".venv/audit")
"""The tool has an environment of its own: what it needs is none of Penstock's."""
LOCKED = Path("constraints.txt")
FOUND, NOT_ASKED = 1, 3
WAIT_S = 600


def not_asked(why: str) -> int:
    print(f"audit: NOT DONE: {why.strip().splitlines()[-1] if why.strip() else 'no reason was given'}", file=sys.stderr)
    print("audit: nothing was checked; run it again where the network can be reached", file=sys.stderr)
    return NOT_ASKED


def findings(report: Path) -> list[str]:
    """Return what was found, one line each."""
    told = json.loads(report.read_text(encoding="utf-8"))["dependencies"]
    return [
        f"{one['name']} {one['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for one in told
        for flaw in one.get("vulns", ())
    ]


def main() -> int:
    tool = HOME / "bin" / "pip-audit"
    if not tool.exists():
        venv.create(HOME, with_pip=True)
        pip = [
            str(HOME / "bin" / "python"),
            "-P",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            TOOL,
        ]
        made = subprocess.run(pip, capture_output=True, text=True, timeout=WAIT_S, check=False)
        if made.returncode:
            return not_asked(made.stderr)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        how = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "-s", "osv", "-f", "json", "-o", str(report)]
        command = [str(tool), "-r", str(LOCKED), *how, *sys.argv[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        if not report.exists():
            return not_asked(done.stderr)
        found = findings(report)
    print("\n".join(found) or "audit: no known vulnerability in what is locked")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main())
