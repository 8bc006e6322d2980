"""Each recorded output of AMD's tools gives the facts that stand in it, and a finding for what is wrong with it."""

import re

import msgspec
import pytest

from penstock.devices.amd_tools import amd_smi_tables, kfd, rocm_smi
from tests.devices.amd_tools.recordings import EXPECTED, FINDINGS, FOLDER, NAMES, parser_of, text_of


@pytest.mark.parametrize("name", NAMES)
def test_recording_gives_what_stands_in_it(name):
    read = parser_of(name)(text_of(name))
    assert msgspec.structs.replace(read, findings=()) == EXPECTED[name]
    assert [(finding.code, finding.index) for finding in read.findings] == FINDINGS.get(name, [])
    assert all(finding.effect in ("none", "warn") for finding in read.findings)


def test_sources_name_every_recording():
    named = re.findall(r"^\| ([\w.-]+) \|", (FOLDER / "sources.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set(named) - {"file"}) == NAMES == sorted(EXPECTED)


def test_versions_are_read_by_their_names():
    assert amd_smi_tables.versions(text_of("amd-smi-version-1.txt")) == {
        "AMDSMI Tool": "23.4.2+505b858",
        "AMDSMI Library version": "24.2.0.0",
        "ROCm version": "6.1.0",
    }
    assert rocm_smi.versions(text_of("rocm-smi-version-1.txt")) == {
        "ROCM-SMI": "2.0.0+8e78352",
        "ROCM-SMI-LIB": "6.0.0",
    }


@pytest.mark.parametrize(("name", "link"), [("kfd-io-link-1.txt", (2, 0, 2)), ("kfd-io-link-2.txt", (2, 3, 11))])
def test_links_of_the_kernel_name_both_nodes_and_the_type(name, link):
    numbers, findings = kfd.properties(text_of(name))
    assert (numbers["node_from"], numbers["node_to"], numbers["type"]) == link
    assert findings == []
