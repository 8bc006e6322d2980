"""Values beyond those of CEL itself: quantities, versions, optional values."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.formats.quantities import kubernetes_quantity

_SEMVER = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LOOSE = re.compile(r"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?([-+].*)?")
VERSION_MAX = 128
"""Characters of a version that is read."""


class Quantity(NamedTuple):
    """An amount of Kubernetes, as an exact number."""

    number: Fraction


class Version(NamedTuple):
    """A semantic version; build metadata is left out, as it never counts. Source: semver.org 2.0.0."""

    numbers: tuple[int, int, int]
    before: tuple[tuple[int, int, str], ...]
    """Order of the parts of a pre-release; a release comes after all of them."""

    @property
    def order(self) -> tuple[Any, ...]:
        return self.numbers, not self.before, self.before


class Maybe(NamedTuple):
    """An optional value."""

    there: bool
    value: Any = None


@lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity:
    """Read a quantity. Raises: ValueError."""
    negative = text.startswith("-")
    number = kubernetes_quantity(text[1:] if negative else text, capped=True)
    return Quantity(-number if negative else number)


@lru_cache(maxsize=4096)
def version(text: str, *, loose: bool = False) -> Version:
    """Read a version.

    Args:
        loose: with `v` before it, without minor or patch, and with leading zeros, too.
    Raises: ValueError.
    """
    found = _LOOSE.fullmatch(text) if loose and len(text) <= VERSION_MAX else None
    if found is not None:
        text = ".".join(str(int(found[i] or 0)) for i in (1, 2, 3)) + (found[4] or "")
    match = _SEMVER.fullmatch(text) if len(text) <= VERSION_MAX else None
    if match is None:
        raise ValueError(f"{text[:40]!r} is no version such as 1.2.3")
    numbers = int(match[1]), int(match[2]), int(match[3])
    parts = match[4].split(".") if match[4] else []
    return Version(numbers, tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts))
