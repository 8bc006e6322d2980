"""What is known of an accelerator by its name alone: other schedulers count devices and do not say how big they are."""

import re
from typing import NamedTuple

GIB = 2**30
MODEL_CHARACTERS_MAX = 100
UNTYPED = "gpu"
"""Model of devices of which nothing says a type."""
_MEMORY_WORD = re.compile(r"([0-9]{1,4})gb?")


class Known(NamedTuple):
    """Maker, memory (GiB; of models sold in several sizes the smallest) and CUDA compute capability."""

    vendor: str
    memory_gib: int
    capability: tuple[int, int] = (0, 0)


_MODELS: dict[str, Known] = {
    "k80": Known("nvidia", 12, (3, 7)),
    "p100": Known("nvidia", 12, (6, 0)),
    "v100": Known("nvidia", 16, (7, 0)),
    "t4": Known("nvidia", 16, (7, 5)),
    "a100": Known("nvidia", 40, (8, 0)),
    "a800": Known("nvidia", 40, (8, 0)),
    "a30": Known("nvidia", 24, (8, 0)),
    "a10": Known("nvidia", 24, (8, 6)),
    "a10g": Known("nvidia", 24, (8, 6)),
    "a16": Known("nvidia", 16, (8, 6)),
    "a40": Known("nvidia", 48, (8, 6)),
    "a6000": Known("nvidia", 48, (8, 6)),
    "l4": Known("nvidia", 24, (8, 9)),
    "l40": Known("nvidia", 48, (8, 9)),
    "l40s": Known("nvidia", 48, (8, 9)),
    "h100": Known("nvidia", 80, (9, 0)),
    "h800": Known("nvidia", 80, (9, 0)),
    "h20": Known("nvidia", 96, (9, 0)),
    "gh200": Known("nvidia", 96, (9, 0)),
    "h200": Known("nvidia", 141, (9, 0)),
    "b200": Known("nvidia", 180, (10, 0)),
    "mi100": Known("amd", 32),
    "mi210": Known("amd", 64),
    "mi250": Known("amd", 128),
    "mi250x": Known("amd", 128),
    "mi300a": Known("amd", 128),
    "mi300x": Known("amd", 192),
}


def plain_model(model: str) -> str:
    """Return a model's name as quotas take it: printable, at most `MODEL_CHARACTERS_MAX` characters."""
    return "".join(c for c in model if c.isprintable())[:MODEL_CHARACTERS_MAX] or UNTYPED


def known_of(model: str) -> Known | None:
    """Return what is known of a model by a word in its name (`nvidia_a100-sxm4-80gb`), or None.

    A size in the name (`80gb`, `40g`) is taken before the usual one.
    """
    words = re.findall(r"[a-z0-9]+", model.lower())
    known = next((_MODELS[word] for word in words if word in _MODELS), None)
    if known is None:
        return None
    sizes = [int(match[1]) for word in words if (match := _MEMORY_WORD.fullmatch(word))]
    return known._replace(memory_gib=sizes[0]) if sizes else known
