"""What a program loads: agents nothing that decides, users' tests no pytest but their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src"
TESTING = sorted(f"penstock.testing.{path.stem}" for path in (SOURCES / "penstock/testing").glob("[a-z]*.py"))


def loaded_by(module: str) -> list[str]:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_an_agent_loads_no_state_and_nothing_that_decides():
    decides = ("penstock.core.state", "penstock.core.cycle", "penstock.control", "penstock.server", "penstock.store")
    assert [name for name in loaded_by("penstock.engines.agent.worker") if name.startswith(decides)] == []


@pytest.mark.parametrize(
    ("module", "most"), [("penstock.client", 41), ("penstock.engines.agent.guardian", 74)], ids=["client", "agent"]
)
def test_a_client_and_an_agent_load_few_modules(module, most):
    ours = [name for name in loaded_by(module) if name.partition(".")[0] == "penstock"]
    assert len(ours) <= most, ours


@pytest.mark.parametrize("module", TESTING)
def test_what_is_for_tests_needs_no_pytest(module):
    assert "pytest" not in loaded_by(module)


def test_the_server_loads_nothing_that_is_for_tests():
    assert [name for name in loaded_by("penstock.wire") if name.startswith("penstock.testing")] == []
