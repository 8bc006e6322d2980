"""Slurm's hostlist expressions: `gpu[01-16,20]-ib[0-1]` names 34 nodes.

Source: https://slurm.schedmd.com/slurm.conf.html#OPT_NodeName; compared with `scontrol show hostnames` of Slurm 22.05.
A text after the last bracket (`n[1-2]x`), which that version refuses, is taken literally.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import product

HOSTS_MAX = 10_000
"""Names in one list: as many nodes as a cluster file takes."""
LIST_CHARACTERS_MAX = 65_536
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand(text: str) -> list[str]:
    """Return the names of a hostlist in its order; a name given twice comes twice.

    Raises: ValueError naming the fault, also above `HOSTS_MAX` names, before they are made.
    """
    if len(text) > LIST_CHARACTERS_MAX:
        raise ValueError(f"a host list of at most {LIST_CHARACTERS_MAX} characters")
    found: list[str] = []
    for word in _words(text):
        parts = list(_parts(word))
        count = 1
        for part in parts:
            count *= sum(last - first + 1 for first, last, _ in part) if isinstance(part, list) else 1
        if len(found) + count > HOSTS_MAX:
            raise ValueError(f"a host list of at most {HOSTS_MAX} names")
        found += ["".join(choice) for choice in product(*(_choices(part) for part in parts))]
    if not found:
        raise ValueError("at least one name")
    return found


Range = tuple[int, int, int]
"""First and last number, and how many digits at least."""


def _words(text: str) -> Iterator[str]:
    """Yield the words between commas and blanks outside of brackets."""
    start, inside = 0, False
    for at, character in enumerate(text):
        if character in "[]":
            if inside == (character == "["):
                raise ValueError("brackets in pairs, such as n[1-4]")
            inside = not inside
        elif not inside and (character == "," or character.isspace()):
            if at > start:
                yield text[start:at]
            start = at + 1
    if inside:
        raise ValueError("brackets in pairs, such as n[1-4]")
    if len(text) > start:
        yield text[start:]


def _parts(word: str) -> Iterator[str | list[Range]]:
    for index, piece in enumerate(re.split(r"[\[\]]", word)):
        if index % 2:
            yield [_range(part) for part in piece.split(",")]
        elif piece:
            yield piece


def _range(text: str) -> Range:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError("ranges such as 1-4 or 01-16,20 in brackets")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"a range that goes up, such as {last}-{first}")
    return first, last, len(match[1])


def _choices(part: str | list[Range]) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [f"{number:0{width}}" for first, last, width in part for number in range(first, last + 1)]


_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})")


def compressed(names: Iterable[str]) -> str:
    """Return names as a hostlist: `n[1-3]` for n1, n2, n3. Names with another name between them stay apart."""
    groups: list[tuple[str, int, list[list[int]]]] = []
    words: list[str] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            groups.append((name, 0, []))
            continue
        prefix, digits, number = match[1], match[2], int(match[2])
        if groups and groups[-1][0] == prefix and groups[-1][2] and f"{number:0{groups[-1][1]}}" == digits:
            ranges = groups[-1][2]
            if number == ranges[-1][1] + 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        else:
            groups.append((prefix, len(digits) if digits.startswith("0") else 1, [[number, number]]))
    for prefix, width, ranges in groups:
        texts = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in ranges]
        one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        words.append(prefix if not ranges else prefix + (texts[0] if one else f"[{','.join(texts)}]"))
    return ",".join(words)
