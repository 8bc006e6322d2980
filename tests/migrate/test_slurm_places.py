"""topology.conf and the accounts of sacctmgr: what a test writes out, and what is refused."""

import pytest

from penstock.migrate.errors import ImportFault
from tests.migrate.helpers import note, outcomes, queue, slurm_of

NODES = "NodeName=n[1-4]\n"


def places(found):
    return [(n.switch, n.rack) for n in found.nodes]


def test_switches_above_leaves_are_racks(tmp_path):
    topology = "SwitchName=top Switches=s[1-2]\nSwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3,x9\n"
    found = slurm_of(tmp_path, NODES, topology=topology)
    assert places(found) == [("s1", "top"), ("s1", "top"), ("s2", "top"), ("", "")]
    assert note(found, "Switches") == "rack 'top' of what hangs below"
    assert (3, "n3,x9", "approximated") in outcomes(found, "Nodes")


def test_a_third_level_is_not_mapped(tmp_path):
    topology = "SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=b\n"
    found = slurm_of(tmp_path, NODES, topology=topology)
    assert places(found)[0] == ("a", "b")
    assert outcomes(found, "SwitchName")[-1] == (3, "c", "not mapped")


def test_a_node_on_two_switches_stays_on_the_first(tmp_path):
    found = slurm_of(tmp_path, NODES, topology="SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n")
    assert places(found)[:2] == [("a", ""), ("b", "")]
    assert outcomes(found, "Nodes")[-1] == (2, "n[1-2]", "approximated")


def test_blocks_count_as_racks(tmp_path):
    found = slurm_of(tmp_path, NODES, topology="BlockName=b1 Nodes=n[1-2]\nBlockSizes=2,4\n")
    assert places(found) == [("", "b1"), ("", "b1"), ("", ""), ("", "")]
    assert outcomes(found, "BlockName") == [(1, "b1", "approximated")]
    assert outcomes(found, "BlockSizes") == [(2, "2,4", "not mapped")]


@pytest.mark.parametrize(
    ("topology", "said"),
    [("SwitchName=a\n", "Nodes or Switches"), ("BlockName=a\n", "Nodes in its line"), ("SwitchNam=a\n", "a key that")],
)
def test_malformed_topology_is_refused(tmp_path, topology, said):
    with pytest.raises(ImportFault, match=said):
        slurm_of(tmp_path, NODES, topology=topology)


def test_accounts_hang_where_the_last_parent_line_says(tmp_path):
    dump = "Cluster - 'c'\nAccount - b:Parent='a'\nAccount - a:Fairshare=0\nParent - 'a'\nAccount - 'd':GrpJobs=-1\n"
    found = slurm_of(tmp_path, dump=dump)
    assert [(q.name, q.parent) for q in found.config.queues] == [("a", "root"), ("b", "a"), ("d", "a")]
    assert queue(found, "d").max == ()
    assert note(found, "weight").startswith("the least")


def test_no_more_jobs_run_than_may_be_submitted(tmp_path):
    dump = "Cluster - 'c'\nAccount - 'shut':GrpSubmitJobs=0\nAccount - 'b':GrpJobs=9:GrpSubmitJobs=5\n"
    found = slurm_of(tmp_path, dump=dump)
    assert [(queue(found, name).max, queue(found, name).max_waiting) for name in ("shut", "b")] == [
        ((("jobs", 0),), 1), ((("jobs", 5),), 5),
    ]  # fmt: skip


def test_limits_of_devices_are_of_the_model_as_nodes_spell_it(tmp_path):
    dump = "Cluster - 'c'\nAccount - 'a':GrpTRES=gres/gpu:a100=8,gres/gpu:t4=1\n"
    found = slurm_of(tmp_path, "NodeName=n1 Gres=gpu:A100:4\n", dump=dump)
    assert queue(found, "a").max == (("devices:A100", 8_000), ("devices:t4", 1_000))


def test_an_option_that_only_dumps_spell_so_is_known(tmp_path):
    found = slurm_of(tmp_path, dump="Cluster - 'c'\nAccount - 'a':MinPrioThresh=30\n")
    assert outcomes(found, "MinPrioThresh") == [(2, "30", "not mapped")]


