"""Job files: everything wrong is said at once, with the field, the value and the next step."""

from typing import Any

import pytest

from penstock.core.config.ask import ALTERNATIVES_MAX, DEVICES_PER_REPLICA_MAX, GROUPS_MAX, REPLICAS_MAX
from penstock.core.config.job import parse_request
from penstock.core.config.job_fields import ARRAY_MAX
from penstock.core.config.reader import shown
from penstock.core.messages.requests import JOBS_MAX
from penstock.core.model.errors import PROBLEMS_MAX, nearest


def problems(raw):
    entries, found = parse_request(raw)
    assert entries == ()
    return [(p.code, p.field) for p in found]


def job(**fields):
    return {"command": "train"} | fields


def test_all_problems_are_found_at_once():
    raw = {
        "replicas": 0,
        "devices": {"count": -1, "modle": "A100", "link": "wire"},
        "memory": "10 parsecs",
        "priority": "urgent",
        "time_limit": "soon",
        "queu": "a",
    }
    assert problems(raw) == [
        ("unknown_field", "queu"),
        ("bad_value", "replicas"),
        ("unknown_field", "devices.modle"),
        ("bad_value", "devices.count"),
        ("bad_value", "devices.link"),
        ("bad_value", "memory"),
        ("bad_value", "priority"),
        ("bad_value", "time_limit"),
        ("missing_field", "command"),
    ]


@pytest.mark.parametrize(
    ("raw", "field", "expected"),
    [
        (job(setup=[]), "setup", "a command line, or a list of 1 to 100 of them"),
        (job(setup=["a", " "]), "setup", "a command line, or a list of 1 to 100 of them"),
        (job(setup=["a"] * 101), "setup", "a list of 101', expected a command line, or a list of 1 to 100"),
        (job(setup=["x" * 40_000] * 2), "setup", "'80000 characters', expected at most 65536"),
        (job(python="r.txt"), "python", "requirements or a project"),
        (job(python={}), "python", "either requirements or project"),
        (job(python={"requirements": "r.txt", "project": "."}), "python", "either requirements or project"),
        (job(python={"requirements": []}), "python.requirements", "a requirements file, or a list of 1 to 1000"),
        (job(python={"requirements": ["a"] * 1_001}), "python.requirements", "'a list of 1001', expected"),
        (job(python={"requirements": ["a", "--index-url=x"]}), "python.requirements[1]", "a package such as numpy"),
        (job(python={"requirements": ["a\nb"]}), "python.requirements[0]", "a package such as numpy"),
        (job(python={"requirements": ["x" * 1_001]}), "python.requirements[0]", "a package such as numpy"),
        (job(python={"requirements": "--help"}), "python.requirements", "a path, without line breaks"),
        (job(python={"project": ".", "version": 3.10}), "python.version", "a version of Python"),
        (job(python={"project": ".", "version": "3.11; x"}), "python.version", "a version of Python"),
        (job(python={"project": ".", "index": "-x"}), "python.index", "a path, without line breaks"),
        (job(conda="-x"), "conda", "a path, without line breaks"),
        (job(conda="vision", python={"project": "."}), "conda", "a program has one of the two"),
    ],
)
def test_environments_and_steps_are_bounded_and_cannot_be_options(raw, field, expected):
    _, (problem,) = parse_request(raw)
    assert (problem.code, problem.field) == ("bad_value", field)
    assert expected in problem.message


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        (job(replcas=2), "did you mean 'replicas'?"),
        (job(gpus=2), "did you mean 'cpus'?"),
        (job(devices={"modle": "A100"}), "did you mean 'model'?"),
        (job(topology="same_nod"), "did you mean 'same_node'?"),
        (job(priority="hihg"), "did you mean 'high'?"),
        (job(checkpoint={"signal": "TERM"}), "did you mean 'SIGTERM'?"),
        (job(devices={"shar": 0.5}), "did you mean 'share'?"),
        (job(devices={"profile": "3G.40GB"}), "did you mean '3g.40gb'?"),
        (job(devices={"profile": "3g.40g"}), "did you mean '3g.40gb'?"),
        (job(devices={"profile": "MIG 1g.10gb+me"}), "did you mean '1g.10gb+me'?"),
        (job(devices={"profile": "whole device"}), ""),
        (job(placement="bestfit"), "did you mean 'best_fit'?"),
        (job(replicas={"mx": 2, "max": 3}), "did you mean 'max'?"),
        (job(groups=[{"cpu": 2}]), "did you mean 'cpus'?"),
        (job(alternatives=[{"replica": 2}]), "did you mean 'replicas'?"),
        (job(devices={"memory_limit": "1GiB"}), "say which part of the device, such as share: 0.25"),
        (job(replicas="2..4", groups=[{}]), "say one number of replicas, or `groups: []`"),
    ],
)
def test_the_nearest_right_word_is_said(raw, hint):
    _, found = parse_request(raw)
    assert [p.hint for p in found] == [hint]


