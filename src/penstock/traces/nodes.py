"""Nodes in words: `16x8xH100:cpus=96:memory=1TiB,4x0:cpus=128` is 16 nodes with 8 devices each, and 4 without.

What a group does not say is as on the trace's own nodes, so that a number of devices is enough for most traces.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.core.model.cluster import DEFAULT_POOL, NodeSpec
from penstock.core.model.errors import InvalidInput, Problem, nearest
from penstock.core.model.ids import PoolName
from penstock.core.model.quantities import format_milli, format_size, parse_size_bytes
from penstock.core.model.resources import Device, Resources
from penstock.core.model.words import counted
from penstock.formats.numbers import whole_number, within
from penstock.traces.loaders.shapes import NODES_MAX, WIDTH_MAX, devices_of, equal_nodes

CPUS_MAX = 100_000
MEMORY_MAX_BYTES = 2**60
MODEL_MAX = 128
GROUPS_MAX = 1_000
KINDS_SHOWN = 4
WORDS = ("cpus", "memory", "pool")
LIKE = "a number such as 90, +4, -2 or +4xH100, or a cluster such as 16x8xH100:cpus=96:memory=1TiB,4x0:cpus=128"

AMOUNTS: dict[str, tuple[Callable[[str], int], int, int]] = {
    "nodes": (whole_number, 1, NODES_MAX),
    "devices": (whole_number, 0, WIDTH_MAX),
    "cpus": (whole_number, 0, CPUS_MAX),
    "memory": (parse_size_bytes, 0, MEMORY_MAX_BYTES),
}
"""How amounts of a kind of nodes are read, and within which bounds."""


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes that are alike; None and empty words are not said."""

    count: int
    devices: int
    model: str = ""
    cpus: int | None = None
    memory_bytes: int | None = None
    pool: str = ""


class NodeChange(NamedTuple):
    """Other nodes for a trace: a number of them or groups, instead of the trace's (no sign), in addition, or less."""

    text: str
    sign: Literal["", "+", "-"]
    number: int
    model: str
    """Device model of the nodes that are added, for a number with one."""
    groups: tuple[NodeGroup, ...]

    def bad(self, what: str, hint: str = "") -> InvalidInput:
        return bad_nodes(self.text, what, hint)


def bad_nodes(text: str, what: str, hint: str = "") -> InvalidInput:
    """Return the error about the option `nodes`; the caller raises it."""
    problem = Problem("invalid_value", "nodes", f"nodes is '{text}': {what}", text, hint)
    return InvalidInput(problem.message, problems=(problem,))


def node_change(text: str) -> NodeChange:
    """Return what `90`, `+4`, `-2`, `+4xH100`, `16x8`, `16x8xH100:cpus=96:memory=1TiB,4x0` or `+2x8` says.

    Raises: InvalidInput for anything else.
    """
    sign: Literal["", "+", "-"] = "+" if text.startswith("+") else "-" if text.startswith("-") else ""
    body = text.removeprefix(sign)
    count, _, rest = body.partition("x")
    devices = rest.partition(":")[0].partition(",")[0].partition("x")[0]
    if devices.isdecimal() and sign != "-":
        return NodeChange(text, sign, 0, "", _groups(text, body))
    if not (count.isdecimal() and count.isascii() and len(count) <= 9) or (rest and sign != "+"):
        raise bad_nodes(text, f"expected {LIKE}", _nearest_form(count, rest) if not sign else "")
    return NodeChange(text, sign, int(count), rest, ())


def given_cluster(text: str | None) -> tuple[NodeGroup, ...]:
    """Return the groups of a text that describes a whole cluster, which loaders take instead of the source's; else ().

    Raises: InvalidInput.
    """
    change = node_change(text) if text else None
    return change.groups if change is not None and not change.sign else ()


def _nearest_form(count: str, rest: str) -> str:
    """Return the right form of `4xH100` or `16x8gpu`; "" for other texts."""
    if not rest or not count.isdecimal():
        return ""
    if rest[0].isdecimal():
        return f"nodes x devices x model, such as {count}x8 or {count}x8xH100"
    return f"for {count} nodes say their devices, too: {count}x8x{rest}"


def _groups(text: str, body: str) -> tuple[NodeGroup, ...]:
    parts = body.split(",")
    if len(parts) > GROUPS_MAX:
        raise bad_nodes(text[:80], f"{len(parts)} groups, expected at most {GROUPS_MAX}")
    if not all(part.strip() for part in parts):
        raise bad_nodes(text, "a group of nodes is empty", "groups are divided by single commas")
    found = tuple(_group(text, part.strip()) for part in parts)
    total = sum(group.count for group in found)
    if total > NODES_MAX:
        raise bad_nodes(text, f"that would be {total} nodes, expected at most {NODES_MAX}")
    return found