def test_priorities_are_made_smaller_until_a_job_may_say_them(tmp_path):
    conf = "PriorityType=priority/multifactor\nPriorityWeightQOS=500000\nPriorityWeightAge=100000\n"
    found = slurm_of(tmp_path, conf, qos="Name|Priority\nhigh|1000\nlow|100\n")
    assert [note(found, f"QOS {name} Priority").partition(":")[2][:7] for name in ("high", "low")] == [
        " 10000`", " 1000`:",
    ]  # fmt: skip
    assert found.config.settings.wait_bonus_max == 2_000
    assert outcomes(found, "PriorityWeightAge") == [(3, "100000", "approximated")]


def test_old_limits_of_cpus_and_memory_are_maxima(tmp_path):
    found = slurm_of(tmp_path, dump="Cluster - 'c'\nAccount - 'a':GrpCPUs=10:GrpMemory=2048\n")
    assert queue(found, "a").max == (("cpus", 10_000), ("memory", 2 * 2**30))


@pytest.mark.parametrize(
    ("line", "field", "said", "hint"),
    [
        ("Acount - 'a'", "", "Cluster, Parent, Account or User", "did you mean 'Account'?"),
        ("Account - 'a':Fairshair=3", "Fairshair", "an option of sacctmgr", "did you mean 'Fairshare'?"),
        ("Account - 'a':Fairshare=lots", "Fairshare", "a whole number up to 2147483647, or parent", ""),
        ("Account - 'a':GrpTRES=cpu", "GrpTRES", "resources such as cpu=100", ""),
        ("Account - 'a':GrpTRES=cpu=x", "GrpTRES", "a whole number, for mem with a unit", ""),
        ("Account - 'a':GrpJobs=x", "GrpJobs", "a whole number up to", ""),
        ("Account - 'a':Parent='zz'", "parent", "the name of a queue", ""),
        ("Account - 'a':Parent='a'", "parent", "this queue is above itself", ""),
        ("Account - 'a'\nAccount - 'a'", "name", "each queue once", ""),
        ("Account - ''", "Account", "a name", ""),
        ("Account - 'a'x:Fairshare=1", "", "a colon before the next option", ""),
        ("Cluster - 'd'", "Cluster", "one cluster; 'c' is before it", "import each separately"),
    ],
)
def test_malformed_dumps_are_refused(tmp_path, line, field, said, hint):
    with pytest.raises(ImportFault, match=said) as caught:
        slurm_of(tmp_path, dump=f"Cluster - 'c'\n{line}\n")
    assert (caught.value.field, caught.value.hint if hint else "") == (field, hint)
    assert caught.value.line in (2, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a readable|a heading with the column Name"),
        ("Nam|Priority\n", "a heading with the column Name"),
        ("Name|Priority\nhigh\n", "2 columns as in the heading; found 1"),
        ("Name|Priority\nhigh|much\n", "a whole number"),
        ("Name||Priority\nhigh|x|1\n", "a name for each column that has values"),
        ("Name|||Priority\nhigh|x||1\n", "a name for each column that has values"),
    ],
)
def test_malformed_listings_are_refused(tmp_path, text, said):
    with pytest.raises(ImportFault, match=said):
        slurm_of(tmp_path, qos=text or "\n")


def test_lines_of_a_listing_may_end_in_a_separator(tmp_path):
    entries = slurm_of(tmp_path, qos="Name|Priority|\nhigh|1|\n").report
    assert [entry.key for entry in entries if entry.file.endswith("qos.txt")] == ["QOS high Priority"]


def test_a_line_that_names_its_partition_twice_says_that_the_first_counts(tmp_path):
    found = slurm_of(tmp_path, "NodeName=n1\nPartitionName=a Nodes=n1 PartitionName=b\n")
    assert (2, "b", "not mapped") in outcomes(found, "PartitionName")
    assert [pool.description for pool in found.config.pools] == ["Slurm partition a"]
