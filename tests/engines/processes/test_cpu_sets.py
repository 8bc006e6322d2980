"""Which processors a replica gets for itself: by examples of machines, and whatever comes and goes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model.nodes import NodeSpec
from penstock.core.model.resources import Resources
from penstock.engines.processes.cgroup_files import listed, unlisted
from penstock.engines.processes.cpu_sets import CpuSets, Processor, Topology
from penstock.engines.processes.cpu_topology import cpu_sets_of, read_topology
from tests.properties import examples

FAR = {0: (10, 32, 21), 1: (32, 10, 32), 2: (21, 32, 10)}


def machine(nodes: int = 2, cores: int = 4, threads: int = 2) -> Topology:
    """Return a machine numbered as most are: first threads of all cores of all nodes, then their second ones."""
    every = nodes * cores
    found = [Processor(t * every + n * cores + c, n * cores + c, n) for t in range(threads) for n in range(nodes) for c in range(cores)]  # fmt: skip # noqa: E501
    return Topology(tuple(sorted(found, key=lambda one: one.number)), FAR if nodes == 3 else {})


def test_processors_next_to_the_devices_are_taken_first_as_whole_cores():
    sets = CpuSets(machine())
    assert sets.take("a", 4_000, near=[1]) == (4, 5, 12, 13)
    assert sets.take("b", 4_000, near=[0, 0]) == (0, 1, 8, 9)
    assert sets.shared == {2, 3, 6, 7, 10, 11, 14, 15}


def test_the_node_with_most_of_the_devices_comes_first_and_the_rest_follows():
    assert CpuSets(machine(cores=2)).take("a", 6_000, near=[0, 1, 1]) == (0, 2, 3, 4, 6, 7)


def test_what_does_not_fit_beside_the_devices_goes_to_the_node_that_is_nearest_to_them():
    assert CpuSets(machine(nodes=3, cores=2)).take("a", 6_000, near=[0]) == (0, 1, 4, 6, 7, 10)


def test_without_a_node_of_its_own_a_replica_stays_on_the_fullest_one_that_suffices():
    sets = CpuSets(machine())
    sets.take("a", 4_000, near=[1])
    assert sets.take("b", 2_000, near=[7]) == (6, 14)
    assert sets.take("c", 6_000, near=[]) == (0, 1, 2, 8, 9, 10)


def test_half_cores_are_taken_from_cores_that_are_shared_already():
    sets = CpuSets(machine(nodes=1))
    assert sets.take("a", 3_000, near=[0]) == (0, 1, 4)
    assert sets.take("b", 1_000, near=[0]) == (5,)
    assert sets.take("c", 1_000, near=[0]) == (2,)


def test_whole_cores_come_before_what_others_left_of_theirs():
    sets = CpuSets(machine(nodes=1))
    sets.keep("a", (4,))
    assert sets.take("b", 2_000, near=[0]) == (1, 5)


@pytest.mark.parametrize("cpu_milli", [0, 500, 1_500, 17_000])
def test_parts_of_processors_and_more_than_there_are_stay_shared(cpu_milli):
    sets = CpuSets(machine())
    assert (sets.take("a", cpu_milli, near=[0]), sets.held("a")) == ((), set())


def test_with_none_left_those_who_share_run_on_all():
    sets = CpuSets(machine(nodes=1, cores=1))
    assert sets.take("a", 2_000, near=[0]) == (0, 1)
    assert sets.shared == {0, 1}
    assert (sets.release("a"), sets.release("a")) == (True, False)


def test_what_replicas_of_a_former_worker_have_is_given_to_no_other():
    sets = CpuSets(machine(nodes=1, cores=2))
    sets.keep("a", (0, 2))
    sets.keep("b", ())
    assert (sets.take("c", 2_000, near=[0]), sets.held("b")) == ((1, 3), set())
    assert sets.take("d", 1_000, near=[0]) == ()


@examples(200)
@given(st.data())
def test_no_processor_is_ever_of_two_replicas_or_shared_beside_its_owner(data):
    threads = data.draw(st.integers(1, 2))
    topology = machine(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4)), threads)
    sets, alive = CpuSets(topology), {}
    siblings = {}
    for one in topology.processors:
        siblings.setdefault(one.core, set()).add(one.number)
    for turn in range(data.draw(st.integers(1, 15))):
        if alive and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(alive)))
            assert sets.release(gone) is bool(alive.pop(gone))
            continue
        count, near = data.draw(st.integers(0, 12)), data.draw(st.lists(st.integers(-1, 3), max_size=4))
        free = topology.numbers.difference(*alive.values())
        cpus = sets.take(f"r{turn}", count * 1_000, near)
        assert len(cpus) == (count if 0 < count <= len(free) else 0)
        assert free.issuperset(cpus)
        alive[f"r{turn}"] = set(cpus)
        split = [core for core in siblings.values() if core & set(cpus) and not core <= set(cpus)]
        if free == topology.numbers and threads == 2 and count % 2 == 0:
            assert split == []  # on an empty machine whole cores make up any even number
        left = free.difference(cpus)
        assert sets.shared == (left or topology.numbers)


def sysfs(root: Path) -> Path:
    """Return the folders of a machine with two nodes of two processors, on one core each."""
    for node, cpus, distance in ((0, "0,2", "10 21"), (1, "1,3", "21 10")):
        folder = root / f"node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
        (folder / "distance").write_text(f"{distance}\n")
    for cpu in range(4):
        folder = root / f"cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    return root


def test_the_topology_is_what_the_kernel_says_of_processors_that_may_be_used(tmp_path):
    expected = (Processor(1, 1, 1), Processor(2, 0, 0), Processor(3, 1, 1))
    assert read_topology({3, 1, 2}, sysfs(tmp_path)) == Topology(expected, {0: (10, 21), 1: (21, 10)})
    assert read_topology({5, 4}, tmp_path / "none") == Topology((Processor(4, 4, 0), Processor(5, 5, 0)))


def test_processors_of_a_machine_that_nodes_share_or_that_are_not_all_there_are_given_to_nobody():
    whole = NodeSpec("n1", Resources(cpu_milli=1_000))
    assert cpu_sets_of(whole) is not None
    assert cpu_sets_of(NodeSpec("n1", Resources(cpu_milli=1_000), virtual=True)) is None
    assert cpu_sets_of(NodeSpec("n1", Resources(cpu_milli=10_000_000))) is None


@given(st.sets(st.integers(0, 300)))
@examples(50)
def test_lists_of_processors_are_read_as_they_are_written(numbers):
    assert set(unlisted(listed(numbers))) == numbers
    assert listed([3, 1, 2, 8]) == "1-3,8"
