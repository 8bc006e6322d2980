"""Bills over HTTP and on the command line, of real jobs on a real server."""

import csv
import io
import json
import subprocess
import sys
import time

import pytest

from tests.server.harness import Jobs, Server, cluster_file, environment, until

PRICES = {"prices": [{"model": "SIM-80G", "per_hour": 3600}, {"resource": "cpu", "per_hour": 360}]}
BILLING = {"currency": "CNY", "time_zone": "Asia/Shanghai", "minimum_period": "0s", **PRICES}


@pytest.fixture(scope="module")
def billed(tmp_path_factory):
    declared = cluster_file(1, 4) | {"tenants": ["default", "vision"], "billing": BILLING}
    with Server(tmp_path_factory.mktemp("bill"), declared) as server:
        jobs = Jobs(server.client)
        jobs.ended(jobs.submit("sleep 1", devices=2, tenant="vision", name="train"))
        yield server


def lines(server, **query):
    found = server.client.bills(**query)
    return {(b.tenant, line.resource): line for b in found.bills for line in b.lines}, found


def test_a_job_costs_what_its_devices_and_cpus_cost_for_its_time(billed):
    found, answer = lines(billed)
    (bill,) = answer.bills
    device, cpu = found["vision", "device"], found["vision", "cpu"]
    held_s = device.quantity_ms / 2 / 1_000_000
    assert 1 <= held_s < 20
    assert device.amount == pytest.approx(2 * 100 * held_s, abs=1)
    assert cpu.amount == pytest.approx(10 * held_s, abs=1)
    assert (bill.total, bill.currency) == (device.amount + cpu.amount, "CNY")
    assert (device.job_name, device.model, device.user != "") == ("train", "SIM-80G", True)


def test_what_still_runs_is_billed_up_to_now(billed):
    jobs = Jobs(billed.client)
    running = jobs.submit("sleep 60", devices=1)
    jobs.state(running, "running")
    first = lines(billed, tenant="default")[0]["default", "device"].amount
    time.sleep(0.3)
    assert lines(billed, tenant="default")[0]["default", "device"].amount >= first + 20
    billed.client.cancel(running)
    jobs.ended(running)
    ended = lines(billed, tenant="default")[0]
    assert lines(billed, tenant="default")[0] == ended


def test_a_bill_in_sums_has_a_line_for_a_user_and_price(billed):
    jobs = Jobs(billed.client)
    jobs.ended(jobs.submit("sleep 0.1", devices=2, tenant="vision", name="second"))
    whole, sums = (
        billed.http("GET", f"/api/v1/bill?tenant=vision{more}").json()["bills"][0] for more in ("", "&summed=true")
    )
    assert len(whole["lines"]) > len(sums["lines"]) == 2
    assert {line["job_id"] for line in sums["lines"]} == {0}
    assert sum(line["amount"] for line in sums["lines"]) == sums["total"]


def test_another_month_has_nothing_and_a_wrong_one_is_named(billed):
    assert lines(billed, month="2020-02")[1].bills == []
    answer = billed.http("GET", "/api/v1/bill?month=2020-14")
    assert (answer.status, answer.json()["problems"][0]["field"]) == (422, "month")
    answer = billed.http("GET", "/api/v1/bill?tenant=visoin")
    assert (answer.status, answer.json()["hint"]) == (404, "did you mean 'vision'?")


def test_without_prices_there_are_no_bills(server):
    found = server.client.bills()
    assert (found.bills, found.priced) == ([], False)
    assert "no prices are declared" in penstock(server, "bill")


def test_the_bill_is_the_same_after_a_restart(billed):
    until(lambda: not billed.client.jobs().jobs, "all jobs have ended")
    before = lines(billed, tenant="vision")[0]
    billed.stop()
    billed.start()
    assert lines(billed, tenant="vision")[0] == before


def penstock(server, *words):
    program = [sys.executable, "-c", "from penstock.cli.main import main; main()"]
    command = [*program, *words, "--data", str(server.data.root)]
    told = subprocess.run(command, env=environment(server.root), capture_output=True, text=True, check=True, timeout=60)
    return told.stdout


def test_the_command_line_shows_it_to_people_programs_and_spreadsheets(billed):
    told = penstock(billed, "bill", "--tenant", "vision")
    assert "train" in told
    assert "CNY" in told
    found = json.loads(penstock(billed, "bill", "--tenant", "vision", "--json"))
    rows = list(csv.DictReader(io.StringIO(penstock(billed, "bill", "--tenant", "vision", "--csv"))))
    total = sum(round(float(row["amount"]) * 100) for row in rows)
    assert total == found["bills"][0]["total"]
