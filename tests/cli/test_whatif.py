"""`penstock whatif` on a log of a cluster."""

import json

import msgspec
import pytest

from penstock.core.model.cluster import Tenant
from penstock.core.model.prices import Billing, Price, Tariff
from penstock.sim.replay.replay import ORIGIN_MS
from penstock.testing.builders import config, node
from tests.cli.test_simulate import penstock
from tests.sim.replay.builders import job, ran, trace


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    records = []
    nodes = (node("a", 4, rack="r1"), node("b", 4, rack="r2"))
    ran(trace(*(job(i * 20, 200 + 10 * (i % 7), 1 + i % 4) for i in range(40)), nodes=nodes), on_records=records.extend)
    path = tmp_path_factory.mktemp("log") / "log.json"
    path.write_bytes(msgspec.json.encode(records))
    return path


def waits(log, *args):
    done = penstock("whatif", "--log", log, "--json", *args)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return [result["measures"]["whole"]["wait_ms"]["mean"] for result in found["results"]], found["agreement"]


def test_the_unchanged_log_agrees_with_what_happened(log):
    (real, again), agreed = waits(log)
    assert real == again
    assert agreed["in_order"] == agreed["decisions"] == agreed["same"]
    assert (agreed["start_off_ms"], agreed["makespan_off"]) == (0, 0.0)


def test_more_nodes_shorten_and_a_lost_rack_lengthens_the_wait(log):
    (real, more), _ = waits(log, "--nodes", "+1")
    assert more < real
    (real, lost), _ = waits(log, "--fail-rack", "r2")
    assert lost > real


def test_a_quota_holds_back(log):
    (real, held), _ = waits(log, "--set", "queue.default.max.devices=4")
    assert held > real


def test_it_is_said_how_well_the_replay_agrees(log, tmp_path):
    done = penstock("whatif", "--log", log, "-P", "fifo+strict", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    again, replayed = done.stdout.splitlines()[:2]
    assert again == "40 of 40 decisions come out the same from what each of them knew"
    assert replayed.startswith("the replay of what happened starts 40 of 40 attempts on the same nodes, all in the ")
    assert "fifo+strict" in done.stdout
    assert (tmp_path / "out" / "whatif.html").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--fail-rack", "r3"), "there is no rack 'r3'"),
        (("--set", "queue.nobody.weight=2"), "there is no queues 'nobody'"),
        (("--from", "yesterday"), "from is 'yesterday'"),
        (("--nodes", "-9"), "nodes is '-9'"),
    ],
)
def test_what_is_wrong_is_named(log, args, said):
    done = penstock("whatif", "--log", log, *args)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_file_that_is_no_log_is_named(tmp_path):
    (tmp_path / "log.json").write_text("[{}")
    done = penstock("whatif", "--log", tmp_path / "log.json")
    assert (done.returncode, "cannot be read as a log" in done.stderr) == (2, True)


@pytest.fixture(scope="module")
def priced_log(tmp_path_factory):
    """Return a log of a minute for `a` and then for `b` on the one device, at 1 EUR a second, later at 2."""
    prices = Price("device", 3_600_000_000), Price("device", 7_200_000_000, ORIGIN_MS + 90_000)
    rules = config(billing=Billing(Tariff(prices, minimum_ms=0)), tenants=(Tenant("a"), Tenant("b")))
    jobs = (job(0, 60, 1, tenant="a"), job(0, 60, 1, tenant="b"))
    records = []
    ran(trace(*jobs, nodes=(node("n", 1),), rules=rules), on_records=records.extend)
    path = tmp_path_factory.mktemp("priced") / "log.json"
    path.write_bytes(msgspec.json.encode(records))
    return path


def test_what_it_would_cost_is_told_by_tenant(priced_log, tmp_path):
    done = penstock("whatif", "--log", priced_log, "--nodes", "+1", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    at = next(i for i, words in enumerate(lines) if words[:2] == ["billed,", "EUR"])
    rows = [words for words in lines[at + 1 :] if words and words[0] in ("all", "a", "b")]
    assert rows == [["all", "150.00", "120.00"], ["b", "90.00", "60.00"], ["a", "60.00", "60.00"]]
    assert "What it would cost" in (tmp_path / "out" / "whatif.html").read_text()


def test_programs_are_told_the_smallest_unit(priced_log, log):
    def costs(path):
        results = json.loads(penstock("whatif", "--log", path, "--json").stdout)["results"]
        return [result.get("costs") for result in results]

    expected = {"currency": "EUR", "digits": 2, "total": 15_000, "by_tenant": {"a": 6_000, "b": 9_000}}
    assert costs(priced_log) == [expected, expected]
    assert costs(log) == [None, None]
