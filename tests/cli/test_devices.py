"""`penstock devices`: listed with what they do, closed and opened by hand."""

import pytest

from penstock.api.devices import DeviceRow
from penstock.cli.devices import power_text


@pytest.fixture
def closed(penstock):
    told = penstock("devices", "close", "n2", "1", "--reason", "fan [red]broken")
    assert (told.code, told.out) == (0, "device 1 of n2 is closed: penstock devices open n2 1\n")
    yield
    assert penstock("devices", "open", "n2", "1").out == "device 1 of n2 is open again\n"


def test_devices_are_listed_with_what_they_do(penstock, closed):
    head, _, *lines = penstock("devices", "n2").out.splitlines()
    assert head.split()[:4] == ["node", "device", "model", "state"]
    assert [line.split()[:2] for line in lines] == [["n2", str(index)] for index in range(len(lines))]
    assert ["closed: by " in line and ": fan [red]broken" in line for line in lines[:2]] == [False, True]
    assert " free " in lines[0]
    assert {line.split()[0] for line in penstock("devices", "list").out.splitlines()[2:]} == {"n1", "n2"}


@pytest.mark.parametrize(
    ("power_mw", "limit_mw", "shown"),
    [(310_000, 400_000, "310 of 400 W"), (310_000, None, "310 W"), (None, 400_000, "")],
)
def test_power_is_shown_with_its_limit(power_mw, limit_mw, shown):
    known = {"id": "n1/0", "node": "n1", "index": 0, "vendor": "nvidia", "model": "A100", "pool": "p", "state": "free"}
    row = DeviceRow(**known, memory_bytes=80 * 2**30, power_mw=power_mw, power_limit_mw=limit_mw)
    assert power_text(row) == shown


def test_programs_get_devices_as_the_api_has_them(penstock, closed):
    found = penstock("devices", "n*", "--json").json()["devices"]
    assert [one["id"] for one in found if one["state"] == "closed"] == ["n2/1"]
    assert "n2/1" in penstock("devices", "--output", "name").out.split()


def test_the_page_of_a_node_says_why_a_device_is_closed(penstock, closed):
    assert ": fan [red]broken" in penstock("nodes", "n2").out
    assert "device_closed" in penstock("alerts").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("devices", "n7"), 5, "there is no node 'n7'"),
        (("devices", "close", "n1", "99"), 5, "node n1 has no device 99"),
        (("devices", "open", "n1", "x"), 2, "INDEX: expected a whole number"),
    ],
)
def test_what_there_is_not_is_said(penstock, words, code, said):
    told = penstock(*words)
    assert (told.code, said in told.err) == (code, True), told.err


def test_help_says_how_devices_are_listed_and_closed(penstock):
    told = penstock("devices", "--help").out
    assert [word for word in ("list", "close", "open") if f"  {word} " not in told] == []