def test_a_problem_names_field_value_and_what_was_expected():
    _, (problem,) = parse_request([job(), job(replicas="two")])
    assert problem.field == "jobs[1].replicas"
    assert problem.value == "'two'"
    assert (
        problem.message == "jobs[1].replicas is 'two', expected a whole number from 1 to 10000, or a range such as 2..8"
    )


def test_a_long_value_is_shown_short():
    _, (problem,) = parse_request(job(replicas="x" * 500))
    assert len(problem.value) == 80
    assert problem.value.endswith("...")


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"ports": []},
        {"batch": 64},
        {"batch": {"min": 64, "max": 32, "per_device_max": 8}},
        {"batch": {"min": 64, "max": 128}},
        {"batch": {"min": 0, "max": 128, "per_device_max": 8}},
        {"batch": {"min": 8, "max": 128, "per_device_max": 8, "per_device_min": 9}},
        {"batch": {"min": 8, "max": 16, "per_device_max": 64, "per_device_min": 32}},
        {"batch": {"min": 8, "max": 16, "per_device_max": 8, "per_device_min": 5}, "replicas": 4},
        {"batch": {"min": 8, "max": 16, "per_device_max": 8, "lr": 1}},
        {"batch": {"min": 8, "max": 16, "per_device_max": 8}, "groups": [{"replicas": 1}]},
        {"ports": "http"},
        {"ports": ["Http"]},
        {"ports": ["a-b"]},
        {"ports": [8080]},
        {"ports": ["a", "a"]},
        {"ports": list("abcdefghi")},
        {"schedule": "@daily"},
        {"schedule": {}},
        {"schedule": {"cron": ""}},
        {"schedule": {"cron": "x" * 201}},
        {"schedule": {"cron": "@daily", "zone": 1}},
        {"schedule": {"cron": "@daily", "name": "a b"}},
        {"schedule": {"cron": "@daily", "catch_up": "some"}},
        {"schedule": {"cron": "@daily", "catch_up": "all"}},
        {"schedule": {"cron": "@daily", "start": 2, "end": 1}},
        {"name": 5},
        {"name": "a\0b"},
        {"command": ""},
        {"command": []},
        {"command": [""]},
        {"command": "a\0b"},
        {"command": {"run": "x"}},
        {"command": None},
        {"replicas": True},
        {"replicas": 1.0},
        {"replicas": REPLICAS_MAX + 1},
        {"replicas": "4"},
        {"replicas": "..4"},
        {"replicas": "4..2"},
        {"replicas": "0..2"},
        {"replicas": f"1..{REPLICAS_MAX + 1}"},
        {"replicas": "9999999..2"},
        {"replicas": "²..4"},
        {"replicas": {"min": 2}},
        {"replicas": {"min": 0, "max": 2}},
        {"replicas": {"min": 3, "max": 2}},
        {"replicas": {"min": True, "max": 2}},
        {"replicas": {"max": "2"}},
        {"replicas": {"max": 2, "step": 1}},
        {"replicas": [1, 2]},
        {"devices": 1.5},
        {"devices": 0.0005},
        {"devices": 0.1234},
        {"devices": -0.5},
        {"devices": 1023.5},
        {"devices": float("nan")},
        {"devices": float("inf")},
        {"devices": True},
        {"devices": "1"},
        {"devices": [1]},
        {"devices": 10**400},
        {"devices": -1},
        {"devices": {"count": 0.5}},
        {"devices": {"share": 0}},
        {"devices": {"share": 1}},
        {"devices": {"share": 1.5}},
        {"devices": {"share": -0.5}},
        {"devices": {"share": 0.0001}},
        {"devices": {"share": "half"}},
        {"devices": {"share": True}},
        {"devices": {"share": None}},
        {"devices": {"share": 0.5, "count": 2}},
        {"devices": {"share": 0.5, "count": 0}},
        {"devices": {"share": 0.5, "memory_limit": "much"}},
        {"devices": {"share": 0.5, "memory_limit": 0}},
        {"devices": {"memory_limit": "1GiB"}},
        {"devices": {"memory_limit": "1GiB", "profile": "1g.10gb"}},
        {"devices": {"profile": "3g"}},
        {"devices": {"profile": "5g.40gb"}},
        {"devices": {"profile": "3g.0gb"}},
        {"devices": {"profile": "MIG 3g.40gb"}},
        {"devices": {"profile": 3}},
        {"devices": {"profile": None}},
        {"devices": {"profile": "1g.10gb", "count": 2}},
        {"devices": {"profile": "1g.10gb", "count": 0}},
        {"devices": {"profile": "1g.10gb", "share": 0.5}},
        {"groups": {"replicas": 2}},
        {"groups": [5]},
        {"groups": [{"replicas": "1..2"}]},
        {"groups": [{"replicas": 0}]},
        {"groups": [{"devices": 1.5}]},
        {"groups": [{"topology": "spread"}]},
        {"groups": [{"pool": "gpus"}]},
        {"groups": [{}] * (GROUPS_MAX + 1)},
        {"groups": [{"replicas": REPLICAS_MAX}]},
        {"groups": [{"replicas": 1}], "replicas": "1..2"},
        {"groups": [{"replicas": 2}], "replicas": REPLICAS_MAX - 1},
        {"alternatives": {"replicas": 2}},
        {"alternatives": [5]},
        {"alternatives": [{}]},
        {"alternatives": [{"replicas": 2}] * (ALTERNATIVES_MAX + 1)},
        {"alternatives": [{"replicas": 0}]},
        {"alternatives": [{"queue": "q"}]},
        {"alternatives": [{"pool": "p"}]},
        {"alternatives": [{"alternatives": []}]},
        {"alternatives": [{"devices": {"share": 2}}]},
        {"alternatives": [{"replicas": "2..4", "groups": [{}]}]},
        {"alternatives": [{"groups": [{"replicas": REPLICAS_MAX}]}]},
        {"alternatives": [{"replicas": "2..4"}], "groups": [{}]},
        {"placement": "tightest"},
        {"placement": ""},
        {"placement": 5},
        {"shareable": "yes"},
        {"shareable": 1},
        {"devices": DEVICES_PER_REPLICA_MAX + 1},
        {"devices": {"vendor": ""}},
        {"devices": {"model": [1]}},
        {"devices": {"memory": None}},
        {"devices": {"capability": "eight"}},
        {"devices": {"capability": "8.0.1"}},
        {"devices": {"capability": True}},
        {"devices": {"capability": "²"}},
        {"devices": {"capability": "8.²"}},
        {"cpus": -1},
        {"cpus": "2"},
        {"cpus": float("nan")},
        {"cpus": True},
        {"memory": -1},
        {"memory": True},
        {"memory": 1e30},
        {"memory": float("nan")},
        {"storage": "x"},
        {"storage": float("inf")},
        {"bandwidth": "10"},
        {"bandwidth": 0.5},
        {"priority": -1},
        {"priority": 10_001},
        {"priority": True},
        {"priority": 1.5},
        {"preemptible": "yes"},
        {"preemptible": 1},
        {"after_ok": True},
        {"after_ok": [""]},
        {"after_ok": 0},
        {"after_ok": "0"},
        {"after_any": [1.5]},
        {"after_ok": "9" * 30},
        {"after_ok": "9" * 5000},
        {"after_ok": "²"},
        {"array": 0},
        {"array": ARRAY_MAX + 1},
        {"array": "9-0"},
        {"array": "0-9%0"},
        {"array": "0-9:0"},
        {"array": f"0-{ARRAY_MAX}"},
        {"array": "0,3"},
        {"time_limit": -1},
        {"time_limit": float("inf")},
        {"max_wait": []},
        {"grace": "1y"},
        {"retries": 101},
        {"retries": -1},
        {"env": ["A=1"]},
        {"env": {"A=B": "1"}},
        {"env": {"": "1"}},
        {"env": {"A": None}},
        {"env": {"A": ["1"]}},
        {"env": {"A": "\0"}},
        {"workdir": ""},
        {"topology": "rack"},
        {"topology": {"scope": "same_node", "required": "no"}},
        {"topology": {"required": True}},
        {"node_labels": ["ssd"]},
        {"node_labels": {"wanted": "ssd"}},
        {"labels": 1},
        {"checkpoint": "SIGTERM"},
        {"checkpoint": {"signal": "SIGKILL"}},
        {"checkpoint": {"request_signal": "SIGSTOP"}},
        {"checkpoint": {"interval": "often"}},
    ],
    ids=lambda f: str(f)[:40],
)
def test_a_bad_value_is_one_problem_below_its_own_field(fields):
    raw = job(**fields)
    entries, found = parse_request(raw)
    assert entries == ()
    assert len(found) == 1
    assert found[0].field.startswith(next(iter(fields)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"devices": 1.5},
            "devices is 1.5, expected 0 to 1024 whole devices, or a part such as 0.25 of one",
        ),
        (
            {"devices": {"share": 0.5, "count": 4}},
            "devices.share is 0.5, expected either a share or a count: a replica with a share has a part of one device",
        ),
        (
            {"devices": {"profile": "3g.40gb", "share": 0.5}},
            "devices.profile is '3g.40gb', expected either a profile or a share",
        ),
        ({"replicas": "8..2"}, "replicas.max is 2, expected at least the smallest size, 8"),
        (
            {"replicas": "2..8", "groups": [{}, {}]},
            "groups is '2 beside 2..8 replicas', expected none in an elastic job",
        ),
        (
            {"replicas": 5, "groups": [{"replicas": 5000}, {"replicas": 5000}]},
            "groups is 10005, expected at most 10000 replicas in all groups together",
        ),
        (
            {"alternatives": [{"devices": 2}, {"replicas": 0}]},
            "alternatives[1].replicas is 0, expected a whole number from 1 to 10000",
        ),
        ({"alternatives": [{}]}, "alternatives[0] is {}, expected at least one field of a shape"),
        ({"groups": [{}] * 65}, "groups is 'a list of 65', expected a list of at most 64 mappings"),
    ],
)
def test_a_refused_shape_is_said_exactly(fields, message):
    _, (problem,) = parse_request(job(**fields))
    assert problem.message == message


