"""Layout of the timeline's bars: lanes, rows and omissions. Geometry only; `gantt` draws it."""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.core.model.ids import NodeName
from penstock.report.run.model import Bar, NodeRow, RunReport

LANES_MAX = 128
"""Lanes drawn; nodes beyond them are left out and counted."""
CPU_LANES_MAX = 6
"""Lanes of a node for replicas without devices; bars that do not fit are left out and counted."""
BARS_MAX = 1_200
"""Rectangles drawn; the shortest ones beyond them are left out and counted."""
NODE_GAP = 10.0


class TimelineLane(msgspec.Struct, frozen=True):
    text: str
    y: float


class NodeBand(msgspec.Struct, frozen=True):
    node: NodeRow
    y: float
    height: float
    lanes: tuple[TimelineLane, ...]


class Placed(msgspec.Struct, frozen=True):
    """A bar over `lanes` neighbouring lanes; a replica on scattered devices has several."""

    bar: Bar
    y: float
    height: float


class TimelineLayout(msgspec.Struct, frozen=True):
    lane_height: float
    height: float
    bands: tuple[NodeBand, ...]
    placed: tuple[Placed, ...]
    nodes_left_out: int
    bars_left_out: int


def lay_out(report: RunReport) -> TimelineLayout:
    """Return the timeline's layout; bars are in order of their start."""
    by_node: dict[NodeName, list[Bar]] = {node.name: [] for node in report.nodes}
    for bar in report.bars:
        by_node.setdefault(bar.node, []).append(bar)
    packed = {node.name: _pack(b for b in by_node[node.name] if not b.devices) for node in report.nodes}
    shown = _nodes_shown(report.nodes, {name: len(lanes) for name, lanes in packed.items()})
    total = sum(_lanes(node, len(packed[node.name])) for node in shown)
    lane_height = 22.0 if total <= 16 else 17.0 if total <= 48 else 12.0
    bands, pieces, y = [], [], 0.0
    for node in shown:
        band = _band(node, len(packed[node.name]), y, lane_height)
        bands.append(band)
        pieces += _pieces(band, by_node[node.name], packed[node.name], lane_height)
        y += band.height + NODE_GAP
    kept = sorted(pieces, key=lambda p: p.bar.start_ms - p.bar.end_ms)[:BARS_MAX]
    drawn = {(p.bar.job_id, p.bar.attempt, p.bar.rank) for p in kept}
    return TimelineLayout(
        lane_height=lane_height,
        height=max(0.0, y - NODE_GAP),
        bands=tuple(bands),
        placed=tuple(sorted(kept, key=lambda p: (p.bar.start_ms, p.bar.job_id, p.y))),
        nodes_left_out=len(report.nodes) - len(shown),
        bars_left_out=len(report.bars) - len(drawn),
    )


def _lanes(node: NodeRow, cpu_lanes: int) -> int:
    return max(1, len(node.lanes) + cpu_lanes)


def _nodes_shown(nodes: Sequence[NodeRow], cpu_lanes: dict[NodeName, int]) -> list[NodeRow]:
    shown: list[NodeRow] = []
    used = 0
    for node in nodes:
        used += _lanes(node, cpu_lanes[node.name])
        if used > LANES_MAX and shown:
            break
        shown.append(node)
    return shown


def _pack(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Part bars (by start) into lanes without overlaps, each into the first free one; drop those that fit nowhere."""
    lanes: list[list[Bar]] = []
    for bar in bars:
        free = next((lane for lane in lanes if lane[-1].end_ms <= bar.start_ms), None)
        if free is not None:
            free.append(bar)
        elif len(lanes) < CPU_LANES_MAX:
            lanes.append([bar])
    return lanes


def _band(node: NodeRow, cpu_lanes: int, y: float, lane_height: float) -> NodeBand:
    names = [str(i) for i in node.lanes] + ["cpu"] * cpu_lanes
    lanes = tuple(TimelineLane(text, y + lane_height * i) for i, text in enumerate(names))
    return NodeBand(node, y, lane_height * max(1, len(lanes)), lanes)


def _pieces(band: NodeBand, bars: Iterable[Bar], cpu: Sequence[Sequence[Bar]], lane_height: float) -> list[Placed]:
    row = {index: position for position, index in enumerate(band.node.lanes)}
    pieces = []
    for bar in bars:
        for first, length in _runs([row[i] for i in bar.devices if i in row]):
            pieces.append(Placed(bar, band.y + first * lane_height, length * lane_height))
    for position, lane in enumerate(cpu, len(band.node.lanes)):
        pieces += [Placed(bar, band.y + position * lane_height, lane_height) for bar in lane]
    return pieces


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return neighbouring positions as (first, length)."""
    runs: list[tuple[int, int]] = []
    for position in sorted(positions):
        if runs and sum(runs[-1]) == position:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((position, 1))
    return runs
