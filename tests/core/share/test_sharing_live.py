"""Jobs that share a device, by the real decisions on a state: joined, billed by share, parted, given back."""

import random
from collections import Counter
from types import SimpleNamespace

import pytest

from penstock.core.ledger.allocations import AllocationLog
from penstock.core.ledger.levels import Levels
from penstock.core.ledger.sessions import sessions
from penstock.core.lifecycle.sharing import share_devices
from penstock.core.model.cluster import Pool, Reservation
from penstock.core.model.events import AttemptStopRequested, ConfigChanged, DeviceShared, DeviceShareEnded, UseNoted
from penstock.core.model.jobs import CheckpointSpec
from penstock.core.model.pairing import SharingSettings
from penstock.core.preempt.consolidate import movable
from penstock.core.share.live import DRAWN_EVERY_MS, GROUP_SEEN_MAX, pairs_to_join
from penstock.core.state.state import State, fold
from penstock.testing.builders import config, node, queues
from penstock.testing.harness import World
from tests.store.builders import same

GIB = 2**30
WINDOW_MS = 600_000
SAVES = CheckpointSpec(request_signal="SIGUSR1")


class Lab:
    """A world of nodes with whole devices, whose jobs report what they use."""

    def __init__(self, nodes=2, devices=1, jobs=2, **fields):
        sharing = fields.pop("sharing", SharingSettings())
        self.world = World(
            *(node(f"n{i}", devices) for i in range(nodes)),
            pools=(Pool("default", sharing=sharing),),
            **{k: fields.pop(k) for k in ("queues", "tenants", "reservations") if k in fields},
        )
        self.job_ids = [self.submit(**fields) for _ in range(jobs)]

    def submit(self, **fields):
        given = {"shareable": True, "checkpoint": SAVES} | fields
        job_id = self.world.submit(1, **given)
        self.world.run(job_id)
        return job_id

    def used(self, job_id, busy=200, memory=10, steps=100, step_us=50_000):
        """Note what a job used in the last window."""
        self.world.now += 1
        number = self.world.attempt(job_id).number
        self.world.emit(UseNoted(job_id, number, WINDOW_MS, busy, 0, memory * GIB, steps, step_us))

    def decide(self):
        self.world.commit(share_devices)

    def stopping(self):
        return {j.id: j.attempt.stop.rule for j in self.world.state.jobs.values() if j.attempt and j.attempt.stop}

    def leave(self, job_id):
        """Let a job that was asked to save and leave do so."""
        self.world.leave(job_id)

    def start(self, job_id):
        self.world.start(job_id)

    def paired(self, *job_ids):
        """Put two jobs together, and let both run."""
        for job_id in job_ids or self.job_ids[:2]:
            self.used(job_id)
        self.decide()
        (mover,) = self.stopping()
        self.leave(mover)
        self.start(mover)
        (stayer,) = [i for i in job_ids or self.job_ids[:2] if i != mover]
        return mover, stayer

    def place(self, job_id):
        place = self.world.attempt(job_id).replicas[0].place
        return place.node, place.devices

    def free(self, name):
        return self.world.state.indexes.free[name].devices


def test_two_quiet_jobs_end_up_on_one_device_and_the_other_is_free():
    lab = Lab()
    first, second = lab.job_ids
    freed = lab.place(second)
    mover, stayer = lab.paired()
    assert (mover, stayer) == (second, first)
    assert lab.place(mover) == lab.place(stayer) != freed
    assert lab.free(freed[0]) == (1000,)
    assert lab.free(lab.place(stayer)[0]) == (0,)
    assert lab.world.job(mover).ask.device_milli == lab.world.job(stayer).ask.device_milli == 500
    assert same(lab.world.state, fold(lab.world.records))
    assert same(State.from_image(lab.world.state.image()), lab.world.state)


def test_each_pays_for_its_part_from_the_moment_they_meet_and_for_all_of_it_when_alone_again():
    lab = Lab()
    mover, stayer = lab.paired()
    lab.world.now += 3_600_000
    lab.world.exit_replica(mover)
    lab.world.now += 3_600_000
    lab.world.exit_replica(stayer)
    held = sessions(lab.world.records)
    assert [(s.amounts.device_milli, s.ended) for s in held if s.job_id == stayer] == [
        (1000, "shared"),
        (500, "shared"),
        (1000, "released"),
    ]
    assert [(s.amounts.device_milli, s.ended) for s in held if s.job_id == mover] == [
        (1000, "released"),
        (500, "released"),
    ]


def test_the_timeline_and_the_levels_count_halves():
    lab = Lab()
    mover, stayer = lab.paired()
    log = AllocationLog()
    levels = Levels(log)
    for record in lab.world.records:
        levels.take(record)
    held = {key: value for key, value in levels.values.items() if key.name == "devices_held"}
    assert set(held.values()) == {1000}
    assert {(one.job_id, one.device_milli) for one in log.open()} == {(mover, 500), (stayer, 500)}


def test_the_one_that_stays_has_the_whole_device_again_when_the_other_has_left():
    lab = Lab()
    mover, stayer = lab.paired()
    lab.world.exit_replica(mover)
    assert lab.world.job(stayer).ask.device_milli == 1000
    assert lab.world.attempt(stayer).pairing is None


