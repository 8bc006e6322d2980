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
    above: dict[str, str] = {}
    for line in lines:
        names = hosts.expand(line.place, line.kind, line.fields[0].value) if line.kind == "SwitchName" else ()
        if line.kind == "BlockSizes":
            report.lost(line.place, line.kind, line.fields[0].value, "which blocks make larger ones is not known")
        elif line.kind == "BlockName":
            report.approximated(line.place, line.kind, line.fields[0].value, "a block of nodes counts as their rack")
            _hang(line, nodes, hosts, report, "rack", line.fields[0].value)
        else:
            _switch(line, names, above, nodes, hosts, report)
    for node in nodes.values():
        if node.switch:
            node.rack = above.get(node.switch, "")
    _say_higher(above, nodes, lines, report)


def _switch(
    line: SlurmLine,
    names: tuple[str, ...],
    above: dict[str, str],
    nodes: dict[str, Draft],
    hosts: Hosts,
    report: MigrationReport,
) -> None:
    report.mapped(line.place, "SwitchName", line.fields[0].value, "switch of its nodes, or rack above switches")
    if line.get("Nodes") is None and line.get("Switches") is None:
        raise line.place.fault("SwitchName", line.fields[0].value, "Nodes or Switches in its line")
    below = line.get("Switches")
    if below is not None:
        children = hosts.expand(line.place, "Switches", below)
        twice = [child for child in children if above.setdefault(child, names[0]) != names[0]]
        if twice:
            how = f"{len(twice)} of them hang on another switch, too; the first one counts"
            report.approximated(line.place, "Switches", below, how)
        else:
            report.mapped(line.place, "Switches", below, f"rack '{names[0]}' of what hangs below")
    if line.get("Nodes") is not None:
        _hang(line, nodes, hosts, report, "switch", names[0])
    speed = line.get("LinkSpeed")
    if speed is not None:
        report.lost(line.place, "LinkSpeed", speed, "Slurm does not use it either")


def _hang(
    line: SlurmLine, nodes: dict[str, Draft], hosts: Hosts, report: MigrationReport, field: str, name: str
) -> None:
    """Set a field of the nodes in a line to `name`."""
    text = line.get("Nodes")
    if text is None:
        raise line.place.fault(line.kind, name, "Nodes in its line")
    here = tuple(nodes) if text.upper() == "ALL" else hosts.expand(line.place, "Nodes", text)
    unknown = [node for node in here if node not in nodes]
    twice = 0
    for node in here:
        if node in nodes and getattr(nodes[node], field) not in ("", name):
            twice += 1
        elif node in nodes:
            setattr(nodes[node], field, name)
    if unknown:
        report.approximated(line.place, "Nodes", text, f"{len(unknown)} are no nodes, such as '{unknown[0]}'")
    elif twice:
        report.approximated(line.place, "Nodes", text, f"{twice} hang on another one, too; the first one counts")
    else:
        report.mapped(line.place, "Nodes", text, f"{field} '{name}'")


def _say_higher(
    above: dict[str, str], nodes: dict[str, Draft], lines: Iterable[SlurmLine], report: MigrationReport
) -> None:
    """Report levels above the rack: Penstock knows switch and rack only."""
    higher = {above.get(node.rack, "") for node in nodes.values()}
    for line in lines:
        if line.kind == "SwitchName" and line.fields[0].value in higher:
            why = "a third level; Penstock knows switch and rack"
            report.lost(line.place, "SwitchName", line.fields[0].value, why)
