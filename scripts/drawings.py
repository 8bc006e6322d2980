"""Draws the rooms of the code and what imports what, for docs/architecture.md."""

from collections.abc import Iterable

import grimp


def _arrows(graph: grimp.ImportGraph, rooms: Iterable[str]) -> set[tuple[str, str]]:
    """Return pairs of rooms of which the first imports the second."""
    inside = {module: room for room in rooms for module in (room, *graph.find_descendants(room))}
    found = set()
    for module, room in inside.items():
        for other in graph.find_modules_directly_imported_by(module):
            if inside.get(other, room) != room:
                found.add((room, inside[other]))
    return found


def _needed(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the arrows that no longer way says already (transitive reduction)."""
    below: dict[str, set[str]] = {}

    def reach(room: str) -> set[str]:
        if room not in below:
            direct = {b for a, b in arrows if a == room}
            below[room] = direct.union(*(reach(other) for other in direct))
        return below[room]

    return {(a, b) for a, b in arrows if not any(b in reach(c) for d, c in arrows if d == a and c != b)}


def _mermaid(arrows: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"    {a.rpartition('.')[2]} --> {b.rpartition('.')[2]}" for a, b in sorted(arrows)]
    return ["```mermaid", "flowchart TD", *lines, "```"]


def drawings() -> str:
    """Return both drawings as Markdown. An arrow means imports; those that follow from others are left out."""
    graph = grimp.build_graph("penstock", include_external_packages=False)
    house = sorted(graph.find_children("penstock"))
    core = sorted(graph.find_children("penstock.core"))
    parts = []
    for title, rooms in (("The packages", house), ("The rooms of the core", core)):
        arrows = _arrows(graph, rooms)
        text = f"{len(rooms)} rooms, {len(arrows)} arrows; those that follow from others are left out."
        parts += [f"### {title}", "", text, "", *_mermaid(_needed(arrows)), ""]
    return "\n".join(parts)
