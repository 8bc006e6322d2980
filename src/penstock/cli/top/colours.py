"""Colours of `penstock top`, told apart also by those who do not see red or green; what they say stands in words, too.

Source: the palette of Okabe and Ito, "Color Universal Design" (2008), lightened for a dark background.
"""

from typing import TYPE_CHECKING

from penstock.api import types as api
from penstock.core.model.foreign import one_line

if TYPE_CHECKING:
    from rich.text import Text

ORANGE, SKY, GREEN, YELLOW = "#e69f00", "#56b4e9", "#2fbf94", "#f0e442"
BLUE, VERMILION, PINK = "#4a9fd8", "#ff7a33", "#dd9ac2"
STATE = {
    "waiting": ORANGE,
    "starting": YELLOW,
    "running": SKY,
    "suspended": PINK,
    "stopping": PINK,
    "succeeded": GREEN,
    "failed": f"bold {VERMILION}",
    "cancelled": "dim",
    "ready": SKY,
    "away": f"bold {VERMILION}",
}
HOLDERS = (SKY, ORANGE, GREEN, YELLOW, BLUE, PINK)
"""Of jobs in the map of devices; neighbours mostly differ, and the number says which it is."""
INK = "#101418"


def state_cell(text: str, state: str = "") -> "Text":
    """Return a word in the colour of its state."""
    from rich.text import Text

    return Text(one_line(text), style=STATE.get(state or text, ""))


def device_style(device: api.DeviceView) -> str:
    """Return the style of a device in the map."""
    if not device.healthy:
        return f"bold {INK} on {VERMILION}"
    if device.job is not None:
        return f"{INK} on {HOLDERS[device.job % len(HOLDERS)]}"
    return "#d0d4d8 on #4a5058" if device.held or device.taken else "#8a9098 on #20262c"
