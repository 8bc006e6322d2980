"""What becomes of allocations over time, as Slurm and the log tell it."""

from penstock.core.model.ids import NodeName
from penstock.engines.slurm.pilot.fleet import Fleet
from penstock.engines.slurm.pilot.lent import LentJob
from penstock.engines.slurm.pilot.server import PilotNode

NAME = NodeName("slurm-5-0")
READY, BUSY = PilotNode(True, False, 0, 0, False), PilotNode(True, False, 1, 0, False)


def job(stage="held", state="RUNNING", **more) -> LentJob:
    values = {
        "number": "5", "state": state, "stage": stage, "reason": "", "submit_s": 60, "start_s": 70, "end_s": 700,
        "nodes": 1, "hosts": ("n1",), "tag": "",
    }  # fmt: skip
    return LentJob(**{**values, **more})


def seen(*answers: LentJob | None, declared=(), at=100.0) -> Fleet:
    """Return the fleet after these answers, one second apart; None: an answer without the job."""
    fleet = Fleet()
    for second, answer in enumerate(answers):
        fleet.see({answer.key: answer} if answer is not None else {}, declared, at + second)
    return fleet


def test_one_answer_without_an_allocation_means_nothing():
    assert [one.phase for one in seen(job(), None).count({}, 102)] == ["held"]
    assert [one.phase for one in seen(job(), None, job(), None).count({}, 104)] == ["held"]
    gone = seen(job(), None, None)
    assert gone.count({}, 103) == []
    assert gone.gone(frozenset(), 999) == []  # that no process of it lives is not proven: its lease decides


def test_a_node_is_gone_when_slurm_has_ended_it_and_its_agent_is_silent():
    fleet = seen(job(), job("ended", "CANCELLED"))
    assert fleet.gone(frozenset([NAME]), 110) == []
    assert fleet.gone(frozenset(), 111) == []
    assert fleet.gone(frozenset([NAME]), 112) == []
    assert fleet.gone(frozenset(), 113) == []
    assert fleet.gone(frozenset(), 113.9) == []
    assert [one.job.number for one in fleet.gone(frozenset(), 114)] == ["5"]
    assert seen(job(), job("leaving", "COMPLETING")).gone(frozenset(), 999) == []
    failed = seen(job(), job("ended", "NODE_FAIL"))
    assert (failed.gone(frozenset(), 110), failed.gone(frozenset(), 999)) == ([], [])


def test_an_ask_that_was_cancelled_is_gone_at_once():
    assert len(seen(job("asked", "PENDING", hosts=()), job("ended", "CANCELLED", hosts=())).gone(frozenset(), 101)) == 1


def test_an_allocation_that_was_over_before_matters_only_where_the_server_knows_its_nodes():
    over = job("ended", "COMPLETED")
    assert seen(over).lent == {}
    assert len(seen(over, declared=[NAME]).lent) == 1


def test_a_number_that_comes_back_is_another_allocation():
    fleet = seen(job(), job("asked", "PENDING", submit_s=900))
    assert [one.phase for one in fleet.count({}, 102)] == ["held", "asked"]


def test_idle_is_since_the_last_job_and_only_where_a_node_is_here():
    fleet = seen(job())
    assert fleet.count({}, 100)[0].idle_since_s == 0
    assert fleet.count({NAME: READY}, 101)[0].idle_since_s == 101
    assert fleet.count({NAME: READY}, 105)[0].idle_since_s == 101
    assert fleet.count({NAME: BUSY}, 106)[0].idle_since_s == 0
    assert fleet.count({NAME: READY}, 107)[0].idle_since_s == 107


def test_lost_nodes_are_told_from_those_that_are_on_their_way():
    fleet = seen(job(nodes=2))
    lost, joins = PilotNode(False, True, 0, 0, False), PilotNode(False, False, 0, 0, False)
    assert [(one.joined, one.lost) for one in fleet.count({NAME: lost}, 101)] == [(0, 1)]
    assert [(one.joined, one.lost) for one in fleet.count({NAME: READY}, 102)] == [(1, 0)]
    assert [(one.joined, one.lost) for one in fleet.count({NAME: joins}, 103)] == [(0, 0)]


def test_an_allocation_whose_nodes_never_came_is_a_failed_ask():
    failed = seen(job(), job("ended", "FAILED"))
    assert [came for _, came in failed.judge(())] == [False]
    assert failed.judge(()) == []
    fine = seen(job())
    assert fine.judge(()) == []
    assert [came for _, came in fine.judge({NAME})] == [True]
    given_back = seen(job())
    given_back.by_number(["5"])[0].returned = True
    given_back.see({job().key: job("ended", "CANCELLED")}, (), 200)
    assert given_back.judge(()) == []
