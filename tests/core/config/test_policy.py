"""A configuration as data: its digest tells equal from different, its differences are said by name and exactly."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from penstock.core.config.diff import ConfigEdit, describe, diff, digest
from penstock.core.model.batching import ElasticRule
from penstock.core.model.cluster import ClusterConfig, IdleRule, Pool, Queue, Reservation, Settings, Tenant
from penstock.core.model.matching import ModelRule
from penstock.core.model.pairing import SharingSettings
from penstock.core.model.prices import Billing, Factor, Party, Price, Tariff
from tests.properties import examples

GIB = 2**30
BASE = ClusterConfig(
    pools=(Pool("gpus"),),
    tenants=(Tenant("vision"),),
    queues=(Queue("research"), Queue("default")),
    reservations=(Reservation("demo", "vision", 0, 1_000, ("n1",)),),
)


def changed(old, new):
    return [(c.path, c.old, c.new) for c in diff(old, new)]


def with_queue(**given):
    return replace(BASE, queues=(replace(BASE.queues[0], **given), BASE.queues[1]))


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ({"weight": 3}, ("weight", "1", "3")),
        ({"policy": "fifo"}, ("policy", "shortest_predicted", "fifo")),
        ({"preemption": "never"}, ("preemption", "lower_priority", "never")),
        ({"parent": "default"}, ("parent", "root", "default")),
        ({"max": (("devices", 16_000),)}, ("max.devices", "", "16")),
        ({"guaranteed": (("memory", 512 * GIB),)}, ("guaranteed.memory", "", "512GiB")),
        ({"lend": ()}, ("lend", "not set", "nothing")),
        ({"lend": (("cpus", 500), ("jobs", 2))}, ("lend", "not set", "cpus 0.5, jobs 2")),
        ({"min_runtime_ms": 600_000}, ("min_runtime", "not set", "10m")),
        ({"max_waiting": 5}, ("max_waiting", "200000", "5")),
        ({"idle": IdleRule(1_800_000, "when_wanted")}, ("idle", "not set", "after 30m, reclaim when_wanted")),
    ],
)
def test_a_changed_field_of_a_queue_is_said_by_name_and_in_its_unit(given, change):
    path, old, new = change
    assert changed(BASE, with_queue(**given)) == [(f"queues.research.{path}", old, new)]
    assert changed(with_queue(**given), BASE) == [(f"queues.research.{path}", new, old)]


def test_amounts_of_a_quota_are_compared_one_by_one():
    old = with_queue(max=(("cpus", 1_000), ("devices", 16_000), ("jobs", 5)))
    new = with_queue(max=(("cpus", 1_000), ("devices", 8_500), ("memory", GIB)))
    assert changed(old, new) == [
        ("queues.research.max.devices", "16", "8.5"),
        ("queues.research.max.jobs", "5", ""),
        ("queues.research.max.memory", "", "1GiB"),
    ]


def test_entries_are_matched_by_name_and_not_by_place():
    new = replace(BASE, queues=(Queue("new", weight=2, parent="research"), Queue("research", weight=9)))
    assert changed(BASE, new) == [
        ("queues.default", "defaults", ""),
        ("queues.new", "", "parent research, weight 2"),
        ("queues.research.weight", "1", "9"),
    ]


def test_another_order_of_the_same_entries_is_one_change():
    new = replace(BASE, queues=BASE.queues[::-1])
    assert changed(BASE, new) == [("queues", "in the order research, default", "in the order default, research")]


def test_an_added_entry_in_front_is_no_other_order():
    new = replace(BASE, tenants=(Tenant("audio", "sound"), *BASE.tenants))
    assert changed(BASE, new) == [("tenants.audio", "", "description sound")]


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ({"settings": Settings(lease_ttl_ms=90_001)}, ("settings.lease_ttl", "30s", "1m30s1ms")),
        ({"settings": Settings(admission_milli=800)}, ("settings.admission", "0", "0.8")),
        ({"settings": Settings(allow_waiting_for_nodes=True)}, ("settings.allow_waiting_for_nodes", "false", "true")),
        ({"root_policy": "capacity"}, ("root_policy", "priority", "capacity")),
        ({"tenants": (Tenant("vision", "''"),)}, ("tenants.vision.description", "''", "\"''\"")),
        ({"pools": (Pool("gpus", reserve_milli=150),)}, ("pools.gpus.reserve", "0", "0.15")),
        ({"pools": (Pool("gpus", virtualization="mig"),)}, ("pools.gpus.virtualization", "any", "mig")),
        (
            {"tenants": (Tenant("vision", max=(("gpus/storage", 2**30),)),)},
            ("tenants.vision.max.gpus/storage", "", "1GiB"),
        ),
        ({"tenants": (Tenant("vision", alerts=()),)}, ("tenants.vision.alerts", "80, 95, 100", "nothing")),
        (
            {"pools": (Pool("gpus", speeds=(("A100", 1_000, 1_500),)),)},
            ("pools.gpus.speeds.A100", "", "speed 1 cost 1.5"),
        ),
        (
            {"pools": (Pool("gpus"), Pool("b", speeds=(("X", 1, 2),)))},
            ("pools.b", "", "speeds X speed 0.001 cost 0.002"),
        ),
        (
            {"reservations": (Reservation("demo", "vision", 0, 1_772_352_000_000, ("n1",)),)},
            ("reservations.demo.end", "1970-01-01T00:00:01Z", "2026-03-01T08:00:00Z"),
        ),
        (
            {"reservations": (Reservation("demo", "vision", 0, 1_000, ("n1", "n2")),)},
            ("reservations.demo.nodes", "n1", "n1, n2"),
        ),
        (
            {"reservations": (Reservation("demo", "vision", 0, 1_000, ()),)},
            ("reservations.demo.nodes", "n1", "nothing"),
        ),
        (
            {"reservations": ()},
            (
                "reservations.demo",
                "tenant vision, start 1970-01-01T00:00:00Z, end 1970-01-01T00:00:01Z, nodes n1",
                "",
            ),
        ),
    ],
    ids=lambda x: str(x)[:40],
)
def test_every_other_part_is_said_in_the_words_of_a_cluster_file(given, change):
    assert changed(BASE, replace(BASE, **given)) == [change]


def test_changes_come_in_the_order_of_the_model():
    new = ClusterConfig((Pool("x"),), (Tenant("x"),), (Queue("x"),), Settings(heartbeat_ms=1), "fifo")
    parts = [change.path.split(".")[0] for change in diff(ClusterConfig(), new)]
    assert parts == ["pools", "pools", "tenants", "tenants", "queues", "queues", "settings", "root_policy"]


def test_a_change_reads_as_one_line():
    assert ConfigEdit("queues.a.weight", "1", "2").text() == "queues.a.weight: 1 -> 2"
    assert ConfigEdit("queues.a", "", "weight 2").text() == "queues.a: added (weight 2)"
    assert ConfigEdit("queues.a", "defaults", "").text() == "queues.a: removed (defaults)"


def test_a_description_is_what_differs_from_no_cluster_file():
    assert describe(ClusterConfig()) == ()
    assert [c.text() for c in describe(ClusterConfig(root_policy="fifo"))] == ["root_policy: priority -> fifo"]


def other(value):
    """Return another value of the same kind, whatever field of the model it is."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case None | ():
            return (("devices", 1),)
        case tuple():
            return (*value, "n9")
        case Party():
            return replace(value, note="thanks")
        case SharingSettings():
            return replace(value, across_tenants=True)
        case ElasticRule():
            return replace(value, rebalance=True)
        case ModelRule():
            return replace(value, match=True)
    raise AssertionError(f"the model has a new kind of value: {value!r}")


