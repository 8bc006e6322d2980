"""Nodes that fail again and again: closed, checked, opened again."""

import pytest

from penstock.core.lifecycle.health import CHECK_FIRST_MS, check_due_ms
from penstock.core.lifecycle.orders import check_orders
from penstock.core.messages.orders import CheckNode
from penstock.core.messages.reports import SHUT_DOWN, NodeCheck
from penstock.core.model.jobs import ExitInfo
from penstock.core.model.node_faults import Fault, fault_of
from penstock.testing.builders import node
from penstock.testing.harness import cluster


def fails(w, times=1, name="n0", **exit_fields):
    """Let jobs that start on the node meet an error of it."""
    told = {"problem": f"could not be started on {name}: disk"} | exit_fields
    for _ in range(times):
        info = dict(told)
        job = w.submit(retries_max=9)
        w.cycle()
        w.exit_replica(job, 0, info.pop("code", None), **info)
        w.now += 11_000
        w.cancel(job)


def check(w, *, passed, name="n0"):
    w.report(name, inventory=False, check=NodeCheck(passed, "disk: no space"))


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (ExitInfo(problem="could not be started"), Fault("could not be started", own=True)),
        (
            ExitInfo(1, note="RuntimeError: CUDA error: uncorrectable ECC error"),
            Fault("RuntimeError: CUDA error: uncorrectable ECC error", own=False),
        ),
        (ExitInfo(1, note="NVRM: Xid 79", observed=True), Fault("NVRM: Xid 79", own=True)),
        (ExitInfo(1, note="ValueError: bad row"), None),
        (ExitInfo(1, last_error="ValueError: bad row"), None),
        (ExitInfo(1, last_error="NVRM: Xid 79", note="out of memory", observed=True), Fault("NVRM: Xid 79", own=False)),
        (ExitInfo(1, note="out of memory", observed=True), None),
        (ExitInfo(1), None),
        (ExitInfo(problem="could not be started on n0: [Errno 7] Argument list too long"), None),
        (ExitInfo(problem="could not be started on n0: [Errno 17] File exists: 'checkpoints'"), None),
        (ExitInfo(problem="rendezvous port 20001 of n0 is in use"), None),
        (ExitInfo(signal=9), None),
        (ExitInfo(problem=SHUT_DOWN), None),
        (ExitInfo(problem="lost", stop_sent=True), None),
    ],
    ids=str,
)
def test_only_what_speaks_against_the_node_counts(info, expected):
    assert fault_of(info) == expected


def test_the_third_failure_closes_the_node():
    w = cluster(1, 1)
    fails(w, 2)
    assert not w.state.nodes["n0"].draining
    fails(w)
    found = w.state.nodes["n0"]
    assert (found.draining, found.closed_by) == (True, "penstock")
    assert found.drain_reason == "3 failures within 22s, the last: could not be started on n0: disk"


def test_failures_far_apart_do_not_add_up():
    w = cluster(1, 1)
    for _ in range(5):
        fails(w)
        w.now += 1_900_000
    assert not w.state.nodes["n0"].draining


def test_programs_that_fail_by_themselves_close_nothing():
    w = cluster(1, 1)
    fails(w, 9, problem="", code=None, signal=11)
    assert w.state.nodes["n0"].strikes == ()


def test_it_can_be_switched_off():
    w = cluster(1, 1, node_strikes_max=0)
    fails(w, 9)
    assert not w.state.nodes["n0"].draining


def test_a_closed_node_is_checked_and_opens_when_it_passes():
    w = cluster(1, 1, node_check="./fit")
    fails(w, 3)
    assert check_orders(w.state, w.now) == [("n0", CheckNode("./fit"))]
    check(w, passed=True)
    found = w.state.nodes["n0"]
    assert (found.draining, found.strikes, found.closures) == (False, (), 1)
    assert check_orders(w.state, w.now) == []


