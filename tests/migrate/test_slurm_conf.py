"""slurm.conf line by line: its grammar, nodes, partitions and settings."""

import pytest

from penstock.core.model.resources import Resources
from penstock.migrate.errors import ImportFault
from tests.migrate.helpers import note, outcomes, queue, slurm_of, write

NODES = "NodeName=a[1-2] CPUs=4 RealMemory=1000\nNodeName=b1 CPUs=8 Gres=gpu:2\n"


def test_keys_have_any_case_and_values_quotes(tmp_path):
    found = slurm_of(tmp_path, 'nodename = n1 cpus=2   REALMEMORY=10 Reason="a b=c"\nkillwait=5 mailprog="/x y"\n')
    assert found.nodes[0].capacity == Resources(2000, 10 * 2**20)
    assert outcomes(found, "Reason") == [(1, "a b=c", "not mapped")]
    assert found.config.settings.grace_default_ms == 5000
    assert outcomes(found, "MailProg") == [(2, "/x y", "not mapped")]


def test_comments_end_lines_and_backslashes_join_them(tmp_path):
    text = "# NodeName=x\nNodeName=n[1-2] \\\n  CPUs=3 \\ \t\r\n  RealMemory=7 # CPUs=9\n"
    found = slurm_of(tmp_path, text)
    assert [n.capacity for n in found.nodes] == [Resources(3000, 7 * 2**20)] * 2
    assert outcomes(found, "CPUs") == [(2, "3", "mapped")]


def test_the_last_value_of_a_key_counts_and_the_first_is_reported(tmp_path):
    found = slurm_of(tmp_path, "KillWait=5\nKillWait=7\n")
    assert found.config.settings.grace_default_ms == 7000
    assert outcomes(found, "KillWait") == [(1, "5", "not mapped"), (2, "7", "mapped")]


def test_included_files_are_read_where_they_stand_and_named_in_the_report(tmp_path):
    write(tmp_path, "more.conf", "NodeName=n1 CPUs=2\n")
    found = slurm_of(tmp_path, "INCLUDE more.conf\nNodeName=n2\n")
    assert [n.name for n in found.nodes] == ["n1", "n2"]
    assert [e.file for e in found.report if e.key == "CPUs"] == [str(tmp_path / "more.conf")]


def test_an_include_of_itself_ends(tmp_path):
    with pytest.raises(ImportFault, match="at most 8 levels"):
        slurm_of(tmp_path, "Include slurm.txt\n")
    with pytest.raises(ImportFault, match="line 1, Include") as caught:
        slurm_of(tmp_path, "Include gone.conf\n")
    assert caught.value.hint == "check the path"


def test_includes_go_eight_levels_deep(tmp_path):
    for level in range(1, 9):
        write(tmp_path, f"i{level}", f"Include i{level + 1}\n")
    write(tmp_path, "i9", "NodeName=n1\n")
    with pytest.raises(ImportFault, match="at most 8 levels"):
        slurm_of(tmp_path, "Include i1\n")
    assert len(slurm_of(tmp_path, "Include i2\n").nodes) == 1


def test_defaults_hold_from_their_line_on_and_add_up(tmp_path):
    text = "NodeName=DEFAULT CPUs=2\nNodeName=n1\nNodeName=DEFAULT RealMemory=5\nNodeName=n2 CPUs=3\nNodeName=n3\n"
    found = slurm_of(tmp_path, text)
    assert [n.capacity for n in found.nodes] == [
        Resources(2000, 2**20), Resources(3000, 5 * 2**20), Resources(2000, 5 * 2**20),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "cpu_milli"),
    [
        ("Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", 32_000),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=4", 16_000),
        ("CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 CoreSpecCount=1", 15_000),
        ("CPUs=32 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 CoreSpecCount=1", 30_000),
        ("Procs=8 CPUSpecList=0,2-3", 5_000),
        ("", 1_000),
    ],
)
def test_cpus_are_counted_as_slurm_does(tmp_path, line, cpu_milli):
    assert slurm_of(tmp_path, f"NodeName=n {line}\n").nodes[0].capacity.cpu_milli == cpu_milli


