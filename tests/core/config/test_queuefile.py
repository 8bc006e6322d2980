"""The queue tree of a cluster file: its quotas are read exactly, and what cannot hold together is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config.cluster import parse_cluster
from penstock.core.config.queues import POLICIES, PREEMPTION_RULES, amount_of, tree_problems
from penstock.core.model.cluster import IdleRule, Queue
from penstock.core.model.quantities import format_resource
from penstock.core.order.extension import registry
from tests.core.config.test_jobfile_fields import json_values
from tests.properties import examples

GIB = 2**30


class Shortest:
    name = "shortest"

    def order_key(self, job, now_ms, settings):
        return (job.spec.time_limit_ms,)


def read(*queues, **more):
    found, problems = parse_cluster({"queues": list(queues)} | more)
    assert problems == []
    return found.config.queues


def problems(*queues, **more):
    return [(p.code, p.field) for p in parse_cluster({"queues": list(queues)} | more)[1]]


def message(*queues):
    _, (problem,) = parse_cluster({"queues": list(queues)})
    return problem.message


def queue(name="q", **fields):
    return {"name": name} | fields


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        *(({"policy": word}, "policy", word) for word in POLICIES),
        *(({"preemption": word}, "preemption", word) for word in PREEMPTION_RULES),
        ({"weight": 3}, "weight", 3),
        ({"max_waiting": 7}, "max_waiting", 7),
        ({"min_runtime": "10m"}, "min_runtime_ms", 600_000),
        ({"min_runtime": 0}, "min_runtime_ms", 0),
        ({"min_runtime": None}, "min_runtime_ms", None),
        ({"idle": {"after": "30m"}}, "idle", IdleRule(1_800_000)),
        ({"idle": {"after": 0, "reclaim": "when_wanted"}}, "idle", IdleRule(0, "when_wanted")),
        ({"idle": None}, "idle", None),
        ({"lend": {}}, "lend", ()),
        ({"lend": None}, "lend", None),
        ({"guaranteed": {}}, "guaranteed", ()),
        ({"max": {"devices": 0}}, "max", (("devices", 0),)),
        (
            {"max": {"memory": "512GiB", "jobs": 20, "devices:A100": 8, "devices": 16, "cpus": 0.5}},
            "max",
            (("cpus", 500), ("devices", 16_000), ("devices:A100", 8_000), ("jobs", 20), ("memory", 512 * GIB)),
        ),
        ({"guaranteed": {"devices": 0.125, "devices:H100 80GB": 2}}, "guaranteed", None),
    ],
)
def test_a_field_of_a_queue_means_what_it_says(given, field, value):
    if value is None and field == "guaranteed":
        value = (("devices", 125), ("devices:H100 80GB", 2_000))
    (found,) = read(queue(**given))
    assert getattr(found, field) == value
    assert found == Queue("q", **{field: value})


def test_without_queues_there_is_the_default_one():
    assert read() == (Queue("default"),)


@pytest.mark.parametrize(
    "bad",
    [
        {"weight": 0},
        {"weight": 1.5},
        {"weight": True},
        {"weight": 1_000_001},
        {"policy": "lifo"},
        {"policy": "ext:shortest"},
        {"preemption": "always"},
        {"guaranteed": 16},
        {"guaranteed": [("devices", 1)]},
        {"guaranteed": {"gpus": 1}},
        {"guaranteed": {5: 1}},
        {"guaranteed": {"devices:": 1}},
        {"guaranteed": {"devices:\n": 1}},
        {"guaranteed": {"devices:" + "x" * 128: 1}},
        {"guaranteed": {"devices": -1}},
        {"guaranteed": {"devices": 0.0005}},
        {"guaranteed": {"devices": "16"}},
        {"guaranteed": {"devices": None}},
        {"guaranteed": {"cpus": 2**53}},
        {"guaranteed": {"memory": "lots"}},
        {"guaranteed": {"jobs": 1.5}},
        {"guaranteed": {"jobs": -1}},
        {"max": "all"},
        {"max": {"jobs": True}},
        {"lend": 5},
        {"lend": {"devices": float("nan")}},
        {"min_runtime": "soon"},
        {"idle": 5},
        {"idle": {}},
        {"idle": {"after": "soon"}},
        {"idle": {"after": "30m", "reclaim": "always"}},
        {"min_runtime": -1},
    ],
    ids=str,
)
def test_a_bad_value_is_one_problem_below_its_own_field(bad):
    ((code, field),) = problems(queue(**bad))
    assert code in ("bad_value", "unknown_resource")
    assert field.startswith("queues[0]." + next(iter(bad)))


def test_the_nearest_resource_is_said():
    _, (problem,) = parse_cluster({"queues": [queue(max={"device": 1})]})
    assert problem.code == "unknown_resource"
    assert problem.message == (
        "queues[0].max.device is not a resource, expected one of devices, cpus, memory, storage, jobs, devices:MODEL, "
        "or of one pool alone: POOL/devices, ..."
    )
    assert problem.hint == "did you mean 'devices'?"


def test_root_has_no_quotas_of_its_own():
    _, (problem,) = parse_cluster({"queues": [queue("root", guaranteed={"devices": 1})]})
    assert problem.message == "queues[0].name is 'root', expected another name: 'root' is above all queues"
    assert problem.hint == "root_policy says in which order the queues below it go; it has no quotas of its own"


def test_an_installed_policy_can_be_named():
    raw = {"queues": [queue(policy="ext:shortest")], "root_policy": "ext:shortest"}
    found, problems = parse_cluster(raw, registry([Shortest()]))
    assert problems == []
    assert (found.config.queues[0].policy, found.config.root_policy) == ("ext:shortest", "ext:shortest")


def test_a_policy_that_is_not_installed_is_refused_with_the_nearest_word():
    _, (problem,) = parse_cluster({"queues": [queue(policy="ext:shortst")]}, registry([Shortest()]))
    assert problem.hint == "did you mean 'ext:shortest'?"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_accepted_on_a_queue_with_children(policy):
    assert read(queue("a", policy=policy), queue("b", parent="a"))[0].policy == policy


def child(name, parent="top", **guaranteed):
    return queue(name, parent=parent, guaranteed=guaranteed)


def test_children_may_be_guaranteed_what_their_parent_is():
    tree = read(queue("top", guaranteed={"devices": 16}), child("a", devices=8), child("b", devices=8))
    assert tree_problems(tree) == []


def test_queues_below_root_may_be_guaranteed_anything():
    assert problems(child("a", "root", devices=10**6), child("b", "root", devices=10**6)) == []


def test_children_guaranteed_more_than_their_parent_are_refused_with_resource_sum_and_limit():
    tree = [queue("top", guaranteed={"devices": 16}), child("a", devices=8), child("b", devices=8.5)]
    assert problems(*tree) == [("guarantee_above_parent", "queues[0].guaranteed.devices")]
    said = "the queues below 'top' ('a', 'b') are guaranteed 16.5 devices together, but 'top' itself 16 devices"
    assert message(*tree) == said


def test_children_of_a_queue_without_guarantee_cannot_have_one():
    tree = [queue("top", max={"memory": "9GiB"}), child("a", memory="8GiB")]
    _, (problem,) = parse_cluster({"queues": tree})
    assert problem.message == (
        "the queues below 'top' ('a') are guaranteed 8GiB of memory together, but 'top' itself 0 of memory"
    )
    assert problem.hint == "guarantee 'top' 8GiB of memory, or them less"


def test_a_guarantee_of_devices_promises_no_model():
    tree = [queue("top", guaranteed={"devices": 16}), child("a", **{"devices:A100": 8})]
    assert problems(*tree) == [("guarantee_above_parent", "queues[0].guaranteed.devices:A100")]


def test_guarantees_of_models_add_up_to_devices():
    top = queue("top", guaranteed={"devices": 12, "devices:A100": 8})
    fits = [child("a", **{"devices:A100": 8}), child("b", devices=4)]
    assert problems(top, *fits) == []
    assert problems(top, *fits, child("c", devices=1)) == [("guarantee_above_parent", "queues[0].guaranteed.devices")]


def test_every_level_is_checked():
    tree = [
        queue("top", guaranteed={"jobs": 9}),
        queue("mid", parent="top", guaranteed={"jobs": 4}),
        child("a", "mid", jobs=3),
        child("b", "mid", jobs=2),
    ]
    assert problems(*tree) == [("guarantee_above_parent", "queues[1].guaranteed.jobs")]


def test_a_guarantee_above_the_own_maximum_is_refused():
    bad = queue("q", guaranteed={"devices": 9, "cpus": 4}, max={"devices": 8, "cpus": 4})
    assert problems(bad) == [("guarantee_above_max", "queues[0].guaranteed.devices")]
    assert message(bad) == "queue 'q' is guaranteed 9 devices, but may hold 8 devices at most"


def test_guarantees_of_models_count_against_a_maximum_of_devices():
    bad = queue("q", guaranteed={"devices:A100": 5, "devices:H100": 4}, max={"devices": 8})
    assert problems(bad) == [("guarantee_above_max", "queues[0].guaranteed.devices")]
    assert problems(queue("q", guaranteed={"devices": 9}, max={"devices:A100": 2})) == []


def test_lending_more_than_is_guaranteed_is_refused():
    bad = queue("q", guaranteed={"devices": 8}, lend={"devices": 8.001, "jobs": 0})
    assert problems(bad) == [("lend_above_guarantee", "queues[0].lend.devices")]
    assert message(bad) == "queue 'q' lends 8.001 devices, but is guaranteed 8 devices"
    assert problems(queue("q", guaranteed={"devices": 8}, lend={"devices": 8})) == []
    assert problems(queue("q", lend={"devices:A100": 1})) == [("lend_above_guarantee", "queues[0].lend.devices:A100")]


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        ((Queue("a"), Queue("b", "a"), Queue("c", "b")), []),
        ((Queue("b", "a"), Queue("a")), []),
        ((Queue("a", "a"),), [("queue_cycle", "queues[0].parent")]),
        ((Queue("a", "b"), Queue("b", "a")), [("queue_cycle", f"queues[{i}].parent") for i in (0, 1)]),
        ((Queue("a"), Queue("b", "x")), [("unknown_queue", "queues[1].parent")]),
    ],
)
def test_queues_are_a_tree_below_root(tree, found):
    assert [(p.code, p.field) for p in tree_problems(tree)] == found


def test_a_queue_below_a_cycle_ends_the_walk():
    tree = (Queue("c", "a"), Queue("a", "b"), Queue("b", "a"))
    assert {p.code for p in tree_problems(tree)} == {"queue_cycle"}


def test_an_unknown_parent_has_the_path_of_its_own_entry():
    assert problems(queue("a"), queue("a"), queue("b", parent="aa")) == [
        ("duplicate_name", "queues[1].name"),
        ("unknown_queue", "queues[2].parent"),
    ]


resources = st.sampled_from(["devices", "devices:A100", "devices:H100", "cpus", "jobs"])
quotas = st.dictionaries(resources, st.integers(0, 4), max_size=3)
names = ["a", "b", "c", "d"]
trees = st.lists(
    st.tuples(st.sampled_from(["root", *names]), quotas, quotas, st.none() | quotas), min_size=4, max_size=4
)


@examples(100)
@given(trees)
def test_what_is_accepted_can_be_held_at_every_level(shape):
    entries = [
        queue(name, parent=parent, guaranteed=own, max=most) | ({"lend": lend} if lend is not None else {})
        for name, (parent, own, most, lend) in zip(names, shape, strict=True)
    ]
    found, refused = parse_cluster({"queues": entries})
    if refused:
        return
    for one in found.config.queues:
        children = [q for q in found.config.queues if q.parent == one.name]
        for resource in ("devices", "devices:A100", "devices:H100", "cpus", "jobs"):
            own = amount_of(one.guaranteed, resource)
            assert sum(amount_of(q.guaranteed, resource) for q in children) <= own
            assert own <= dict(one.max).get(resource, own)
            assert dict(one.lend or ()).get(resource, 0) <= own


@examples(100)
@given(st.dictionaries(st.sampled_from(["guaranteed", "max", "lend"]), quotas))
def test_a_quota_is_the_same_when_it_is_read_again_from_its_own_words(given):
    found, _ = parse_cluster({"queues": [queue(**given)]})
    one = found.config.queues[0]
    said = {
        field: {name: float(format_resource(name, amount)) if name != "jobs" else amount for name, amount in quota}
        for field, quota in (("guaranteed", one.guaranteed), ("max", one.max), ("lend", one.lend or ()))
        if field in given
    }
    again, _ = parse_cluster({"queues": [queue(**said)]})
    assert again.config.queues[0] == one


@examples(150)
@given(
    st.sampled_from(["parent", "policy", "preemption", "weight", "guaranteed", "max", "lend", "min_runtime"]),
    json_values | st.dictionaries(resources, json_values, max_size=3),
)
def test_any_value_of_any_field_is_read_or_refused_below_it(field, value):
    found, refused = parse_cluster({"queues": [queue(**{field: value})]})
    assert isinstance(found.config.queues[0], Queue)
    assert all(p.field.startswith("queues[0].") for p in refused)
