"""Libraries that tests of `penstock.training` need: a test is skipped without them, and fails in CI, which has them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

import pytest

HEAVY = frozenset({"torch", "ray", "sklearn", "transformers", "lightning"})
"""Libraries that take seconds to load, and memory of every worker."""
loaded_early: list[str] = []
"""Those of them that collecting the tests has loaded."""


def collected() -> None:
    """Note what is loaded once all tests are collected."""
    loaded_early.extend(sorted(HEAVY & sys.modules.keys()))


def need(name: str, why: str = "") -> Any:
    """Return the module `name`, or skip what asks for it, saying `why`; in CI (CI=true) it fails instead."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = f"{name} cannot be imported ({error}){why and ': '}{why}"
        assert os.environ.get("CI") != "true", f"{reason}; `make install install-torch` installs it"
        return pytest.skip(reason, allow_module_level=True)


class Later:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks at each name of a file for what its decorators leave
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def need_later(name: str, why: str = "") -> Any:
    """Return the module `name`, imported when a test first uses it: who only collects tests must not load PyTorch."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        need(name, why)
    return Later(name)
