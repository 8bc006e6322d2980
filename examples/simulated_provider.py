"""A provider of nodes for trying things: adds a virtual node to this machine for each request that one can hold.

Declared in the cluster file; what is missing comes as JSON on standard input:

    settings:
      scale_command: "/usr/bin/python3 /opt/penstock/simulated_provider.py --data ~/.local/share/penstock --most 4"
      scale_after: 10s
      allow_waiting_for_nodes: true
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from pathlib import Path

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName, PoolName
from penstock.core.model.resources import Device, Resources
from penstock.engines.local.launch import known_nodes, start_agent
from penstock.engines.processes.paths import DataFolder
from penstock.security.keeper import CertificateKeeper


def main() -> None:
    parser = argparse.ArgumentParser(description="Adds virtual nodes for jobs that wait for capacity.")
    parser.add_argument("--data", type=Path, required=True, help="data folder of the server")
    parser.add_argument("--most", type=int, default=4, help="nodes that it ever adds")
    options = parser.parse_args()
    data = DataFolder(options.data.expanduser().resolve())
    added = []
    for entry in json.load(sys.stdin)["missing"]:
        for group in entry["groups"]:
            mine = [name for name in known_nodes(data) if name.startswith("scaled-")]
            if len(mine) >= options.most:
                print(f"no more than {options.most} nodes")
                sys.exit(1)
            name = f"scaled-{len(mine)}"
            now = dt.datetime.now(dt.UTC)
            CertificateKeeper(data.certificates).certify(NodeName(name), data.node_certificate(name), now)
            start_agent(data, node(name, entry["pool"], group))
            added.append(name)
    print("started " + ", ".join(added))


def node(name: str, pool: str, group: dict[str, object]) -> NodeSpec:
    """Return a node that holds all replicas of one group."""
    count = int(str(group["replicas"]))
    models = group["models"]
    model = str(models[0]) if isinstance(models, list) and models else "SIM"
    memory = int(str(group["device_memory_bytes"])) or 80 * 2**30
    devices = tuple(
        Device(index, "simulated", model, memory, simulated=True) for index in range(count * int(str(group["devices"])))
    )
    host = Resources(count * int(str(group["cpu_milli"])), count * int(str(group["memory_bytes"])) + 2**30)
    return NodeSpec(NodeName(name), host, devices, pool=PoolName(pool), virtual=True)


if __name__ == "__main__":
    main()
