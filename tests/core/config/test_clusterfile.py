"""Cluster files: pools, tenants, the queue tree, settings and nodes, with everything wrong said at once."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.config import cluster
from penstock.core.config.cluster import parse_cluster
from penstock.core.config.job import parse_request
from penstock.core.config.nodes import VirtualNode
from penstock.core.config.pools import BACKFILL_RULES, ENTRIES_MAX, PLACEMENTS
from penstock.core.model.batching import ElasticRule
from penstock.core.model.cluster import ClusterConfig, Pool, Queue, Reservation, Settings, Tenant
from penstock.core.model.errors import PROBLEMS_MAX
from penstock.core.model.matching import ModelRule
from penstock.devices.simulated import simulated
from tests.core.config.test_jobfile_fields import json_values
from tests.properties import examples

GIB = 2**30


def read(raw):
    found, problems = parse_cluster(raw)
    assert problems == []
    return found


def problems(raw):
    return [(p.code, p.field) for p in parse_cluster(raw)[1]]


@pytest.mark.parametrize("raw", [None, {}, {"queues": [], "settings": {}}])
def test_an_empty_file_declares_the_defaults(raw):
    assert read(raw).config == ClusterConfig()
    assert read(raw).nodes == ()


def test_everything_that_can_be_declared_is_taken_over():
    found = read(
        {
            "pools": [
                {
                    "name": "gpus",
                    "kind": "gpu",
                    "description": "A100",
                    "placement": "best_fit",
                    "backfill": "conservative",
                    "reserve": "15%",
                    "speeds": {"H100": {"speed": 2.2, "cost": 3}, "A100": 1},
                },
                "cpus",
            ],
            "tenants": [{"name": "vision", "description": "team"}, "speech"],
            "queues": [
                {
                    "name": "a",
                    "policy": "capacity",
                    "preemption": "reclaim",
                    "weight": 2,
                    "guaranteed": {"devices": 8},
                    "max": {"devices": 16},
                    "lend": {"devices": 4},
                    "min_runtime": "5m",
                    "max_waiting": 5,
                },
                {"name": "b", "parent": "a"},
            ],
            "root_policy": "fair_share",
            "reservations": [
                {
                    "name": "demo",
                    "tenant": "vision",
                    "start": "2026-03-01T08:00+01:00",
                    "end": 1_772_352_000,
                    "nodes": ["n2", "n1"],
                }
            ],
            "nodes": [
                {
                    "name": "n1",
                    "cpus": 2.5,
                    "memory": "16GiB",
                    "storage": "1GB",
                    "pool": "gpus",
                    "labels": {"disk": "ssd"},
                    "rack": "r",
                    "switch": 7,
                    "simulated_devices": {
                        "count": 4,
                        "model": "H100",
                        "memory": "80GiB",
                        "mig": True,
                        "mig_mode": True,
                        "links": [[1, 0, 2]],
                    },
                },
            ],
        }
    )
    speeds = (("A100", 1_000, 1_000), ("H100", 2_200, 3_000))
    assert found.config.pools == (Pool("gpus", "gpu", "A100", "best_fit", "conservative", 150, speeds), Pool("cpus"))
    assert found.config.tenants == (Tenant("vision", "team"), Tenant("speech"))
    quotas = ((("devices", 8_000),), (("devices", 16_000),), (("devices", 4_000),))
    assert found.config.queues == (
        Queue("a", "root", "capacity", "reclaim", 2, *quotas, 300_000, 5),
        Queue("b", "a"),
    )
    assert found.config.root_policy == "fair_share"
    assert found.config.reservations == (
        Reservation("demo", "vision", 1_772_348_400_000, 1_772_352_000_000, ("n1", "n2")),
    )
    node = VirtualNode("n1", 2_500, 16 * GIB, 10**9, "gpus", (("disk", "ssd"),), "r", "7", 4, "H100", 80 * GIB)
    assert found.nodes == (replace(node, simulated_mig=True, simulated_mig_mode=True, simulated_links=((0, 1, 2),)),)


def test_every_strategy_and_rule_of_a_pool_can_be_named():
    pools = [{"name": f"p{i}", "placement": word} for i, word in enumerate(PLACEMENTS)]
    pools += [{"name": f"b{i}", "backfill": word} for i, word in enumerate(BACKFILL_RULES)]
    found = read({"pools": pools}).config.pools
    assert [p.placement for p in found[: len(PLACEMENTS)]] == list(PLACEMENTS)
    assert [p.backfill for p in found[len(PLACEMENTS) :]] == list(BACKFILL_RULES)


def links_of(**given):
    node = read({"nodes": [{"name": "n", "simulated_devices": {"count": 5} | given}]}).nodes[0]
    found = simulated(node.simulated_count, "M", GIB, mig=node.simulated_mig, links=node.simulated_links)
    return [tuple(link.peer for link in device.links) for device in found]


@pytest.mark.parametrize(
    ("given", "peers"),
    [
        ({}, [(1,), (0,), (3,), (2,), ()]),
        ({"links": None}, [(1,), (0,), (3,), (2,), ()]),
        ({"links": []}, [(), (), (), (), ()]),
        ({"links": [[0, 2, 4], []]}, [(2, 4), (), (0, 4), (), (0, 2)]),
    ],
)
def test_simulated_devices_are_joined_as_declared(given, peers):
    assert links_of(**given) == peers


def test_simulated_devices_can_be_cut_only_where_that_was_declared():
    assert [d.mig for d in simulated(2, "M", GIB, mig=True)] == [True, True]
    assert [d.mig for d in simulated(1, "M", GIB)] == [False]


def test_a_node_takes_from_the_machine_what_it_does_not_say():
    assert read({"nodes": ["n1"]}).nodes == (VirtualNode("n1"),)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"lease_ttl": "1m"}, "lease_ttl_ms", 60_000),
        ({"lease_ttl_ms": 61_000}, "lease_ttl_ms", 61_000),
        ({"starvation_after": "1h30m"}, "starvation_after_ms", 5_400_000),
        ({"heartbeat": 0.5}, "heartbeat_ms", 500),
        ({"least_attained_step_device": "16h"}, "least_attained_step_device_ms", 57_600_000),
        ({"admission": 1.25}, "admission_milli", 1_250),
        ({"admission_milli": 1_250}, "admission_milli", 1_250),
        ({"preemptive_utilisation": 0.9}, "preemptive_utilisation_milli", 900),
        ({"wait_bonus_max": 7}, "wait_bonus_max", 7),
        ({"priority_cost_ms_per_point": 3}, "priority_cost_ms_per_point", 3),
        ({"allow_waiting_for_nodes": True}, "allow_waiting_for_nodes", True),
    ],
)
def test_settings_are_read_by_name_and_durations_as_people_write_them(given, field, value):
    found = read({"settings": given}).config.settings
    assert getattr(found, field) == value
    assert found == Settings(**{field: value})


def test_all_problems_are_found_at_once():
    raw = {
        "pool": [],
        "pools": [{"name": "gpus", "kind": "gqu"}],
        "tenants": [{"name": "a b"}],
        "queues": [{"name": "q", "policy": "lifo"}, {"name": "q"}, {"name": "c", "parent": "nowhere"}],
        "settings": {"lease_tll": "1m", "heartbeat": "often"},
        "nodes": [{"name": "n", "pool": "gqus", "cpus": "many"}],
    }
    assert problems(raw) == [
        ("unknown_field", "pool"),
        ("unknown_field", "settings.lease_tll"),
        ("bad_value", "settings.heartbeat"),
        ("bad_value", "pools[0].kind"),
        ("bad_value", "tenants[0].name"),
        ("duplicate_name", "queues[1].name"),
        ("bad_value", "queues[0].policy"),
        ("bad_value", "nodes[0].cpus"),
        ("unknown_queue", "queues[2].parent"),
        ("unknown_pool", "nodes[0].pool"),
    ]


@pytest.mark.parametrize("name", [".", "..", ".n1", "a/b", "a\n"])
def test_a_node_has_no_name_that_leads_elsewhere(name):
    assert problems({"nodes": [{"name": name}]}) == [("bad_value", "nodes[0].name")]
    kept = {"name": "r", "tenant": "default", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
    assert problems({"reservations": [kept | {"nodes": [name]}]}) == [("bad_value", "reservations[0].nodes")]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 64, None, 5])
def test_names_are_plain(name):
    assert problems({"pools": [{"name": name}]}) == [("bad_value", "pools[0].name")]


@pytest.mark.parametrize(
    "raw", [5, "x", [], {"pools": "x"}, {"pools": [5]}, {"queues": {"a": 1}}, {"pools": ["p"] * (ENTRIES_MAX + 1)}]
)
def test_wrong_shapes_are_problems(raw):
    assert len(problems(raw)) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"pools": [{"name": "p", "placement": "tightest"}]},
        {"pools": [{"name": "p", "placement": 1}]},
        {"pools": [{"name": "p", "backfill": "some"}]},
        {"pools": [{"name": "p", "reserve": 15}]},
        {"pools": [{"name": "p", "reserve": "15"}]},
        {"pools": [{"name": "p", "reserve": []}]},
        {"pools": [{"name": "p", "speeds": ["A100"]}]},
        {"pools": [{"name": "p", "speeds": {"A100": 0}}]},
        {"pools": [{"name": "p", "speeds": {"A100": "fast"}}]},
        {"pools": [{"name": "p", "speeds": {"A100": {"speed": 1, "cost": 0}}}]},
        {"pools": [{"name": "p", "speeds": {"A100": {"sped": 1}}}]},
        {"pools": [{"name": "p", "speeds": {"A100": 10**7}}]},
        {"pools": [{"name": "p", "speeds": {"": 1}}]},
        {"pools": [{"name": "p", "speeds": {5: 1}}]},
        {"pools": [{"name": "p", "description": {"a": 1}}]},
        {"tenants": [{"name": "t", "description": True}]},
        {"settings": {"admission": -0.5}},
        {"settings": {"admission": 1.00001}},
        {"settings": {"admission": "all"}},
        {"nodes": [{"name": "n", "rack": ["r"]}]},
        {"nodes": [{"name": "n", "rack": 10**20}]},
        {"nodes": [{"name": "n", "pool": 5}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": 2, "mig": "yes"}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": 2, "mig_mode": True}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": 2, "links": 5}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": 2, "links": [0, 1]}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": 2, "links": [[0, 2]]}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": 2, "links": [[-1]]}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": 2, "links": [[0], [0]]}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": 2, "links": [[True]]}}]},
        {"queues": [{"name": "root"}]},
        {"queues": [{"name": "a", "max_waiting": 0}]},
        {"queues": [{"name": "a", "preemption": "always"}]},
        {"queues": [{"name": "a", "parent": 5}]},
        {"root_policy": "lifo"},
        {"settings": {"wait_bonus_max": -1}},
        {"settings": {"wait_bonus_max": True}},
        {"settings": {"allow_waiting_for_nodes": 1}},
        {"settings": {"lease_ttl": "8s"}},
        {"settings": {"lease_margin": "30s"}},
        {"settings": {"agent_servers": "new.example.org"}},
        {"settings": {"agent_servers": "new.example.org:70700, a:1"}},
        {"settings": {"agent_servers": ", ".join(f"a{i}:7070" for i in range(17))}},
        {"settings": [1]},
        {"nodes": [{"name": "n", "memory": "x"}]},
        {"nodes": [{"name": "n", "labels": ["a"]}]},
        {"nodes": [{"name": "n", "simulated_devices": {"count": -1}}]},
        {"nodes": [{"name": "n", "simulated_devices": {"modle": "x"}}]},
        {"nodes": [{"name": "n", "simulated_devices": 4}]},
        {"nodes": [{"name": "n", "gpus": 4}]},
    ],
    ids=str,
)
def test_a_bad_value_is_one_problem(bad):
    assert len(problems(bad)) == 1


def test_the_nearest_right_word_is_said():
    _, found = parse_cluster({"settings": {"starvation_aftr": "1h"}, "queus": []})
    assert [p.hint for p in found] == ["did you mean 'queues'?", "did you mean 'starvation_after'?"]


def reservation(**fields):
    given = {"name": "r", "tenant": "default", "start": 100, "end": 200, "nodes": ["n"]} | fields
    return {"reservations": [{k: v for k, v in given.items() if v != "left out"}]}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"start": "left out"}, "start"),
        ({"start": "2026-03-01T08:00"}, "start"),
        ({"end": "tomorrow"}, "end"),
        ({"end": None}, "end"),
        ({"end": 100}, "end"),
        ({"start": 300}, "end"),
        ({"nodes": []}, "nodes"),
        ({"nodes": "n"}, "nodes"),
        ({"nodes": ["a b"]}, "nodes"),
        ({"nodes": [["n"]]}, "nodes"),
        ({"nodes": ["n", "n"]}, "nodes"),
        ({"nodes": "left out"}, "nodes"),
        ({"tenant": "left out"}, "tenant"),
        ({"tenant": "nobody"}, "tenant"),
        ({"pool": "p"}, "pool"),
        ({"name": "a b"}, "name"),
    ],
    ids=str,
)
def test_a_bad_reservation_is_one_problem_at_its_field(fields, field):
    ((_, found),) = problems(reservation(**fields))
    assert found == f"reservations[0].{field}"


def test_a_reservation_that_ends_before_it_starts_says_both_times():
    _, (problem,) = parse_cluster(reservation(start=200, end=100))
    assert problem.message == (
        "reservations[0].end is '1970-01-01T00:01:40Z', expected later than start, 1970-01-01T00:03:20Z"
    )


def reserved(*windows):
    return problems(
        {
            "reservations": [
                {"name": f"r{i}", "tenant": "default", "start": start, "end": end, "nodes": list(nodes)}
                for i, (start, end, nodes) in enumerate(windows)
            ]
        }
    )


def test_no_node_is_kept_for_two_reservations_at_one_time():
    assert reserved((0, 10, "ab"), (10, 20, "a"), (5, 15, "c")) == []
    assert reserved((0, 10, "a"), (9, 20, "a")) == [("reservation_overlap", "reservations[1].nodes")]
    assert reserved((0, 30, "a"), (5, 6, "a"), (20, 40, "a")) == [
        ("reservation_overlap", "reservations[1].nodes"),
        ("reservation_overlap", "reservations[2].nodes"),
    ]
    assert reserved((9, 20, "ab"), (0, 10, "b")) == [("reservation_overlap", "reservations[0].nodes")]


windows = st.tuples(st.integers(0, 9), st.integers(1, 5), st.sets(st.sampled_from("abc"), min_size=1))


@given(st.lists(windows.map(lambda w: (w[0], w[0] + w[1], sorted(w[2]))), max_size=4))
def test_reservations_are_accepted_exactly_when_no_two_meet_on_a_node(found):
    pairs = [(a, b) for i, a in enumerate(found) for b in found[:i]]
    meet = any(a[0] < b[1] and b[0] < a[1] and set(a[2]) & set(b[2]) for a, b in pairs)
    assert bool(reserved(*found)) == meet


def yaml_blocks(name):
    """Return the YAML examples of a document: its indented blocks."""
    text = (Path(__file__).parents[3] / "docs" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    return [yaml.safe_load(block) for block in blocks if not re.match(r" {4}(?:from|import) ", block)]  # no Python


def test_the_examples_of_cluster_files_in_the_documents_are_read_as_they_stand():
    blocks = yaml_blocks("policies.md")
    around = {"tenants": ["vision"], "pools": ["a100", "h100"]}
    assert [len(read(around | block).config.queues) for block in blocks if "queues" in block] == [4, 1, 1]
    whole = {"tenants": ["vision"]}
    for block in reversed(blocks):
        whole |= block
    found = read(whole).config
    assert [q.name for q in found.queues] == ["research", "vision", "speech", "production"]
    assert len(found.pools[0].speeds) == 2
    assert found.reservations[0].end_ms - found.reservations[0].start_ms == 36_000_000


def test_the_examples_of_jobs_in_the_documents_are_read_as_they_stand():
    blocks = yaml_blocks("jobs.md")
    jobs = [block for block in blocks if not {"nodes", "settings"} & block.keys()]
    nodes = [block for block in blocks if "nodes" in block]
    declared = [read(block).config.settings for block in blocks if "settings" in block]
    assert [(one.node_check, one.scale_after_ms) for one in declared] == [("/opt/burn-in.sh", 60_000)]
    assert len(jobs) > 3
    for block in jobs:
        block = {k: v for k, v in block.items() if k != "after_ok"}
        given = block if block.get("lease") else {"command": "train"} | block
        assert parse_request(given)[1] == []
    assert [n.simulated_links for n in read(nodes[0]).nodes] == [((0, 1, 2, 3), (4, 5, 6, 7))]


def test_the_example_file_is_read_as_it_stands():
    path = Path(__file__).parents[3] / "examples" / "cluster.yaml"
    assert len(read(yaml.safe_load(path.read_text(encoding="utf-8"))).nodes) == 2


KEYS = ["pools", "tenants", "queues", "root_policy", "reservations", "settings", "nodes"]
WORDS = ["name", "parent", "pool", "labels", "memory", "reserve", "speeds", "start", "end", "nodes", "guaranteed"]
simulated_like = st.dictionaries(st.sampled_from(["count", "mig", "links"]), json_values)
entries = st.lists(
    st.dictionaries(st.sampled_from(WORDS), json_values)
    | st.builds(
        lambda name, fields: fields | {"name": name},
        st.sampled_from("abc"),
        st.dictionaries(st.sampled_from([*WORDS, "simulated_devices"]), json_values | simulated_like),
    ),
    max_size=3,
)


@pytest.mark.parametrize("found", ["best_fit", ["best_fit"], ["best_fit", "best_fit"], []], ids=str)
def test_candidates_are_two_or_more_different_strategies(found):
    assert problems({"candidates": found}) == ([("bad_value", "candidates")] if found else [])
    assert read({"candidates": ["worst_fit", "best_fit"]}).config.candidates == ("best_fit", "worst_fit")


def test_objectives_sum_to_one():
    shares = {"objective_utilisation": 0.5, "objective_response_time": 0.5}
    assert problems({"settings": shares}) == [("bad_value", "settings.objective_utilisation_milli")]
    none = {"objective_fairness": 0, "objective_energy": 0, "objective_cost": 0}
    assert read({"settings": shares | none}).config.settings.objective_utilisation_milli == 500


@examples(80)
@given(json_values | st.dictionaries(st.sampled_from(KEYS), json_values | entries))
def test_any_value_is_read_or_refused(raw):
    found, _ = parse_cluster(raw)
    assert isinstance(found.config, ClusterConfig)


@pytest.mark.parametrize(
    "raw",
    [
        {"users": [{"name": f"u{i}", "tenants": {f"t{i}": "member"}} for i in range(PROBLEMS_MAX + 50)]},
        {"queues": [{"name": f"q{i}", "max": {f"p{i}/devices": 1}} for i in range(PROBLEMS_MAX + 50)]},
        {"nodes": [{"name": f"n{i}", "pool": f"p{i}", "cpus": 1} for i in range(PROBLEMS_MAX + 50)]},
    ],
    ids=["tenants of users", "pools of quotas", "pools of nodes"],
)
def test_no_nearest_word_is_sought_for_what_is_not_named_any_more(raw, monkeypatch):
    sought = []
    monkeypatch.setattr(cluster, "nearest", lambda word, known: sought.append(word) or "")
    assert len(parse_cluster(raw)[1]) == PROBLEMS_MAX + 1
    assert len(sought) == PROBLEMS_MAX + 1


def test_how_a_pool_shares_devices_is_read_and_what_is_out_of_range_is_said():
    told = {"use_below": "40%", "window": "1m", "slowdown": 1.5, "across_tenants": True, "cool_down": "10m"}
    found = read({"pools": [{"name": "a", "sharing": told}]}).config.pools[0].sharing
    assert (found.use_below_milli, found.window_ms, found.slowdown_milli) == (400, 60_000, 1_500)
    assert (found.across_tenants, found.cool_down_ms, found.enabled) == (True, 600_000, True)
    wrong = {"use_below": 0, "window": "11m", "slowdown": 1, "memory_margin": "100%", "steps": 0, "enabled": "x"}
    _, problems = parse_cluster({"pools": [{"name": "a", "sharing": wrong | {"treshold": 1}}]})
    assert {p.field for p in problems} == {f"pools[0].sharing.{name}" for name in (*wrong, "treshold")}
    assert next(p.message for p in problems if p.field.endswith("window")) == (
        "pools[0].sharing.window is '11m', expected a time from 5s to 10m"
    )


def test_how_a_pool_and_its_queues_choose_sizes_is_read():
    raw = {
        "pools": [{"name": "a", "elastic": {"mode": "speedup", "rebalance": True, "restarts_per_hour": 2}}],
        "queues": [{"name": "up", "elastic": "off"}, {"name": "below", "parent": "up"}, {"name": "free"}],
    }
    found = read(raw).config
    assert found.pools[0].elastic == ElasticRule("speedup", rebalance=True, restarts_per_hour=2)
    assert [found.elastic_mode(name, "a") for name in ("up", "below", "free")] == ["off", "off", "speedup"]
    assert found.elastic_mode("free", "b") == "goodput"


def test_how_a_pool_matches_models_is_read():
    raw = {"pools": [{"name": "a", "models": {"match": True, "move": True, "moves_per_hour": 2}}, {"name": "b"}]}
    found = read(raw).config
    assert found.pools[0].models == ModelRule(match=True, move=True, moves_per_hour=2)
    assert (list(found.matching), found.moves_models) == (["a"], True)


def test_wrong_words_about_models_are_said():
    wrong = {"match": False, "move": True, "moves_per_hour": 61, "mach": True}
    _, problems = parse_cluster({"pools": [{"name": "a", "models": wrong}]})
    assert {p.field.rpartition(".")[2] for p in problems} == {"moves_per_hour", "mach", "move"}
    assert "did you mean 'match'?" in {p.hint for p in problems}


def test_wrong_choices_of_sizes_are_said_with_the_nearest_word():
    wrong = {"mode": "godput", "rebalance": "yes", "restarts_per_hour": 61}
    _, problems = parse_cluster({"pools": [{"name": "a", "elastic": wrong}], "queues": [{"name": "q", "elastic": 1}]})
    assert [(p.field, p.hint) for p in problems] == [
        ("pools[0].elastic.mode", "did you mean 'goodput'?"),
        ("pools[0].elastic.rebalance", ""),
        ("pools[0].elastic.restarts_per_hour", ""),
        ("queues[0].elastic", "known: goodput, off, speedup"),
    ]