def test_each_time_it_waits_longer_for_its_check():
    w = cluster(1, 1)
    waits = []
    for _ in range(4):
        fails(w, 3)
        found = w.state.nodes["n0"]
        waits.append(check_due_ms(found) - found.closed_ms)
        w.now += waits[-1]
        check(w, passed=True)
    assert waits == [0, CHECK_FIRST_MS, 2 * CHECK_FIRST_MS, 4 * CHECK_FIRST_MS]


def test_a_failed_check_keeps_it_closed_and_says_why():
    w = cluster(1, 1)
    fails(w, 3)
    check(w, passed=False)
    found = w.state.nodes["n0"]
    assert (found.draining, found.drain_reason) == (True, "it failed its check: disk: no space")
    assert check_due_ms(found) == found.closed_ms + CHECK_FIRST_MS


def test_what_a_person_closed_no_check_opens():
    w = cluster(1, 1)
    w.drain("n0")
    check(w, passed=True)
    assert w.state.nodes["n0"].draining
    assert check_orders(w.state, w.now) == []


def test_one_job_alone_closes_no_node():
    w = cluster(1, 1)
    job = w.submit(retries_max=99)
    for _ in range(6):
        w.now += 700_000
        w.run(job)
        w.exit_replica(job, 0, 1, note="OSError: [Errno 5] Input/output error")
    w.now += 700_000
    assert not w.state.nodes["n0"].draining


def test_what_happens_at_once_counts_once():
    w = cluster(1, 4)
    jobs = [w.submit(1) for _ in range(4)]
    w.run(*jobs)
    for job in jobs:
        w.exit_replica(job, 0, None, problem="could not be started on n0: disk")
    assert len(w.state.nodes["n0"].strikes) == 1


def test_no_more_than_every_second_node_is_closed():
    w = cluster(4, 1)
    for name in ("n0", "n1", "n2", "n3"):
        for _ in range(4):
            w.lose(name)
            w.hello(node(name), f"again-{w.now}")
            w.now += 20_000
    assert [w.state.nodes[f"n{i}"].draining for i in range(4)] == [True, True, False, False]


def test_a_person_who_opens_a_node_forgives_it():
    w = cluster(1, 1)
    for _ in range(2):
        fails(w, 3)
        w.drain("n0", on=False)
    assert w.state.nodes["n0"].closures == 0


# Full disks.

FULL = "its disk is full: 0 B are free"


def test_a_node_with_a_full_disk_gets_no_work_until_it_has_room():
    w = cluster(1, 1)
    w.report("n0", inventory=False, disk_problem=FULL)
    job = w.submit()
    w.cycle()
    w.report("n0", inventory=False)  # says nothing of its disk
    found = w.state.nodes["n0"]
    assert (found.draining, found.closed_by, found.drain_reason) == (True, "its agent", FULL)
    assert w.state.jobs[job].state == "waiting"
    w.report("n0")
    w.cycle()
    assert not w.state.nodes["n0"].draining
    assert w.state.jobs[job].attempt is not None


def test_full_disks_close_every_node_of_a_pool():
    w = cluster(2, 1)
    for name in ("n0", "n1"):
        w.report(name, disk_problem=FULL)
    assert [node.draining for node in w.state.nodes.values()] == [True, True]


def test_a_full_disk_opens_no_node_that_a_user_has_closed():
    w = cluster(1, 1)
    w.drain("n0")
    closed_by = w.state.nodes["n0"].closed_by
    for problem in (FULL, ""):
        w.report("n0", disk_problem=problem)
    assert (w.state.nodes["n0"].draining, w.state.nodes["n0"].closed_by) == (True, closed_by)


def test_failures_count_also_when_the_disk_was_full_between():
    w = cluster(1, 1)
    fails(w, 2)
    for problem in (FULL, ""):
        w.report("n0", disk_problem=problem)
    assert len(w.state.nodes["n0"].strikes) == 2