def test_quotas_count_the_whole_device_that_each_gets_back():
    lab = Lab(queues=queues("default", max=(("devices", 2000),)))
    mover, stayer = lab.paired()
    third = lab.world.submit(1)
    lab.world.cycle()
    assert lab.world.phase(third) == "waiting"
    lab.world.exit_replica(mover)
    lab.world.cycle()
    assert lab.world.phase(third) == "starting"
    assert lab.world.job(stayer).ask.device_milli == 1000


def test_the_freed_device_goes_to_the_next_job_and_the_shared_one_to_no_third():
    lab = Lab()
    lab.paired()
    waiting = [lab.world.submit(1, shareable=True), lab.world.submit(1, share_milli=500)]
    lab.world.run(waiting[0])
    assert [lab.world.phase(job_id) for job_id in waiting] == ["running", "waiting"]


def test_two_jobs_that_hurt_each_other_are_parted_and_left_apart_until_the_cool_down():
    lab = Lab()
    mover, stayer = lab.paired()
    lab.used(stayer, 300, step_us=59_000)
    lab.decide()
    assert lab.stopping() == {}
    lab.used(mover, 300, step_us=61_000)
    lab.decide()
    assert lab.stopping() == {mover: "part"}
    before = lab.world.job(mover)
    lab.leave(mover)
    lab.world.run(mover)
    after = lab.world.job(mover)
    assert lab.place(mover) != lab.place(stayer)
    assert (after.submitted_ms, after.retries_used) == (before.submitted_ms, 0)
    assert lab.world.job(stayer).ask.device_milli == after.ask.device_milli == 1000
    for passed_ms, stopping in ((0, {}), (3_600_000, {mover: "pair"})):
        lab.world.now += passed_ms
        lab.used(mover)
        lab.used(stayer)
        lab.decide()
        assert lab.stopping() == stopping
    assert same(lab.world.state, fold(lab.world.records))


def test_jobs_that_report_no_steps_are_parted_when_their_device_is_always_busy():
    lab = Lab()
    for job_id in lab.job_ids:
        lab.used(job_id, steps=0, step_us=0)
    lab.decide()
    (mover,) = lab.stopping()
    lab.leave(mover)
    lab.start(mover)
    for busy, stopping in ((950, {}), (951, {mover: "part"})):
        lab.used(mover, busy, steps=0, step_us=0)
        lab.decide()
        assert lab.stopping() == stopping


@pytest.mark.parametrize(
    "fields",
    [
        {"shareable": False},
        {"checkpoint": CheckpointSpec()},
        {"preemptible": False},
        {"isolation": "cooperative"},
        {"share_milli": 500},
        {"sharing": SharingSettings(enabled=False)},
    ],
    ids=lambda f: next(iter(f)),
)
def test_what_keeps_jobs_apart(fields):
    lab = Lab(**fields)
    for job_id in lab.job_ids:
        lab.used(job_id)
    lab.decide()
    assert lab.stopping() == {}


def test_old_or_short_measurements_pair_nobody():
    lab = Lab()
    for job_id in lab.job_ids:
        lab.used(job_id)
    lab.world.now += 2 * WINDOW_MS + 1
    lab.decide()
    assert lab.stopping() == {}


def test_a_job_does_not_move_where_its_cpus_are_not_free():
    lab = Lab(cpus=9)
    for job_id in lab.job_ids:
        lab.used(job_id)
    lab.decide()
    assert lab.stopping() == {}


def test_where_the_one_that_stays_has_ended_meanwhile_the_other_starts_like_any_job_that_moves():
    lab = Lab()
    for job_id in lab.job_ids:
        lab.used(job_id)
    lab.decide()
    (mover,) = lab.stopping()
    (stayer,) = set(lab.job_ids) - {mover}
    lab.world.exit_replica(stayer)
    lab.leave(mover)
    lab.world.run(mover)
    assert lab.world.job(mover).ask.device_milli == 1000
    assert lab.world.attempt(mover).pairing is None


def test_a_half_that_a_preemption_frees_goes_to_its_beneficiary_and_comes_back_afterwards():
    lab = Lab(nodes=1, devices=2)
    mover, stayer = lab.paired()
    filler = lab.world.submit(1, preemptible=False)
    lab.world.run(filler)
    urgent = lab.world.submit(1, share_milli=500, priority=1000)
    lab.world.cycle()
    (victim,) = lab.stopping()
    lab.leave(victim)
    lab.decide()
    lab.world.run(urgent)
    assert lab.world.phase(urgent) == "running"
    lab.decide()
    (left,) = {mover, stayer} - {victim}
    assert lab.world.job(left).ask.device_milli == 500
    lab.world.exit_replica(urgent)
    lab.world.cancel(victim)
    lab.decide()
    assert lab.world.job(left).ask.device_milli == 1000


