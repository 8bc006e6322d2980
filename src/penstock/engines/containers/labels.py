"""What a node says of the runtimes that it has tried: labels, by which jobs with images are placed.

Kept in a file for as long as the node's incarnation lasts, so that the next worker says the same at once.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.core.model.containers import BY_FOLDER, BY_NAME, LABELS, NOT_HERE
from penstock.core.model.ids import Incarnation
from penstock.core.model.nodes import NodeSpec
from penstock.engines.containers import commands
from penstock.engines.containers.commands import Runtime
from penstock.privatefiles import write_whole

_decode = msgspec.json.Decoder(tuple[str, list[tuple[str, str]]]).decode


def labels_of(found: Sequence[Runtime], kinds: Sequence[str]) -> list[tuple[str, str]]:
    """Return the labels of a node that has tried these runtimes of all those in `kinds`."""
    working: dict[str, str] = {one.kind: f"{one.kind}-{one.version}" for one in found if not one.problem}
    labels = {f"{LABELS}{kind}": working.get(kind, NOT_HERE) for kind in kinds}
    for label, among in ((BY_NAME, commands.BY_NAME), (BY_FOLDER, commands.BY_FOLDER)):
        labels[label] = next((working[kind] for kind in among if kind in working), NOT_HERE)
    return sorted(labels.items())


def keep(file: Path, incarnation: str, labels: Sequence[tuple[str, str]]) -> bool:
    """Note the labels of a node; return whether they have changed. Raises: OSError."""
    data = msgspec.json.encode((incarnation, labels))
    with contextlib.suppress(OSError):
        if file.read_bytes() == data:
            return False
    write_whole(file, data, synced=False)
    return True


def labelled(spec: NodeSpec, file: Path, incarnation: Incarnation) -> NodeSpec:
    """Return what a node says of itself, with what it has tried in this incarnation."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        noted, labels = _decode(file.read_bytes())
        if noted == incarnation:
            return replace(spec, labels=tuple(sorted((*spec.labels, *labels))))
    return spec
