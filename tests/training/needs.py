"""Libraries that tests of `penstock.training` need: a test is skipped without them, and fails in CI, which has them."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def need(name: str, why: str = "") -> Any:
    """Return the module `name`, or skip what asks for it, saying `why`; in CI (CI=true) it fails instead."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = f"{name} cannot be imported ({error}){why and ': '}{why}"
        assert os.environ.get("CI") != "true", f"{reason}; `make install install-torch` installs it"
        return pytest.skip(reason, allow_module_level=True)
