"""Layouts with the fewest re-partitions: random sequences of wants against enumeration by the published tables."""

import random
from collections import Counter

import pytest

from penstock.core.place import mig_plan
from penstock.core.place.mig import GEOMETRIES, Instance
from penstock.core.place.mig_plan import (
    STRATEGIES,
    CutDevice,
    MigPlan,
    NoLayout,
    PresentInstance,
    Step,
    default_layout,
    plan,
    strategy_plan,
)
from tests.core.place.published import PUBLISHED, Published
from tests.properties import LONG

GEOMETRY = {geometry.name: geometry for geometry in GEOMETRIES}
TABLES = {name: Published(name) for name in PUBLISHED}
WANTS = 10_000 if LONG else 60
WANTS_OF_TWO = 500 if LONG else 6
every = pytest.mark.parametrize("model", PUBLISHED)


def device(model, *instances, index=0):
    """Return a device of instances such as `3g.20gb@4` (`*` behind it: in use)."""
    present = []
    for text in instances:
        name, start = text.rstrip("*").split("@")
        present.append(PresentInstance(name, int(start), text.endswith("*")))
    return CutDevice(index, GEOMETRY[model], tuple(present))


def a100(*instances, index=0):
    return device("A100 40GB", *instances, index=index)


def steps_of(made):
    assert isinstance(made, MigPlan), made
    return [f"{'-' if s.action == 'destroy' else '+'}{s.instance.profile}@{s.instance.start}" for s in made.steps]


class World:
    """Devices of one model whose instances come into use and out of it at random, and are re-planned."""

    def __init__(self, model, seed, count):
        self.table, self.geometry = TABLES[model], GEOMETRY[model]
        self.random = random.Random(f"{model} {seed}")
        self.on = [{} for _ in range(count)]
        """Instances of each device, and whether they are in use."""

    def devices(self):
        present = [tuple(PresentInstance(*place, used) for place, used in on.items()) for on in self.on]
        return [CutDevice(index, self.geometry, of) for index, of in enumerate(present)]

    def bits(self):
        pick = lambda on, used: self.table.bits(place for place, busy in on.items() if busy is used)
        return [(pick(on, True), pick(on, False)) for on in self.on]

    def want(self):
        few = self.random.sample(self.table.profiles, k=self.random.choice((1, 1, 2, 3)))
        return self.random.choices(few, k=self.random.choice((1, 1, 1, 2, 3, 5, 7)))

    def apply(self, made):
        """Do the steps one by one: each leaves a legal layout, and none takes an instance that is in use."""
        for at, action, instance in made.steps:
            if action == "destroy":
                assert self.on[at].pop(tuple(instance)) is False
            else:
                assert tuple(instance) not in self.on[at]
                self.on[at][tuple(instance)] = False
            assert self.table.is_legal(self.on[at])

    def go_on(self):
        for on in self.on:
            busy = self.random.choice((0.1, 0.4, 0.8))
            for place in on:
                on[place] = self.random.random() < busy
            if self.random.random() < 0.1:
                on.clear()


@every
def test_layouts_have_the_fewest_repartitions_that_the_published_places_allow(model):
    world, table = World(model, 1, 1), TABLES[model]
    planned = 0
    for _ in range(WANTS):
        wanted = world.want()
        least = table.cheapest(*world.bits()[0], [wanted.count(name) for name in table.profiles])
        made = plan(world.devices(), wanted)
        assert isinstance(made, NoLayout) == (least is None), (world.on, wanted, made)
        if least is not None:
            used, _ = world.bits()[0]
            world.apply(made)
            ((_, lies),) = made.layouts
            bits = table.bits(map(tuple, lies))
            kinds = table.kinds[table.layouts[0].searchsorted(bits)]
            assert (made.destroyed, made.created, -kinds, -table.sets(bits)) == least, (world.on, wanted)
            assert bits == table.bits(world.on[0])
            assert made.touched == bool(made.steps)
            assert Counter(one.profile for _, one in made.wanted) == Counter(wanted)
            assert table.bits(tuple(one) for _, one in made.wanted) & (used | ~bits) == 0
            planned += 1
        world.go_on()
    assert WANTS // 4 < planned < WANTS