def test_a_problem_of_an_alternative_counts_what_is_no_mapping_too():
    raw = job(groups=[{}], alternatives=[5, {"replicas": "2..4"}])
    assert problems(raw) == [("bad_value", "alternatives[0]"), ("bad_value", "alternatives[1].groups")]


def test_what_the_job_got_wrong_is_not_said_again_for_an_alternative_that_inherits_it():
    assert problems(job(replicas="2..4", groups=[{}], alternatives=[{"devices": 2}])) == [("bad_value", "groups")]


@pytest.mark.parametrize("raw", [None, 5, "train", [], {"jobs": []}, {"jobs": "x"}, [5], {"jobs": [None]}, True, 1.5])
def test_what_is_no_job_file_is_refused(raw):
    assert len(problems(raw)) == 1


def test_an_empty_job_misses_its_command():
    assert problems({}) == [("missing_field", "command")]


def test_bad_defaults_are_named():
    assert problems({"jobs": [job()], "defaults": 5}) == [("bad_value", "defaults")]
    assert problems({"jobs": [job()], "default": {}}) == [("unknown_field", "default")]
    assert problems({"jobs": [job()], "defaults": {"nam": "x"}}) == [("unknown_field", "defaults.nam")]


def test_the_list_of_problems_is_bounded():
    _, found = parse_request([job(replicas=0, devices=i - 10_000, colour=1) for i in range(5_000)])
    assert (len(found), found[-1].code) == (PROBLEMS_MAX + 1, "too_many_problems")


