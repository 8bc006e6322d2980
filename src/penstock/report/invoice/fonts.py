"""The font of paper: Noto Sans CJK, cut down to the characters of one document.

Cut down here, not by the library that prints, because that keeps a megabyte of unused outlines, and because the
whole font has one outline for 用 and for the radical ⽤: a program that reads the PDF would find the radical.
"""

import base64
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

FAMILY = "Noto Sans CJK SC"
_FACES_MAX = 10
_FILES = (("normal", "NotoSansCJK-Regular.ttc"), ("bold", "NotoSansCJK-Bold.ttc"))


def faces(folders: Iterable[str], characters: Iterable[str]) -> str:
    """Return the font as a style sheet with the characters that it has; empty where it is not installed."""
    found = {path.name: path for path in _files(folders)}
    codes = [ord(c) for c in sorted(characters)]
    rules = []
    for weight, name in _FILES:
        if name in found:
            data = base64.b64encode(_cut(found[name], codes)).decode()
            source = f"url(data:font/otf;base64,{data})"
            rules.append(f"@font-face{{font-family:'{FAMILY}';font-weight:{weight};src:{source}}}")
    return "".join(rules)


def _files(folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(Path(folder).expanduser().rglob("NotoSansCJK-*.ttc"))


def _cut(path: Path, codes: list[int]) -> bytes:
    font = _family(path)
    options = Options(layout_features=["kern"], notdef_outline=True, hinting=False, name_IDs=["*"])
    options.drop_tables += ["GSUB", "BASE", "vhea", "vmtx", "VORG"]
    cutter = Subsetter(options)
    cutter.populate(unicodes=codes)
    cutter.subset(font)
    out = io.BytesIO()
    font.save(out)
    return out.getvalue()


def _family(path: Path) -> TTFont:
    """Return the font of FAMILY in a collection of fonts for several languages."""
    for number in range(_FACES_MAX):
        font = TTFont(path, fontNumber=number, lazy=True, recalcBBoxes=False, recalcTimestamp=False)
        if font["name"].getDebugName(1) == FAMILY:
            return font
    raise LookupError(f"{path} has no {FAMILY}")
