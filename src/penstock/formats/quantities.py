"""Quantities as other schedulers write them, to exact numbers. Nothing is rounded but where the source rounds, too."""

import re
from fractions import Fraction

QUANTITY_MAX = 2**60
"""A larger number is an error."""

EXPONENT_MAX = 100
"""Larger exponents make no other number: all are beyond the largest quantity, or far below the smallest."""

_BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SMALL = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
_KUBERNETES = re.compile(r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))(?:([eE][+-]?[0-9]{1,9})|([A-Za-z]*))")
_YUNIKORN = re.compile(r"([0-9]{1,19})([A-Za-z]*)")


def kubernetes_quantity(text: str, *, capped: bool = False) -> Fraction:
    """Return the number that a Kubernetes quantity means, such as `1500m`, `64Gi`, `1e3` or `0.5`.

    Args:
        capped: numbers above 2^60 count as 2^60, as the API server keeps what is above 2^63 - 1.
    Raises: ValueError for anything else, for negative numbers, and for those above 2^60 unless capped.
    Source: resource.Quantity, https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    match = _KUBERNETES.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number = Fraction(match[1])
    if match[2]:
        number *= Fraction(10) ** max(-EXPONENT_MAX, min(EXPONENT_MAX, int(match[2][1:])))
    else:
        unit = match[3]
        scale = _BINARY.get(unit) or _DECIMAL.get(unit) or _SMALL.get(unit)
        if scale is None:
            raise ValueError(text)
        number *= scale
    return _bounded(min(number, Fraction(QUANTITY_MAX)) if capped else number, text)


def yunikorn_quantity(text: str, *, vcore: bool = False) -> Fraction:
    """Return the number that a YuniKorn quantity means: whole numbers with a unit; `m` (1/1000) only for vcores.

    Raises: ValueError for anything else and for numbers above 2^60.
    Source: quantity.go of yunikorn-core; https://yunikorn.apache.org/docs/user_guide/queue_config#resources
    """
    match = _YUNIKORN.fullmatch(re.sub(r"\s+", "", text))
    if match is None:
        raise ValueError(text)
    if vcore and match[2] == "m":
        return _bounded(Fraction(match[1]) / 1000, text)
    unit = "k" if match[2] == "K" else match[2]
    scale = _BINARY.get(unit) or _DECIMAL.get(unit)
    if scale is None:
        raise ValueError(text)
    return _bounded(Fraction(match[1]) * scale, text)


def _bounded(number: Fraction, text: str) -> Fraction:
    if not 0 <= number <= QUANTITY_MAX:
        raise ValueError(text)
    return number


def rounded_up(number: Fraction, scale: int = 1) -> int:
    """Return `number` × `scale` as a whole number, rounded up as Kubernetes rounds quantities."""
    return -((-number * scale) // 1)
