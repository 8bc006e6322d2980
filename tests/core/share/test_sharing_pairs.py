"""Which low-utilisation jobs are put together on a device, and which are parted again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.share.pairs import Occupant, PairedStep, Parted, SharingSettings, Together, to_join, to_part
from tests.properties import examples

GIB = 2**30
NOW = 10_000_000
SETTINGS = SharingSettings()


def occupant(job, utilisation_milli=300, used_gib=10, **fields):
    given = {
        "tenant": "vision",
        "node": f"n{job}",
        "device": 0,
        "model": "A100",
        "device_memory_bytes": 80 * GIB,
        "measured_ms": 600_000,
        "may_share": True,
    }
    return Occupant(
        job=job, utilisation_milli=utilisation_milli, memory_used_bytes=used_gib * GIB, **{**given, **fields}
    )


def joined(running, parted=(), settings=SETTINGS, now_ms=NOW):
    """Return the pairs as (stays, moves)."""
    return [(p.stays, p.moves) for p in to_join(running, parted, settings, now_ms=now_ms)]


def test_two_quiet_jobs_are_put_together_and_free_a_device():
    (pair,) = to_join([occupant(1, 310), occupant(2, 200, 30, device=5)], (), SETTINGS, now_ms=NOW)
    assert (pair.stays, pair.moves) == (2, 1)
    assert (pair.node, pair.device, pair.freed_node, pair.freed_device) == ("n2", 5, "n1", 0)
    assert (pair.utilisation_milli, pair.memory_bytes) == (510, 40 * GIB)
    assert pair.why == (
        "job 1 at 0.310 and job 2 at 0.200 are both below 0.500, and 40 GiB fit into 80 GiB with a margin of 0.100"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"utilisation_milli": 500},
        {"measured_ms": 599_999},
        {"may_share": False},
        {"tenant": "speech"},
        {"model": "H100"},
        {"memory_used_bytes": 62 * GIB + 1},
        {"memory_limit_bytes": 62 * GIB + 1},
    ],
    ids=lambda c: next(iter(c)),
)
def test_each_condition_alone_keeps_two_jobs_apart(changed):
    first, second = occupant(1, 499), occupant(2, 499, 62)
    assert joined([first, second]) == [(2, 1)]
    assert joined([first, replace(second, **changed)]) == []


def test_tenants_meet_only_where_the_policy_lets_them():
    running = [occupant(1, tenant="vision"), occupant(2, tenant="speech")]
    assert joined(running) == []
    assert joined(running, settings=SharingSettings(across_tenants=True)) == [(1, 2)]


def test_a_device_or_a_job_that_is_shared_or_spread_already_is_left_alone():
    shared = [occupant(1, node="n", device=3), occupant(2, node="n", device=3)]
    spread = [occupant(3, device=0), occupant(3, device=1)]
    assert joined([*shared, *spread, occupant(4)]) == []


def test_more_than_a_whole_device_is_never_given_out():
    settings = SharingSettings(use_below_milli=700)
    assert joined([occupant(1, 400), occupant(2, 600)], settings=settings) == [(1, 2)]
    assert joined([occupant(1, 401), occupant(2, 600)], settings=settings) == []


def test_the_one_that_is_cheaper_to_move_moves():
    first, second = occupant(1, moving_cost=7), occupant(2, moving_cost=7)
    assert joined([first, second]) == [(1, 2)]
    assert joined([replace(first, memory_used_bytes=GIB), second]) == [(2, 1)]
    assert joined([replace(first, moving_cost=6, memory_used_bytes=60 * GIB), second]) == [(2, 1)]
    assert joined([first, replace(second, movable=False)]) == [(2, 1)]
    assert joined([replace(first, movable=False), replace(second, movable=False)]) == []


def test_the_pair_goes_to_the_device_on_which_it_fits():
    small = occupant(1, used_gib=30, device_memory_bytes=40 * GIB)
    assert joined([small, occupant(2, used_gib=20, moving_cost=-1)]) == [(2, 1)]


def test_as_many_pairs_as_possible_come_before_the_best_pair():
    running = [occupant(1, 100, 20), occupant(2, 110, 20), occupant(3, 400, 45), occupant(4, 400, 45)]
    assert joined(running) == [(3, 1), (4, 2)]
    assert joined(running, settings=SharingSettings(exact_jobs_max=4)) == [(3, 1), (4, 2)]
    assert joined(running, settings=SharingSettings(exact_jobs_max=3)) == [(1, 2)]


def test_a_large_group_is_matched_best_pair_first():
    running = [occupant(1, 400), occupant(2, 100), occupant(3, 200), occupant(4, 300)]
    assert joined(running, settings=SharingSettings(exact_jobs_max=0)) == [(2, 3), (1, 4)]


def test_nobody_shares_unasked_and_what_is_not_said_costs_nothing():
    plain = Occupant(1, "vision", "n1", 0, "A100", 80 * GIB, 100, 600_000, GIB)
    assert (plain.may_share, plain.movable, plain.moving_cost, plain.memory_bytes) == (False, True, 0, GIB)
    assert PairedStep(1, 10, 20, 30) == PairedStep(1, 10, 20, 30, movable=True, moving_cost=0)


def test_among_equal_numbers_of_pairs_the_greatest_headroom_wins():
    running = [occupant(1, 100), occupant(2, 200), occupant(3, 300)]
    assert joined(running) == [(1, 2)]


def test_the_quietest_are_looked_at_first_when_there_are_too_many():
    running = [occupant(1, 400), occupant(2, 300), occupant(3, 200), occupant(4, 100)]
    assert joined(running, settings=SharingSettings(jobs_max=2)) == [(3, 4)]


def test_parted_jobs_are_not_proposed_again_before_the_cool_down():
    running = [occupant(1), occupant(2)]
    parted = [Parted((2, 1), NOW - 3_600_000 + 1)]
    assert joined(running, parted) == []
    assert joined(running, parted, now_ms=NOW + 1) == [(1, 2)]
    assert joined([*running, occupant(3, 400)], parted) == [(1, 3)]


occupants = st.lists(
    st.builds(
        occupant,
        job=st.integers(1, 40),
        utilisation_milli=st.integers(0, 600),
        used_gib=st.sampled_from([1, 10, 30, 50, 70]),
        tenant=st.sampled_from(["vision", "vision", "speech"]),
        device=st.integers(0, 1),
        device_memory_bytes=st.sampled_from([40 * GIB, 80 * GIB]),
        memory_limit_bytes=st.sampled_from([0, 0, 40 * GIB]),
        may_share=st.sampled_from([True, True, True, False]),
        movable=st.sampled_from([True, True, False]),
        moving_cost=st.integers(0, 2),
    ),
    max_size=8,
)
all_settings = st.builds(
    SharingSettings,
    use_below_milli=st.sampled_from([300, 500, 900]),
    memory_margin_milli=st.sampled_from([0, 100, 400]),
    across_tenants=st.booleans(),
    exact_jobs_max=st.sampled_from([0, 8]),
)


@examples(100)
@given(occupants, all_settings)
def test_a_job_and_a_device_are_in_one_pair_at_most_and_every_pair_fits(running, settings):
    by_job = {o.job: o for o in running}
    pairs = to_join(running, (), settings, now_ms=NOW)
    jobs = [j for p in pairs for j in (p.stays, p.moves)]
    devices = [(p.node, p.device) for p in pairs] + [(p.freed_node, p.freed_device) for p in pairs]
    assert len(set(jobs)) == len(jobs)
    assert len(set(devices)) == len(devices)
    for pair in pairs:
        stays, moves = by_job[pair.stays], by_job[pair.moves]
        needed = max(stays.memory_used_bytes, stays.memory_limit_bytes)
        needed += max(moves.memory_used_bytes, moves.memory_limit_bytes)
        assert needed <= stays.device_memory_bytes * (1000 - settings.memory_margin_milli) / 1000
        assert max(stays.utilisation_milli, moves.utilisation_milli) < settings.use_below_milli
        assert settings.across_tenants or stays.tenant == moves.tenant
        assert stays.may_share
        assert moves.may_share
        assert moves.movable
    assert [p.utilisation_milli for p in pairs] == sorted(p.utilisation_milli for p in pairs)


def matchings(edges):
    """Return every set of edges without a common end."""
    if not edges:
        return [()]
    first, rest = edges[0], edges[1:]
    apart = [e for e in rest if not set(e) & set(first)]
    return matchings(rest) + [(first, *m) for m in matchings(apart)]


@examples(100)
@given(occupants, all_settings)
def test_small_groups_get_the_best_matching_and_large_ones_half_of_it_at_least(running, settings):
    pairs = to_join(running, (), settings, now_ms=NOW)
    together, devices, jobs = {}, [(o.node, o.device) for o in running], [o.job for o in running]
    lone = [o for o in running if devices.count((o.node, o.device)) == 1 and jobs.count(o.job) == 1]
    for i, a in enumerate(lone):
        for b in lone[i + 1 :]:
            for pair in to_join([a, b], (), settings, now_ms=NOW):
                together[a.job, b.job] = 1000 - pair.utilisation_milli
    best = max((len(m), sum(together[e] for e in m)) for m in matchings(list(together)))
    found = (len(pairs), sum(1000 - p.utilisation_milli for p in pairs))
    if settings.exact_jobs_max == 8:
        assert found == best
    assert 2 * len(pairs) >= best[0]
    assert found <= best


@examples(100)
@given(occupants, all_settings, st.randoms())
def test_the_order_of_jobs_never_matters(running, settings, rnd):
    other = rnd.sample(running, len(running))
    assert to_join(running, (), settings, now_ms=NOW) == to_join(other, (), settings, now_ms=NOW)


@examples(100)
@given(occupants, all_settings)
def test_what_was_just_parted_is_not_joined_again(running, settings):
    pairs = to_join(running, (), settings, now_ms=NOW)
    parted = [Parted((p.moves, p.stays), NOW - 1) for p in pairs]
    again = to_join(running, parted, settings, now_ms=NOW)
    assert not {frozenset((p.stays, p.moves)) for p in pairs} & {frozenset((p.stays, p.moves)) for p in again}


def step(job, together_us, alone_us=1_000, steps_together=20, **fields):
    return PairedStep(job, alone_us, together_us, steps_together, **fields)


def parted(first, second, settings=SETTINGS):
    return to_part([Together("n", 0, (first, second))], settings)


def test_a_pair_that_slows_down_is_parted():
    (parting,) = parted(step(2, 1_000), step(1, 1_201))
    assert (parting.node, parting.device, parting.jobs, parting.leaves) == ("n", 0, (1, 2), 2)
    assert parting.slowdown_milli == 1_201
    assert parting.why == "a step of job 1 takes 1201 us together and 1000 us alone: 1.201 is above 1.200"


@pytest.mark.parametrize(
    "other",
    [step(1, 1_200), step(1, 9_000, alone_us=0), step(1, 9_000, steps_together=19)],
    ids=["at the threshold", "alone never measured", "too few steps"],
)
def test_a_pair_stays_while_nothing_speaks_against_it(other):
    assert parted(step(2, 1_000), other) == ()


def test_a_slowdown_is_rounded_up_so_that_it_never_looks_like_the_threshold():
    (parting,) = parted(step(2, 1_000), step(1, 12_000_001, alone_us=10_000_000))
    assert parting.slowdown_milli == 1_201


def test_the_cheaper_one_leaves_and_nobody_when_neither_can_be_moved():
    slow = step(1, 2_000, moving_cost=3)
    assert parted(slow, step(2, 1_000, moving_cost=4))[0].leaves == 1
    assert parted(slow, step(2, 1_000, moving_cost=3))[0].leaves == 2
    assert parted(slow, step(2, 1_000, movable=False))[0].leaves == 1
    assert parted(replace(slow, movable=False), step(2, 1_000, movable=False))[0].leaves is None


def test_the_worst_pair_is_parted_first_in_any_order():
    pairs = [
        Together("n", 0, (step(1, 1_300), step(2, 1_000))),
        Together("n", 1, (step(3, 1_000), step(4, 1_900))),
        Together("n", 2, (step(6, 1_300), step(5, 1_300))),
    ]
    found = to_part(pairs, SETTINGS)
    assert [p.jobs for p in found] == [(3, 4), (1, 2), (5, 6)]
    assert "job 5 takes" in found[2].why
    assert to_part(pairs[::-1], SETTINGS) == found


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("use_below_milli", 0, "1 to 1000"),
        ("use_below_milli", 1_001, "1 to 1000"),
        ("memory_margin_milli", 1_000, "0 to 999"),
        ("slowdown_milli", 1_000, "1001 to 100000"),
        ("steps", 0, "1 to 1000000"),
        ("jobs_max", 1, "2 to 10000"),
        ("exact_jobs_max", 15, "0 to 14"),
        ("window_ms", -1, "0 to"),
        ("cool_down_ms", -1, "0 to"),
    ],
)
def test_settings_out_of_range_name_field_value_and_what_was_expected(field, value, expected):
    with pytest.raises(ValueError, match=f"{field} is {value}; expected {expected}"):
        SharingSettings(**{field: value})


def test_the_ends_of_each_range_are_allowed():
    assert SharingSettings(1, 0, 0, False, 1_001, 1, 0, 2, 0).jobs_max == 2
    assert SharingSettings(1_000, 10**12, 999, True, 100_000, 1_000_000, 10**12, 10_000, 14).exact_jobs_max == 14
