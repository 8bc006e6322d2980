"""Ways to damage a tool's output, as transmission, locale, and other versions do: seeded, each a text from a text."""

import random
import re
from collections.abc import Callable

Damage = Callable[[str, random.Random], str]
_TOKEN = re.compile(r"[^\s|,:\"/\[\]{}]+")
_SIZE = re.compile(r"\b\d+(?:[.,]\d+)?( ?(?:[MG]iB|GB|MB)\b)")
_PAIR = re.compile(r"\b\d+(\s*/\s*)\d+\b")
_RULE = re.compile(r"[\s+|=\-]+")
WORDS = (("OK ", "正常"), ("No running processes found in", "Keine Prozesse auf"), ("failed", "fehlgeschlagen"))
WORDS += (("normal", "в норме"), ("Default", "Standard"))


def cut_at_byte(text: str, chance: random.Random) -> str:
    return text[: chance.randrange(len(text))]


def cut_at_line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: chance.randrange(len(lines))])


def line_dropped(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return "".join(lines)


def line_doubled(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    return "".join([*lines[:at], lines[at], *lines[at:]])


def line_moved(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    line = lines.pop(chance.randrange(len(lines)))
    lines.insert(chance.randrange(len(lines) + 1), line)
    return "".join(lines)


def decimal_commas(text: str, chance: random.Random) -> str:
    return re.sub(r"(?<=\d)\.(?=\d+(?![.\w]))", ",", text)


def translated(text: str, chance: random.Random) -> str:
    for word, other in WORDS:
        text = text.replace(word, other.ljust(len(word)))
    return text


def sizes_of_zero(text: str, chance: random.Random) -> str:
    return _SIZE.sub(r"0\1", _PAIR.sub(r"0\g<1>0", text))


def value_not_told(text: str, chance: random.Random) -> str:
    tokens = list(_TOKEN.finditer(text))
    token = chance.choice(tokens)
    return f"{text[: token.start()]}N/A{text[token.end() :]}"


def no_value_told(text: str, chance: random.Random) -> str:
    return re.sub(r"(?<!\S)\d[^\s|,]*", "N/A", text)


def null_byte(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text))
    return f"{text[:at]}\x00{text[at + 1 :]}"


def undecodable(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text))
    return f"{text[:at]}\ufffd{text[at + 1 :]}"


def long_line(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    lines[at] = lines[at].replace(" ", " " * 3000, 1)
    return "".join([*lines[:at], "x" * 5000 + "\n", *lines[at:]])


DAMAGES: tuple[Damage, ...] = (
    cut_at_byte,
    cut_at_line,
    line_dropped,
    line_doubled,
    line_moved,
    decimal_commas,
    translated,
    sizes_of_zero,
    value_not_told,
    no_value_told,
    null_byte,
    undecodable,
    long_line,
)


def carriage_returns(text: str) -> str:
    return text.replace("\n", "\r\n")


def more_columns(text: str) -> str:
    """Return a table, or rows of commas, with one more column behind the others, as a later version has it."""
    lines = []
    for at, line in enumerate(text.splitlines()):
        if _RULE.fullmatch(line) and line.strip():
            lines.append(f"{line[:-1]}+-------+" if line.endswith(("|", "+")) else line)
        elif line.rstrip().endswith("|") and line.lstrip().startswith("|"):
            lines.append(f"{line.rstrip()[:-1]}| {f'x{at}':>5} |")
        else:
            lines.append(f"{line}, {'new.column' if at == 0 else 7}" if "," in line else line)
    return "\n".join([*lines, ""])
