"""Memory and vendor of an accelerator by its model: other programs count devices without their sizes."""

import re
from typing import NamedTuple

GIB = 2**30
MODEL_CHARACTERS_MAX = 100
UNTYPED = "gpu"
"""Model of devices without a known type."""
_MEMORY_WORD = re.compile(r"([0-9]{1,4})gb?")


class KnownDevice(NamedTuple):
    """Maker, memory (GiB; of models sold in several sizes the smallest) and CUDA compute capability."""

    vendor: str
    memory_gib: int
    capability: tuple[int, int] = (0, 0)


_MODELS: dict[str, KnownDevice] = {
    "k80": KnownDevice("nvidia", 12, (3, 7)),
    "p100": KnownDevice("nvidia", 12, (6, 0)),
    "v100": KnownDevice("nvidia", 16, (7, 0)),
    "v100m16": KnownDevice("nvidia", 16, (7, 0)),
    "v100m32": KnownDevice("nvidia", 32, (7, 0)),
    "t4": KnownDevice("nvidia", 16, (7, 5)),
    "a100": KnownDevice("nvidia", 40, (8, 0)),
    "a800": KnownDevice("nvidia", 40, (8, 0)),
    "a30": KnownDevice("nvidia", 24, (8, 0)),
    "a10": KnownDevice("nvidia", 24, (8, 6)),
    "a10g": KnownDevice("nvidia", 24, (8, 6)),
    "a16": KnownDevice("nvidia", 16, (8, 6)),
    "a40": KnownDevice("nvidia", 48, (8, 6)),
    "a6000": KnownDevice("nvidia", 48, (8, 6)),
    "l4": KnownDevice("nvidia", 24, (8, 9)),
    "l40": KnownDevice("nvidia", 48, (8, 9)),
    "l40s": KnownDevice("nvidia", 48, (8, 9)),
    "h100": KnownDevice("nvidia", 80, (9, 0)),
    "h800": KnownDevice("nvidia", 80, (9, 0)),
    "h20": KnownDevice("nvidia", 96, (9, 0)),
    "gh200": KnownDevice("nvidia", 96, (9, 0)),
    "h200": KnownDevice("nvidia", 141, (9, 0)),
    "b200": KnownDevice("nvidia", 180, (10, 0)),
    "mi100": KnownDevice("amd", 32),
    "mi210": KnownDevice("amd", 64),
    "mi250": KnownDevice("amd", 128),
    "mi250x": KnownDevice("amd", 128),
    "mi300a": KnownDevice("amd", 128),
    "mi300x": KnownDevice("amd", 192),
}


def plain_model(model: str) -> str:
    """Return a model's name as quotas take it: printable, at most `MODEL_CHARACTERS_MAX` characters."""
    return "".join(c for c in model if c.isprintable())[:MODEL_CHARACTERS_MAX] or UNTYPED


def known_of(model: str) -> KnownDevice | None:
    """Return the properties of a model by a word in its name (`nvidia_a100-sxm4-80gb`), or None.

    A size in the name (`80gb`, `40g`) is taken before the usual one.
    """
    words = re.findall(r"[a-z0-9]+", model.lower())
    known = next((_MODELS[word] for word in words if word in _MODELS), None)
    if known is None:
        return None
    sizes = [int(match[1]) for word in words if (match := _MEMORY_WORD.fullmatch(word))]
    return known._replace(memory_gib=sizes[0]) if sizes else known
