"""The description of the cluster in a plain CSV, in comment lines before its header.

For people: `# nodes=16 devices=8 model=V100 cpus=64 memory=512GiB`, once for each kind of node. For `write_csv`:
`# name:`, `# config:`, `# node:`, `# outage:`, `# change:`, `# note:`, each followed by JSON; a long one goes on in
lines that begin with `#+ `. Other comments are comments.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.core.model.cluster import ClusterConfig, NodeSpec
from penstock.core.model.errors import nearest
from penstock.core.model.resources import Resources
from penstock.formats.files import from_json
from penstock.traces.errors import TracePlace
from penstock.traces.loaders.shapes import NODES_MAX, PLAIN_CPU_MILLI, equal_nodes
from penstock.traces.model import CapacityChange, Outage
from penstock.traces.nodes import AMOUNTS, MODEL_MAX, amount

WORDS = ("nodes", "devices", "model", "cpus", "memory")
JSON_WORDS = ("name", "node", "config", "outage", "change", "note")
OUTAGES_MAX = 1_000_000
NOTES_MAX = 1_000
KINDS_OF_NODES_MAX = 1_000
MORE = "#+ "

Anything = TypeVar("Anything")


class Head(msgspec.Struct):
    """Contents of the comments; without `config` the jobs' own words make queues and tenants."""

    name: str | None = None
    nodes: tuple[NodeSpec, ...] = ()
    config: ClusterConfig | None = None
    outages: tuple[Outage, ...] = ()
    changes: tuple[CapacityChange, ...] = ()
    notes: tuple[str, ...] = ()


def read_head(path: Path, comments: list[tuple[int, str]]) -> Head:
    """Return the contents of numbered comments. Raises: TraceError with the line of an unreadable one."""
    head = Head()
    nodes: list[NodeSpec] = []
    outages: list[Outage] = []
    changes: list[CapacityChange] = []
    notes: list[str] = []
    kinds = 0
    for line, text in _joined(comments):
        place, (word, _, value) = TracePlace(str(path), line), text.removeprefix("# ").partition(": ")
        if text.startswith("# nodes="):
            kinds += 1
            nodes += _kind_of_nodes(place, text.removeprefix("# "), kinds)
        elif not text.startswith("# ") or word not in JSON_WORDS:
            continue
        elif word == "name":
            head.name = _decoded(place, value, str)
        elif word == "config":
            head.config = _decoded(place, value, ClusterConfig)
        elif word == "node":
            nodes.append(_decoded(place, value, NodeSpec))
        elif word == "outage":
            outages.append(_decoded(place, value, Outage))
        elif word == "change":
            changes.append(_decoded(place, value, CapacityChange))
        else:
            notes.append(_decoded(place, value, str))
        if max(len(nodes) - NODES_MAX, len(outages) + len(changes) - OUTAGES_MAX, len(notes) - NOTES_MAX) > 0:
            expected = f"at most {NODES_MAX} nodes, {OUTAGES_MAX} outages and changes, {NOTES_MAX} notes"
            raise place.fault("", "more", expected)
    _check_nodes(path, nodes, outages)
    head.nodes, head.notes = tuple(nodes), tuple(notes)
    head.outages, head.changes = tuple(outages), tuple(changes)
    return head


def _joined(comments: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield each comment with the line in which it begins."""
    parts: list[str] = []
    first = 1
    for line, text in comments:
        if text.startswith(MORE) and parts:
            parts.append(text.removeprefix(MORE))
            continue
        if parts:
            yield first, "".join(parts)
        parts, first = [text], line
    if parts:
        yield first, "".join(parts)


def _decoded(place: TracePlace, value: str, kind: type[Anything]) -> Anything:
    return from_json(value, kind, place, f"JSON of a {kind.__name__}, as write_csv writes it")


def _kind_of_nodes(place: TracePlace, text: str, number: int) -> tuple[NodeSpec, ...]:
    """Read `nodes=16 devices=8 model=V100 cpus=64 memory=512GiB`."""
    said: dict[str, str] = {}
    for part in text.split():
        word, found, value = part.partition("=")
        if not found or word not in WORDS or word in said:
            expected = "once each: " + ", ".join(f"{known}=" for known in WORDS)
            raise place.fault("", part, expected, nearest(word, WORDS))
        said[word] = value
    amounts = {"devices": 0, "cpus": PLAIN_CPU_MILLI // 1000, "memory": 0}
    for word in AMOUNTS:
        try:
            amounts[word] = amount(word, said[word]) if word in said else amounts[word]
        except ValueError:
            expected = "numbers such as nodes=16 devices=8 model=V100 cpus=64 memory=512GiB"
            raise place.fault("", f"{word}={said[word]}", expected) from None
    if number > KINDS_OF_NODES_MAX:
        raise place.fault("", "more", f"at most {KINDS_OF_NODES_MAX} kinds of nodes")
    prefix = f"n{number - 1}-" if number > 1 else "n"
    capacity = Resources(1000 * amounts["cpus"], amounts["memory"])
    model = said.get("model", "")[:MODEL_MAX]
    return equal_nodes(amounts["nodes"], devices=amounts["devices"], model=model, capacity=capacity, prefix=prefix)


def _check_nodes(path: Path, nodes: list[NodeSpec], outages: list[Outage]) -> None:
    names = {node.name for node in nodes}
    if len(names) < len(nodes):
        raise TracePlace(str(path)).fault("", "two nodes of one name", "nodes with different names")
    for outage in outages:
        if outage.node not in names or outage.until_ms < outage.from_ms:
            expected = "outages of nodes of the trace, that end after they begin"
            raise TracePlace(str(path)).fault("", msgspec.json.encode(outage).decode(), expected)
