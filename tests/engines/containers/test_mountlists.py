"""No path means anything else to a runtime; `python -m tests.engines.containers.mountlists` tries many."""

import os

import pytest

from penstock.engines.containers import commands
from tests.engines.containers import images, mountlists

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounts are made by root")]
PROGRAMS = {"podman": "podman", "charliecloud": "ch-run", "bubblewrap": "bwrap"}


@pytest.mark.parametrize("runtime", PROGRAMS)
def test_a_runtime_reads_each_mount_as_it_was_meant(runtime):
    images.need(PROGRAMS[runtime])
    played = mountlists.play(runtime, 2_000, 1)
    assert played["written"] > 100
    assert played["misread"] == 0


@pytest.mark.parametrize("runtime", ["podman", "charliecloud"])
def test_a_rule_that_lets_separators_through_is_found(runtime, monkeypatch):
    images.need(PROGRAMS[runtime])
    monkeypatch.setattr(commands, "is_plain", lambda path: path.isprintable() and "/." not in path and "//" not in path)
    assert mountlists.play(runtime, 400, 1)["misread"] > 0
