"""The examples of docs/testing.md run as they stand there."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def runs(block: str) -> Iterator[tuple[str, object]]:
    """Yield the tests of an example: functions, and methods of classes between their setup and teardown."""
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(block, "docs/testing.md", "exec"), names)
    for name, value in names.items():
        if name.startswith("test_") and inspect.isfunction(value):
            yield name, value
        elif name.startswith("Test") and inspect.isclass(value):
            for method in (each for each in dir(value) if each.startswith("test_")):
                yield f"{name}.{method}", lambda kind=value, method=method: within(kind(), method)


def within(instance: object, method: str) -> None:
    instance.setup_method()
    try:
        getattr(instance, method)()
    finally:
        instance.teardown_method()


TESTS = [pytest.param(test, id=name) for block in BLOCKS for name, test in runs(block)]


def test_there_are_examples_of_each_kind():
    assert len(BLOCKS) == 4
    assert len(TESTS) > 20


@pytest.mark.parametrize("test", TESTS)
def test_an_example_holds(test, monkeypatch):
    monkeypatch.chdir(ROOT)
    test()


@pytest.mark.parametrize("module", sorted(path.stem for path in (ROOT / "src/penstock/testing").glob("[a-z]*.py")))
def test_every_module_has_its_line(module):
    assert f"`penstock.testing.{module}`" in TEXT
