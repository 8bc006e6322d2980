"""When a waiting job starts, in one wording."""

import pytest

from penstock.cli.explain import start_lines
from penstock.core.model.explanation import Explanation
from penstock.core.model.start_text import ASSUMED, estimate_text, latest_text

MINUTE = 60_000


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((0, 0, 0), "unknown"),
        ((1, 2, 60), "in about 2m 0s (8 of 10 such starts: in 1m 0s to 1h 0m)"),
        ((0, 2, 60), "in about 2m 0s (8 of 10 such starts: within 1h 0m)"),
        ((1, 2, None), "in about 2m 0s (8 of 10 such starts: in 1m 0s or later)"),
    ],
)
def test_an_estimate_is_a_likely_time_and_an_interval(times, text):
    now = 10**12
    early, likely, late = times
    at = [now + part * MINUTE if part is not None and likely else 0 for part in (early, likely, late)]
    assert estimate_text(now, *at) == text


def test_an_upper_bound_says_that_it_is_one_and_what_it_assumes():
    assert latest_text(5, 5 + MINUTE) == f"in 1m 0s at the latest, {ASSUMED}"
    assert latest_text(5, 5) == f"now at the latest, {ASSUMED}"


def test_explain_has_a_line_for_the_estimate_and_one_for_the_bound():
    now = 10**12
    found = Explanation(7, "waiting", "no_fit", "", start_note="unknown: 1 running job has no time limit")
    assert start_lines(found, now) == [
        "not estimated yet: penstock eta 7",
        "no latest start: 1 running job has no time limit",
    ]
    assert start_lines(Explanation(7, "running", "running", ""), now) == []
