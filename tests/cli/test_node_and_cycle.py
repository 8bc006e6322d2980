"""A node, and the last cycle, as pages for people."""

from typing import get_args

from msgspec.structs import replace

from penstock.cli.cluster import _node_row
from penstock.cli.cycle import WAIT_TEXT, print_cycle
from penstock.cli.node_page import print_node
from penstock.core.cycle.alternatives import PlanChooser
from penstock.core.model.cluster import Pool
from penstock.core.model.events import HostLoadNoted, NodeLeaveNoted
from penstock.core.model.nodes import DeviceInstances, HostLoad
from penstock.core.model.plan import WaitCode
from penstock.core.state.tokens import local_scope
from penstock.server.views.cluster import whole_node_view
from penstock.server.views.scheduling import cycle_view
from penstock.testing.builders import device, linked, node
from penstock.testing.harness import World

NVLINK = tuple(linked(i, "nvlink", *(range(2) if i < 2 else range(2, 4))) for i in range(4))


def world():
    w = World(node("a", NVLINK, rack="r1", switch="s1", labels=(("gpu", "fast"),)), node("b", 1))
    w.run(w.submit(1))
    return w


def view(w, name):
    return whole_node_view(w.state, name, connected=True, scope=local_scope("ann"))


def test_a_node_shows_where_it_stands_and_how_its_devices_are_joined():
    w = world()
    shown = view(w, "a")
    assert (shown.rack, shown.switch, shown.labels, shown.pool) == ("r1", "s1", {"gpu": "fast"}, "default")
    assert shown.links == {"nvlink": [[0, 1], [2, 3]], "numa": [[0, 1, 2, 3]]}
    assert view(w, "b").links == {}


def test_the_page_of_a_node_names_its_devices_holders_and_links(capsys):
    w = world()
    print_node(view(w, w.where(1)))
    print_node(view(w, "a"))
    out = capsys.readouterr().out
    assert "place    rack r1, switch s1" in out
    assert "labels   gpu=fast" in out
    assert "links    NVLink: 0, 1; 2, 3" in out
    assert "nvidia A100, 80 GiB: held by job 1" in out


def test_a_node_says_what_its_engine_cannot_promise(capsys):
    w = World(replace(node("a", 1), engine="slurm", at="Slurm job 7 on c1"), node("b", 1))
    print_node(view(w, "a"))
    print_node(view(w, "b"))
    out = capsys.readouterr().out
    assert "engine   slurm" in out
    assert "  memory of a job: what takes gigabytes in half a second may reach the allocation's limit first" in out
    assert "  last output: what of an output has not reached the server" in out
    assert out.count("cannot be promised here") == 1
    assert _node_row(view(w, "a"))[-2:] == (
        "slurm",
        "memory of a job, CPUs of a job, isolation of users, time, last output",
    )
    assert _node_row(view(w, "b"))[-2:] == ("", "")


def test_the_page_of_a_node_counts_the_mig_instances_of_each_device_and_those_that_are_idle(capsys):
    w = World(node("a", (device(0, mig=True, mig_mode=True), device(1, mig=True))))
    halves = (("1g.10gb", 0), ("3g.40gb", 4))
    w.report("a", inventory=True, instances=(DeviceInstances(0, halves), DeviceInstances(1, ())))
    w.run(w.submit(1, profile="3g.40gb"))
    print_node(view(w, "a"))
    out = capsys.readouterr().out
    assert "MIG mode on (1 x 1g.10gb, 1 idle; 1 x 3g.40gb): held by job 1" in out
    assert "80 GiB, MIG: free" in out


def test_the_page_of_a_node_shows_its_points_where_its_pool_goes_by_them(capsys):
    w = World(node("a", 0), pools=(Pool("default", placement="host_load"),))
    w.emit(HostLoadNoted("a", HostLoad(cpu_milli=400, performance=9)))
    print_node(view(w, "a"))
    print_node(view(world(), "a"))
    out = capsys.readouterr().out
    parts = "utilisation 40/40, free memory 30/30, free bandwidth 20/20, past performance 9/10"
    assert f"points   99/100 points: {parts}" in out
    assert out.count("points") == 2


def test_the_page_of_a_node_that_is_lent_says_when_it_goes(capsys):
    w = World(node("a", 0), node("b", 0))
    w.emit(NodeLeaveNoted("a", 1_795_700_000_000, 60_000))
    for name in ("a", "b"):
        print_node(view(w, name))
    out = capsys.readouterr().out
    assert out.count("goes") == 1
    assert "goes     2026-11-26T13:33:20Z: by then its jobs have to have left" in out


def test_the_page_of_a_cycle_names_strategy_front_and_choice(capsys):
    names = ("fragmentation", "worst_fit")
    w = World(node("a", 4), node("b", 2), candidates=names)
    w.submit(2)
    print_cycle(cycle_view(PlanChooser().plan(w.snapshot(), w.now), names), w.now + 5_000)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("last cycle 5.0s ago")
    assert lines[2].split(None, 1) == ["decided", "1 start, 0 preemptions"]
    assert [line.split()[0] for line in lines if "chosen" in line] != []
    assert any(line.startswith("weights: utilisation 30 %") for line in lines)


def test_a_cycle_without_a_choice_says_so(capsys):
    w = World(node("a", 1))
    w.run(w.submit(1))
    w.submit(1)
    print_cycle(cycle_view(w.plan(), ()), w.now)
    out = capsys.readouterr().out
    assert "one plan only" in out
    assert "1 kind of jobs: found no room" in out


def test_each_reason_to_wait_has_words():
    assert set(WAIT_TEXT) == set(get_args(WaitCode))


def test_a_device_of_another_tenants_job_is_marked_as_held(capsys):
    w = world()
    where = w.where(1)
    shown = view(w, where)
    other = [replace(device, job=None) for device in shown.devices]
    hidden = replace(shown, devices=other)
    assert (_node_row(hidden)[7], "x" in _node_row(hidden)[7].split()[0]) == (_node_row(shown)[7], True)
    print_node(hidden)
    assert "held by another tenant's job" in capsys.readouterr().out
