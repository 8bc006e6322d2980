"""Quotas and pools on the command line: of a queue in one pool, with the alert that the server wrote."""

import pytest

from penstock.cli.pools import power_text
from penstock.core.model.cluster import Pool
from penstock.core.model.events import QuotaNoted
from penstock.core.status.pools import pool_stats
from penstock.testing.builders import node
from penstock.testing.harness import World
from tests.cli.conftest import Terminal
from tests.server.harness import Server, cluster_file, until


@pytest.fixture
def server(tmp_path):
    declared = cluster_file(1, 4)
    declared["queues"] = [{"name": "default", "max": {"default/devices": 4}, "alerts": [50]}]
    declared["queues"].append({"name": "full", "guaranteed": {"devices": 1}})
    declared["tenants"] = ["default", {"name": "t", "max": {"devices": 1}}]
    with Server(tmp_path / "data", declared) as found:
        yield found


def noted(client):
    events = (record.event for record in client.all_events())
    return [(one.holder, one.resource, one.percent) for one in events if isinstance(one, QuotaNoted)]


def test_an_alert_is_written_once_and_shown_with_its_quota(server, tmp_path):
    job = {"command": "sleep 60", "devices": 2, "cpus": 1, "memory": "64MiB", "tenant": "default"}
    server.client.submit(job)
    until(lambda: noted(server.client), "the alert is written")
    assert noted(server.client) == [("default", "default/devices", 50)]
    penstock = Terminal(tmp_path, server.data.root, server.root)
    rows = {(row["name"], row["resource"]): row for row in penstock("quota", "--json").json()["quotas"]}
    row = rows["default", "default/devices"]
    assert (row["used"], row["percent"], row["alerted"], row["alerted_ms"] > 0) == (2_000, 50, 50, True)
    assert not rows["t", "devices"].get("alerted")
    assert "50 % 20" in penstock("quota").out
    (pool,) = penstock("pools", "--json").json()["pools"]
    assert (pool["name"], pool["total_milli"], pool["allocated_milli"]) == ("default", 4_000, 2_000)
    assert pool["devices"] == {"available": 2, "allocated": 2, "reserved": 0, "maintenance": 0, "failed": 0}
    assert "2 available, 2 allocated" in penstock("pools").out


def test_a_guarantee_in_full_use_is_no_alarm_and_a_full_maximum_is_one(server, tmp_path):
    job = {"command": "sleep 60", "devices": 1, "cpus": 1, "memory": "64MiB"}
    ids = server.client.submit(job | {"tenant": "t", "queue": "full"}).jobs
    until(lambda: server.client.job(ids[0].id).state == "running", "the job runs")
    lines = [line.split() for line in Terminal(tmp_path, server.data.root, server.root)("quota").out.splitlines()]
    (full,) = [line for line in lines if line[:3] == ["queue", "full", "devices"]]
    (tenant,) = [line for line in lines if line[:3] == ["tenant", "t", "devices"]]
    assert " ".join(full).endswith("100 % of guaranteed")
    assert "100 % !" in " ".join(tenant)


@pytest.mark.parametrize(("limit_mw", "shown"), [(2_000_000, "700 of 2,000 W"), (0, "")])
def test_pools_show_the_power_of_devices_in_use_where_it_is_limited(limit_mw, shown):
    w = World(node("a", 1), pools=(Pool("default", power_limit_mw=limit_mw),))
    w.run(w.submit(1))
    (pool,) = pool_stats(w.snapshot(), w.now)
    assert power_text(pool) == shown
