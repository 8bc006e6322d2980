"""The devices of nodes: the GPUs that gres.conf lists, else the counts in `Gres=` of slurm.conf.

Source: https://slurm.schedmd.com/gres.conf.html and https://slurm.schedmd.com/gres.html
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from penstock.core.config.nodes import DEVICES_PER_NODE_MAX
from penstock.core.model.resources import Device, DeviceLink
from penstock.core.model.words import counted
from penstock.formats.devices import GIB, known_of, plain_model
from penstock.formats.slurm import gres_count
from penstock.migrate.report import Fate, MigrationReport, fates
from penstock.migrate.slurm.hosts import Hosts
from penstock.migrate.slurm.lines import SlurmLine
from penstock.migrate.slurm.migtypes import is_instance, whole_devices
from penstock.migrate.slurm.nodes import Draft

DEVICES_TOTAL_MAX = 200_000
"""Distinct devices in one import; nodes that are alike share theirs."""
GPU = "gpu"
_DETECTED_BY = {"nvml": "nvidia", "nvidia": "nvidia", "rsmi": "amd", "oneapi": "intel", "nrt": "aws"}
_CARD = re.compile(r"/dev/nvidia([0-9]{1,4})")
_NUMBERS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


class GresPart(msgspec.Struct, frozen=True):
    """GPUs of one type that are declared together."""

    kind: str
    count: int
    numa_nodes: tuple[int, ...] = ()
    """Of each device in turn; the last one goes on."""
    links: tuple[tuple[int, ...], ...] = ()
    """Of each device the indexes of those it is linked with."""
    cards: tuple[str, ...] = ()
    """Device files of the cards that MIG instances lie on."""
    vendor: str = ""


class GresConf:
    """gres.conf, by node."""

    def __init__(self, lines: Iterable[SlurmLine], hosts: Hosts, report: MigrationReport) -> None:
        self._everywhere: list[SlurmLine] = []
        self._by_node: dict[str, list[SlurmLine]] = {}
        self._hosts, self._report = hosts, report
        self.detected_by = ""
        self._cache: dict[object, tuple[Device, ...]] = {}
        self._total = 0
        for line in lines:
            self._take(line)

    def _take(self, line: SlurmLine) -> None:
        names, name = line.get("NodeName"), (line.get("Name") or "").lower()
        vendor = self._say_detection(line, names)
        if not name and line.get("AutoDetect") is not None:
            self.detected_by = vendor if names is None else self.detected_by
            return
        if name == GPU:
            nodes = () if names is None else self._hosts.expand(line.place, "NodeName", names)
            lists = [self._everywhere] if names is None else [self._by_node.setdefault(node, []) for node in nodes]
            for lines in _with_room(lists, line):
                lines.append(line)
        _say(line, name, self._report)

    def _say_detection(self, line: SlurmLine, names: str | None) -> str:
        word = line.get("AutoDetect")
        if word is None:
            return self.detected_by
        vendor = _DETECTED_BY.get(word.lower(), "")
        if word.lower() == "off":
            self._report.mapped(line.place, "AutoDetect", word, "what the files list is taken")
        else:
            how = "files cannot ask the hardware: models, memory and links are taken from names and counts"
            self._report.approximated(line.place, "AutoDetect", word, how)
        if names is not None and line.get("Name") is None:
            self._report.mapped(line.place, "NodeName", names, "of AutoDetect")
        return vendor

    def devices_of(self, node: Draft) -> tuple[Device, ...]:
        """Return the accelerators of a node by index. Raises: ImportFault for malformed lines and above limits."""
        counted = tuple(gres for gres in node.gres if gres.name == GPU)
        lines = self._by_node.get(node.name) or (self._everywhere if counted else [])
        key = (counted, tuple(map(id, lines)), node.cores_per_socket)
        if key not in self._cache:
            devices = self._make(node, lines)
            self._total += len(devices)
            if self._total > DEVICES_TOTAL_MAX:
                raise node.place.fault("Gres", len(devices), f"at most {DEVICES_TOTAL_MAX} devices that differ")
            self._cache[key] = devices
        return self._cache[key]

    def _make(self, node: Draft, lines: Sequence[SlurmLine]) -> tuple[Device, ...]:
        counted = [gres for gres in node.gres if gres.name == GPU]
        kinds = {gres.kind for gres in counted if gres.kind}
        only = next(iter(kinds)) if len(kinds) == 1 else ""
        pieces = [piece for line in lines if (piece := self._piece(line, node, only))]
        listed = sum(piece.count for piece in pieces)
        expected = sum(gres.count for gres in counted)
        if counted and pieces and listed != expected:
            how = f"gres.conf lists {listed} GPUs for node '{node.name}'; these are taken"
            self._report.approximated(node.place, "Gres", f"gpu: {expected}", how)
        if not pieces:
            pieces = [GresPart(g.kind, g.count, _spread(g.sockets, g.count), vendor=self.detected_by) for g in counted]
        return self._built(node, pieces)

    def _piece(self, line: SlurmLine, node: Draft, only_kind: str) -> GresPart | None:
        kind = line.get("Type") or only_kind
        files = line.get("File")
        cards = line.get("MultipleFiles")
        count = self._count(line, files)
        if not count:
            return None
        names = self._hosts.expand(line.place, "MultipleFiles", cards) if cards else ()
        vendor = self.detected_by or ("nvidia" if "nvidia" in f"{files}{cards}" else "")
        return GresPart(
            kind,
            count,
            _numa_nodes(line, node.cores_per_socket),
            (_linked(line),) if line.get("Links") else (),
            tuple(name for name in names if _CARD.fullmatch(name)),
            vendor,
        )

    def _count(self, line: SlurmLine, files: str | None) -> int:
        if files:
            return len(self._hosts.expand(line.place, "File", files))
        text = line.get("Count")
        try:
            count = gres_count(text) if text else int(line.get("MultipleFiles") is not None)
        except ValueError:
            raise line.place.fault("Count", text, "a count such as 8") from None
        return count

    def _built(self, node: Draft, pieces: list[GresPart]) -> tuple[Device, ...]:
        total = sum(piece.count for piece in pieces)
        if total > DEVICES_PER_NODE_MAX:
            raise node.place.fault("Gres", total, f"at most {DEVICES_PER_NODE_MAX} GPUs in a node")
        instances = [(piece.kind, piece.count, piece.cards) for piece in pieces if is_instance(piece.kind)]
        partitioned = whole_devices(instances) if instances else ()
        if partitioned:
            how = f"{counted(len(partitioned), 'device')} with MIG allowed: Penstock cuts them itself, as jobs ask"
            count = sum(count for _, count, _ in instances)
            self._report.approximated(node.place, "Gres", f"gpu: {count} MIG instances", how)
        found: list[Device] = []
        for piece in pieces:
            for number in range(0 if is_instance(piece.kind) else piece.count):
                found.append(_device(len(found), piece, number, total))
        self._say_models(node, found)
        return (*found, *(msgspec.structs.replace(d, index=d.index + len(found)) for d in partitioned))

    def _say_models(self, node: Draft, devices: Sequence[Device]) -> None:
        for model in sorted({device.model for device in devices}):
            known = known_of(model)
            if known is None:
                how = "the memory of such devices is not known and counts as 0"
            else:
                how = f"{known.memory_gib} GiB each and capability {known.capability}, as such models usually have"
            self._report.approximated(node.place, "Gres", f"gpu model {model}", how)


def _with_room(lists: list[list[SlurmLine]], line: SlurmLine) -> list[list[SlurmLine]]:
    """Return the lists. Raises: ImportFault when one has as many lines as a node can have devices."""
    if any(len(lines) >= DEVICES_PER_NODE_MAX for lines in lists):
        raise line.place.fault("Name", GPU, f"at most {DEVICES_PER_NODE_MAX} lines for a node")
    return lists


def _device(index: int, piece: GresPart, number: int, total: int) -> Device:
    model = plain_model(piece.kind)
    known = known_of(model)
    numa = piece.numa_nodes[min(number, len(piece.numa_nodes) - 1)] if piece.numa_nodes else 0
    peers = piece.links[0] if piece.links and piece.count == 1 else ()
    return Device(
        index=index,
        vendor=known.vendor if known else piece.vendor or "nvidia",
        model=model,
        memory_bytes=known.memory_gib * GIB if known else 0,
        capability=known.capability if known else (0, 0),
        numa_node=numa,
        links=tuple(DeviceLink(peer, "nvlink") for peer in peers if peer != index and peer < total),
    )


def _spread(sockets: tuple[int, int] | None, count: int) -> tuple[int, ...]:
    """Return the socket of each device: evenly over the sockets of a range such as `S:0-1`."""
    if sockets is None or sockets[1] < sockets[0] or count > DEVICES_PER_NODE_MAX:
        return ()
    first, last = sockets
    return tuple(first + index * (last - first + 1) // count for index in range(count))


def _numa_nodes(line: SlurmLine, cores_per_socket: int) -> tuple[int, ...]:
    """Return the socket of the first core that `Cores` names."""
    text = line.get("Cores") or line.get("CPUs")
    if text is None:
        return ()
    firsts = []
    for word in text.split(","):
        match = _NUMBERS.fullmatch(word.strip())
        if match is None:
            raise line.place.fault("Cores", text, "core numbers such as 0-15,32")
        firsts.append(int(match[1]))
    return (min(firsts) // cores_per_socket,)


def _linked(line: SlurmLine) -> tuple[int, ...]:
    """Return the indexes of devices to which `Links` counts connections."""
    text = line.get("Links") or ""
    words = [word.strip() for word in text.split(",")]
    if len(words) > DEVICES_PER_NODE_MAX or not all(re.fullmatch(r"-1|[0-9]{1,6}", word) for word in words):
        raise line.place.fault("Links", text, "counts of connections such as -1,16,16,16")
    return tuple(index for index, word in enumerate(words) if int(word) > 0)


def _say(line: SlurmLine, name: str, report: MigrationReport) -> None:
    for field in line.fields:
        if field.key != "AutoDetect":
            report.add(line.place, field.key, field.value, _fate(field.key, name))


def _fate(key: str, name: str) -> Fate:
    if name in ("mps", "shard"):
        how = "any device can be shared: a job asks for `devices: {share: 0.25}`; no node is set up for it"
        return Fate("approximated", how)
    return _FATES[key] if name == GPU else Fate("not mapped", f"Penstock schedules accelerators, not gres '{name}'")


_FATES = {
    **fates("mapped", {
        "the nodes of the line": "NodeName",
        "devices": "Name",
        "device model": "Type",
        "one device for each file": "File",
        "a MIG instance on the card that it names": "MultipleFiles",
        "how many devices": "Count",
        "links nvlink to the devices that are counted above 0": "Links",
    }),
    **fates("approximated", {"the device's NUMA node: the first core's socket": "Cores CPUs"}),
    **fates("not mapped", {"Penstock sets the variables of the device's vendor": "Flags"}),
}  # fmt: skip
KEYS = ("AutoDetect", *_FATES)
"""Keys of a line, as Slurm spells them."""