def _group(text: str, part: str) -> NodeGroup:
    shape, *words = part.split(":")
    count, _, rest = shape.partition("x")
    devices, _, model = rest.partition("x")
    said = {"nodes": count, "devices": devices}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in WORDS or name in said:
            raise bad_nodes(text, f"'{word}' is none of cpus=, memory= and pool=, once each", nearest(name, WORDS))
        said[name] = value
    pool = said.pop("pool", "")
    amounts = {name: _amount(text, part, name, value) for name, value in said.items()}
    if len(model) > MODEL_MAX:
        raise bad_nodes(text[:80], f"a model has at most {MODEL_MAX} characters")
    return NodeGroup(
        amounts["nodes"], amounts["devices"], model, amounts.get("cpus"), amounts.get("memory"), pool
    )  # fmt: skip


def _amount(text: str, part: str, name: str, value: str) -> int:
    try:
        return amount(name, value)
    except ValueError:
        _, low, high = AMOUNTS[name]
        expected = "a size such as 512GiB" if name == "memory" else f"{low} to {high}"
        hint = "such as 16x8xH100:cpus=96:memory=1TiB: nodes x devices x model"
        raise bad_nodes(text, f"{name} of '{part}' is '{value}', expected {expected}", hint) from None


def amount(name: str, value: str) -> int:
    """Return one of `AMOUNTS`. Raises: ValueError."""
    read, low, high = AMOUNTS[name]
    return within(read(value), low, high)


def cluster_of(
    groups: Sequence[NodeGroup], own: Callable[[], Sequence[NodeSpec]], pools: Collection[str] = ()
) -> tuple[NodeSpec, ...]:
    """Return the nodes of the groups, named n0000, n0001, n1-0000, ...

    Args:
        own: the trace's nodes, asked for only when a group leaves its model, CPUs or memory open.
        pools: those of the trace's nodes.
    Raises: InvalidInput where the trace's nodes leave it open, too.
    """
    like: Sequence[NodeSpec] = own() if any(_is_open(group) for group in groups) else ()
    found: tuple[NodeSpec, ...] = ()
    for number, group in enumerate(groups):
        pool = group.pool or _only(group, "its pool", pools, ":pool={}") or DEFAULT_POOL
        nodes = _nodes_of(group, like, f"n{number}-" if number else "n")
        found += tuple(replace(spec, pool=PoolName(pool)) for spec in nodes)
    return found


def _is_open(group: NodeGroup) -> bool:
    return (group.devices > 0 and not group.model) or group.cpus is None or group.memory_bytes is None


def _nodes_of(group: NodeGroup, own: Sequence[NodeSpec], prefix: str) -> tuple[NodeSpec, ...]:
    models = {device.model: device for spec in own for device in spec.devices}
    model = group.model or (_only(group, "its model", models, "x{}") if group.devices else "")
    alike = (lambda spec: any(d.model == model for d in spec.devices)) if group.devices else _has_none
    like = [spec for spec in own if alike(spec)] or own
    capacity = Resources(
        max((spec.capacity.cpu_milli for spec in like), default=0) if group.cpus is None else 1000 * group.cpus,
        max((spec.capacity.memory_bytes for spec in like), default=0)
        if group.memory_bytes is None
        else group.memory_bytes,
    )
    nodes = equal_nodes(group.count, devices=0, capacity=capacity, prefix=prefix)
    devices = _devices(models.get(model), model, group.devices)
    return tuple(replace(spec, devices=devices) for spec in nodes)


def _has_none(spec: NodeSpec) -> bool:
    return not spec.devices


def _devices(like: Device | None, model: str, count: int) -> tuple[Device, ...]:
    """Return `count` devices like one of the trace's, or as the data sheet has them."""
    if like is None:
        return devices_of(model, count)
    return tuple(replace(like, index=i, numa_node=i // 4, links=(), uuid="", healthy=True) for i in range(count))


def _only(group: NodeGroup, what: str, known: Collection[str], pattern: str) -> str:
    """Return the one word that all nodes of the trace have; empty when they have none. Raises: InvalidInput."""
    if len(known) > 1:
        names, word = sorted(known), f"{group.count}x{group.devices}"
        hint = f"say it, such as {word}{pattern.format(names[0])}"
        raise bad_nodes(word, f"it leaves {what} open, and the trace's nodes have {', '.join(names)}", hint)
    return next(iter(known), "")


def nodes_text(nodes: Sequence[NodeSpec]) -> str:
    """Return kinds of nodes in words, such as `16 nodes x 8 H100, 96 CPUs, 1 TiB each; 4 nodes, 128 CPUs each`.

    Of more than `KINDS_SHOWN` kinds it is the number of nodes and devices.
    """
    kinds: dict[tuple[int, str, Resources], int] = {}
    for spec in nodes:
        key = (len(spec.devices), spec.devices[0].model if spec.devices else "", spec.capacity)
        kinds[key] = kinds.get(key, 0) + 1
    if len(kinds) > KINDS_SHOWN:
        devices = sum(len(spec.devices) for spec in nodes)
        return f"{counted(len(nodes), 'node')} of {len(kinds)} kinds with {counted(devices, 'device')}"
    return "; ".join(_kind_text(count, *key) for key, count in kinds.items())


def _kind_text(count: int, devices: int, model: str, host: Resources) -> str:
    has = f" x {devices} {model}" if devices else ""
    memory = f", {format_size(host.memory_bytes)}" if host.memory_bytes else ""
    return f"{counted(count, 'node')}{has}, {format_milli(host.cpu_milli)} CPUs{memory} each"
