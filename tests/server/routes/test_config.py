"""Changes of what is declared over HTTP: whatever is wrong with them is an error of the request."""

import json

import pytest

from penstock.server.routes.config import CHANGES_MAX


@pytest.mark.parametrize(
    "change",
    [
        {"set": ["settings.defrag=true"] * (CHANGES_MAX + 1)},
        {"set": ["settings.defrag=[1"]},
        {"set": ["settings.starvation_after=2026-99-99"]},
        {"config": {"nonsense": 1}},
        {"config": {}, "add": ["user"]},
    ],
    ids=["too many", "no YAML", "no date", "unknown", "no name"],
)
def test_a_change_that_cannot_be_read_is_an_error_that_says_why(server, change):
    answer = server.http("POST", "/api/v1/config", json.dumps({**change, "dry_run": True}).encode())
    assert (answer.status, answer.json()["code"]) == (422, "invalid_input")
    assert answer.json()["problems"]