def test_a_lost_node_takes_both_and_both_start_again_on_devices_of_their_own():
    lab = Lab(nodes=3)
    mover, stayer = lab.paired()
    lab.world.lose(lab.world.where(stayer))
    lab.world.run(mover, stayer)
    assert lab.place(mover) != lab.place(stayer)
    assert {lab.world.job(i).ask.device_milli for i in (mover, stayer)} == {1000}


@pytest.mark.parametrize("seed", range(6))
def test_no_device_ever_has_a_third_job_or_more_memory_promised_than_it_has(seed):
    """A random walk, counted by hand after each step: holders of each device, by the log alone."""
    rnd = random.Random(seed)
    lab = Lab(nodes=3, devices=2, jobs=5, sharing=SharingSettings(cool_down_ms=rnd.choice([0, 5_000])))
    world = lab.world
    for _ in range(150):
        world.now += rnd.choice([1, 1_000, 60_000])
        live = sorted(world.state.jobs)
        running = [i for i in live if world.job(i).state == "running"]
        do = rnd.randrange(8)
        if do == 0 and len(live) < 12:
            world.submit(1, shareable=rnd.random() < 0.8, checkpoint=SAVES, priority=rnd.choice([100, 500, 900]))
        elif do == 1 and rnd.random() < 0.3:
            world.submit(1, share_milli=500, share_memory_bytes=20 * GIB, priority=rnd.choice([500, 1000]))
        elif do == 2 and running:
            world.exit_replica(rnd.choice(running))
        elif do == 3 and lab.stopping():
            lab.leave(rnd.choice(sorted(lab.stopping())))
        elif do == 4 and running and rnd.random() < 0.1:
            name = world.where(rnd.choice(running))
            world.lose(name)
            world.hello(next(node(name, 2) for _ in "x"), f"i{world.now}")
        else:
            for job_id in running:
                lab.used(
                    job_id, rnd.choice([100, 400, 700]), rnd.choice([5, 30, 60]), step_us=rnd.choice([50, 70]) * 1000
                )
            lab.decide()
        world.cycle()
        for job_id in sorted(world.state.jobs):
            if world.job(job_id).state == "starting" and rnd.random() < 0.8:
                world.start(job_id)
        _count(world)
    shared = sum(isinstance(r.event, DeviceShared) for r in world.records)
    given_back = sum(isinstance(r.event, DeviceShareEnded) for r in world.records)
    assert shared > 0
    assert given_back > 0
    assert same(world.state, fold(world.records))


def _count(world):
    holders, milli, memory = Counter(), Counter(), Counter()
    for job in world.state.jobs.values():
        for replica in job.attempt.replicas if job.attempt else ():
            if not replica.holds:
                continue
            for index in replica.place.devices:
                device, wanted = (replica.place.node, index), job.ask.each.devices
                holders[device] += 1
                milli[device] += wanted.share_milli
                memory[device] += wanted.memory_of(world.state.nodes[device[0]].spec.devices[index])
    assert max(holders.values(), default=0) <= 2
    assert max(milli.values(), default=0) <= 1000
    assert max(memory.values(), default=0) <= 80 * GIB


def test_stops_are_asked_for_once():
    lab = Lab()
    for job_id in lab.job_ids:
        lab.used(job_id)
    lab.decide()
    lab.decide()
    asked = [r.event for r in lab.world.records if isinstance(r.event, AttemptStopRequested)]
    assert [(one.reason, one.rule) for one in asked] == [("moved", "pair")]


def test_of_many_jobs_a_draw_that_follows_from_the_time_is_looked_at_and_all_get_their_turn():
    lab = Lab(nodes=4, devices=8, jobs=30)
    for job_id in lab.job_ids:
        lab.used(job_id, memory=30)
    now = lab.world.now
    first = pairs_to_join(lab.world.state, now)
    assert first == pairs_to_join(lab.world.state, now)
    assert len(first) == GROUP_SEEN_MAX // 2
    met = {job for at in range(20) for pair in pairs_to_join(lab.world.state, now + at * DRAWN_EVERY_MS)
           for job in (pair.stays, pair.moves)}  # fmt: skip
    assert met == set(lab.job_ids)


def test_a_job_that_is_over_a_maximum_by_now_does_not_join():
    lab = Lab(queues=queues("default", max=(("devices", 2000),)))
    for job_id in lab.job_ids:
        lab.used(job_id)
    lab.decide()
    (mover,) = lab.stopping()
    lower = config(pools=lab.world.state.config.pools, queues=queues("default", max=(("devices", 1000),)))
    lab.world.emit(ConfigChanged(lower, "operator"))
    lab.leave(mover)
    assert lab.world.phase(mover) == "waiting"


def test_nobody_moves_to_a_node_that_is_reserved():
    lab = Lab(reservations=(Reservation("demo", "default", 0, 10**15, ("n0", "n1")),))
    for job_id in lab.job_ids:
        lab.used(job_id)
    lab.decide()
    assert lab.stopping() == {}


def test_consolidation_moves_no_job_that_shares_its_device():
    lab = Lab(nodes=3)
    lab.paired()
    alone = lab.submit()
    moved = movable(lab.world.snapshot(), "default", lambda job: SimpleNamespace(job=job))
    assert [one.job.id for one in moved] == [alone]
