"""Jobs that ask for a slice of a device get the share that their pool makes of it."""

import pytest

from penstock.core.config.cluster import declaration, parse_cluster
from penstock.core.config.job import parse_request
from penstock.core.lifecycle.slots import with_slots
from penstock.core.model.cluster import Pool
from penstock.core.model.resources import DeviceAsk
from penstock.testing.builders import GIB, cluster_file, config
from penstock.testing.server import InProcessServer

POOLS = config(pools=(Pool("default", replicas_per_device=4), Pool("dev", replicas_per_device=2), Pool("plain")))


def asked(**fields):
    entries, problems = parse_request({"command": "true", "devices": {"share": "slice"}} | fields)
    assert problems == []
    return with_slots(entries, POOLS)


@pytest.mark.parametrize(("pool", "milli"), [("default", 250), ("dev", 500)])
def test_a_slice_is_the_part_that_its_pool_makes_of_a_device(pool, milli):
    (entry,), problems = asked(pool=pool)
    assert (entry.spec.ask.each.devices, problems) == (DeviceAsk(1, share_milli=milli), [])


def test_each_group_and_each_alternative_gets_it():
    (entry,), problems = asked(
        pool="dev",
        groups=[{"devices": {"share": "slice", "memory_limit": "2GiB"}}, {"devices": 1}],
        alternatives=[{"devices": {"share": "slice", "vendor": "amd"}}],
    )
    others = [group.each.devices for group in entry.spec.ask.others]
    assert others == [DeviceAsk(1, share_milli=500, share_memory_bytes=2 * GIB), DeviceAsk(1)]
    (other,) = entry.spec.alternatives
    assert (other.each.devices, problems) == (DeviceAsk(1, "amd", share_milli=500), [])


def test_a_pool_that_makes_none_is_named_with_those_that_do():
    fields = {"pool": "plain", "devices": 1, "alternatives": [{"devices": {"share": "slice"}}]}
    _, (problem,) = asked(**fields)
    assert (problem.field, problem.message) == (
        "alternatives[0].devices.share",
        "pool 'plain' divides no device into slices",
    )
    assert problem.hint == "say which part, such as share: 0.25; pools that do: default, dev"


def test_jobs_that_ask_for_none_are_left_as_they_are():
    entries, _ = parse_request([{"command": "true", "devices": 0.5}, {"command": "true"}])
    assert with_slots(entries, POOLS) == (entries, [])


@pytest.mark.parametrize(("raw", "parts"), [(4, 4), ("inference", 4), ("development", 2), (64, 64)])
def test_the_parts_of_a_pool_are_read_and_written_exactly(raw, parts):
    file, problems = parse_cluster({"pools": [{"name": "p", "replicas_per_device": raw}]})
    assert (problems, file.config.pools[0].replicas_per_device) == ([], parts)
    assert parse_cluster(declaration(file.config))[0].config == file.config


@pytest.mark.parametrize("raw", [0, 65, 2.5, "training", True, [2]])
def test_parts_that_make_no_sense_are_refused(raw):
    (problem,) = parse_cluster({"pools": [{"name": "p", "replicas_per_device": raw}]})[1]
    assert (problem.field, "expected a whole number from 1 to 64" in problem.message) == (
        "pools[0].replicas_per_device",
        True,
    )


def test_as_many_slices_run_on_a_device_as_its_pool_makes_of_it():
    cluster = cluster_file(nodes=1, devices=1) | {"pools": [{"name": "default", "replicas_per_device": 4}]}
    with InProcessServer(cluster) as server:
        jobs = [server.submit({"command": "sleep 90", "devices": {"share": "slice"}}) for _ in range(5)]
        assert [server.client.job(one).state for one in jobs] == ["running"] * 4 + ["waiting"]
