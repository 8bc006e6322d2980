"""What tests of documents need beside Python packages: skipped without it on a user's machine, a failure in CI."""

import os
from pathlib import Path

import pytest

CHINESE = Path("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc")
LATIN = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")


def need(name: str) -> None:
    """Skip the module without the package `name`; in CI (CI=true) it fails instead."""
    if os.environ.get("CI") == "true":
        __import__(name)
    pytest.importorskip(name)


def need_font(path: Path) -> None:
    """Skip the test without a font; in CI it fails instead."""
    if not path.exists():
        reason = f"{path} is missing: scripts/install-system-packages.sh installs it"
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)
