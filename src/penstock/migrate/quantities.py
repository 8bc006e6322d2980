"""Quantities as other schedulers write them, to exact numbers. Nothing is rounded but where the source rounds, too."""

import re
from fractions import Fraction

MIB = 2**20
QUANTITY_MAX = 2**60
"""A larger number is an error."""

_BINARY = {unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_SMALL = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
_KUBERNETES = re.compile(r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))(?:([eE][+-]?[0-9]{1,2})|([A-Za-z]*))")
_YUNIKORN = re.compile(r"([0-9]{1,19})([A-Za-z]*)")
_MEGABYTES = re.compile(r"([0-9]{1,18})(?:([KMGTP])B?)?", re.IGNORECASE)
_COUNT = re.compile(r"([0-9]{1,18})([KMGTP])?", re.IGNORECASE)
_POWERS = {"k": 0, "m": 1, "g": 2, "t": 3, "p": 4}
_TIME = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_FOREVER = ("infinite", "unlimited", "-1")


def kubernetes_quantity(text: str) -> Fraction:
    """Return the number that a Kubernetes quantity means, such as `1500m`, `64Gi`, `1e3` or `0.5`.

    Raises: ValueError for anything else and for numbers that are negative or above 2^60.
    Source: resource.Quantity, https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    match = _KUBERNETES.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number = Fraction(match[1])
    if match[2]:
        number *= Fraction(10) ** int(match[2][1:])
    else:
        unit = match[3]
        scale = _BINARY.get(unit) or _DECIMAL.get(unit) or _SMALL.get(unit)
        if scale is None:
            raise ValueError(text)
        number *= scale
    return _bounded(number, text)


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


def slurm_memory_bytes(text: str) -> int:
    """Return bytes for a Slurm memory size: megabytes (2^20) unless a unit K, M, G, T or P says otherwise.

    Raises: ValueError for anything else and for numbers above 2^60.
    Source: https://slurm.schedmd.com/slurm.conf.html#OPT_RealMemory
    """
    match = _MEGABYTES.fullmatch(text)
    if match is None:
        raise ValueError(text)
    size = int(match[1]) * 1024 ** (_POWERS[(match[2] or "m").lower()] + 1)
    return int(_bounded(Fraction(size), text))


def slurm_count(text: str) -> int:
    """Return a count of generic resources; a unit K, M, G, T or P multiplies by powers of 1024.

    Raises: ValueError for anything else and for numbers above 2^60.
    Source: https://slurm.schedmd.com/gres.conf.html#OPT_Count
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(_bounded(Fraction(int(match[1]) * 1024 ** (_POWERS[match[2].lower()] + 1 if match[2] else 0)), text))


def slurm_time_ms(text: str) -> int | None:
    """Return milliseconds for a Slurm time, or None for one without an end (`INFINITE`, `UNLIMITED`).

    Forms: `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`,
    `days-hours:minutes:seconds`. Raises: ValueError for anything else and for numbers above 2^60.
    Source: https://slurm.schedmd.com/sbatch.html#OPT_time
    """
    if text.lower() in _FOREVER:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    days, *parts = (None if part is None else int(part) for part in match.groups())
    given = [part for part in parts if part is not None]
    if days is None and len(given) < 3:
        minutes, seconds = [*given, 0][:2]
        total = minutes * 60 + seconds
    else:
        hours, minutes, seconds = [*given, 0, 0][:3]
        total = ((days or 0) * 24 + hours) * 3600 + minutes * 60 + seconds
    return int(_bounded(Fraction(total * 1000), text))
