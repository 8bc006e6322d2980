"""The few SVG pieces that all charts share: the time scale, its ticks, numbers and the frame."""

import msgspec

from penstock.report.text import clock, esc

WIDTH = 1160.0
LEFT = 124.0
RIGHT = 20.0
_TICK_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
TICKS_MAX = 14
CHAR_WIDTH = 6.3
"""Of a common character at 11 px, rounded up, so that labels of `fitted` do fit."""


class TimeScale(msgspec.Struct, frozen=True):
    """Maps unix milliseconds to x; a log of no length is drawn as one second."""

    start_ms: int
    until_ms: int

    @property
    def span_ms(self) -> int:
        return max(1_000, self.until_ms - self.start_ms)

    def x(self, time_ms: int) -> float:
        inside = min(max(time_ms - self.start_ms, 0), self.span_ms)
        return LEFT + (WIDTH - LEFT - RIGHT) * inside / self.span_ms

    def ticks(self) -> list[int]:
        """Return at most `TICKS_MAX` round times (unix ms) from the start on."""
        step_s = next((s for s in _TICK_S if self.span_ms <= s * 1_000 * TICKS_MAX), 0)
        step_ms = step_s * 1_000 or 86_400_000 * -(-self.span_ms // (86_400_000 * TICKS_MAX))
        return list(range(self.start_ms, self.start_ms + self.span_ms + 1, step_ms))


def num(value: float) -> str:
    """Return a coordinate to a tenth, without superfluous zeros."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text_width(text: str) -> float:
    """Return an upper estimate of the width of `text` at 11 px; wide scripts count double."""
    return sum(CHAR_WIDTH if ord(c) < 0x1100 else 2 * CHAR_WIDTH for c in text)


def fitted(text: str, width: float) -> str:
    """Return as much of `text` as fits into `width` at 11 px, or '' when that would not be readable."""
    if text_width(text) <= width:
        return text
    short = text
    while short and text_width(short) + CHAR_WIDTH > width:
        short = short[:-1]
    return short + "…" if len(short) >= 4 else ""


def rect(x: float, y: float, width: float, height: float, css: str, extra: str = "") -> str:
    size = f'x="{num(x)}" y="{num(y)}" width="{num(max(0.0, width))}" height="{num(height)}"'
    return f'<rect class="{css}" {size}{extra}/>'


def text(x: float, y: float, words: str, css: str = "", anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{css}" x="{num(x)}" y="{num(y)}"{where}>{esc(words)}</text>'


def line(css: str, x: float, y: float, to: str) -> str:
    """Return a path from a point on; `to` is the rest of it, such as `H10V5`."""
    return f'<path class="{css}" d="M{num(x)} {num(y)}{to}"/>'


def across(css: str, y: float) -> str:
    """Return a horizontal line over the whole chart."""
    return line(css, LEFT, y, f"H{num(WIDTH - RIGHT)}")


def level(y: float, words: str) -> str:
    """Return a horizontal grid line with its value before it."""
    return across("grid", y) + text(LEFT - 8, y + 4, words, "tick", "end")


def tick(x: float, top: float, bottom: float, words: str) -> str:
    """Return a vertical grid line with its value below it."""
    return line("grid", x, top, f"V{num(bottom)}") + text(x, bottom + 15, words, "tick", "middle")


def axis(scale: TimeScale, top: float, bottom: float) -> str:
    """Return vertical grid lines from `top` to `bottom` with the time since the start below them."""
    return "".join(tick(scale.x(at), top, bottom, clock(at - scale.start_ms)) for at in scale.ticks())


def frame(height: float, title: str, body: str) -> str:
    """Return a whole `<svg>` that scales with the page, with a title for screen readers."""
    box = f"0 0 {num(WIDTH)} {num(height)}"
    return f'<svg viewBox="{box}" role="img" aria-label="{esc(title, 400)}">{body}</svg>'
