"""The report's numbers: they must equal what the ledger says, and explain every millisecond of waiting."""

import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.core.ledger.consumption import Consumption
from penstock.core.model.cluster import Tenant
from penstock.core.model.errors import BrokenInvariant
from penstock.core.model.events import (
    AttemptAllocated,
    AttemptResumed,
    AttemptStopRequested,
    AttemptSuspended,
    JobRequeued,
    ReplicaFrozen,
)
from penstock.core.model.jobs import Dependency, GangAsk
from penstock.core.model.measured import Measured
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.report.run import build, render, summary
from penstock.report.run.build import tenant_totals, wait_stats
from penstock.report.run.model import RunReport
from penstock.report.run.timeline import CPU_LANES_MAX, _runs, lay_out
from penstock.report.run.waits import attribute
from penstock.testing.builders import job_spec, node
from penstock.testing.harness import World as WorldOf
from penstock.testing.harness import cluster as core_cluster
from tests.properties import examples
from tests.report.conftest import LAUNCH_MS, START_MS

cuts = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def report(story_log):
    return build(*story_log)


def job(report: RunReport, name: str):
    return next(j for j in report.jobs if j.name == name)


def ledger(records, until_ms):
    """Return what usage by tenant says of those who held anything: devices, CPUs."""
    found = Consumption(("tenant",), 0, until_ms)
    found.take(records)
    return {r.tenant: (r.device_milli_ms // 1000, r.cpu_milli_ms // 1000) for r in found.rows() if r.cpu_milli_ms}


def told(report):
    return {t.tenant: (t.device_ms, t.cpu_ms) for t in report.tenants if t.cpu_ms}


def test_usage_is_the_ledgers(story_log, report):
    assert told(report) == ledger(*story_log)
    attempts = sum(isinstance(record.event, AttemptAllocated) for record in story_log[0])
    assert tenant_totals(report).attempts == attempts == sum(job.attempts for job in report.jobs)


def test_parts_of_devices_count_as_parts():
    w = WorldOf(node("a", 2))
    for milli in (250, 500):
        w.run(w.submit(1, share_milli=milli))
    report = build(w.records, w.now + 4_000)
    assert report.totals.device_held_ms == tenant_totals(report).device_ms == 3_000
    assert (report.steps[-1].held, report.steps[-1].available) == (750, 2_000)


def powered():
    """Return a world in which two tenants' jobs ended of whom energy was measured, and one of whom it was not."""
    w = WorldOf(node("a", 4), tenants=tuple(Tenant(name) for name in ("quiet", "red", "blue")))
    jobs = [w.submit(1, tenant=name) for name in ("quiet", "red", "blue")]
    w.run(*jobs)
    w.now += 10_000
    for job, watts in zip(jobs, (None, 300, 500), strict=True):
        w.exit_replica(job, measured=Measured(powered_ms=8_000, energy_mj=8_000 * watts) if watts else None)
    return w


def test_energy_is_that_of_the_ledger_and_stands_in_the_summary():
    w = powered()
    found = build(w.records, w.now)
    assert {one.tenant: (one.energy_mj, one.powered_ms) for one in found.tenants} == {
        "quiet": (0, 0), "red": (2_400_000, 8_000), "blue": (4_000_000, 8_000)
    }  # fmt: skip
    usage = Consumption(("tenant",), 0, w.now)
    usage.take(w.records)
    assert {row.tenant: row.energy_mj for row in usage.rows()} == {one.tenant: one.energy_mj for one in found.tenants}
    assert summary(found)["totals"]["energy_mj"] == 6_400_000
    assert [one["powered_ms"] for one in summary(found)["tenants"]] == [8_000, 0, 8_000]


def test_energy_of_one_that_ended_while_it_was_suspended_counts():
    w = WorldOf(node("a", 1, cpus=4))
    low = w.submit(1, cpus=4, priority=100, on_preempt="suspend")
    w.run(low)
    w.emit(AttemptStopRequested(low, 1, "suspended", 1_000), ReplicaFrozen(low, 1, 0), AttemptSuspended(low, 1))
    w.now += 5_000
    w.exit_replica(low, measured=Measured(powered_ms=1_000, energy_mj=250_000))
    assert tenant_totals(build(w.records, w.now)).energy_mj == 250_000


def test_the_page_has_energy_where_some_was_measured_and_says_of_how_much(report):
    w = powered()
    page = render(build(w.records, w.now))
    assert "Energy: 1.78 Wh, as nodes measured it of replicas that have ended, over 53.3 % of the device time" in page
    assert all(said in page for said in ("Energy of devices", "1.11 Wh", "500 W", "measured, mean 400 W a device"))
    assert "nergy" not in render(report)


def test_who_is_suspended_holds_nothing_that_is_shown():
    w = WorldOf(node("a", 1, cpus=4))
    low = w.submit(0, cpus=4, priority=100, on_preempt="suspend")
    w.run(low)
    w.emit(AttemptStopRequested(low, 1, "suspended", 1_000), ReplicaFrozen(low, 1, 0), AttemptSuspended(low, 1))
    begun = w.now
    w.now += 5_000
    w.emit(AttemptResumed(low, 1))
    report = build(w.records, w.now + 1_000)
    shown = [(bar.start_ms, bar.end_ms, bar.open) for bar in report.bars]
    assert shown == [(begun, begun, False), (w.now, w.now + 1_000, True)]
    assert report.totals.cpu_held_ms == tenant_totals(report).cpu_ms == 4_000


def test_tenants_whose_jobs_never_ran_are_listed():
    w = WorldOf(node("a", 1))
    w.submit(1)
    (usage,) = build(w.records, w.now).tenants
    assert (usage.tenant, usage.jobs, usage.attempts, usage.device_ms) == ("default", 1, 0, 0)


def test_totals_add_up_over_tenants_and_bars(report):
    held = sum((b.end_ms - b.start_ms) * len(b.devices) for b in report.bars)
    assert held == tenant_totals(report).device_ms == report.totals.device_held_ms
    assert sum(report.totals.by_state.values()) == len(report.jobs) == 22


def test_reasons_add_up_to_the_waiting_time_of_each_job(report):
    for row in report.jobs:
        assert sum(p.duration_ms for p in row.waits) == row.wait_ms, row.name
    assert sum(j.wait_ms for j in report.jobs) == report.totals.wait.total_ms > 0


def test_waiting_is_told_apart_by_cause(report):
    causes = {name: [p.cause for p in job(report, name).waits] for name in ("report", "urgent-detector", "bad-config")}
    assert causes["report"] == ["dependency"]
    assert causes["urgent-detector"] == ["making_room"]
    assert causes["bad-config"] == ["no_fit", "kept_back", "backing_off"]


def test_a_backoff_ends_without_a_record(story_log):
    records, _ = story_log
    last = next(r for r in records if isinstance(r.event, JobRequeued) and r.event.not_before_ms > r.time_ms)
    stuck = build(records[: last.seq], last.time_ms + 5_000)
    parts = job(stuck, "bad-config").waits
    assert [(p.cause, p.duration_ms) for p in parts[-2:]] == [("backing_off", 1_000), ("next_cycle", 4_000)]


def test_a_plan_that_leaves_nobody_waiting_may_still_name_a_moment():
    w = WorldOf(node("a", 3), elastic_growth_period_ms=60_000)
    w.run(w.submit(gang=GangAsk(1, ReplicaAsk(Resources(), DeviceAsk(1)), replicas_max=2)))
    job_id = w.submit(1)
    assert w.plan().again_ms > w.now
    assert not w.plan().verdicts
    (waits,) = (row.waits for row in build(w.records, w.now + 2_000).jobs if row.id == job_id)
    assert [(part.cause, part.duration_ms) for part in waits] == [("next_cycle", 2_000)]


def test_a_dependency_ends_where_it_was_met_even_unsampled(story_log, report, monkeypatch):
    monkeypatch.setattr("penstock.report.run.waits.PLANS_MAX", 0)
    sampled = build(*story_log)

    def dependency_ms(of: RunReport) -> list[int]:
        return [p.duration_ms for j in of.jobs for p in j.waits if p.cause == "dependency"]

    assert dependency_ms(sampled) == dependency_ms(report) != []


def test_no_room_names_the_nodes_that_refused(report):
    part = next(p for p in job(report, "pretrain-vit").waits if p.cause == "no_fit")
    assert part.refused == (("devices_short", 2),)


def test_a_preemption_tells_for_whom_and_how_it_went_on(report):
    item = next(i for i in report.interruptions if i.job_id == 1)
    assert (item.kind, item.beneficiary, item.outcome) == ("preempted", job(report, "urgent-detector").id, "preempted")
    assert (item.left_after_ms, item.beneficiary_after_ms) == (800, 800 + 350)
    assert item.saved_step == item.resumed_step == 199
    assert item.lost_steps == 0


def test_a_beneficiary_counts_from_the_start_after_the_order(report):
    gang = job(report, "gang-llm").id
    again = [i for i in report.interruptions if i.beneficiary == gang and i.time_ms - report.start_ms > 60_000]
    assert [i.beneficiary_after_ms for i in again] == [800 + 350]


def test_rows_count_attempts_preemptions_and_losses(report):
    rows = {name: job(report, name) for name in ("pretrain-vit", "gang-llm", "wrong-dataset")}
    counts = {name: (row.attempts, row.preemptions, row.losses) for name, row in rows.items()}
    assert counts == {"pretrain-vit": (3, 2, 0), "gang-llm": (2, 0, 1), "wrong-dataset": (1, 0, 0)}


def test_steps_lost_with_a_node_are_those_since_the_last_checkpoint(report):
    item = next(i for i in report.interruptions if i.kind == "lost")
    assert (item.job_id, item.saved_step, item.resumed_step, item.lost_steps) == (21, 80, 80, 47)
    assert (report.totals.losses, report.totals.recoveries, report.totals.steps_lost_lost) == (1, 1, 47)


def test_a_job_is_back_so_long_after_its_node_was_last_heard(world, program):
    job_id = world.submit("nightly", program(save_every_ms=2_000), devices=2)
    world.cycle()
    world.run(6_000)
    world.note_work("node-a")
    world.lose("node-a", silent_ms=1_500)
    world.node("node-b")
    world.cycle()
    world.run(20_000)
    (item,) = build(world.records, world.now_ms).interruptions
    assert (item.job_id, item.time_ms - START_MS) == (job_id, 4_500)
    assert (item.noticed_after_ms, item.restarted_after_ms) == (1_500, 1_500 + LAUNCH_MS)
    assert "noticed after 1.5 s). Back after 1.8 s at step" in render(build(world.records, world.now_ms))


def test_a_loss_without_a_known_failure_counts_from_the_moment_it_was_noticed(report):
    item = next(i for i in report.interruptions if i.kind == "lost")
    assert (item.time_ms - report.start_ms, item.noticed_after_ms, item.left_after_ms) == (57_000, 0, 800)


def test_available_time_counts_only_while_a_node_is_ready(report):
    lost_ms = 68_000 - 57_000
    whole = 8 * (report.until_ms - report.start_ms)
    assert report.totals.device_available_ms == whole - 4 * lost_ms


def test_records_after_the_end_are_left_out(story_log):
    records, _ = story_log
    middle_ms = records[len(records) // 2].time_ms
    until = build(records, middle_ms)
    assert until == build([r for r in records if r.time_ms <= middle_ms], middle_ms)


def test_an_empty_log_renders():
    report = build([], 5)
    assert summary(report)["totals"]["jobs"] == 0
    assert "No node has joined" in render(report)


@cuts
@given(cut=st.integers(0, 10_000), later_ms=st.integers(0, 5_000))
def test_a_log_cut_at_any_record_renders_and_adds_up(story_log, cut, later_ms):
    records, _ = story_log
    seen = records[: cut % (len(records) + 1)]
    until_ms = (seen[-1].time_ms if seen else 0) + later_ms
    report = build(seen, until_ms)
    assert render(report).endswith("</html>\n")
    assert told(report) == ledger(seen, until_ms)
    for row in report.jobs:
        assert sum(p.duration_ms for p in row.waits) == row.wait_ms


@cuts
@given(plans=st.integers(0, 80))
def test_sampling_never_changes_how_long_a_job_waited(story_log, report, plans):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.report.run.waits.PLANS_MAX", plans)
        sampled = build(*story_log)
    assert sampled.sampling.planned <= plans + 1
    assert [sum(p.duration_ms for p in j.waits) for j in sampled.jobs] == [j.wait_ms for j in report.jobs]


def test_summary_is_json_and_says_what_the_report_says(report):
    numbers = json.loads(json.dumps(summary(report)))
    assert numbers["totals"]["preemptions"] == len(numbers["preemptions"]) == report.totals.preemptions
    assert numbers["totals"]["device_ms"] == sum(t["device_ms"] for t in numbers["tenants"])
    assert [sum(j["waits"].values()) for j in numbers["jobs"]] == [j["wait_ms"] for j in numbers["jobs"]]
    assert numbers["recoveries"][0]["lost_steps"] == 47


@pytest.mark.parametrize(
    ("waits", "p50", "p95", "mean"), [([], 0, 0, 0), ([7], 7, 7, 7), (range(1, 101), 50, 95, 50), ([0, 9], 0, 9, 4)]
)
def test_percentiles_are_by_nearest_rank(waits, p50, p95, mean):
    stats = wait_stats(waits)
    assert (stats.p50_ms, stats.p95_ms, stats.mean_ms) == (p50, p95, mean)


def test_bars_on_one_lane_never_overlap(report):
    lanes: dict[float, list[tuple[int, int]]] = {}
    layout = lay_out(report)
    for piece in layout.placed:
        for lane in range(round(piece.height / layout.lane_height)):
            spans = lanes.setdefault(piece.y + lane * layout.lane_height, [])
            spans.append((piece.bar.start_ms, piece.bar.end_ms))
    for spans in map(sorted, lanes.values()):
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_a_replica_on_neighbouring_devices_is_one_piece(report):
    layout = lay_out(report)
    pretrain = [p for p in layout.placed if p.bar.job_id == 1]
    assert [p.height / layout.lane_height for p in pretrain] == [4, 4, 4]


def test_scattered_devices_make_several_pieces():
    assert _runs([5, 0, 1, 3]) == [(0, 2), (3, 1), (5, 1)]


def test_replicas_beyond_the_cpu_lanes_are_counted(world, program):
    for index in range(CPU_LANES_MAX + 3):
        world.submit(f"cpu-{index}", program())
    world.cycle()
    report = build(world.records, world.now_ms + 1)
    assert lay_out(report).bars_left_out == 3
    assert "3 allocations of 9 not drawn" in render(report)


def test_a_log_that_skips_a_record_is_refused(story_log):
    records, until_ms = story_log
    with pytest.raises(BrokenInvariant, match="does not follow"):
        build(records[1:], until_ms)


def test_who_waits_for_an_array_waits_until_its_last_job_has_ended():
    w = core_cluster(1, 0, cpus=9)
    w.request(job_spec(0), array=3)
    w.run(1, 2, 3)
    w.request(job_spec(0, after=(Dependency(1, "after_any", 3),)), array=2)
    for job_id in (2, 1, 3):
        w.now += 10_000
        w.exit_replica(job_id)
    w.now += 5_000
    w.cycle()
    found, _ = attribute(w.records, w.now)
    assert found[4] == found[5]
    assert (found[4][0].cause, found[4][0].duration_ms, found[4][0].blockers) == ("dependency", 30_000, (1,))


def test_jobs_that_wait_count_as_work_so_that_many_are_sampled_less_often(monkeypatch):
    monkeypatch.setattr("penstock.report.run.waits.PLAN_WORK_MAX", 200)
    planned = []
    for waiting in (1, 50):
        w = core_cluster(1, 1)
        w.request(job_spec(1), array=waiting)
        for turn in range(20):
            w.now += 10
            w.drain("n0", on=not turn % 2)
        planned.append(build(w.records, w.now).sampling.planned)
    assert planned[0] > 3 * planned[1] > 0
