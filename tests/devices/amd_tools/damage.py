"""Ways in which an output comes to harm between the tool and the parser."""

import json
import random
import re
from collections.abc import Callable

_NUMBER = re.compile(r"(?:(?<=: )|(?<=: \")|(?<=  )|(?<=,))\d+(?:\.\d+)?(?![\w.:-])")
_VALUE = re.compile(r"(?<=: )[^\[{\n]+|(?<=  )[\w.%°]+(?=  )")


def cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def cut_at_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[: rng.randrange(len(lines))])


def begin_lost(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[rng.randrange(len(lines)) :])


def lines_dropped(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        if lines:
            lines.pop(rng.randrange(len(lines)))
    return "".join(lines)


def lines_doubled(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        lines.insert(at, lines[at])
    return "".join(lines)


def lines_swapped(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at = rng.randrange(max(1, len(lines) - 1))
    lines[at : at + 2] = reversed(lines[at : at + 2])
    return "".join(lines)


def line_moved(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
    return "".join(lines)


def lines_shuffled(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    rng.shuffle(lines)
    return "".join(lines)


def other_locale(text: str, rng: random.Random) -> str:
    words = {"Error": "Fehler", "Not supported": "Nicht unterstützt", "No bad pages found": "Keine", "N/A": "k. A."}
    for word, other in words.items():
        text = text.replace(word, other)
    return re.sub(r"(?<![\d.:])(\d+)\.(\d+)(?![\d.:])", r"\1,\2", text)


def future_fields(text: str, rng: random.Random) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        lines = text.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        indent = re.match(r"[ |]*", lines[at])[0]
        lines.insert(at, f"{indent}NEW_FIELD: {rng.randrange(10**6)} ZB\n")
        return "".join(lines)
    return json.dumps(_with_news(value, rng))


def _with_news(value: object, rng: random.Random) -> object:
    if isinstance(value, dict):
        news = {"new_field": {"value": [1, None, {"x": 2.5}], "unit": "ZB", "more": True}}
        return {**news, **{name: _with_news(each, rng) for name, each in value.items()}, "another": rng.random()}
    return [_with_news(each, rng) for each in value] if isinstance(value, list) else value


def future_column(text: str, rng: random.Random) -> str:
    head, separator = ("NEW", ",") if text.count(",") > 20 else ("NEW", "  ")
    lines = text.splitlines()
    return "".join(f"{line}{separator}{head if at == 0 else 7}\n" for at, line in enumerate(lines))


def zeros(text: str, rng: random.Random) -> str:
    return _NUMBER.sub("0", text)


def some_zeros(text: str, rng: random.Random) -> str:
    """Numbers of one digit, which may be the index of a row, stay: a row with the index of another is another row."""
    return _NUMBER.sub(lambda read: "0" if len(read[0]) > 1 and rng.random() < 0.3 else read[0], text)


def no_values(text: str, rng: random.Random) -> str:
    return _VALUE.sub(lambda read: '"N/A",' if read[0].startswith('"') else "N/A", text)


def some_values(text: str, rng: random.Random) -> str:
    """Headings, which have no digit, stay: they are no values."""
    lines = text.splitlines(keepends=True)
    return "".join(
        _VALUE.sub(lambda read: "N/A" if rng.random() < 0.2 else read[0], line) if re.search(r"\d", line) else line
        for line in lines
    )


def crlf(text: str, rng: random.Random) -> str:
    return text.replace("\n", "\r\n")


def nul_bytes(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + "\0" * rng.randint(1, 3) + text[at + rng.randint(0, 2) :]


def long_line(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice("x0 ,|") * 20_000 + text[at:]


def other_output_between(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines)), "WARNING: User is missing the following required groups: render, video.\n")
    return "".join(lines)


DAMAGES: tuple[Callable[[str, random.Random], str], ...] = (
    cut,
    cut_at_line,
    begin_lost,
    lines_dropped,
    lines_doubled,
    lines_swapped,
    line_moved,
    lines_shuffled,
    other_locale,
    future_fields,
    future_column,
    zeros,
    some_zeros,
    no_values,
    some_values,
    crlf,
    nul_bytes,
    long_line,
    other_output_between,
)
