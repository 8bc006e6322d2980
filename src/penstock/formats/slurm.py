"""Times, sizes, counts and resources as Slurm writes them, in its configuration, its accounts and its accounting."""

import re
from collections.abc import Iterator
from fractions import Fraction

import msgspec

SIZE_MAX = 2**60
"""A larger number is an error."""
_POWERS = {unit: 1024**power for power, unit in enumerate("KMGTP", 1)}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(?:([KMGTP])B?)?", re.IGNORECASE)
_COUNT = re.compile(r"([0-9]{1,18})([KMGTP])?", re.IGNORECASE)
_TIME = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,11})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?(\.[0-9]{1,9})?")
_ENDLESS = ("infinite", "unlimited", "-1")
_GRES = re.compile(r"([A-Za-z0-9_-]+)((?::[A-Za-z0-9_.+-]+)*)(?:\(([^()]*)\))?")
_GRES_COUNT = re.compile(r"[0-9]{1,14}[KMGTP]?", re.IGNORECASE)
_SOCKETS = re.compile(r"S:([0-9]{1,4})(?:-([0-9]{1,4}))?")


def time_ms(text: str, *, bare_ms: int) -> int:
    """Return milliseconds for `1-02:03:04`, `1-02:03`, `1-02`, `02:03:04`, `03:04.500`, or a bare number.

    Args:
        bare_ms: what a bare number counts: minutes in limits, seconds elsewhere.
    Raises: ValueError for anything else.
    Source: https://slurm.schedmd.com/sbatch.html#OPT_time, https://slurm.schedmd.com/sacct.html#OPT_Elapsed
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    *groups, decimals = match.groups()
    days, *parts = (None if part is None else int(part) for part in groups)
    given = [part for part in parts if part is not None]
    ends_in_seconds = len(given) == 3 or (days is None and (len(given) == 2 or bare_ms == 1000))
    if decimals and not ends_in_seconds:
        raise ValueError(text)
    part_ms = round(float(decimals or 0) * 1000)
    if days is None and len(given) == 1:
        return given[0] * bare_ms + part_ms
    hours, minutes, seconds = [0, *given] if days is None and len(given) == 2 else [*given, 0, 0][:3]
    return ((((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + part_ms


def limit_ms(text: str) -> int:
    """Return milliseconds for a time limit, in which a bare number is minutes; 0 for one without an end.

    Raises: ValueError for anything else.
    """
    return 0 if text.lower() in _ENDLESS else time_ms(text, bare_ms=60_000)


def size_bytes(text: str) -> int:
    """Return bytes for `4G`, `62.50G` or `4000M`; without a unit it is megabytes (2^20).

    Raises: ValueError for anything else and for numbers above 2^60.
    Source: https://slurm.schedmd.com/slurm.conf.html#OPT_RealMemory, sacct.html#OPT_ReqMem
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return _bounded(int(Fraction(match[1]) * _POWERS[(match[2] or "M").upper()]), text)


def gres_count(text: str) -> int:
    """Return a count of generic resources; a unit K, M, G, T or P multiplies by powers of 1024.

    Raises: ValueError for anything else and for numbers above 2^60.
    Source: https://slurm.schedmd.com/gres.conf.html#OPT_Count
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return _bounded(int(match[1]) * _POWERS.get((match[2] or "").upper(), 1), text)


def _bounded(value: int, text: str) -> int:
    if value > SIZE_MAX:
        raise ValueError(text)
    return value


def tres_items(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and amounts of trackable resources, such as `cpu=4,mem=16G,gres/gpu:a100=2`.

    Raises: ValueError for a word without `=`: the word itself.
    Source: https://slurm.schedmd.com/tres.html
    """
    for word in text.split(","):
        name, equals, amount = word.partition("=")
        if not equals and word.strip():
            raise ValueError(word.strip())
        if equals:
            yield name.strip(), amount.strip()


class Gres(msgspec.Struct, frozen=True):
    """One generic resource: `gpu:a100:8(S:0-1)`. Sockets are (first, last), or None."""

    name: str
    kind: str
    count: int
    sockets: tuple[int, int] | None


def read_gres(word: str) -> Gres | None:
    """Return a generic resource as nodes and jobs name it, one where no count is said; None for what is none.

    Source: https://slurm.schedmd.com/slurm.conf.html#OPT_Gres_1
    """
    match = _GRES.fullmatch(word)
    if match is None:
        return None
    parts = [part for part in match[2].split(":") if part and part != "no_consume"]
    count = gres_count(parts.pop()) if parts and _GRES_COUNT.fullmatch(parts[-1]) else 1
    sockets = _SOCKETS.search(match[3] or "")
    span = (int(sockets[1]), int(sockets[2] or sockets[1])) if sockets else None
    return Gres(match[1].lower(), ":".join(parts), count, span)
