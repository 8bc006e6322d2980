"""topology.conf: the switch of a node, and the levels above it.

Source: https://slurm.schedmd.com/topology.conf.html
"""

from collections.abc import Iterable

from penstock.migrate.report import MigrationReport
from penstock.migrate.slurm.hosts import Hosts
from penstock.migrate.slurm.lines import SlurmLine
from penstock.migrate.slurm.nodes import Draft


def place_nodes(lines: Iterable[SlurmLine], nodes: dict[str, Draft], hosts: Hosts, report: MigrationReport) -> None:
    """Set `switch` and `rack` of the nodes: the leaf switch, and the switch above it. A block counts as a rack."""
    places = _Places(nodes, hosts, report)
    for line in lines:
        places.read(line)
    for node in nodes.values():
        if node.switch:
            node.rack = places.above.get(node.switch, "")
    higher = {places.above.get(node.rack, "") for node in nodes.values()}
    for line in lines:
        if line.kind == "SwitchName" and line.name in higher:
            report.lost(line.place, "SwitchName", line.name, "a third level; Penstock knows switch and rack")


class _Places:
    def __init__(self, nodes: dict[str, Draft], hosts: Hosts, report: MigrationReport) -> None:
        self._nodes, self._hosts, self._report = nodes, hosts, report
        self.above: dict[str, str] = {}
        """The switch above each switch."""

    def read(self, line: SlurmLine) -> None:
        if line.kind == "BlockSizes":
            self._report.lost(line.place, line.kind, line.name, "which blocks make larger ones is not known")
        elif line.kind == "BlockName":
            self._report.approximated(line.place, line.kind, line.name, "a block of nodes counts as their rack")
            self._hang(line, "rack", line.name)
        else:
            self._switch(line, self._hosts.expand(line.place, line.kind, line.name)[0])

    def _switch(self, line: SlurmLine, name: str) -> None:
        self._report.mapped(line.place, "SwitchName", line.name, "switch of its nodes, or rack above switches")
        if line.get("Nodes") is None and line.get("Switches") is None:
            raise line.place.fault("SwitchName", line.name, "Nodes or Switches in its line")
        below = line.get("Switches")
        if below is not None:
            children = self._hosts.expand(line.place, "Switches", below)
            twice = [child for child in children if self.above.setdefault(child, name) != name]
            if twice:
                how = f"{len(twice)} of them hang on another switch, too; the first one counts"
                self._report.approximated(line.place, "Switches", below, how)
            else:
                self._report.mapped(line.place, "Switches", below, f"rack '{name}' of what hangs below")
        if line.get("Nodes") is not None:
            self._hang(line, "switch", name)
        speed = line.get("LinkSpeed")
        if speed is not None:
            self._report.lost(line.place, "LinkSpeed", speed, "Slurm does not use it either")

    def _hang(self, line: SlurmLine, field: str, name: str) -> None:
        """Set a field of the nodes in a line to `name`."""
        text = line.get("Nodes")
        if text is None:
            raise line.place.fault(line.kind, name, "Nodes in its line")
        here = tuple(self._nodes) if text.upper() == "ALL" else self._hosts.expand(line.place, "Nodes", text)
        unknown = [node for node in here if node not in self._nodes]
        twice = 0
        for node in here:
            if node in self._nodes and getattr(self._nodes[node], field) not in ("", name):
                twice += 1
            elif node in self._nodes:
                setattr(self._nodes[node], field, name)
        if unknown:
            self._report.approximated(line.place, "Nodes", text, f"{len(unknown)} are no nodes, such as '{unknown[0]}'")
        elif twice:
            how = f"{twice} hang on another one, too; the first one counts"
            self._report.approximated(line.place, "Nodes", text, how)
        else:
            self._report.mapped(line.place, "Nodes", text, f"{field} '{name}'")
