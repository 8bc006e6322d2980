"""The audit finds planted vulnerabilities in both databases, and never calls something safe that it did not look up."""

import hashlib
import importlib.util
import json
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts/audit.py"
NO_NETWORK = "echo 'no route to host' >&2; exit 1"
FLAWS = {
    "Flask-Cors": [{"id": "GHSA-1", "v": ">=1.0,<4.0.2", "fixed_in": "4.0.2"}],
    "flask": [{"id": "GHSA-2", "v": "<0.5", "fixed_in": "0.5"}],
    "odd": [{"id": "GHSA-3", "v": "<1.0ubuntu3", "fixed_in": "See advisory"}],
}


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script in a folder of its own, without a network."""
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["audit.py"])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    pip_audit(module, NO_NETWORK)
    module.LOCKED.write_text("flask==3.1.0\n")
    return module


def pip_audit(audit: ModuleType, does: str) -> None:
    tool = audit.HOME / "bin/pip-audit"
    tool.parent.mkdir(parents=True, exist_ok=True)
    tool.write_text(f"#!/bin/sh\n{does}\n")
    tool.chmod(0o755)


def reports(audit: ModuleType, *dependencies: dict[str, object]) -> None:
    text = json.dumps({"dependencies": dependencies})
    pip_audit(audit, f"for report; do :; done; echo '{text}' > \"$report\"; exit 1")


def ship(audit: ModuleType, monkeypatch: pytest.MonkeyPatch, flaws: object = FLAWS) -> None:
    wheel = audit.HOME / audit.DATABASE_WHEEL
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(zipfile.ZipInfo(audit.DATABASE_FILE, (2026, 7, 5, 0, 0, 0)), json.dumps(flaws))
    monkeypatch.setattr(audit, "DATABASE_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())


def test_what_osv_knows_is_found(audit, capsys):
    flaw = {"id": "PYSEC-1", "fix_versions": ["3.2"]}
    reports(audit, {"name": "flask", "version": "3.1.0", "vulns": [flaw]}, {"name": "odd", "skip_reason": "no version"})
    assert audit.main() == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == ["odd: not checked: no version", "flask 3.1.0: PYSEC-1, mended in 3.2"]
    assert told.err == ""


def test_nothing_is_said_of_what_osv_looked_up_and_does_not_know(audit, capsys):
    reports(audit, {"name": "flask", "version": "3.1.0", "vulns": []})
    assert (audit.main(), capsys.readouterr().out) == (0, "audit: no known vulnerability in what is locked\n")


@pytest.mark.parametrize("version", ["1.0", "4.0.1", "4.0.1rc1"])
def test_a_vulnerable_version_is_found_without_osv(audit, monkeypatch, capsys, version):
    ship(audit, monkeypatch)
    audit.LOCKED.write_text(f"flask==3.1.0\nflask_cors=={version}\nunknown==1\n")
    assert audit.main() == 1
    told = capsys.readouterr()
    assert told.out.splitlines()[2:] == [f"flask-cors {version}: GHSA-1 (>=1.0,<4.0.2), mended in 4.0.2"]
    assert f"{audit.DATABASE}, of 2026-07-05: it misses every vulnerability published later" in told.out
    assert "entries for 2 of the 3 locked packages" in told.out
    assert "could not be asked: no route to host" in told.err


@pytest.mark.parametrize("version", ["0.9", "4.0.2"])
def test_a_version_that_is_not_vulnerable_is_not_found(audit, monkeypatch, capsys, version):
    ship(audit, monkeypatch)
    audit.LOCKED.write_text(f"flask_cors=={version}\n")
    assert audit.main() == 0
    assert capsys.readouterr().out.endswith("audit: no known vulnerability in what is locked\n")


def test_a_range_that_cannot_be_read_counts_as_vulnerable(audit, monkeypatch, capsys):
    ship(audit, monkeypatch)
    audit.LOCKED.write_text("odd==7\n")
    assert audit.main() == 1
    assert "odd 7: GHSA-3 (<1.0ubuntu3), mended in See advisory" in capsys.readouterr().out


def test_the_shipped_database_is_asked_where_osv_looked_nothing_up(audit, monkeypatch, capsys):
    reports(audit, {"name": "flask", "skip_reason": "no version"})
    ship(audit, monkeypatch)
    assert audit.main() == 0
    assert "pip-audit looked nothing up" in capsys.readouterr().err


@pytest.mark.parametrize("database", ["none", "of other packages", "another file"])
def test_an_audit_that_checked_nothing_says_so(audit, monkeypatch, capsys, database):
    if database == "of other packages":
        ship(audit, monkeypatch, {"trac": [{"id": "GHSA-4", "v": "<1", "fixed_in": "1"}]})
    if database == "another file":
        (audit.HOME / audit.DATABASE_WHEEL).write_bytes(b"no archive")
    assert audit.main() == audit.NOTHING_CHECKED == 3
    told = capsys.readouterr()
    assert "NOT DONE" in told.err
    assert "nothing was checked" in told.err
    assert told.out == ""
