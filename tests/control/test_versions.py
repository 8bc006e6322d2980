"""Of two who decide on the same version of a job or node in one moment, the second is refused: in the commit itself."""

import pytest

from penstock.control import messages as msg
from penstock.core.lifecycle.versions import OVER, job_version, node_version
from penstock.core.messages.requests import Refusal
from penstock.core.model.actions import JobChange
from penstock.core.model.ids import NodeName, UserName
from penstock.core.model.jobs import CheckpointSpec
from tests.control.rig import Rig

ANN, BOB = UserName("ann"), UserName("bob")


def test_of_two_who_cancel_or_edit_a_job_in_one_group_the_second_is_refused():
    rig = Rig("a")
    job_id = rig.submit()
    seen = (job_version(rig.state.jobs[job_id]),)
    edit = msg.ChangeJobs("edit", (job_id,), ANN, JobChange(priority=700), versions=seen)
    first, second, third = rig.handle(edit, edit, msg.Cancel(job_id, BOB, versions=seen)).replies
    assert first.changed == (job_id,)
    assert [reply.code for reply in (second, third)] == ["precondition_failed"] * 2
    assert rig.state.jobs[job_id].spec.priority == 700
    assert rig.state.jobs[job_id].edited_seq == rig.state.seq, "nothing else was written"


def test_any_version_does_where_none_is_named_and_one_of_several_where_some_are():
    rig = Rig("a")
    job_id = rig.submit()
    rig.ask(msg.ChangeJobs("edit", (job_id,), ANN, JobChange(priority=700)))
    seen = job_version(rig.state.jobs[job_id])
    assert rig.ask(msg.Cancel(job_id, BOB, versions=("other", seen))) == msg.Done()
    assert rig.ask(msg.Cancel(job_id, BOB, versions=(OVER,))) == msg.Done(found=False)
    assert isinstance(rig.ask(msg.Cancel(job_id, BOB, versions=(seen,))), Refusal)


def test_of_two_who_close_a_node_in_one_group_the_second_is_refused():
    rig = Rig("a")
    seen = (node_version(rig.state.nodes[NodeName("a")]),)
    drains = [
        msg.Drain(NodeName("a"), True, by, reason, versions=seen) for by, reason in ((ANN, "fans"), (BOB, "dust"))
    ]
    first, second = rig.handle(*drains).replies
    assert (first, second.code) == (msg.Done(), "precondition_failed")
    assert rig.state.nodes[NodeName("a")].drain_reason == "fans"
    assert rig.ask(msg.Drain(NodeName("b"), True, ANN, versions=seen)) == msg.Done(found=False)


@pytest.mark.parametrize("named", [(), ("other",)])
def test_a_save_that_is_refused_is_not_ordered(named):
    rig = Rig("a")
    saving = rig.running(checkpoint=CheckpointSpec(request_signal="SIGUSR1"))
    assert bool(rig.handle(msg.AskCheckpoint(saving, named)).orders) is not bool(named)


def test_an_action_on_no_job_has_no_version():
    assert Rig("a").ask(msg.ChangeJobs("hold", (), ANN, versions=("x",))).changed == ()
