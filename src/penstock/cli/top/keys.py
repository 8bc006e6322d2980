"""The keys that move in lists and in texts: one table for both."""

from textual.binding import Binding, BindingType


def moving(*, sideways: int) -> list[BindingType]:
    """Return the bindings of the actions `move`, `page`, `edge` and `sideways`.

    Args:
        sideways: columns of the screen that left and right move by.
    """
    return [
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("pageup,b", "page(-1)", "Page up", show=False),
        Binding("home,g", "edge(-1)", "First", show=False),
        Binding("end,G", "edge(1)", "Last", show=False),
        Binding("left", f"sideways(-{sideways})", "Left", show=False),
        Binding("right", f"sideways({sideways})", "Right", show=False),
    ]