PARTS = {"pools": BASE.pools[0], "tenants": BASE.tenants[0], "queues": BASE.queues[1]}
PARTS |= {"reservations": BASE.reservations[0], "settings": Settings()}
EVERY_FIELD = [(part, f.name) for part, value in PARTS.items() for f in fields(value) if f.name != "name"]


@pytest.mark.parametrize(("part", "field"), EVERY_FIELD)
def test_no_field_of_the_model_can_change_unseen(part, field):
    value = replace(PARTS[part], **{field: other(getattr(PARTS[part], field))})
    if field == "min_runtime_ms":
        value = replace(PARTS[part], min_runtime_ms=1)
    if field == "idle":
        value = replace(PARTS[part], idle=IdleRule(1))
    if field == "speeds":
        value = replace(PARTS[part], speeds=(("A100", 1, 1),))
    new = replace(BASE, **{part: value if part == "settings" else (*getattr(BASE, part)[:-1], value)})
    (change,) = diff(BASE, new)
    named = part if part == "settings" else f"{part}.{value.name}"
    assert change.path.startswith(f"{named}.{field.removesuffix('_ms').removesuffix('_milli')}")
    assert digest(new) != digest(BASE)


def test_every_part_of_a_configuration_is_in_that_list():
    assert {f.name for f in fields(ClusterConfig)} == {
        *PARTS,
        "root_policy",
        "candidates",
        "billing",
        "users",
        "notifications",
        "oidc",
    }


PRICED = Billing(Tariff((Price("device", 2_500_000, 0, "H100"),), ((100, 900),)))


