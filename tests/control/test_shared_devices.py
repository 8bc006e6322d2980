"""A controller in virtual time: what nodes measure and programs report puts two jobs on one device, and parts them."""

import pytest

from penstock.control.uses import NOTE_EVERY_MS, TOGETHER_MS
from penstock.core.messages.reports import DeviceFigures, NodeFigures, ProgressSeen, ReplicaKey, ReplicaSeen, ReplicaUse
from penstock.core.model.cluster import Pool
from penstock.core.model.events import AttemptStopRequested, DeviceShared, DeviceShareEnded, UseNoted
from penstock.core.model.jobs import CheckpointSpec, ExitInfo
from penstock.core.model.measured import Measured
from penstock.core.model.pairing import SharingSettings
from tests.control.rig import Rig

SECOND, GIB, WINDOW_MS = 1_000, 2**30, 20_000
SAVES = CheckpointSpec(request_signal="SIGUSR1")


class Lab:
    """Two shareable jobs, one device each; their programs make `pace` steps a second."""

    def __init__(self, **fields):
        sharing = SharingSettings(window_ms=WINDOW_MS, steps=10)
        self.rig = Rig("a", pools=(Pool("default", sharing=sharing),))
        given = {"shareable": True, "checkpoint": SAVES} | fields
        self.job_ids = [self.rig.submit(1, **given) for _ in range(2)]
        self.pace, self.busy, self.steps = 10.0, 0.3, dict.fromkeys(self.job_ids, 0.0)
        self.lived: dict[ReplicaKey, int] = {}
        self.rig.cycle()

    def job(self, job_id):
        return self.rig.state.jobs[job_id]

    def events(self, *kinds):
        return [r.event for r in self.rig.store.records if isinstance(r.event, kinds)]

    def runs(self, seconds, until=()):
        """Let the programs run, and do as they are asked, for so long or until an event of one of these kinds."""
        before = len(self.events(*until)) if until else 0
        for second in range(1, seconds + 1):
            self.rig.wait(SECOND)
            for job_id in self.job_ids:
                self.tell(job_id)
            self.rig.cycle()
            if until and len(self.events(*until)) > before:
                return second
        return 0

    def tell(self, job_id):
        attempt = self.job(job_id).attempt
        if attempt is None:
            return
        name, key = attempt.replicas[0].place.node, ReplicaKey(job_id, attempt.number, 0)
        if attempt.stop is not None:
            info = ExitInfo(0, stop_sent=True, measured=self.measured(key))
            self.rig.report(name, ReplicaSeen(key, "exited", exit=info))
            return
        self.lived[key] = self.lived.get(key, 0) + SECOND
        self.steps[job_id] += self.pace
        used = ReplicaUse(key, measured=self.measured(key))
        figures = NodeFigures(
            (DeviceFigures(attempt.replicas[0].place.devices[0], memory_used_bytes=8 * GIB),), (used,)
        )
        progress = (ProgressSeen(key, "progress", round(self.steps[job_id])),)
        self.rig.report(name, ReplicaSeen(key, "running"), figures=figures, progress=progress)

    def measured(self, key):
        lived = self.lived.get(key, 0)
        return Measured(lived, round(self.busy * lived), device_memory_peak_bytes=5 * GIB, devices_touched=1)


@pytest.fixture
def lab():
    return Lab()


def test_two_quiet_jobs_meet_after_a_window_and_stay_together_while_neither_gets_slower(lab):
    assert WINDOW_MS <= lab.runs(60, until=(DeviceShared,)) * SECOND <= WINDOW_MS + 6 * SECOND
    first = lab.events(UseNoted)[0]
    assert (first.busy_milli, first.memory_peak_bytes, first.step_us) == (300, 5 * GIB, 100_000)
    (met,) = lab.events(DeviceShared)
    assert met.pairing.step_us == 100_000
    places = {lab.job(job_id).attempt.replicas[0].place for job_id in lab.job_ids}
    assert len(places) == 1
    lab.runs(120)
    assert lab.events(DeviceShareEnded) == []
    assert lab.rig.fits_log()


def test_two_that_hurt_each_other_are_parted_within_half_a_minute(lab):
    lab.runs(60, until=(DeviceShared,))
    lab.pace = 7.0
    assert 0 < lab.runs(60, until=(AttemptStopRequested,)) <= 30
    lab.runs(5)
    assert [stop.rule for stop in lab.events(AttemptStopRequested)] == ["pair", "part"]
    assert {lab.job(job_id).ask.device_milli for job_id in lab.job_ids} == {1000}
    assert all(lab.job(job_id).parted for job_id in lab.job_ids)
    assert lab.rig.fits_log()


def test_while_nothing_changes_beside_each_other_one_note_in_ten_minutes_is_enough(lab):
    lab.runs(60, until=(DeviceShared,))
    lab.runs(2 * TOGETHER_MS // SECOND)
    before = len(lab.events(UseNoted))
    lab.runs(NOTE_EVERY_MS // SECOND // 2)
    assert len(lab.events(UseNoted)) == before


def test_jobs_that_do_not_share_are_noted_as_rarely_as_ever():
    lab = Lab(shareable=False)
    lab.runs(120)
    assert lab.events(UseNoted, DeviceShared) == []


def test_a_pair_with_long_steps_is_judged_once_enough_of_them_are_made(lab):
    lab.pace = 0.5
    lab.runs(60, until=(DeviceShared,))
    lab.runs(3)
    before = len(lab.events(UseNoted))
    lab.runs(60)
    noted = [note.steps for note in lab.events(UseNoted)[before:]]
    assert noted
    assert min(noted) >= 10