@every
def test_of_several_devices_the_split_with_the_fewest_repartitions_is_chosen(model):
    world, table = World(model, 2, 2), TABLES[model]
    for _ in range(WANTS_OF_TWO):
        wanted = world.want() + world.want()
        least = table.cheapest_of(world.bits(), [wanted.count(name) for name in table.profiles])
        made = plan(world.devices(), wanted)
        assert isinstance(made, NoLayout) == (least is None), (world.on, wanted, made)
        if least is not None:
            assert (made.destroyed, made.created, made.touched) == least, (world.on, wanted)
            world.apply(made)
        world.go_on()


@every
def test_instances_at_given_places_take_only_what_is_in_their_way(model):
    world, table = World(model, 3, 1), TABLES[model]
    for _ in range(WANTS // 3):
        place = world.random.choice(table.places)
        used, idle = world.bits()[0]
        at, gone, made, _ = table.costs(used, idle)
        fits = (table.layouts[0][at] & table.bit[place]) != 0
        least = min(zip(gone[fits], made[fits], strict=True), default=None)
        result = plan(world.devices(), wanted_at={0: [Instance(*place)]})
        if used & table.bit[place] or least is None:
            assert isinstance(result, NoLayout), (world.on, place)
        else:
            assert (result.destroyed, result.created) == least, (world.on, place)
            assert result.wanted == ((0, place),)
            world.apply(result)
        if world.random.random() < 0.5:
            more = plan(world.devices(), world.want())
            if isinstance(more, MigPlan):
                world.apply(more)
        world.go_on()


def test_an_instance_that_nobody_uses_is_taken_before_one_is_made():
    made = plan([a100("1g.5gb@0", "3g.20gb@4*")], ["1g.5gb"])
    assert steps_of(made) == []
    assert made.wanted == ((0, Instance("1g.5gb", 0)),)


def test_only_what_is_in_the_way_is_destroyed():
    assert steps_of(plan([a100("1g.5gb@0", "1g.5gb@4", "1g.5gb@5*")], ["3g.20gb"])) == ["-1g.5gb@0", "+3g.20gb@0"]


def test_an_instance_wanted_at_a_place_is_none_of_those_wanted_anywhere():
    made = plan([a100("1g.5gb@0")], ["1g.5gb"], {0: [Instance("1g.5gb", 0)]})
    assert (made.created, [one.start for _, one in made.wanted]) == (1, [0, 1])


def test_an_untouched_device_comes_before_a_destroyed_instance():
    full, free = a100("3g.20gb@0", "3g.20gb@4*"), a100(index=1)
    assert plan([full, free], ["4g.20gb"]).steps == (Step(1, "create", Instance("4g.20gb", 0)),)


def test_few_devices_are_touched():
    made = plan([a100(), a100(index=1)], ["3g.20gb"] * 2)
    assert (made.created, made.touched) == (2, 1)


def test_equal_plans_fall_to_the_first_device_and_the_order_of_devices_does_not_matter():
    devices = [a100(index=2), a100(index=1), a100(index=3)]
    made = plan(devices, ["2g.10gb"])
    assert made.steps == (Step(1, "create", Instance("2g.10gb", 4)),)
    assert plan(devices[::-1], ["2g.10gb"]) == made


def test_models_may_be_mixed():
    made = plan([device("A30 24GB"), a100(index=1)], ["2g.12gb", "2g.10gb"])
    assert [(step.device, step.instance.profile) for step in made.steps] == [(0, "2g.12gb"), (1, "2g.10gb")]


@pytest.mark.parametrize(
    ("devices", "wanted", "at", "reason"),
    [
        ([a100("3g.20gb@0*")], ["3g.20gb"] * 3, {}, "3 of 3g.20gb are wanted, 1 fit beside what is in use"),
        (
            [a100("3g.20gb@0*")],
            ["3g.20gb", "2g.10gb"],
            {},
            "no layout has 1 of 2g.10gb, 1 of 3g.20gb together beside what is in use",
        ),
        ([a100()], ["3g.40gb"], {}, "no device has the profile 3g.40gb; nearest are A100 40GB: 7g.40gb, 3g.20gb"),
        ([], ["1g.5gb"], {}, "no device has the profile 1g.5gb; nearest are none"),
        ([a100()], [], {1: [("1g.5gb", 0)]}, "device 1 is none of those that may be divided"),
        ([a100()], [], {0: [("1g.5gb", 7)]}, "device 0: profile 1g.5gb starts at 7"),
        (
            [a100("4g.20gb@0*")],
            [],
            {0: [("1g.5gb", 3)]},
            "device 0 has no room for 1g.5gb at 3 beside what is in use there (4g.20gb at 0)",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_numbers(devices, wanted, at, reason):
    places = {index: [Instance(*one) for one in of] for index, of in at.items()}
    refused = plan(devices, wanted, places)
    assert isinstance(refused, NoLayout)
    assert refused.reason.startswith(reason)


def test_a_device_whose_instances_overlap_is_a_fault():
    with pytest.raises(ValueError, match="does not fit"):
        plan([a100("3g.20gb@0", "4g.20gb@0*")], ["1g.5gb"])


@pytest.mark.parametrize(
    ("model", "strategy", "layout"),
    [
        ("A100 40GB", "training", "3g.20gb 3g.20gb"),
        ("A100 40GB", "inference", " ".join(["1g.5gb"] * 7)),
        ("A100 40GB", "balanced", "3g.20gb 2g.10gb 1g.5gb 1g.5gb"),
        ("H200 141GB", "balanced", "3g.71gb 2g.35gb 1g.18gb 1g.18gb"),
        ("A30 24GB", "training", "2g.12gb 2g.12gb"),
        ("A30 24GB", "inference", "1g.6gb 1g.6gb 1g.6gb 1g.6gb"),
        ("A30 24GB", "balanced", "2g.12gb 1g.6gb 1g.6gb"),
        ("RTX PRO 6000 96GB", "balanced", "2g.48gb 1g.24gb 1g.24gb"),
    ],
)
def test_default_layouts(model, strategy, layout):
    assert default_layout(GEOMETRY[model], strategy) == tuple(layout.split())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", GEOMETRY)
def test_a_default_layout_leaves_no_room_for_another_of_its_profiles(model, strategy):
    empty = device(model)
    made = strategy_plan(empty, strategy)
    assert Counter(one.profile for _, one in made.wanted) == Counter(default_layout(empty.geometry, strategy))
    after = CutDevice(0, empty.geometry, tuple(PresentInstance(*one, True) for one in made.layouts[0][1]))
    for name in set(default_layout(empty.geometry, strategy)):
        assert isinstance(plan([after], [name]), NoLayout)


def test_a_strategy_leaves_what_runs_and_fills_up_beside_it():
    assert steps_of(strategy_plan(a100("3g.20gb@0*"), "training")) == ["+3g.20gb@4"]
    assert steps_of(strategy_plan(a100("2g.10gb@0*", "1g.5gb@4"), "training")) == ["-1g.5gb@4", "+3g.20gb@4"]
    assert len(steps_of(strategy_plan(a100("4g.20gb@0*"), "inference"))) == 3
    assert steps_of(strategy_plan(a100("2g.10gb@0*"), "balanced")) == ["+1g.5gb@2", "+1g.5gb@3", "+3g.20gb@4"]


def test_work_is_bounded_and_a_plan_that_is_not_proven_says_so(monkeypatch):
    devices = [a100(index=index) for index in range(8)]
    wanted = ["3g.20gb"] * 4 + ["2g.10gb"] * 8 + ["1g.5gb"] * 16
    whole = plan(devices, wanted)
    assert whole.exact
    monkeypatch.setattr(mig_plan, "WORK_MAX", 2_000)
    bounded = plan(devices, wanted)
    assert not bounded.exact
    assert (bounded.destroyed, bounded.created) == (0, len(wanted)) == (whole.destroyed, whole.created)
    assert whole.touched <= bounded.touched