@pytest.mark.parametrize(
    ("text", "line", "field", "said", "hint"),
    [
        ("KillWait=5\nNodesName=a\n", 2, "NodesName", "a key that Slurm knows here", "did you mean 'NodeName'?"),
        ("NodeName=a CPU=4\n", 1, "CPU", "a key that Slurm knows here", "did you mean 'CPUs'?"),
        ("NodeName=a CPUs=four\n", 1, "CPUs", "a whole number from 0 to 100000", ""),
        ("NodeName=a\nNodeName=b,a\n", 2, "NodeName", "each node once; it is also at", ""),
        ("NodeName=n[0-999999999]\n", 1, "NodeName", "a host list of at most 10000 names", ""),
        ("NodeName=n[3-1]\n", 1, "NodeName", "a range that goes up, such as 1-3", ""),
        ("NodeName=a Gres=gpu(2\n", 1, "Gres", "resources such as gpu:a100:8", ""),
        ("just words\n", 1, "", "pairs such as Key=Value", ""),
        ('NodeName=a Reason="open\n', 1, "", "pairs such as Key=Value", ""),
        ("PartitionName=p\nPartitionName=p\n", 2, "PartitionName", "each partition once", ""),
        ("PartitionName=p MaxTime=soon\n", 1, "MaxTime", "a time such as", ""),
        ("NodeSet=s\n", 1, "NodeSet", "Feature or Nodes", ""),
        ("KillWait=-1\n", 1, "KillWait", "a whole number from 0 to 65535", ""),
        ("PriorityType=priority/multifactor\nPriorityMaxAge=x\n", 2, "PriorityMaxAge", "a time such as", ""),
        ("SchedulerParameters=bf_max_job_test=x\n", 1, "SchedulerParameters bf_max_job_test", "a whole number", ""),
        ("NodeName=a[1-3] NodeAddr=b[1-2]\n", 1, "NodeAddr", "one address, or one for each of 3 nodes", ""),
    ],
)
def test_slips_are_refused_with_place_and_nearest_word(tmp_path, text, line, field, said, hint):
    with pytest.raises(ImportFault, match=said) as caught:
        slurm_of(tmp_path, text)
    assert (caught.value.line, caught.value.field, caught.value.hint) == (line, field, hint)


def test_all_slips_of_a_file_are_listed_at_once(tmp_path):
    with pytest.raises(ImportFault) as caught:
        slurm_of(tmp_path, "Foo=1\nKillWait=5\nBar=2\nword\n")
    assert [p.field.split(":")[-2:] for p in caught.value.problems] == [
        ["1", " Foo"], ["3", " Bar"], [str(tmp_path / "slurm.txt"), "4"],
    ]  # fmt: skip


def test_partitions_apart_are_pools_and_the_default_one_is_called_default(tmp_path):
    text = NODES + "PartitionName=cpu Nodes=a[1-2] LLN=YES\nPartitionName=gpu Nodes=b1 Default=YES\nNodeName=c1\n"
    found = slurm_of(tmp_path, text)
    assert [(p.name, p.kind, p.placement) for p in found.config.pools] == [
        ("cpu", "cpu", "worst_fit"), ("default", "gpu", "best_fit"), ("no-partition", "mixed", "fragmentation"),
    ]  # fmt: skip
    assert [(n.name, n.pool) for n in found.nodes] == [
        ("a1", "cpu"), ("a2", "cpu"), ("b1", "default"), ("c1", "no-partition"),
    ]  # fmt: skip
    assert note(found, "PartitionName") == "pool 'cpu'"


