"""How MIG would divide a node's devices: shown with the commands, changing nothing."""

import json

import msgspec
import pytest

from penstock.devices.simulated import simulated
from penstock.devices.simulated_mig import SimulatedMig
from penstock.engines.agent.worker import AgentConfig
from penstock.testing.builders import node

A100S = simulated(2, "A100", 40 * 10**9, mig=True)


@pytest.fixture
def here(alone):
    """A data folder with a node whose first device has two instances, one of them in use."""
    for name, devices in (("n1", A100S), ("n2", ())):
        folder = alone.data / "nodes" / name
        folder.mkdir(parents=True, mode=0o700)
        config = AgentConfig(str(alone.data), node(name, devices), "parent")
        (folder / "agent.json").write_bytes(msgspec.json.encode(config))
    smi = SimulatedMig(alone.data / "nodes" / "n1" / "mig.json", A100S)
    for what in ("19:0", "14:4"):
        smi.run("nvidia-smi", "mig", "-i", "0", "-cgi", what, "-C")
    smi.occupy(0, 4, 4711)
    alone.smi = smi
    return alone


def test_the_layout_and_the_commands_are_shown_and_nothing_is_changed(here):
    told = here("mig", "n1", "--strategy", "training")
    assert told.code == 0, told.err
    assert "3g.20gb at 0, 2g.10gb at 4" in told.out
    assert [line for line in told.out.splitlines() if line.startswith("nvidia-smi")] == [
        "nvidia-smi mig -i 0 -gi 7 -ci 0 -dci",
        "nvidia-smi mig -i 0 -gi 7 -dgi",
        "nvidia-smi mig -i 0 -cgi 9:0 -C",
        "nvidia-smi mig -i 1 -cgi 9:0 -C",
        "nvidia-smi mig -i 1 -cgi 9:4 -C",
    ]
    assert here.smi.lies(0) == [("1g.5gb", 0), ("2g.10gb", 4)]
    assert sorted(path.name for path in (here.data / "nodes" / "n1").iterdir()) == ["agent.json", "mig.json"]


def test_programs_get_all_of_it(here):
    told = json.loads(here("mig", "n1", "--strategy", "inference", "--json").out)
    assert (told["node"], told["strategy"]) == ("n1", "inference")
    assert [len(device["create"]) for device in told["devices"]] == [4, 7]
    assert told["devices"][0]["destroy"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which node: one of n1, n2"),
        (("n3",), "there is no node 'n3' here: one of n1, n2"),
        (("n1", "--strategy", "all"), "all"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(here, words, said):
    told = here("mig", *words)
    assert (told.code, told.out, said in told.err) == (2, "", True), told.err


def test_without_a_server_the_layout_is_balanced(here):
    told = here("mig", "n1", "--json").json()
    layout = sorted(one.split()[0] for one in told["devices"][1]["layout"])
    assert (told["strategy"], layout) == ("balanced", ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"])


def test_a_node_that_cannot_be_divided_says_so(here):
    told = here("mig", "n2")
    assert (told.code, "no device of n2 may be divided" in told.out) == (0, True)
    assert here("mig", "n2", "--json").json()["devices"] == []


def test_without_a_node_the_hint_says_who_starts_them(alone):
    told = alone("mig")
    assert (told.code, "penstock up starts them" in told.err) == (2, True)
