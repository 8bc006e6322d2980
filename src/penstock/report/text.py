"""Words and numbers for people. All text from outside passes `esc` on its way into the page."""

from datetime import UTC, datetime
from html import escape

from penstock.core.model.foreign import IN_A_LINE
from penstock.core.model.words import counted as counted


def esc(text: object, most: int = 200) -> str:
    """Return `text` safe inside HTML text and quoted attributes, at most `most` characters of it."""
    plain = IN_A_LINE.sub("\N{REPLACEMENT CHARACTER}", str(text))
    return escape(cut(plain, most), quote=True)


def cut(text: str, most: int) -> str:
    """Return `text`, or its beginning with a sign that more was there: at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def duration(ms: int) -> str:
    """Return a duration with at most two units: `350 ms`, `9.4 s`, `1 min 05 s`, `2 h 05 min`, `3 d 4 h`."""
    if ms < 1_000:
        return f"{ms} ms" if ms else "0 s"
    if ms < 60_000:
        return f"{ms // 1000}.{ms % 1000 // 100} s"
    seconds = ms // 1_000
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    if seconds < 48 * 3_600:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60:02d} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"


def clock(ms: int) -> str:
    """Return time since the start: `1:15`, or `2:01:15` from an hour on."""
    seconds = ms // 1_000
    if seconds < 3_600:
        return f"{seconds // 60}:{seconds % 60:02d}"
    return f"{seconds // 3_600}:{seconds % 3_600 // 60:02d}:{seconds % 60:02d}"


def moment(unix_ms: int) -> str:
    """Return a time in UTC to the second, or the bare number where no calendar has it."""
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{unix_ms} ms"


def percent(part: int, whole: int) -> str:
    """Return a share with one decimal, or a dash when there is no whole."""
    return f"{1000 * part // whole / 10:g} %" if whole else "–"
