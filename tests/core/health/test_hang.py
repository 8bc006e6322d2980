"""Who is named when a training makes no step: from what ranks of real hangs looked like."""

import pytest

from penstock.core.health.diagnose import diagnose, stalled
from penstock.core.health.stacks import activity
from penstock.core.model.hangs import Frame, Sight

SITE = "/venv/lib/python3.11/site-packages/"
MAIN = Frame("main", "/home/ann/train.py", 40)
BACKWARD = (
    Frame("_engine_run_backward", SITE + "torch/autograd/graph.py", 1),
    Frame("backward", SITE + "torch/_tensor.py", 1),
    MAIN,
)
ALL_REDUCE = (
    Frame("all_reduce", SITE + "torch/distributed/distributed_c10d.py", 1),
    Frame("wrapper", SITE + "torch/distributed/c10d_logger.py", 1),
    MAIN,
)
BARRIER = (Frame("barrier", SITE + "torch/distributed/distributed_c10d.py", 1), Frame("end", "/home/ann/train.py", 90))
SLEEP = (Frame("fetch", "/home/ann/train.py", 12), MAIN)
LOADER = (
    Frame("select", "/usr/lib/python3.11/selectors.py", 1),
    Frame("_try_get_data", SITE + "torch/utils/data/dataloader.py", 1),
    MAIN,
)
GATHER = (
    Frame("all_gather_single", SITE + "torch/distributed/distributed_c10d.py", 1),
    Frame("foreach_all_gather", SITE + "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 1),
    MAIN,
)
HOOK = (Frame("hook", "/home/ann/hooks.py", 3), *BACKWARD)
SAVE = (Frame("_save", SITE + "torch/serialization.py", 1), MAIN)
SYNC = (
    Frame("_distributed_broadcast_coalesced", SITE + "torch/nn/parallel/distributed.py", 1),
    Frame("DistributedDataParallel._sync_buffers", SITE + "torch/nn/parallel/distributed.py", 1),
    MAIN,
)


def rank(number, stack=BACKWARD, state="S", cpu=0, **fields):
    return Sight(number, state, cpu_milli=cpu, stack=stack, **fields)


@pytest.mark.parametrize(
    ("sight", "expected"),
    [
        (rank(0, BACKWARD), "waits"),
        (rank(0, BACKWARD, "R", 880), "computes"),
        (rank(0, ALL_REDUCE), "waits"),
        (rank(0, ALL_REDUCE, "R", 900), "waits"),
        (rank(0, GATHER), "waits"),
        (rank(0, SYNC), "waits"),
        (rank(0, HOOK), "blocked"),
        (rank(0, LOADER), "data"),
        (rank(0, SLEEP), "blocked"),
        (rank(0, SLEEP, changed=True), "computes"),
        (rank(0, SLEEP, "R", 700), "computes"),
        (rank(0, SLEEP, native=("poll", "c10d::Work::wait(std::chrono)")), "waits"),
        (rank(0, SAVE), "saves"),
        (rank(0, BACKWARD, "T"), "stopped"),
        (rank(0, LOADER, child_stopped=True), "stopped"),
        (rank(0, (), "X"), "gone"),
        (rank(0, (), problem="py-spy: no"), "unknown"),
    ],
)
def test_a_stack_says_what_a_rank_does(sight, expected):
    assert activity(sight) == expected


def test_a_stopped_rank_is_named_though_its_stack_is_like_the_others():
    found = diagnose([rank(0), rank(1, BACKWARD, "T"), rank(2)])
    assert (found.hung, found.culprits, found.certain) == (True, (1,), True)
    assert found.text == "rank 1 is stopped, in main (ann/train.py:40)"


def test_one_that_is_debugged_is_named_but_may_go_on():
    assert not diagnose([rank(0), rank(1, BACKWARD, "t"), rank(2)]).certain


def test_the_rank_without_data_is_named():
    found = diagnose([rank(0), rank(1), rank(2, LOADER)])
    assert (found.hung, found.culprits) == (True, (2,))
    assert found.text == "rank 2 waits for its data, in main (ann/train.py:40); ranks 0, 1 wait in _engine_run_backward"


def test_the_rank_that_does_not_come_to_the_collective_is_named():
    found = diagnose([rank(0, SLEEP), rank(1, ALL_REDUCE), rank(2, ALL_REDUCE)])
    assert (found.hung, found.culprits, found.certain) == (True, (0,), False)
    assert "rank 0 is idle, in fetch (ann/train.py:12)" in found.text


def test_the_rank_that_has_ended_is_named():
    found = diagnose([rank(0, ALL_REDUCE), rank(1, (), "X"), rank(2, ALL_REDUCE)])
    assert (found.hung, found.culprits) == (True, (1,))


@pytest.mark.parametrize("busy", [rank(0, SAVE), rank(0, SLEEP, "R", 900), rank(0, SLEEP, changed=True)])
def test_others_that_wait_for_one_that_works_are_no_hang(busy):
    found = diagnose([busy, rank(1, BARRIER), rank(2, BARRIER)])
    assert (found.hung, found.culprits) == (False, (0,))


@pytest.mark.parametrize("stack", [SLEEP, SAVE, LOADER])
def test_when_no_rank_waits_for_another_nothing_hangs(stack):
    assert not diagnose([rank(i, stack) for i in range(3)]).hung


def test_the_only_one_in_another_collective_is_named():
    found = diagnose([rank(0, ALL_REDUCE), rank(1, ALL_REDUCE), rank(2, BARRIER)])
    assert (found.hung, found.culprits) == (True, (2,))
    assert "ranks 0, 1 in all_reduce, called from main" in found.text


def test_of_two_ranks_in_different_collectives_nobody_is_named():
    found = diagnose([rank(0, ALL_REDUCE), rank(1, BARRIER)])
    assert (found.hung, found.culprits) == (True, ())


def test_two_that_are_elsewhere_are_looked_at_more_closely():
    sights = [rank(0, SLEEP), rank(1, SLEEP), rank(2, ALL_REDUCE)]
    assert diagnose(sights).look_closer == (0, 1)
    closer = [rank(0, SLEEP, native=("c10d::Work::wait",)), rank(1, SLEEP, native=("nanosleep",)), sights[2]]
    assert diagnose(closer).culprits == (1,)


def test_a_single_rank_hangs_only_on_its_data():
    assert diagnose([rank(0, LOADER)]).culprits == (0,)
    assert not diagnose([rank(0, SLEEP)]).hung


KILLED = "out of memory: limit 1 GiB, killed by the kernel (1 process)"


def test_a_single_rank_that_idles_after_the_kernel_killed_its_processes_hangs_and_it_is_said_why():
    finding = diagnose([rank(0, SLEEP, killed=KILLED)])
    assert (finding.hung, finding.culprits, finding.certain) == (True, (0,), False)
    assert finding.text == f"rank 0 is idle, in fetch (ann/train.py:12), and has lost processes ({KILLED})"


@pytest.mark.parametrize("stack", [SAVE, (MAIN,)])
def test_a_rank_that_works_on_after_a_loss_hangs_not(stack):
    assert not diagnose([rank(0, stack, "R", 900, killed=KILLED)]).hung


def test_nobody_to_look_at_is_no_hang():
    assert not diagnose([]).hung


@pytest.mark.parametrize(("age", "step", "expected"), [(5_000, 500, False), (5_001, 500, True), (10**9, 0, False)])
def test_a_stall_is_twice_a_step_and_a_margin(age, step, expected):
    assert stalled(age, step) is expected
