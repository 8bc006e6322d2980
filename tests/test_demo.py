"""The demo checks its promises by the figures of the report: there is one number for each loss."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DEMO = Path(__file__).resolve().parent.parent / "examples/demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def summary(lost_steps: int | None = 41, saved: int = 0) -> dict[str, Any]:
    return {
        "totals": {"jobs": 2, "by_state": {"succeeded": 2}, "preemptions": 1},
        "preemptions": [{"restarted_after_ms": 900, "resumed_step": 72, "lost_steps": saved}],
        "recoveries": [{"restarted_after_ms": 6_480, "resumed_step": 192, "lost_steps": lost_steps}],
    }


def said(demo: ModuleType, **of: Any) -> dict[str, tuple[bool, str]]:
    checks = demo.promises(summary(**of), {"nightly": "ab"}, {"nightly": "ab"})
    return {text: (ok, figures) for text, ok, figures in checks}


def test_the_demo_says_the_figures_of_the_report(demo):
    assert said(demo) == {
        "every job succeeded": (True, "2 of 2"),
        "a job was preempted and resumed": (True, "1 preemption"),
        "steps lost to preemptions: 0": (True, "0"),
        "the killed node's job was recovered": (True, "back after 6.4 s"),
        "steps lost to the node: at most one checkpoint interval": (True, f"41 of at most {demo.INTERVAL_STEPS}"),
        "nightly: bit for bit equal to an undisturbed run": (True, "ab"),
    }


@pytest.mark.parametrize("case", [{"lost_steps": 500}, {"lost_steps": None}, {"saved": 3}])
def test_a_broken_promise_is_found(demo, case):
    assert not all(ok for ok, _ in said(demo, **case).values())
