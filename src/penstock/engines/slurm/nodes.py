"""Nodes as `scontrol show node -o` describes them, and what Penstock counts of each."""

import re
from collections.abc import Container, Iterator, Mapping

import msgspec

from penstock.core.model.cluster import DEFAULT_POOL, NodeSpec
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.resources import Device, Resources
from penstock.core.model.weaker import SHADOW
from penstock.engines.slurm.jobs import FEATURE_LABEL, PARTITION_LABEL
from penstock.formats.devices import GIB, UNTYPED, known_of, plain_model
from penstock.formats.slurm import read_gres

MIB = 2**20
DEVICES_MAX = 1_024
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z_:]*)=")
_WORD = re.compile(r"[^,()]+(?:\([^()]*\))?")
CLOSED = ("DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "RESERVED", "PLANNED_DOWN", "REBOOT", "INVAL",
          "INVALID_REG", "BLOCKED")  # fmt: skip
GONE = ("DOWN", "FUTURE", "UNKNOWN", "POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN", "NOT_RESPONDING")
REASON_MAX = 200


class SlurmNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    state: str
    """Such as `MIXED` or `IDLE+DRAIN`."""
    reason: str
    address: str
    cpus: int
    memory_bytes: int
    storage_bytes: int
    gres: str
    features: tuple[str, ...]
    partitions: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.state.upper().rstrip("*~#!%$@^-").split("+"))

    @property
    def gone(self) -> bool:
        """Whether it is down, or does not answer."""
        return self.state.endswith("*") or any(word in GONE for word in self.words)

    @property
    def closed(self) -> str:
        """Why it takes no new work: its state and Slurm's reason; '' where it does."""
        word = next((word for word in self.words if word in CLOSED), "") or (self.state if self.gone else "")
        return ": ".join(filter(None, (word, self.reason if word else "")))[:REASON_MAX]


def read_nodes(text: str) -> Iterator[SlurmNode]:
    """Yield the nodes of `scontrol show node -o`. Raises: ValueError for a line that is none."""
    for line in text.splitlines():
        if line.strip():
            yield _node(fields_of(line))


def fields_of(line: str) -> dict[str, str]:
    """Return the fields of a line of `scontrol -o`; of a key that comes twice, the first counts."""
    found: dict[str, str] = {}
    places = list(_KEY.finditer(line))
    for place, following in zip(places, [*places[1:], None], strict=True):
        value = line[place.end() : following.start() if following else len(line)].strip()
        found.setdefault(place[1], "" if value in ("(null)", "N/A", "None") else value)
    return found


def _node(fields: Mapping[str, str]) -> SlurmNode:
    try:
        cpus = int(fields.get("CPUEfctv") or fields["CPUTot"])
        reserved = int(fields.get("MemSpecLimit") or 0)
        return SlurmNode(
            name=fields["NodeName"],
            state=fields["State"],
            reason=fields.get("Reason", ""),
            address=fields.get("NodeAddr", "") or fields["NodeName"],
            cpus=cpus,
            memory_bytes=max(0, int(fields["RealMemory"]) - reserved) * MIB,
            storage_bytes=int(fields.get("TmpDisk") or 0) * MIB,
            gres=fields.get("Gres", ""),
            features=tuple(filter(None, (fields.get("ActiveFeatures") or "").split(","))),
            partitions=tuple(filter(None, fields.get("Partitions", "").split(","))),
        )
    except KeyError as error:
        raise ValueError(f"a node with the field {error}; found {', '.join(fields)}") from None


def node_spec(node: SlurmNode, pools: Container[str], engine: str = SHADOW) -> NodeSpec:
    """Return what a node offers.

    Args:
        engine: which way Penstock has to it.
        pools: names of the server's pools: a node is in that of its first partition which has one, else in `default`.
    """
    labels = {PARTITION_LABEL + name: "true" for name in node.partitions}
    labels |= {FEATURE_LABEL + name: "true" for name in node.features}
    return NodeSpec(
        name=NodeName(node.name),
        capacity=Resources(node.cpus * 1000, node.memory_bytes, node.storage_bytes),
        devices=devices_of(node),
        pool=pool_of(node, pools),
        labels=tuple(sorted(labels.items())),
        address=node.address,
        engine=engine,
    )


def pool_of(node: SlurmNode, pools: Container[str]) -> PoolName:
    return next((PoolName(name) for name in node.partitions if name in pools), DEFAULT_POOL)


def devices_of(node: SlurmNode) -> tuple[Device, ...]:
    """Return the GPUs of a node, by their types in order; parts of them (MIG, shard, mps) are not told apart."""
    found: list[Device] = []
    for word in _WORD.findall(node.gres):
        gres = read_gres(word.strip())
        if gres is None or gres.name != "gpu":
            continue
        model = plain_model(gres.kind or UNTYPED)
        known = known_of(model)
        for _ in range(min(gres.count, DEVICES_MAX - len(found))):
            found.append(
                Device(
                    len(found),
                    known.vendor if known else "nvidia",
                    model,
                    known.memory_gib * GIB if known else 0,
                    known.capability if known else (0, 0),
                )
            )
    return tuple(found)
