"""Host lists mean what `scontrol show hostnames` prints."""

import os
import re
import shutil
import subprocess

import pytest

from penstock.formats.hostlist import HOSTS_MAX, expand

KNOWN = [
    ("n[8-11]", ["n8", "n9", "n10", "n11"]),
    ("n[007-010]", ["n007", "n008", "n009", "n010"]),
    ("x[1-2][3-4]", ["x13", "x14", "x23", "x24"]),
    ("n[01-3]", ["n01", "n02", "n03"]),
    ("tux[1-3,1-2]", ["tux1", "tux2", "tux3", "tux1", "tux2"]),
    ("n[9-010]", ["n9", "n10"]),
    ("a b", ["a", "b"]),
    ("n[1-2],", ["n1", "n2"]),
    ("gpu[01-02,20]-ib[0-1]", ["gpu01-ib0", "gpu01-ib1", "gpu02-ib0", "gpu02-ib1", "gpu20-ib0", "gpu20-ib1"]),
]
"""Printed so by scontrol of Slurm 22.05."""
REFUSED = ["n[3-1]", "n[]", "n[a-b]", "n[1,,2]", "n[-3]", "n[1-2-3]"]
"""Refused by it."""


@pytest.mark.parametrize(("text", "names"), KNOWN)
def test_host_lists_expand_as_slurm_does(text, names):
    assert expand(text) == names


@pytest.mark.parametrize("text", [*REFUSED, "n[1", "n1]", "n[[1]]", "", ","])
def test_malformed_host_lists_are_refused(text):
    with pytest.raises(ValueError, match=r"brackets|range|name"):
        expand(text)


@pytest.mark.parametrize("text", ["n[0-999999999]", "n[1-101][1-100]", "n[0-9999],x", "n[" + "1," * 40_000 + "1]"])
def test_absurd_host_lists_are_refused_before_they_are_made(text):
    with pytest.raises(ValueError, match="at most"):
        expand(text)


def test_the_largest_list_has_as_many_names_as_a_cluster_file_takes():
    assert len(expand(f"n[1-{HOSTS_MAX}]")) == HOSTS_MAX == 10_000


@pytest.mark.skipif(
    shutil.which("scontrol") is None and os.environ.get("CI") != "true", reason="Slurm's client is not installed"
)
@pytest.mark.parametrize("text", [text for text, _ in KNOWN])
def test_the_real_tool_says_the_same(text, tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=x\nSlurmctldHost=localhost\nAuthType=auth/none\nNodeName=n1\nPartitionName=p Nodes=n1\n"
    )
    done = subprocess.run(
        ["scontrol", "show", "hostnames", text], env={"SLURM_CONF": str(conf), "PATH": "/usr/bin"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if re.search(r"error|invalid", done.stderr, re.IGNORECASE):
        pytest.skip(f"scontrol does not run here: {done.stderr[:80]}")
    assert done.stdout.split() == expand(text)
