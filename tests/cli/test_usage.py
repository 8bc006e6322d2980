"""`penstock usage`: what was held and used, and with `--waste` what was not."""

import csv

import pytest

from tests.server.harness import Jobs


@pytest.mark.parametrize(("words", "column"), [((), "GiB-hours"), (("--waste",), "not known")])
def test_usage_and_waste_are_shown_and_written(penstock, server, tmp_path, words, column):
    jobs = Jobs(server.client)
    job = jobs.ended(jobs.submit("sleep 0.2", devices=1)).id
    shown = penstock("usage", "--by", "tenant,job", *words)
    assert (shown.code, column in shown.out) == (0, True)
    (row,) = [one for one in penstock("usage", "--by", "job", *words, "--json").json()["rows"] if one["job"] == job]
    assert row["device_milli_ms"] >= 200_000
    assert penstock("usage", "--by", "job", *words, "--out", "usage.csv").code == 0
    with (tmp_path / "usage.csv").open() as file:
        (line,) = [line for line in csv.DictReader(file) if line["job"] == str(job)]
    assert float(line["device_hours"]) == pytest.approx(row["device_milli_ms"] / 3.6e9)


def test_waste_says_its_units(penstock, server):
    jobs = Jobs(server.client)
    jobs.ended(jobs.submit("true", devices=1))
    assert penstock("usage", "--waste").out.endswith("all times in device-hours\n")


def test_a_span_without_use_says_so(penstock):
    told = penstock("usage", "--waste", "--until", "2020-01-02T00:00Z", "--since", "2020-01-01T00:00Z")
    assert "no use" in told.out