@pytest.mark.parametrize(
    ("request_", "code", "field"),
    [
        ([job()] * (JOBS_MAX + 1), "too_many_jobs", "jobs"),
        ({"jobs": [job(name=f"j{i}") for i in range(400)], "defaults": {"env": {"A": "x" * 2**18}}}, "too_large", None),
        (job(name="n" * 257), "bad_value", "name"),
        (job(env={f"v{i}": "1" for i in range(1_001)}), "bad_value", "env"),
        (job(env={"v" * 257: "1"}), "bad_value", "env"),
        (job(labels={f"v{i}": "1" for i in range(101)}), "bad_value", "labels"),
        (job(secrets=[f"S{i}" for i in range(101)]), "bad_value", "secrets"),
        (job(after_any=list(range(1, 1_002))), "bad_value", "after_any"),
        (job(after_any=["n" * 257]), "bad_value", "after_any"),
        (job(command=[""] * 4_097), "bad_value", "command"),
        (job(devices={"model": ["m"] * 33}), "bad_value", "devices.model"),
        (job(time_limit="1" * 65), "bad_value", "time_limit"),
        (job(workdir="/" * 4_097), "bad_value", "workdir"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_one_request_may_hold_is_bounded_before_it_is_read(request_, code, field):
    entries, (found, *more) = parse_request(request_)
    assert (entries, found.code, more) == ((), code, [])
    assert field in (None, found.field)
    assert len(found.message) < 300


def test_defaults_are_read_once_and_not_for_each_job():
    """20,000 unknown defaults merged into each of 10,000 jobs took gigabytes."""
    _, found = parse_request({"jobs": [job()] * 10_000, "defaults": {f"x{i}": 1 for i in range(20_000)}})
    assert {problem.field[:9] for problem in found[:-1]} == {"defaults."}


def test_a_value_is_shown_in_part_whatever_it_is():
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    for value in ("x" * 10**6, list(range(10**6)), {str(i): "y" * 1_000 for i in range(1_000)}, deep, 10**4_000):
        assert len(shown(value)) <= 80


def test_no_hint_is_looked_for_among_too_many_words():
    names = [f"name-{i}" for i in range(1_001)]
    assert nearest("name-7x", names[:1_000]) == "did you mean 'name-7'?"
    assert (nearest("name-7x", names), nearest("n" * 65, names[:20])) == ("", "")


def names(*pairs):
    return [job(name=name, **({"after_ok": list(after)} if after else {})) for name, *after in pairs]


def test_entries_are_sorted_so_that_each_comes_after_those_it_names():
    entries, found = parse_request(names(("c", "b"), ("b", "a"), ("a",), ("d",)))
    assert found == []
    assert [e.spec.name for e in entries] == ["a", "b", "c", "d"]
    assert entries[2].after_names == (("b", "after_ok"),)


def test_a_name_stands_for_all_jobs_that_have_it():
    entries, _ = parse_request(names(("z", "a"), ("a",), ("a",)))
    assert [e.spec.name for e in entries] == ["a", "a", "z"]


@pytest.mark.parametrize(
    ("pairs", "cycle"),
    [
        ([("a", "a")], "a -> a"),
        ([("a", "b"), ("b", "a")], "a -> b -> a"),
        ([("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")], "a -> b -> c -> a"),
    ],
)
def test_a_cycle_of_dependencies_is_named(pairs, cycle):
    _, (problem,) = parse_request(names(*pairs))
    assert problem.code == "dependency_cycle"
    assert problem.message == f"these jobs wait for each other: {cycle}"


def test_a_job_that_waits_for_itself_is_named_by_its_field():
    _, (problem,) = parse_request(job(name="a", after_any="a"))
    assert (problem.code, problem.field) == ("dependency_cycle", "after_any")


def test_a_name_that_no_job_has_is_one_problem():
    _, (problem,) = parse_request(names(("train",), ("eval", "trian")))
    assert (problem.code, problem.field) == ("unknown_job", "jobs[1].after_ok")
    assert problem.hint == "did you mean 'train'?"


def test_a_long_chain_is_sorted_without_recursion():
    chain = [("j0",)] + [(f"j{i}", f"j{i - 1}") for i in range(1, 3_000)]
    entries, found = parse_request(names(*reversed(chain)))
    assert found == []
    assert [e.spec.name for e in entries] == [f"j{i}" for i in range(3_000)]


def test_a_job_that_two_others_wait_for_is_no_cycle():
    entries, found = parse_request(names(("c", "a", "b"), ("b", "a"), ("a",)))
    assert found == []
    assert [e.spec.name for e in entries] == ["a", "b", "c"]


def test_two_jobs_with_numbers_too_big_are_two_problems():
    assert problems([job(priority=2**70), job(priority=2**71)]) == [
        ("bad_value", "jobs[0].priority"),
        ("bad_value", "jobs[1].priority"),
    ]


def test_a_lease_needs_no_command_and_an_end():
    (entry,), found = parse_request({"lease": True, "time_limit": "4h", "devices": 2})
    assert found == []
    assert (entry.spec.command, entry.spec.name, entry.spec.preemptible) == (("sleep", "infinity"), "lease", False)
    assert entry.spec.time_limit_ms == 4 * 3_600_000
    assert problems({"lease": True}) == [("missing_field", "time_limit")]
    assert problems(job(lease=True, time_limit="1h")) == [("bad_value", "command")]


def test_a_long_cycle_is_one_problem_that_names_its_first_jobs():
    chain = [(f"j{i}", f"j{(i + 1) % 3_000}") for i in range(3_000)]
    _, (problem,) = parse_request(names(*chain))
    assert problem.message == (
        "these jobs wait for each other: j0 -> j1 -> j2 -> j3 -> j4 -> j5 -> j6 -> j7 -> j8 -> ... -> j0 (3000 jobs)"
    )


def test_many_cycles_are_one_problem():
    everybody = [f"j{i}" for i in range(100)]
    _, found = parse_request(names(*((name, *everybody) for name in everybody)))
    assert [p.message for p in found] == ["these jobs wait for each other: j0 -> j0"]


def test_a_name_that_many_share_is_gone_through_once():
    """Each of the entries by itself would be 10^8 steps and as many places in memory."""
    many = 10_000
    entries, found = parse_request(names(*[("z", "a")] * many, *[("a",)] * many))
    assert found == []
    assert [e.spec.name for e in entries] == ["a"] * many + ["z"] * many


def test_names_that_no_job_has_are_named_up_to_a_limit_with_one_hint():
    _, found = parse_request(names(("train",), *((f"j{i}", "trian", "x" * 256) for i in range(400))))
    assert len(found) == PROBLEMS_MAX
    assert [p.hint for p in found[:2]] == ["did you mean 'train'?", "use the number of a job that was submitted before"]
    assert max(len(p.message) for p in found) < 200