@pytest.mark.parametrize(
    ("after", "path"),
    [
        (replace(PRICED, currency="CNY"), "billing.currency"),
        (replace(PRICED, tariff=replace(PRICED.tariff, tiers=((100, 800),))), "billing.tariff.tiers"),
        (replace(PRICED, tariff=replace(PRICED.tariff, minimum_ms=1)), "billing.tariff.minimum"),
        (
            replace(PRICED, tariff=replace(PRICED.tariff, prices=(Price("device", 1, 0, "H100"),))),
            "billing.tariff.prices.0",
        ),
        (replace(PRICED, tariff=replace(PRICED.tariff, factors=(Factor(700),))), "billing.tariff.factors.0"),
    ],
)
def test_another_price_or_rule_of_billing_is_a_change(after, path):
    (change,) = diff(ClusterConfig(billing=PRICED), ClusterConfig(billing=after))
    assert change.path.startswith(path)
    assert change.old != change.new


def test_another_list_of_candidates_is_a_change():
    assert diff(ClusterConfig(), ClusterConfig(candidates=("best_fit", "worst_fit")))


class Later(msgspec.Struct, frozen=True):
    """A model as it may be some day."""

    zones: tuple[tuple[str, str, int], ...] = ()
    burst_milli: int = 0


def test_a_field_that_a_later_model_adds_is_covered_without_a_line():
    assert changed(Later((("z", "cold", 1),), 500), Later((("z", "cold", 2),))) == [
        ("zones.z", "cold 1", "cold 2"),
        ("burst", "0.5", "0"),
    ]


names = st.sampled_from(["a", "b", "c"])
resources = st.sampled_from(["devices", "devices:A100", "jobs", "memory", "storage", "a/devices", "a/memory"])
quotas = st.dictionaries(resources, st.integers(0, 2**40)).map(lambda q: tuple(sorted(q.items())))
alerts = st.sets(st.integers(1, 1000), max_size=3).map(lambda found: tuple(sorted(found)))
texts = st.sampled_from(["", "''", "nothing", "not set", "x"]) | st.text(max_size=3)
amounts = st.integers(0, 2**40)


def named(entries):
    return st.lists(entries, max_size=3, unique_by=lambda e: e.name).map(tuple)


pools = st.builds(
    Pool,
    names,
    st.sampled_from(["gpu", "cpu"]),
    texts,
    reserve_milli=st.integers(0, 1000),
    speeds=st.dictionaries(names, st.tuples(amounts, amounts)).map(lambda s: tuple((n, *v) for n, v in s.items())),
    virtualization=st.sampled_from(["any", "none", "mig"]),
)
queues = st.builds(
    Queue,
    names,
    st.sampled_from(["root", "a"]),
    weight=st.integers(1, 3),
    guaranteed=quotas,
    max=quotas,
    lend=st.none() | quotas,
    min_runtime_ms=st.none() | amounts,
    alerts=alerts,
    idle=st.none() | st.builds(IdleRule, amounts, st.sampled_from(["never", "when_wanted"])),
)
nodes = st.lists(st.sampled_from(["n1", "n2"]), max_size=2).map(tuple)
configs = st.builds(
    ClusterConfig,
    named(pools),
    named(st.builds(Tenant, names, texts)),
    named(queues),
    st.builds(Settings, lease_ttl_ms=amounts, admission_milli=amounts, allow_waiting_for_nodes=st.booleans()),
    st.sampled_from(["priority", "fifo"]),
    named(st.builds(Reservation, names, st.just("t"), amounts, amounts, nodes)),
)
near = st.tuples(configs, configs) | configs.flatmap(
    lambda c: st.sampled_from(ClusterConfig.__struct_fields__).flatmap(
        lambda f: configs.map(lambda other: (c, replace(c, **{f: getattr(other, f)})))
    )
)


@examples(100)
@given(configs)
def test_a_configuration_does_not_differ_from_itself(config):
    assert diff(config, config) == ()
    assert diff(config, replace(config)) == ()


@examples(150)
@given(near)
def test_differences_and_digest_agree_on_what_is_equal(pair):
    old, new = pair
    assert (digest(old) == digest(new)) == (old == new)
    assert (diff(old, new) == ()) == (old == new)


@examples(100)
@given(near)
def test_a_difference_has_two_texts_and_the_way_back_has_them_turned_round(pair):
    old, new = pair
    there, back = diff(old, new), diff(new, old)
    assert all(c.old != c.new for c in there)
    assert [(c.path, c.new, c.old) for c in there] == [(c.path, c.old, c.new) for c in back]
    assert len({c.path for c in there}) == len(there)


def test_the_digest_does_not_depend_on_the_hash_seed():
    code = (
        "from penstock.core.model.cluster import *; from penstock.core.config.diff import digest; "
        "print(digest(ClusterConfig(queues=(Queue('a', max=(('cpus', 1), ('devices', 2))),))))"
    )
    path = ":".join(sys.path)
    runs = set()
    for seed in ("0", "1", "2"):
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        runs.add(done.stdout)
    assert len(runs) == 1
    assert len(runs.pop().strip()) == 64


def test_the_digest_of_the_defaults_is_the_same_in_every_version():
    assert digest(ClusterConfig()) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
