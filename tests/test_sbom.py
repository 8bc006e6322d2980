"""The bill of materials names what is locked, all of it, with versions; and what is built into the pages."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def bills() -> dict[str, dict]:
    """The bills by their component; skipped where the tool or npm cannot be had, but not in CI."""
    done = subprocess.run([sys.executable, "scripts/sbom.py"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 3 and os.environ.get("CI") != "true":
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    made = [json.loads((ROOT / line.partition(":")[0]).read_text()) for line in done.stdout.splitlines()]
    return {bill["metadata"]["component"]["name"]: bill for bill in made}


def versions(bill: dict) -> set[tuple[str, str]]:
    return {(component["name"], component["version"]) for component in bill["components"]}


def test_every_locked_dependency_is_named_with_its_version(bills):
    locked = {tuple(line.split("==")) for line in (ROOT / "constraints.txt").read_text().split()}
    assert versions(bills["penstock"]) == locked
    purls = {component["name"]: component["purl"] for component in bills["penstock"]["components"]}
    assert purls["SQLAlchemy"].startswith("pkg:pypi/sqlalchemy@2.")


def test_the_packages_built_into_the_pages_are_named(bills):
    packages = json.loads((ROOT / "ui/package-lock.json").read_text())["packages"]
    built_in = {name: it["version"] for name, it in packages.items() if name and not it.get("dev")}
    assert versions(bills["penstock-ui"]) == {(name.removeprefix("node_modules/"), it) for name, it in built_in.items()}


def test_penstock_is_the_component_and_installed_packages_have_licences(bills):
    assert {name: bill["metadata"]["component"]["version"] for name, bill in bills.items()} == {
        "penstock": VERSION,
        "penstock-ui": VERSION,
    }
    licences = {component["name"]: component.get("licenses") for component in bills["penstock"]["components"]}
    assert licences["msgspec"] == [{"license": {"acknowledgement": "declared", "id": "BSD-3-Clause"}}]
