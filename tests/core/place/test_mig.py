"""Where MIG instances may lie: the tables against what drivers print, the search against plain enumeration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.place.mig import (
    GB,
    GEOMETRIES,
    MIB,
    Geometry,
    Instance,
    MigProfile,
    best_start,
    count_more,
    geometry_of,
    illegal,
    nearest_profiles,
    starts,
)
from tests.properties import examples

A100 = geometry_of("NVIDIA A100-SXM4-40GB", 40_960 * MIB)
A30 = geometry_of("NVIDIA A30", 24_258 * MIB)
RTX = geometry_of("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887 * MIB)
H100 = geometry_of("NVIDIA H100 80GB HBM3", 81_559 * MIB)
every = pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: g.name)
every_shape = pytest.mark.parametrize("geometry", [A30, A100, H100, RTX], ids=lambda g: g.name)


def plainly_legal(geometry, layout):
    """Say the rules once more, on lists of slices instead of masks and sums."""
    profiles = [geometry.profile(name) for name, _ in layout]
    covered = [start + i for p, (_, start) in zip(profiles, layout, strict=True) for i in range(p.memory_slices)]
    return (
        all(start in p.starts for p, (_, start) in zip(profiles, layout, strict=True))
        and len(covered) == len(set(covered))
        and all(0 <= i < geometry.memory_slices for i in covered)
        and sum(p.compute_slices for p in profiles) <= geometry.compute_slices
        and sum(p.decoders for p in profiles) <= geometry.decoders
        and sum(p.extensions for p in profiles) <= geometry.extensions
    )


def reachable(geometry, *, alike=False):
    """Return every layout that can be built instance by instance; with `alike` one of each that takes the same."""
    found, todo = {}, [()]
    while todo:
        layout = todo.pop()
        profiles = [geometry.profile(name) for name, _ in layout]
        key = tuple(sorted(layout))
        if alike:
            key = (
                frozenset(s + i for p, (_, s) in zip(profiles, layout, strict=True) for i in range(p.memory_slices)),
                sum(p.decoders for p in profiles),
                sum(p.extensions for p in profiles),
                sum(p.compute_slices for p in profiles),
            )
        if key not in found:
            found[key] = layout
            todo += [(*layout, (p.name, s)) for p in geometry.profiles for s in starts(geometry, layout, p.name)]
    return list(found.values())


def kinds(geometry, layout):
    return {p.name for p in geometry.profiles if starts(geometry, layout, p.name)}


@pytest.mark.parametrize(
    ("model", "memory_bytes", "name"),
    [
        ("NVIDIA A30", 24_258 * MIB, "A30 24GB"),
        ("NVIDIA A100-SXM4-40GB", 40_536 * MIB, "A100 40GB"),
        ("NVIDIA A100 80GB PCIe", 81_920 * MIB, "A100 80GB"),
        ("nvidia a800-sxm4-80gb", 81_251 * MIB, "A100 80GB"),
        ("NVIDIA H100 80GB HBM3", 81_559 * MIB, "H100 80GB"),
        ("NVIDIA H100 NVL", 95_830 * MIB, "H100 94GB"),
        ("NVIDIA GH200 480GB", 97_871 * MIB, "H100 96GB"),
        ("NVIDIA H20", 97_871 * MIB, "H100 96GB"),
        ("NVIDIA H200", 143_771 * MIB, "H200 141GB"),
        ("NVIDIA B200", 183_359 * MIB, "B200 180GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97_887 * MIB, "RTX PRO 6000 96GB"),
        ("A100", 40 * GB, "A100 40GB"),
        ("H100", 94 * GB, "H100 94GB"),
        ("H100", 80 * GB, "H100 80GB"),
    ],
)
def test_model_and_memory_name_the_geometry(model, memory_bytes, name):
    assert geometry_of(model, memory_bytes).name == name


@pytest.mark.parametrize(
    ("model", "memory_gb"),
    [("V100", 32), ("A100", 64), ("A10", 24), ("GB200", 186), ("NVIDIA RTX 6000 Ada", 48), ("H200", 0), ("", 40)],
)
def test_other_devices_cannot_be_divided(model, memory_gb):
    assert geometry_of(model, memory_gb * GB) is None


def test_placements_are_those_the_driver_prints():
    assert {p.name: p.placements for p in A100.profiles} == {
        "1g.5gb": "{0,1,2,3,4,5,6}:1",
        "1g.5gb+me": "{0,1,2,3,4,5,6}:1",
        "1g.10gb": "{0,2,4,6}:2",
        "2g.10gb": "{0,2,4}:2",
        "3g.20gb": "{0,4}:4",
        "4g.20gb": "{0}:4",
        "7g.40gb": "{0}:8",
    }
    assert [p.placements for p in A30.profiles] == ["{0,1,2,3}:1"] * 2 + ["{0,2}:2"] * 2 + ["{0}:4"]
    assert [p.placements for p in RTX.profiles] == ["{0,3,6,9}:3"] * 5 + ["{0,6}:6"] * 4 + ["{0}:12"] * 2


@pytest.mark.parametrize(
    ("model", "gb", "profiles"),
    [
        ("A30", 24, "1g.6gb 1g.6gb+me 2g.12gb 2g.12gb+me 4g.24gb"),
        ("A100", 40, "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
        ("A100", 80, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        ("H100", 80, "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        ("H100", 94, "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),
        ("GH200", 96, "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb"),
        ("H200", 141, "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
        ("B200", 180, "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
        (
            "RTX PRO 6000",
            96,
            (
                "1g.24gb 1g.24gb+me 1g.24gb+gfx 1g.24gb+me.all 1g.24gb-me "
                "2g.48gb 2g.48gb+gfx 2g.48gb+me.all 2g.48gb-me 4g.96gb 4g.96gb+gfx"
            ),
        ),
    ],
)
def test_profiles_are_those_of_the_guide(model, gb, profiles):
    assert [p.name for p in geometry_of(model, gb * GB).profiles] == profiles.split()


@every
def test_all_geometries_have_one_of_the_four_shapes(geometry):
    def shape(of):
        return [(p.starts, p.compute_slices, p.memory_slices, p.decoders, p.extensions) for p in of.profiles]

    twins = [g for g in (A30, A100, H100, RTX) if shape(g) == shape(geometry)]
    assert [(g.compute_slices, g.memory_slices, g.decoders, g.extensions) for g in twins] == [
        (geometry.compute_slices, geometry.memory_slices, geometry.decoders, geometry.extensions)
    ]


@every
def test_counts_of_the_guide_follow_from_starts_and_engines(geometry):
    for profile in geometry.profiles:
        assert count_more(geometry, (), profile.name) == profile.count_max


@every
def test_an_instance_has_the_slices_and_nearly_the_memory_that_its_name_promises(geometry):
    for profile in geometry.profiles:
        compute, rest = profile.name.split("g.")
        promised = int(rest.split("gb")[0])
        assert profile.compute_slices == int(compute)
        assert 0.88 * promised * GB < profile.memory_bytes < 1.08 * promised * GB
        assert all(start + profile.memory_slices <= geometry.memory_slices for start in profile.starts)
        assert list(profile.starts) == sorted(profile.starts)


@every_shape
def test_every_reachable_layout_is_legal_and_no_other_start_is(geometry):
    for layout in reachable(geometry, alike=True):
        assert plainly_legal(geometry, layout)
        assert illegal(geometry, layout) == ""
        for profile in geometry.profiles:
            open_to = starts(geometry, layout, profile.name)
            for start in range(-1, geometry.memory_slices + 1):
                grown = (*layout, Instance(profile.name, start))
                assert (start in open_to) == plainly_legal(geometry, grown) == (illegal(geometry, grown) == "")


@pytest.mark.parametrize(
    ("layout", "legal"),
    [
        ("3g.20gb@0 3g.20gb@4", True),
        ("4g.20gb@0 3g.20gb@4", True),
        ("2g.10gb@0 2g.10gb@2 3g.20gb@4", True),
        ("1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 1g.5gb@4 1g.5gb@5 1g.5gb@6", True),
        ("1g.10gb@6 1g.5gb@0 1g.5gb@1 1g.5gb@2 1g.5gb@3 1g.5gb@4 1g.5gb@5", True),
        ("2g.10gb@0 2g.10gb@2 2g.10gb@4 1g.10gb@6", True),
        ("1g.5gb+me@0 1g.5gb@1", True),
        ("4g.20gb@0 4g.20gb@4", False),
        ("3g.20gb@0 4g.20gb@4", False),
        ("3g.20gb@0 3g.20gb@3", False),
        ("3g.20gb@0 1g.5gb@3", False),
        ("1g.5gb@7", False),
        ("2g.10gb@6", False),
        ("7g.40gb@0 1g.5gb@6", False),
        ("1g.5gb+me@0 1g.5gb+me@1", False),
        ("1g.5gb@0 1g.5gb@0", False),
    ],
)
def test_layouts_of_an_a100(layout, legal):
    pairs = [(name, int(start)) for name, start in (each.split("@") for each in layout.split())]
    assert (illegal(A100, pairs) == "") == legal


def test_media_engines_are_given_out_once():
    assert starts(A30, [("1g.6gb+me", 0)], "2g.12gb+me") == ()
    assert starts(A30, [("1g.6gb+me", 0)], "2g.12gb") == (2,)
    assert starts(RTX, [("1g.24gb+me.all", 0)], "1g.24gb") == ()
    assert starts(RTX, [("1g.24gb+me.all", 0)], "1g.24gb-me") == (3, 6, 9)
    assert starts(RTX, [("2g.48gb", 0)], "2g.48gb+me.all") == ()


def test_illegal_says_which_rule():
    assert "none of A100 40GB: nearest are" in illegal(A100, [("3g.40gb", 0)])
    assert illegal(A100, [("3g.20gb", 2)]) == "profile 3g.20gb starts at 2; allowed on A100 40GB is {0,4}:4"
    crowded = [("4g.20gb", 0), ("3g.20gb", 0)]
    assert illegal(A100, crowded) == "profile 4g.20gb at 0 does not fit with the other instances on A100 40GB"
    assert illegal(A100, crowded[::-1]) == illegal(A100, crowded)


@pytest.mark.parametrize("asked", [starts, best_start, count_more])
def test_what_validation_should_have_caught_is_a_fault(asked):
    with pytest.raises(ValueError, match=r"3g\.40gb is none of A100 40GB"):
        asked(A100, (), "3g.40gb")
    with pytest.raises(ValueError, match="allowed on A100 40GB is"):
        asked(A100, [("4g.20gb", 4)], "1g.5gb")


def test_an_unknown_profile_has_nearest_words():
    assert A100.profile("3g.40gb") is None
    assert A100.profile("3g.20gb").memory_bytes == 19_968 * MIB
    assert nearest_profiles(A100, "MIG 3g.20GB")[0] == "3g.20gb"
    assert nearest_profiles(A100, "1g.5gb-me")[:2] == ("1g.5gb+me", "1g.5gb")
    assert nearest_profiles(RTX, "1g.24gb") == ("1g.24gb", "1g.24gb-me", "1g.24gb+me")
    assert nearest_profiles(A100, "half") == tuple(sorted(p.name for p in A100.profiles))


@every_shape
def test_best_start_never_blocks_a_kind_that_another_start_keeps(geometry):
    for layout in reachable(geometry, alike=True):
        for profile in geometry.profiles:
            open_to = starts(geometry, layout, profile.name)
            chosen = best_start(geometry, layout, profile.name)
            assert chosen in open_to if open_to else chosen is None
            kept = {s: kinds(geometry, [*layout, (profile.name, s)]) for s in open_to}
            assert all(kept[chosen] >= others for others in kept.values())


def futures(geometry, layout):
    """Return the sets of profiles with which `layout` can still be filled up, by plain enumeration."""
    found, todo = set(), [tuple(layout)]
    while todo:
        grown = todo.pop()
        added = tuple(sorted(name for name, _ in grown[len(layout) :]))
        if added not in found:
            found.add(added)
        todo += [(*grown, (p.name, s)) for p in geometry.profiles for s in starts(geometry, grown, p.name)]
    return found


@pytest.mark.parametrize("geometry", [A30, RTX], ids=lambda g: g.name)
def test_best_start_leaves_the_most_sets_of_instances(geometry):
    for layout in reachable(geometry, alike=True)[::3]:
        for profile in geometry.profiles:
            left = {
                s: (len(kinds(geometry, at := [*layout, (profile.name, s)])), len(futures(geometry, at)), -s)
                for s in starts(geometry, layout, profile.name)
            }
            assert best_start(geometry, layout, profile.name) == (max(left, key=left.get) if left else None)


@every_shape
def test_count_more_is_the_longest_row_of_equal_instances(geometry):
    def longest(layout, name):
        return max((1 + longest([*layout, (name, s)], name) for s in starts(geometry, layout, name)), default=0)

    for layout in reachable(geometry, alike=True)[::7]:
        for profile in geometry.profiles:
            if profile.memory_slices * 4 >= geometry.memory_slices:  # the others take the plain recursion too long
                assert count_more(geometry, layout, profile.name) == longest(list(layout), profile.name)


@pytest.mark.parametrize(
    ("layout", "profile", "start"),
    [
        ((), "3g.20gb", 4),
        ((), "2g.10gb", 4),
        ((), "1g.10gb", 6),
        ((), "7g.40gb", 0),
        ([("3g.20gb", 4)], "2g.10gb", 0),
        ([("1g.5gb", 4)], "1g.5gb", 5),
        ([("1g.5gb", 2)], "2g.10gb", 0),
        ([("4g.20gb", 0)], "1g.10gb", 6),
        ([("7g.40gb", 0)], "1g.5gb", None),
    ],
)
def test_best_starts_of_an_a100(layout, profile, start):
    assert best_start(A100, layout, profile) == start


def test_weights_say_which_requests_are_kept_possible():
    # An A100 asked for nothing but 2g loses one place for them by a 1g anywhere but at 6.
    assert best_start(A100, (), "1g.5gb") == 4
    assert best_start(A100, (), "1g.5gb", {"2g.10gb": 1}) == 6
    assert best_start(A100, (), "1g.5gb", {"4g.20gb": 1, "2g.10gb": 5}) == 6
    assert best_start(A100, (), "1g.5gb", {"3g.20gb": 0, "1g.10gb": 1}) == 4


@pytest.mark.parametrize(("x", "y", "start"), [(5, 3, 0), (7, 3, 3), (6, 3, 0)])
def test_a_geometry_read_from_a_driver_weighs_slices_against_each_other(x, y, start):
    # Asked for p: at 0 it costs one of two places for x (one slice), at 3 one of two places for y (two slices).
    profiles = (
        MigProfile("p", 1, 1, GB, (0, 3), 2),
        MigProfile("x", 1, 1, GB, (0, 1), 2),
        MigProfile("y", 1, 2, GB, (2, 4), 2),
    )
    made = Geometry("made up", (("X1",),), 6, 6, 6, 0, 0, profiles)
    assert best_start(made, (), "p", {"x": x, "y": y}) == start


@st.composite
def layouts(draw, geometry):
    layout = []
    for name in draw(st.lists(st.sampled_from([p.name for p in geometry.profiles]), max_size=6)):
        open_to = starts(geometry, layout, name)
        if open_to:
            layout.append(Instance(name, draw(st.sampled_from(open_to))))
    return layout


@every_shape
@examples(60)
@given(data=st.data())
def test_with_weights_the_most_slices_stay_usable_for_what_is_asked(geometry, data):
    layout = data.draw(layouts(geometry))
    weights = {p.name: data.draw(st.integers(0, 3)) for p in geometry.profiles[1:]}

    def usable(start, name):
        after = [*layout, (name, start)]
        asked = [(p, weights[p.name]) for p in geometry.profiles[1:]]
        return (
            sum(w for p, w in asked if starts(geometry, after, p.name)),
            sum(w * p.memory_slices * count_more(geometry, after, p.name) for p, w in asked),
        )

    for profile in geometry.profiles:
        left = {s: usable(s, profile.name) for s in starts(geometry, layout, profile.name)}
        chosen = best_start(geometry, layout, profile.name, weights)
        assert (left[chosen] == max(left.values())) if left else chosen is None


@every_shape
@examples(60)
@given(data=st.data())
def test_the_order_of_instances_never_matters(geometry, data):
    layout = data.draw(layouts(geometry))
    other = data.draw(st.permutations(layout))
    for profile in geometry.profiles:
        for ask in (starts, best_start, count_more):
            assert ask(geometry, layout, profile.name) == ask(geometry, frozenset(other), profile.name)


def test_an_instance_has_the_memory_that_its_slices_hold():
    found = {p.name: p.memory_bytes // MIB for p in A100.profiles}
    assert found == {
        "1g.5gb": 4_864,
        "1g.5gb+me": 4_864,
        "1g.10gb": 9_856,
        "2g.10gb": 9_856,
        "3g.20gb": 19_968,
        "4g.20gb": 19_968,
        "7g.40gb": 40_192,
    }
