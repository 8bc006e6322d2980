"""Imports as objects: applied, they are the configuration that was imported, but for what the report names."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from penstock.core.model import cluster as c
from penstock.core.model.cluster import ClusterConfig
from penstock.engines.kubernetes.objects.penstock import ComputePool, Queue
from penstock.engines.kubernetes.operator.declaring import declared
from penstock.engines.kubernetes.operator.objectsof import objects_of
from penstock.migrate import kueue, volcano, yunikorn
from penstock.migrate.errors import ImportFault
from penstock.migrate.report import MigrationReport
from penstock.migrate.toconfig import to_config
from tests.engines.kubernetes.test_crds import validate
from tests.migrate.helpers import SAMPLES
from tests.migrate.test_toconfig import sources
from tests.migrate.test_tovolcano import config_of
from tests.properties import examples

SOURCES = {"kueue": kueue, "volcano": volcano, "yunikorn": yunikorn}
TYPES: dict[str, Any] = {"Queue": Queue, "ComputePool": ComputePool}


def applied(objects: Any, base: ClusterConfig | None = None) -> ClusterConfig:
    """Return the configuration once these objects are applied to a cluster."""
    for one in objects:
        validate(one["kind"], {"spec": one["spec"]})
    kinds = {kind: [one for one in objects if one["kind"] == kind] for kind in TYPES}
    read = {kind: msgspec.json.decode(json.dumps(found), type=list[TYPES[kind]]) for kind, found in kinds.items()}
    found = declared(base or ClusterConfig(), read["Queue"], read["ComputePool"])
    assert found.problems == {}
    return found.config


def as_objects(queue: c.Queue) -> c.Queue:
    """Return a queue without what a Queue does not say."""
    usual = c.Queue(queue.name)
    names = ("policy", "min_runtime_ms", "max_waiting", "idle", "alerts")
    return replace(queue, **{name: getattr(usual, name) for name in names})


def same_queues(config: ClusterConfig, wanted: ClusterConfig) -> None:
    found = {queue.name: queue for queue in config.queues}
    found.pop(c.DEFAULT_QUEUE, None)
    assert found == {queue.name: as_objects(queue) for queue in wanted.queues if queue.name != c.DEFAULT_QUEUE}


@pytest.mark.parametrize("source", SOURCES)
def test_an_import_is_the_same_as_a_file_and_as_objects(source: str) -> None:
    wanted = SOURCES[source].read([SAMPLES / source / "queues.yaml"]).config
    objects, not_said = objects_of(wanted)
    same_queues(applied(objects), wanted)
    named = {one.key for one in not_said}
    usual = c.Queue("x")  # type: ignore[arg-type]
    for queue in wanted.queues:
        assert (f"queues.{queue.name}.policy" in named) == (queue.policy != usual.policy)
    assert ("root_policy" in named) == (wanted.root_policy != ClusterConfig().root_policy)
    assert ("tenants" in named) == (wanted.tenants != ClusterConfig().tenants)


@given(sources())
@examples(150)
def test_whatever_is_imported_is_the_same_as_objects(source: Any) -> None:
    try:
        wanted = to_config(source, MigrationReport()).config
    except ImportFault:
        return  # it contradicts itself
    objects, _ = objects_of(wanted)
    same_queues(applied(objects), wanted)


@pytest.mark.parametrize("rule", ["never", "reclaim", "lower_priority"])
def test_whom_a_queue_may_ask_to_leave_is_in_the_object(rule: str) -> None:
    config = config_of(f"queues: [{{name: q, preemption: {rule}, lend: {{}}, guaranteed: {{storage: 3GiB, jobs: 2}}}}]")
    objects, not_said = objects_of(config)
    assert not_said == []
    queue = applied(objects).queue_by_name["q"]  # type: ignore[index]
    assert (queue.preemption, queue.lend, dict(queue.guaranteed)) == (rule, (), {"storage": 3 * 2**30, "jobs": 2})


def test_what_objects_cannot_carry_is_named_with_the_command_that_sets_it() -> None:
    config = config_of("""
root_policy: capacity
tenants: [{name: default}, {name: vision}]
settings: {starvation_after: 2h}
pools:
- {name: default, placement: worst_fit}
- {name: A_100, kind: cpu, backfill: none, virtualization: mig}
- {name: b, kind: npu}
queues:
- {name: Lab_1, policy: fifo, min_runtime: 1h, max_waiting: 5, alerts: [50], idle: {after: 1h}}
- {name: q, parent: Lab_1, max: {b/devices: 4, devices: 2}}
""")
    objects, not_said = objects_of(config)
    assert {one.key: (one.value, one.lost) for one in not_said} == {
        "root_policy": ("capacity", True),
        "tenants": ("[2]", True),
        "settings": ("{starvation_after}", True),
        "queues.Lab_1.name": ("Lab_1", False),
        "queues.Lab_1.policy": ("fifo", True),
        "queues.Lab_1.min_runtime": ("1h", True),
        "queues.Lab_1.max_waiting": ("5", True),
        "queues.Lab_1.alerts": ("[1]", True),
        "queues.Lab_1.idle": ("{after}", True),
        "queues.q.max.b/devices": ("4", True),
        "pools.default.placement": ("worst_fit", True),
        "pools.A_100.name": ("A_100", False),
        "pools.A_100.kind": ("cpu", True),
        "pools.A_100.backfill": ("none", True),
        "pools.b.virtualization": ("any", True),
    }
    whys = {one.key: one.why for one in not_said}
    assert whys["root_policy"] == "no object says it: penstock admin set root_policy=capacity"
    assert whys["queues.Lab_1.policy"] == "a Queue does not say it: penstock admin set queue.lab-1.policy=fifo"
    assert whys["pools.A_100.backfill"].endswith("penstock admin set pool.a-100.backfill=none")
    assert whys["queues.Lab_1.idle"].endswith("penstock admin set queue.lab-1.idle=VALUE")
    found = applied(objects)
    assert found.queue_by_name["q"].parent == "lab-1"  # type: ignore[index]
    assert dict(found.queue_by_name["q"].max) == {"devices": 2000}  # type: ignore[index]
    kinds = {pool.name: (pool.kind, pool.virtualization) for pool in found.pools}
    assert kinds == {"default": ("mixed", "any"), "a-100": ("mixed", "mig"), "b": ("npu", "none")}


def test_a_queue_has_no_more_quotas_than_its_definition_allows() -> None:
    models = ", ".join(f"'devices:M{n}': 1" for n in range(70))
    objects, not_said = objects_of(config_of(f"queues: [{{name: q, max: {{{models}}}}}]"))
    assert len(not_said) == 6
    assert "64 resources at most" in not_said[0].why
    assert len(applied(objects).queue_by_name["q"].max) == 64  # type: ignore[index]
