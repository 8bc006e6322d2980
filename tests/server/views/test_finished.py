"""What is shown of a job that has ended: as it was submitted, and nothing that is not known."""

from msgspec.structs import replace

from penstock.control.finished_jobs import finished_row
from penstock.core.model.events import CheckpointSaved, JobFinished, JobSubmitted
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.state.state import State
from penstock.server.views.jobs import finished_job, live_job
from penstock.testing.harness import cluster

GANG = GangAsk(2, ReplicaAsk(Resources(1000), DeviceAsk(1)), others=(GroupAsk(1, ReplicaAsk(Resources(1000))),))


def ended(**fields):
    """Return the stored row and the submit of a job that has saved at step 7 and ended."""
    w = cluster(1, 4)
    job = w.submit(**fields)
    w.run(job)
    w.emit(CheckpointSaved(job, 1, 7))
    for replica in w.attempt(job).replicas:
        w.exit_replica(job, replica.rank)
    state = State()
    for record in w.records:
        if isinstance(record.event, JobFinished):
            row = finished_row(state.jobs[job], record)
        state.apply(record)
    return row, next(r.event for r in w.records if isinstance(r.event, JobSubmitted))


def test_a_finished_job_is_shown_as_it_was_submitted():
    row, submitted = ended(gang=GANG)
    shown = finished_job(row, submitted, full=True)
    assert (shown.preemptible, shown.replicas, shown.checkpoint_step) == (True, 3, 7)
    assert (shown.devices, shown.devices_milli, shown.devices_text) == (2, 2000, "2x1")
    assert (shown.command, shown.pool) == (["true"], "default")
    assert shown.asks == "2 replicas of 1 device and 1 CPU, plus 1 replica of 1 CPU"


def test_lists_of_finished_jobs_need_no_submit():
    row, submitted = ended(gang=GANG, preemptible=False)
    assert finished_job(row) == finished_job(row, submitted)
    assert finished_job(row).preemptible is False
    assert finished_job(row).command == []


def test_of_rows_of_older_versions_the_submit_tells_all_but_the_checkpoint():
    row, submitted = ended(gang=GANG)
    shown = finished_job(replace(row, details=None), submitted, full=True)
    assert shown == replace(finished_job(row, submitted, full=True), checkpoint_step=None)


def test_what_nothing_tells_is_unknown():
    row, _ = ended(gang=GANG)
    shown = finished_job(replace(row, details=None))
    assert (shown.preemptible, shown.checkpoint_step, shown.devices_milli, shown.devices_text) == (None, None, None, "")


def test_live_jobs_count_all_groups_and_parts_of_devices():
    w = cluster(1, 4)
    gang, part = w.submit(gang=GANG), w.submit(1, share_milli=250)
    views = [live_job(w.job(job), full=True) for job in (gang, part)]
    assert [(v.replicas, v.devices_milli, v.devices_text) for v in views] == [(3, 2000, "2x1"), (1, 250, "0.25")]
    assert views[1].asks == "0.25 of a device and 1 CPU"
