"""Job files: what each field means, what is assumed where it is left out, and what the JSON Schema says of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from penstock.core.config.ask import PLACEMENTS, SHAPE
from penstock.core.config.job import job_schema, parse_request, request_schema
from penstock.core.config.job_fields import FIELDS
from penstock.core.lifecycle.requests import NewJob
from penstock.core.model.batching import BatchAsk
from penstock.core.model.containers import ImageAsk, Mount
from penstock.core.model.dependencies import JobDestination
from penstock.core.model.environments import PythonSpec
from penstock.core.model.jobs import CheckpointSpec, Dependency, GangAsk, GroupAsk, Input, JobSpec, Topology
from penstock.core.model.notifications import GROUPS, JOB_EVENTS
from penstock.core.model.resources import DeviceAsk, ReplicaAsk, Resources
from penstock.core.model.schedule_rule import ScheduleRule
from penstock.core.place.mig import GEOMETRIES
from tests.properties import examples

GIB = 2**30
ONE_CPU = Resources(cpu_milli=1000)


def read(**fields):
    entries, problems = parse_request({"command": "train"} | fields)
    assert problems == []
    return entries[0]


def sizes(entry):
    return entry.spec.ask.replicas, entry.spec.ask.replicas_max


SHELL = ("/bin/sh", "-c", "train")
EXAMPLES = {
    "on_preempt": [("suspend", lambda e: e.spec.on_preempt, "suspend"), ("stop", lambda e: e.spec.on_preempt, "stop")],
    "batch": [
        (
            {"min": 64, "max": 512, "per_device_max": 64},
            lambda e: e.spec.batch,
            BatchAsk(smallest=64, largest=512, per_device_max=64),
        ),
        (
            {"min": 1, "max": 8, "per_device_max": 4, "per_device_min": 2},
            lambda e: e.spec.batch,
            BatchAsk(1, 8, 4, per_device_min=2),
        ),
    ],
    "on_hang": [("report", lambda e: e.spec.on_hang, "report"), ("restart", lambda e: e.spec.on_hang, "restart")],
    "hold": [(True, lambda e: e.held, True), (False, lambda e: e.held, False)],
    "lease": [(False, lambda e: e.spec.lease, False)],
    "secrets": [
        (["HF_TOKEN"], lambda e: e.spec.secrets, (("HF_TOKEN", "HF_TOKEN"),)),
        ({"B": "team-key", "A": "x"}, lambda e: e.spec.secrets, (("A", "x"), ("B", "team-key"))),
    ],
    "setup": [
        ("make", lambda e: e.spec.setup, ("make",)),
        (["a\nb", "c"], lambda e: e.spec.setup, ("a\nb", "c")),
    ],
    "python": [
        ({"requirements": "r.txt"}, lambda e: e.spec.python, PythonSpec(file="r.txt")),
        (
            {"requirements": ["numpy ", "torch==2.*"], "version": "3.11", "index": "https://x/simple"},
            lambda e: e.spec.python,
            PythonSpec(("numpy", "torch==2.*"), version="3.11", index="https://x/simple"),
        ),
        ({"project": ".", "version": 3}, lambda e: e.spec.python, PythonSpec(project=".", version="3")),
    ],
    "conda": [("vision", lambda e: e.spec.python, PythonSpec(conda="vision"))],
    "hang_limit": [
        ("2m", lambda e: e.spec.hang_limit_ms, 120_000),
        ("15m", lambda e: e.spec.hang_limit_ms, 900_000),
        ("0s", lambda e: (e.spec.hang_limit_ms, e.spec.effective_hang_limit_ms), (0, 0)),
    ],
    "image": [
        ("python:3.11", lambda e: e.spec.image, ImageAsk("python:3.11")),
        (
            {"name": "a", "pull": "never", "runtime": "podman", "mounts": ["/x:/y:ro"]},
            lambda e: e.spec.image,
            ImageAsk("a", "never", "podman", (Mount("/x", "/y", read_only=True),)),
        ),
    ],
    "inputs": [
        ({"a": "s3://b/x/"}, lambda e: e.spec.inputs, (Input("a", "s3://b/x/"),)),
        (
            {"a": {"url": "https://h/x", "sha256": "0" * 64}},
            lambda e: e.spec.inputs,
            (Input("a", "https://h/x", "0" * 64),),
        ),
    ],
    "name": [("run 1", lambda e: e.spec.name, "run 1")],
    "command": [
        ("a | b", lambda e: e.spec.command, ("/bin/sh", "-c", "a | b")),
        (["python", "a b.py", 3, 0.5], lambda e: e.spec.command, ("python", "a b.py", "3", "0.5")),
    ],
    "replicas": [
        (3, sizes, (3, 0)),
        ("2..8", sizes, (2, 8)),
        (" 2 .. 8 ", sizes, (2, 8)),
        ({"min": 2, "max": 8}, sizes, (2, 8)),
        ({"max": 8}, sizes, (1, 8)),
        ("4..4", sizes, (4, 0)),
    ],
    "devices": [
        (2, lambda e: e.spec.ask.each.devices, DeviceAsk(2)),
        (0, lambda e: e.spec.ask.each.devices, None),
        (2.0, lambda e: e.spec.ask.each.devices, DeviceAsk(2)),
        (0.25, lambda e: e.spec.ask.each.devices, DeviceAsk(1, share_milli=250)),
        (0.001, lambda e: e.spec.ask.each.devices, DeviceAsk(1, share_milli=1)),
        ({"share": 0.29}, lambda e: e.spec.ask.each.devices, DeviceAsk(1, share_milli=290)),
        (
            {"share": 0.999, "count": 1, "memory_limit": "10GiB", "memory": "40GiB"},
            lambda e: e.spec.ask.each.devices,
            DeviceAsk(1, share_milli=999, share_memory_bytes=10 * GIB, memory_min_bytes=40 * GIB),
        ),
        *(
            ({"profile": name}, lambda e: e.spec.ask.each.devices.profile, name)
            for name in ("1g.24gb-me", "2g.48gb+me.all")
        ),
        ({"profile": "3g.40gb"}, lambda e: e.spec.ask.each.devices, DeviceAsk(1, profile="3g.40gb")),
        (
            {"profile": "1g.10gb+me", "count": 1, "model": "A100"},
            lambda e: e.spec.ask.each.devices,
            DeviceAsk(1, models=("A100",), profile="1g.10gb+me"),
        ),
        ({}, lambda e: e.spec.ask.each.devices, DeviceAsk(1)),
        ({"count": 0, "vendor": "amd"}, lambda e: e.spec.ask.each.devices, None),
        ({"vendor": "amd"}, lambda e: e.spec.ask.each.devices, DeviceAsk(1, "amd")),
        ({"model": "H100"}, lambda e: e.spec.ask.each.devices.models, ("H100",)),
        ({"model": ["H100", "A100"]}, lambda e: e.spec.ask.each.devices.models, ("H100", "A100")),
        ({"memory": "40GiB"}, lambda e: e.spec.ask.each.devices.memory_min_bytes, 40 * GIB),
        ({"capability": 8.0}, lambda e: e.spec.ask.each.devices.capability_min, (8, 0)),
        ({"capability": "10.3"}, lambda e: e.spec.ask.each.devices.capability_min, (10, 3)),
        ({"capability": 9}, lambda e: e.spec.ask.each.devices.capability_min, (9, 0)),
        ({"link": "nvlink"}, lambda e: e.spec.ask.each.devices.link, "nvlink"),
    ],
    "cpus": [(0.5, lambda e: e.spec.ask.each.host.cpu_milli, 500), (0, lambda e: e.spec.ask.each.host.cpu_milli, 50)],
    "memory": [
        ("64GB", lambda e: e.spec.ask.each.host.memory_bytes, 64 * 10**9),
        (2.0, lambda e: e.spec.ask.each.host.memory_bytes, 2),
    ],
    "storage": [(1024, lambda e: e.spec.ask.each.host.storage_bytes, 1024)],
    "bandwidth": [("10Gbps", lambda e: e.spec.ask.each.host.bandwidth_bps, 10**10)],
    "groups": [
        ([], lambda e: e.spec.ask.others, ()),
        ([{}], lambda e: e.spec.ask.others, (GroupAsk(1, ReplicaAsk(ONE_CPU)),)),
        (
            [{"replicas": 4, "devices": 0.5, "cpus": 2, "memory": "1GiB", "storage": 5, "bandwidth": "1Gbps"}, {}],
            lambda e: e.spec.ask.others,
            (
                GroupAsk(4, ReplicaAsk(Resources(2000, GIB, 5, 10**9), DeviceAsk(1, share_milli=500))),
                GroupAsk(1, ReplicaAsk(ONE_CPU)),
            ),
        ),
    ],
    "alternatives": [
        ([], lambda e: e.spec.alternatives, ()),
        (
            [{"replicas": "2..4", "cpus": 3}, {"topology": "spread", "placement": "random"}],
            lambda e: e.spec.alternatives,
            (
                GangAsk(2, ReplicaAsk(Resources(3000)), replicas_max=4),
                GangAsk(1, ReplicaAsk(ONE_CPU), topology=Topology("spread"), placement="random"),
            ),
        ),
    ],
    "placement": [(word, lambda e: e.spec.ask.placement, word) for word in PLACEMENTS],
    "workload_class": [(word, lambda e: e.spec.workload_class, word) for word in ("training", "data", "api")],
    "runtime": [
        ("ray", lambda e: (e.spec.runtime, e.spec.object_store_bytes), ("ray", 0)),
        ({"ray": {}}, lambda e: (e.spec.runtime, e.spec.object_store_bytes), ("ray", 0)),
        ({"ray": {"object_store": "2GiB"}}, lambda e: (e.spec.runtime, e.spec.object_store_bytes), ("ray", 2 * GIB)),
    ],
    "shareable": [(True, lambda e: e.spec.shareable, True)],
    "pool": [("npus", lambda e: e.spec.ask.pool, "npus")],
    "queue": [("q", lambda e: e.spec.queue, "q")],
    "tenant": [("t", lambda e: e.spec.tenant, "t")],
    "priority": [
        ("low", lambda e: e.spec.priority, 100),
        ("medium", lambda e: e.spec.priority, 500),
        ("high", lambda e: e.spec.priority, 1000),
        (7, lambda e: e.spec.priority, 7),
    ],
    "preemptible": [(False, lambda e: e.spec.preemptible, False)],
    "after_ok": [(5, lambda e: e.spec.after, (Dependency(5, "after_ok"),)), ("6", lambda e: e.spec.after[0].job_id, 6)],
    "after_any": [([5, "6"], lambda e: e.spec.after, (Dependency(5, "after_any", 2),))],
    "after_failed": [([7], lambda e: e.spec.after, (Dependency(7, "after_failed"),))],
    "array": [
        (4, lambda e: e.array, 4),
        ("0-9%4", lambda e: (e.array, e.array_first, e.array_step, e.spec.array_parallel), (10, 0, 1, 4)),
        ("1-10:3", lambda e: (e.array, e.array_first, e.array_step, e.spec.array_parallel), (4, 1, 3, 0)),
        ("6%6", lambda e: (e.array, e.spec.array_parallel), (6, 0)),
    ],
    "time_limit": [("2h", lambda e: e.spec.time_limit_ms, 7_200_000)],
    "estimated_duration": [(90, lambda e: e.spec.estimated_duration_ms, 90_000)],
    "max_wait": [("1d", lambda e: e.spec.max_wait_ms, 86_400_000)],
    "grace": [("5s", lambda e: e.spec.grace_ms, 5_000), (0, lambda e: e.spec.grace_ms, 0)],
    "retries": [(3, lambda e: e.spec.retries_max, 3)],
    "env": [({"B": 1, "A": True, "C": 0.5}, lambda e: e.spec.env, (("A", "true"), ("B", "1"), ("C", "0.5")))],
    "notify": [
        ("end", lambda e: e.spec.notify, ("success", "failure", "cancelled")),
        (["preempted", "start", "start"], lambda e: e.spec.notify, ("start", "preempted")),
        ("none", lambda e: e.spec.notify, ("none",)),
        ("BEGIN,FAIL", lambda e: e.spec.notify, ("start", "failure")),
        (["NONE"], lambda e: e.spec.notify, ("none",)),
        (
            ["failure", {"command": "pager"}, {"on": "start", "slack": {"secret": "CHAT"}}],
            lambda e: (e.spec.notify, e.spec.notify_to),
            (
                ("failure",),
                (
                    JobDestination(("success", "failure", "cancelled"), "command", "pager"),
                    JobDestination(("start",), "slack", secret="CHAT"),
                ),
            ),
        ),
        (
            {"on": ["never"], "webhook": "https://ci.example.org/done?run=1"},
            lambda e: (e.spec.notify, e.spec.notify_to),
            ((), (JobDestination(("never",), "webhook", "https://ci.example.org/done?run=1"),)),
        ),
        (
            {"webhook": {"secret": "CI_URL"}, "signing_key": {"secret": "CI_KEY"}},
            lambda e: e.spec.notify_to,
            (JobDestination(GROUPS["end"], "webhook", secret="CI_URL", signed_by="CI_KEY"),),
        ),
        (
            ["none", {"to": "mail", "on": "jobs"}],
            lambda e: (e.spec.notify, e.spec.notify_to),
            (("none",), (JobDestination(tuple(JOB_EVENTS), "own", "mail"),)),
        ),
    ],
    "workdir": [("/data", lambda e: e.spec.workdir, "/data")],
    "topology": [
        ("same_node", lambda e: e.spec.ask.topology, Topology("node")),
        ("same_switch", lambda e: e.spec.ask.topology, Topology("switch")),
        ("same_rack", lambda e: e.spec.ask.topology, Topology("rack")),
        ({"scope": "spread", "required": False}, lambda e: e.spec.ask.topology, Topology("spread", False)),
    ],
    "node_labels": [
        (
            {"wanted": {"disk": "ssd"}, "shunned": {"old": True}},
            lambda e: (e.spec.ask.labels_wanted, e.spec.ask.labels_shunned),
            ((("disk", "ssd"),), (("old", "true"),)),
        )
    ],
    "labels": [({"team": "a"}, lambda e: e.spec.labels, (("team", "a"),))],
    "checkpoint": [
        ({}, lambda e: e.spec.checkpoint, CheckpointSpec()),
        (
            {"signal": "SIGINT", "request_signal": "SIGUSR1", "interval": "5m"},
            lambda e: e.spec.checkpoint,
            CheckpointSpec("SIGINT", "SIGUSR1", 300_000),
        ),
    ],
    "ports": [
        (["http", "metrics"], lambda e: e.spec.ports, ("http", "metrics")),
    ],
    "schedule": [
        ({"cron": " 0  3 * * * "}, lambda e: e.schedule, ScheduleRule("0 3 * * *")),
        (
            {
                "cron": "@daily",
                "zone": "Europe/Berlin",
                "name": "nightly",
                "catch_up": "all",
                "overlap": "queue",
                "start": 1,
                "end": 2,
                "paused": True,
            },
            lambda e: e.schedule,
            ScheduleRule("@daily", "Europe/Berlin", "nightly", "all", "queue", 1_000, 2_000, True),
        ),
    ],
}
CASES = [(name, *case) for name, cases in EXAMPLES.items() for case in cases]


def test_every_field_has_an_example():
    assert set(EXAMPLES) == set(FIELDS)


@pytest.mark.parametrize(("field", "value", "get", "expected"), CASES)
def test_a_field_means_what_it_says(field, value, get, expected):
    assert get(read(**{field: value})) == expected


def test_what_is_left_out_is_assumed_as_documented():
    each = ReplicaAsk(Resources(cpu_milli=1000), None)
    assert read() == NewJob(JobSpec(SHELL, GangAsk(1, each), name="train"), unnamed=("tenant", "queue"))


@pytest.mark.parametrize("field", sorted(set(FIELDS) - {"command"}))
def test_null_is_as_if_it_were_left_out(field):
    assert read(**{field: None}) == read()


def test_an_alternative_takes_what_it_does_not_name_from_the_jobs_own_shape():
    own = {"replicas": 2, "devices": 4, "cpus": 8, "memory": "1GiB", "pool": "gpus", "groups": [{}]}
    entry = read(**own, node_labels={"wanted": {"disk": "ssd"}}, alternatives=[{"devices": 1}, {"groups": []}])
    first, second = entry.spec.alternatives
    each = ReplicaAsk(Resources(8000, GIB), DeviceAsk(1))
    assert first == GangAsk(2, each, "gpus", None, (("disk", "ssd"),), others=(GroupAsk(1, ReplicaAsk(ONE_CPU)),))
    assert second.others == ()
    assert second.each == entry.spec.ask.each


def test_an_elastic_alternative_of_a_job_with_groups_drops_them_by_saying_so():
    entry = read(groups=[{}], alternatives=[{"replicas": "2..4", "groups": []}])
    assert [sizes(entry), entry.spec.alternatives[0].replicas_max] == [(1, 0), 4]


def test_every_profile_of_every_known_model_can_be_asked_for():
    names = {profile.name for geometry in GEOMETRIES for profile in geometry.profiles}
    assert [read(devices={"profile": name}).spec.ask.each.devices.profile for name in sorted(names)] == sorted(names)


def test_null_in_an_alternative_is_as_if_it_were_left_out():
    entry = read(devices=4, alternatives=[{"devices": None, "replicas": 2}])
    assert entry.spec.alternatives[0].each.devices == DeviceAsk(4)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -u src/train.py --x 1", "train.py"),
        ("/usr/bin/python3", "python3"),
        (["/opt/run.sh", "a"], "run.sh"),
        (["python", "-c"], "python"),
        ("/", "job"),
    ],
)
def test_a_job_is_named_after_its_program(command, name):
    assert read(command=command).spec.name == name


def test_defaults_hold_for_all_jobs_and_each_job_may_differ():
    raw = {"defaults": {"command": "x", "cpus": 2, "queue": "q"}, "jobs": [{}, {"cpus": 3}, {"command": "y"}]}
    entries, problems = parse_request(raw)
    assert problems == []
    assert [e.spec.ask.each.host.cpu_milli for e in entries] == [2000, 3000, 2000]
    assert [e.spec.command[2] for e in entries] == ["x", "x", "y"]
    assert {e.spec.queue for e in entries} == {"q"}


def test_equal_entries_share_one_value():
    entries, _ = parse_request([{"command": "x"}] * 3 + [{"command": "y"}])
    assert entries[0] is entries[1] is entries[2]
    assert entries[3].spec.command[2] == "y"


@pytest.fixture(scope="module")
def schema():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema checks the schema; it is not installed")
    return jsonschema.Draft202012Validator(request_schema())


@pytest.mark.parametrize(("field", "value", "get", "expected"), CASES)
def test_the_schema_accepts_what_the_parser_accepts(schema, field, value, get, expected):
    raw = {"command": "train"} | {field: value}
    for whole in (raw, [raw], {"jobs": [raw], "defaults": {field: value}}):
        assert list(schema.iter_errors(whole)) == []


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"command": "x", "colour": 1},
        {"command": "x", "replicas": 0},
        {"command": "x", "replicas": {"min": 2}},
        {"command": "x", "replicas": "many"},
        {"command": "x", "devices": 1.5},
        {"command": "x", "devices": {"share": 1}},
        {"command": "x", "devices": {"profile": "big"}},
        {"command": "x", "groups": [{"topology": "spread"}]},
        {"command": "x", "alternatives": [{}]},
        {"command": "x", "alternatives": [{"queue": "q"}]},
        {"command": "x", "topology": {"required": True}},
        {"command": "x", "runtime": "rays"},
        {"command": "x", "runtime": {"ray": {"store": 1}}},
        {"command": "x", "placement": "tightest"},
        [],
        {"jobs": []},
    ],
)
def test_the_schema_refuses_what_the_parser_refuses(schema, raw):
    assert parse_request(raw)[1]
    assert not schema.is_valid(raw)


def test_the_schema_is_a_sound_schema_and_tells_about_every_field(schema):
    schema.check_schema(request_schema())
    assert set(job_schema()["properties"]) == set(FIELDS)
    assert all(p["description"] for p in job_schema()["properties"].values())


scalars = st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5)
scalars |= st.sampled_from(["²", "1h", "9" * 30, "low", "same_node", "nvlink", "40GiB", "8.²", "a=b", "\0"])
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
words = st.sampled_from(
    ["count", "vendor", "model", "memory", "capability", "link", "scope", "required", "wanted", "share", "profile"]
)
words |= st.sampled_from(["memory_limit", "min", "max"])
scalars |= st.sampled_from(["3g.40gb", "2..8", "best_fit", 0.25, 0.5, 2])
sized = st.dictionaries(words, json_values | scalars, max_size=3)
shapes = st.lists(
    st.dictionaries(st.sampled_from(sorted(SHAPE)), json_values | scalars | sized, max_size=3), max_size=3
)
shaped = json_values | sized | shapes
job_like = st.dictionaries(st.sampled_from(sorted(FIELDS)), shaped, max_size=4)
requests_like = job_like | st.lists(job_like, max_size=3) | st.fixed_dictionaries({"jobs": st.lists(job_like)})


@examples(100)
@given(json_values)
def test_any_value_is_read_or_refused(raw):
    entries, problems = parse_request(raw)
    assert bool(entries) != bool(problems)


@examples(100)
@given(requests_like, st.booleans())
def test_anything_like_a_job_is_read_or_refused_and_what_is_read_can_be_stored(raw, give_command):
    if give_command and isinstance(raw, dict) and "jobs" not in raw:
        raw = {"command": "x"} | raw
    entries, problems = parse_request(raw)
    assert bool(entries) != bool(problems)
    assert msgpack.decode(msgpack.encode(entries), type=tuple[NewJob, ...]) == entries


@examples(150)
@given(st.sampled_from(sorted(FIELDS)), shaped)
def test_any_value_of_any_field_is_read_or_refused(field, value):
    entries, problems = parse_request({"command": "x"} | {field: value})
    assert bool(entries) != bool(problems)
    assert all(p.field.startswith((field, "command")) for p in problems)  # a lease has no command
    assert msgpack.decode(msgpack.encode(entries), type=tuple[NewJob, ...]) == entries
