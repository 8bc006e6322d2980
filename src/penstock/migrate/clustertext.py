"""An import as a cluster file of Penstock's own format, so that it can be read, edited and applied."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import yaml

from penstock.core.config.cluster import declaration
from penstock.core.config.fields import from_milli
from penstock.core.model import cluster as c
from penstock.core.model.quantities import exact_size
from penstock.core.model.resources import Device
from penstock.migrate.model import Imported
from penstock.migrate.names import Names


def to_cluster_file(imported: Imported) -> str:
    """Return YAML that the cluster file reader takes, and from which it makes the same configuration.

    Nodes are written as virtual ones with simulated devices: a cluster file declares no others. They carry the
    capacity, place and labels of the real ones, so that plans can be tried without them; a node with devices of
    several models has all of the most frequent one, and a comment says so.
    """
    document = declaration(imported.config)
    names = Names()
    nodes = [_node(node, names.plain(node.name)) for node in imported.nodes]
    if nodes:
        document["nodes"] = nodes
    comments = _comments(imported.nodes)
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True, default_flow_style=None)
    return "".join(f"# {line}\n" for line in comments) + text


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: equal values are written each time."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _node(node: c.NodeSpec, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    for key, value in (("pool", node.pool), ("rack", node.rack), ("switch", node.switch)):
        if value and value != c.DEFAULT_POOL:
            found[key] = str(value)
    if node.capacity.cpu_milli:
        found["cpus"] = from_milli(node.capacity.cpu_milli)
    if node.capacity.memory_bytes:
        found["memory"] = exact_size(node.capacity.memory_bytes)
    if node.capacity.storage_bytes:
        found["storage"] = exact_size(node.capacity.storage_bytes)
    if node.labels:
        found["labels"] = dict(node.labels)
    if node.devices:
        found["simulated_devices"] = _simulated(node.devices)
    return found


def _simulated(devices: Sequence[Device]) -> dict[str, Any]:
    model = _main_model(devices)
    like = next(device for device in devices if device.model == model)
    found: dict[str, Any] = {"count": len(devices), "model": model}
    if like.memory_bytes:
        found["memory"] = exact_size(like.memory_bytes)
    if like.mig:
        found["mig"] = True
    if like.mig_mode:
        found["mig_mode"] = True
    found["links"] = _groups(devices)
    return found


def _main_model(devices: Sequence[Device]) -> str:
    """Return the most frequent model; of equally frequent ones the first."""
    return Counter(device.model for device in devices).most_common(1)[0][0]


def _groups(devices: Sequence[Device]) -> list[list[int]]:
    """Return the indexes of devices that NVLink joins, directly or through others."""
    peers = {d.index: {link.peer for link in d.links if link.kind == "nvlink"} for d in devices}
    groups: list[list[int]] = []
    seen: set[int] = set()
    for first in sorted(peers):
        group, waiting = set(), [first]
        while waiting:
            at = waiting.pop()
            if at not in seen and at in peers:
                seen.add(at)
                group.add(at)
                waiting += peers[at]
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _comments(nodes: Sequence[c.NodeSpec]) -> list[str]:
    if not nodes:
        return ["Imported. Nodes are declared by their agents."]
    found = ["Imported. Nodes are virtual with simulated devices: take them out where agents run on the real ones."]
    for node in nodes:
        models = sorted({device.model for device in node.devices})
        if len(models) > 1:
            taken = _main_model(node.devices)
            found.append(f"{node.name!a} has devices of {len(models)} models; all are written as {taken!a}.")
    return found