def test_partitions_name_node_sets_and_what_they_miss_is_said(tmp_path):
    text = (
        "NodeName=a[1-2] Features=big,fast\nNodeName=b1\nNodeSet=bigs Feature=big\nPartitionName=p Nodes=bigs,x[1-2]\n"
    )
    found = slurm_of(tmp_path, text)
    assert [n.pool for n in found.nodes] == ["default", "default", "no-partition"]
    assert (4, "bigs,x[1-2]", "approximated") in outcomes(found, "Nodes")


def test_whole_nodes_for_each_job_are_not_mapped(tmp_path):
    found = slurm_of(tmp_path, "PartitionName=p OverSubscribe=EXCLUSIVE\nPartitionName=q OverSubscribe=NO\n")
    assert outcomes(found, "OverSubscribe") == [(1, "EXCLUSIVE", "not mapped"), (2, "NO", "approximated")]


def test_without_accounts_each_partition_is_a_queue(tmp_path):
    found = slurm_of(tmp_path, NODES + "PartitionName=one Nodes=a1\nPartitionName=two Nodes=b1\n")
    assert [(q.name, q.policy, q.preemption) for q in found.config.queues] == [
        ("one", "fifo", "never"), ("two", "fifo", "never"),
    ]  # fmt: skip
    assert found.config.tenants[0].name == "default"


@pytest.mark.parametrize(
    ("text", "leaf", "root"),
    [
        ("PriorityType=priority/basic\nPriorityWeightAge=5\n", "fifo", "fifo"),
        ("PriorityType=priority/multifactor\n", "priority", "priority"),
        ("PriorityWeightFairshare=5\n", "priority", "fair_share"),  # the default type differs by version
        ("", "fifo", "fifo"),
    ],
)
def test_the_type_of_priority_gives_the_policies(tmp_path, text, leaf, root):
    found = slurm_of(tmp_path, text + "PartitionName=p\n")
    assert (queue(found, "p").policy, found.config.root_policy) == (leaf, root)


@pytest.mark.parametrize(
    ("text", "backfill", "depth"),
    [
        ("", "conservative", 500),
        ("SchedulerType=sched/builtin\n", "strict", 500),
        ("SchedulerParameters=bf_job_part_count_reserve=1,bf_max_job_test=50\n", "easy", 50),
    ],
)
def test_backfill_is_that_of_the_scheduler_type(tmp_path, text, backfill, depth):
    found = slurm_of(tmp_path, text + "PartitionName=p\n")
    assert (found.config.pools[0].backfill, found.config.settings.backfill_depth_max) == (backfill, depth)


def test_preemption_follows_its_type_and_placement_the_select_parameters(tmp_path):
    text = "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\nSelectTypeParameters=CR_Core,CR_LLN\n"
    found = slurm_of(tmp_path, text + "PartitionName=p\n")
    assert queue(found, "p").preemption == "lower_priority"
    assert outcomes(found, "PreemptMode") == [(2, "SUSPEND,GANG", "approximated")]
    assert found.config.pools[0].placement == "worst_fit"
    assert outcomes(found, "SelectTypeParameters") == [(3, "CR_Core,CR_LLN", "approximated")]


def test_past_use_without_half_life_is_said_to_differ(tmp_path):
    text = "PriorityType=priority/multifactor\nPriorityDecayHalfLife=0\n"
    found = slurm_of(tmp_path, text)
    assert found.config.settings.fair_share_half_life_ms == 0
    assert outcomes(found, "PriorityDecayHalfLife") == [(2, "0", "approximated")]
    default = slurm_of(tmp_path, "PriorityType=priority/multifactor\n")
    assert default.config.settings.fair_share_half_life_ms == 7 * 86_400_000
    assert outcomes(default, "PriorityDecayHalfLife") == [(0, "7-0 (default)", "mapped")]


def test_no_file_at_all_is_refused(tmp_path):
    with pytest.raises(ImportFault, match="at least one file"):
        slurm_of(tmp_path)
