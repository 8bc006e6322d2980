"""Slurm's configuration to Penstock's: nodes with devices and places, partitions to pools, accounts to queues.

Source: https://slurm.schedmd.com/slurm.conf.html, gres.conf.html, topology.conf.html and sacctmgr.html beside it.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.core.model.cluster import DEFAULT_POOL, NodeSpec
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.resources import Device
from penstock.migrate.errors import ImportFault
from penstock.migrate.model import Imported, MigrationSource
from penstock.migrate.report import MigrationReport
from penstock.migrate.slurm.accounts import SlurmAccounts, partition_queues, read_qos
from penstock.migrate.slurm.dump import Association, read_dump
from penstock.migrate.slurm.gres import GresConf
from penstock.migrate.slurm.hosts import Hosts
from penstock.migrate.slurm.keys import GRES_KEYS, SLURM_KEYS, TOPOLOGY_KEYS
from penstock.migrate.slurm.lines import SlurmLine, read_lines
from penstock.migrate.slurm.listing import read_associations
from penstock.migrate.slurm.nodes import Draft, read_nodes
from penstock.migrate.slurm.partitions import LABEL_PREFIX, read_partitions, to_pools
from penstock.migrate.slurm.settings import read_scheduling
from penstock.migrate.slurm.topology import place_nodes
from penstock.migrate.toconfig import to_config


class SlurmFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Slurm's files; any may be left out, but not all."""

    slurm: Path | None = None
    """slurm.conf; the files it includes are read, too."""
    gres: Path | None = None
    """gres.conf."""
    topology: Path | None = None
    """topology.conf."""
    dump: Path | None = None
    """File of `sacctmgr dump CLUSTER file=...`."""
    qos: Path | None = None
    """Output of `sacctmgr -P show qos`."""
    associations: Path | None = None
    """Output of `sacctmgr -P show assoc tree`; used for accounts where there is no dump."""


def read(files: SlurmFiles) -> Imported:
    """Return Penstock's equivalent of Slurm's files, and the outcome of each of their keys.

    Raises: ImportFault for a file that is malformed or above a limit, and when no file is named.
    """
    if not any(getattr(files, name) for name in SlurmFiles.__struct_fields__):
        raise ImportFault("", expected="at least one file of Slurm", hint="name slurm.conf, or a dump of sacctmgr")
    given = [getattr(files, name) for name in SlurmFiles.__struct_fields__]
    report, hosts = MigrationReport(str(path) for path in given if path), Hosts()
    lines = read_lines(files.slurm, SLURM_KEYS) if files.slurm else []
    nodes = read_nodes(lines, hosts, report)
    scheduling = read_scheduling(lines, report)
    _say_states(lines, report)
    partitions = read_partitions(lines, nodes, hosts, report)
    gres = GresConf(read_lines(files.gres, GRES_KEYS) if files.gres else (), hosts, report)
    devices = {name: gres.devices_of(node) for name, node in nodes.items()}
    if files.topology:
        place_nodes(read_lines(files.topology, TOPOLOGY_KEYS), nodes, hosts, report)
    pools, pool_of = to_pools(partitions, nodes, report, placement=scheduling.placement, backfill=scheduling.backfill)
    models = sorted({device.model for found in set(devices.values()) for device in found})
    accounts = SlurmAccounts(scheduling, models, report)
    accounts.read(_associations(files))
    if files.qos:
        read_qos(files.qos, scheduling, report)
    queues = accounts.queues or partition_queues([(p.name, p.place) for p in partitions], scheduling, report)
    source = MigrationSource(
        queues=tuple(queues),
        flavours=tuple(accounts.models.values()),
        pools=pools,
        tenants=tuple(accounts.tenants),
        settings=scheduling.settings,
        root_policy=scheduling.tree_policy,
        nodes=tuple(_spec(node, devices[name], pool_of) for name, node in nodes.items()),
    )
    return to_config(source, report)


def _associations(files: SlurmFiles) -> list[Association]:
    if files.dump:
        return read_dump(files.dump)
    return read_associations(files.associations) if files.associations else []


def _say_states(lines: list[SlurmLine], report: MigrationReport) -> None:
    for line in lines:
        if line.kind in ("DownNodes", "FrontendName"):
            for field in line.fields:
                why = "a state, not a configuration: `penstock drain NODE` closes a node"
                report.lost(line.place, field.key, field.value, why)


def _spec(node: Draft, devices: tuple[Device, ...], pool_of: Mapping[str, PoolName]) -> NodeSpec:
    names = [f"feature.{feature}" for feature in node.features] + [LABEL_PREFIX + name for name in node.partitions]
    labels = {name.replace("=", "_"): "true" for name in names}
    return NodeSpec(
        name=NodeName(node.name),
        capacity=node.capacity,
        devices=devices,
        pool=pool_of.get(node.name, DEFAULT_POOL),
        labels=tuple(sorted(labels.items())),
        rack=node.rack,
        switch=node.switch,
        address=node.address,
    )
