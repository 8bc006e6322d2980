"""Devices of a replica reach its container by CDI, with a real Podman and a real description: those, and no others.

The devices behind the description are those of /dev/null and /dev/zero: what is shown is who gets which.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.model.containers import ImageAsk
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.resources import Device, DeviceAsk, ReplicaAsk, Resources
from penstock.engines.containers.probe import CDI_FOLDERS
from tests.engines.agent.fakeserver import FakeServer
from tests.engines.containers import images
from tests.engines.processes.test_containment import needs_groups

pytestmark = [needs_groups, pytest.mark.root]

GIB = 2**30
MINORS = {"a": 3, "b": 5}
"""Of /dev/null and /dev/zero."""


def described(name: str, number: int) -> dict[str, object]:
    node = {"path": f"/dev/penstock{number}", "type": "c", "major": 1, "minor": MINORS[name]}
    return {"name": name_of(name), "containerEdits": {"deviceNodes": [node], "env": [f"GIVEN_{number}={name}"]}}


def name_of(name: str) -> str:
    return f"GPU-penstock-{os.getpid()}-{name}"


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server with one agent, on a node with two devices that CDI describes."""
    images.need("podman", "runc")
    images.imported()
    root = Path(tempfile.mkdtemp(prefix="penstock-cdi-"))
    description = CDI_FOLDERS[1] / f"penstock-test-{os.getpid()}.json"
    made = not description.parent.exists()
    description.parent.mkdir(exist_ok=True)
    devices = [described(name, number) for number, name in enumerate(MINORS)]
    description.write_text(json.dumps({"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": devices}))
    own = [Device(i, "nvidia", "a100", 80 * GIB, uuid=name_of(name)) for i, name in enumerate(MINORS)]
    started = FakeServer(root / "data")
    try:
        started.agent(devices=tuple(own))
        started.ready()
        yield started
    finally:
        started.close()
        description.unlink()
        if made:
            description.parent.rmdir()
        shutil.rmtree(root, ignore_errors=True)


def seen(server: FakeServer, *indexes: int) -> list[str]:
    """Return what a replica with these devices sees of devices inside its container."""
    ask = ReplicaAsk(Resources(), DeviceAsk(len(indexes)) if indexes else None)
    looks = "for one in /dev/penstock*; do test -c $one && echo $one; done; echo $CUDA_VISIBLE_DEVICES; env"
    fields = {"image": ImageAsk(images.NAME, pull="never"), "devices": indexes, "ask": ask}
    key = server.start("/bin/sh", "-c", f"{looks}; true", **fields)
    assert server.ended(key) == ExitInfo(0), server.data.output(key).read_text()
    lines = server.data.output(key).read_text().splitlines()
    return [line for line in lines if line.startswith(("/dev/", "GIVEN_", "CUDA_VISIBLE"))]


def test_a_container_gets_the_devices_of_its_replica_counted_from_0(server):
    assert sorted(seen(server, 1)) == ["/dev/penstock1", "CUDA_VISIBLE_DEVICES=0", "GIVEN_1=b"]
    both = ["/dev/penstock0", "/dev/penstock1", "CUDA_VISIBLE_DEVICES=0,1", "GIVEN_0=a", "GIVEN_1=b"]
    assert sorted(seen(server, 0, 1)) == both


def test_a_container_without_devices_gets_none(server):
    assert [line for line in seen(server) if line.startswith(("/dev/", "GIVEN_"))] == []
