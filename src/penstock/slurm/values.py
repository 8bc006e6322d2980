"""Values of options: numbers, sizes, times, devices, signals, dependencies; each error says what was expected.

Source: sbatch(1).
"""

import re
import signal
from typing import Literal, NamedTuple

from penstock.formats.slurm import limit_ms
from penstock.slurm.options import Given, Unknown

COUNT_MAX = 10_000_000
_MEMORY = re.compile(r"([0-9]{1,12})([KMGT]?)B?", re.IGNORECASE)
_KIB = {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3}
_NODES = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")
_GPUS = re.compile(r"(?:gres[:/])?gpu(?:[:/]([A-Za-z_][\w.+-]*))?(?:[:/=]([0-9]{1,6}))?(?:\(S:[0-9,-]+\))?")
_COUNTED = re.compile(r"(?:([A-Za-z_][\w.+-]*):)?([0-9]{1,6})")
_SIGNAL = re.compile(r"(?:([BR]{1,2}):)?([A-Za-z0-9]+)(?:@([0-9]{1,5}))?")
_WAITS = {"afterok": "after_ok", "afterany": "after_any", "afternotok": "after_failed", "aftercorr": "after_ok"}
_JOB = re.compile(r"([0-9]{1,15})(?:_([0-9]{1,9}|\*|\[\*\]))?")
Kind = Literal["after_ok", "after_any", "after_failed"]


def wrong(given: Given, expected: str) -> Unknown:
    """Return the error for a value that cannot be read."""
    return Unknown(f"--{given.name}={given.value} ({given.where}): expected {expected}")


def count(given: Given, *, low: int = 1) -> int:
    """Return a whole number. Raises: Unknown."""
    if not given.value.isdecimal() or not low <= int(given.value) <= COUNT_MAX:
        raise wrong(given, f"a whole number from {low}")
    return int(given.value)


def nodes(given: Given) -> tuple[int, int]:
    """Return the least and the greatest number of nodes of `2` or `2-4`. Raises: Unknown."""
    match = _NODES.fullmatch(given.value)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high:
        raise wrong(given, "a number of nodes such as 2, or 2-4")
    return low, high


def mebibytes(given: Given) -> int:
    """Return a size in MiB, rounded up; without a unit it is one of MiB. Raises: Unknown."""
    match = _MEMORY.fullmatch(given.value)
    if match is None:
        raise wrong(given, "a size such as 4G, 500M or 4000 (megabytes)")
    return -(-int(match[1]) * _KIB[match[2].upper()] // 1024)


def limit_s(given: Given) -> int:
    """Return a time limit in seconds, in whole minutes as Slurm counts it; 0: none. Raises: Unknown."""
    try:
        found = limit_ms(given.value)
    except ValueError:
        raise wrong(given, "a time such as 30 (minutes), 2:00:00, 1-12 (days-hours) or 1-00:00:00") from None
    return -(-found // 60_000) * 60


class Gpus(NamedTuple):
    """A number of devices, and their type where one is named."""

    number: int
    kind: str = ""


def gpus(given: Given) -> Gpus:
    """Return what `4` or `a100:4` asks for. Raises: Unknown."""
    match = _COUNTED.fullmatch(given.value)
    if match is None and re.fullmatch(r"[A-Za-z_][\w.+-]*", given.value):
        return Gpus(1, given.value)
    if match is None:
        raise wrong(given, "a number of devices such as 2, or a100:2 of one type")
    return Gpus(int(match[2]), match[1] or "")


def gres(given: Given) -> tuple[Gpus | None, list[str]]:
    """Return the devices of each node that `--gres` asks for, and its words for other things. Raises: Unknown."""
    found: Gpus | None = None
    others = []
    if given.value.lower() == "none":
        return None, []
    for word in given.value.split(","):
        match = _GPUS.fullmatch(word.strip())
        if match is None:
            if re.match(r"(gres[:/])?gpu\b", word.strip()):
                raise wrong(given, "devices such as gpu:2 or gpu:a100:2")
            others.append(word.strip())
        elif found is not None:
            raise Unknown(f"--gres={given.value} ({given.where}): a job has devices of one type here")
        else:
            found = Gpus(int(match[2] or 1), match[1] or "")
    return found, others


def warning(given: Given) -> str:
    """Return `USR1@60` or `B:USR1@60`, with a name and a time. Raises: Unknown."""
    match = _SIGNAL.fullmatch(given.value)
    name = match[2].upper().removeprefix("SIG") if match else ""
    if name.isdecimal() and int(name) in {one.value for one in signal.Signals}:
        name = signal.Signals(int(name)).name.removeprefix("SIG")
    if match is None or f"SIG{name}" not in signal.Signals.__members__:
        raise wrong(given, "a signal and seconds before the end, such as USR1@60 or B:TERM@120")
    shell = "B:" if "B" in (match[1] or "") else ""
    return f"{shell}{name}@{match[3] or 60}"


class Waits(NamedTuple):
    """A job that must have ended: `member` is an index of an array, -1 for the whole job or array."""

    kind: Kind
    job: int
    member: int = -1


class Dependencies(NamedTuple):
    jobs: tuple[Waits, ...] = ()
    singleton: bool = False
    notes: tuple[str, ...] = ()


def dependencies(given: Given) -> Dependencies:
    """Return what `--dependency` waits for. Raises: Unknown for words without a meaning here."""
    found: list[Waits] = []
    singleton, notes = False, []
    if "?" in given.value:
        raise Unknown(
            f"--dependency={given.value} ({given.where}): a job waits for all of its dependencies, not for any"
        )
    for part in given.value.split(","):
        kind, *jobs = part.strip().split(":")
        if kind == "singleton" and not jobs:
            singleton = True
            continue
        if kind not in _WAITS or not jobs:
            raise wrong(given, "afterok:JOB, afterany:JOB, afternotok:JOB, aftercorr:ARRAY or singleton, with commas")
        if kind == "aftercorr":
            notes.append("aftercorr waits for the whole array, not for the member of the same index")
        for word in jobs:
            match = _JOB.fullmatch(word)
            if match is None or not int(match[1]):
                raise wrong(given, "numbers of jobs after the colon, such as afterok:12:13 or afterok:12_3")
            member = int(match[2]) if match[2] and match[2].isdecimal() else -1
            found.append(Waits(_WAITS[kind], int(match[1]), member))  # type: ignore[arg-type]  # the table's words
    return Dependencies(tuple(found), singleton, tuple(notes))
